//! Running a WebAssembly module: in this process, within its own memory, and with nothing of the
//! host but its inputs and a folder that exists for it alone.
//!
//! # Invariants
//! - The same module, arguments, inputs and workunit give the same outputs on every host; what a
//!   host cannot do hands the replica back instead of changing what it produces.
//! - Memory, files, CPU time and instructions are bounded.
//! - A module that is told to stop does so wherever it is in its own code.

mod checkpoint;
mod content;
mod descriptors;
mod engine;
mod errno;
mod files;
mod gleaner_calls;
mod guest;
mod halt;
mod interrupts;
mod limiter;
mod limits;
mod outline;
mod random;
mod state;
mod wasi;
mod wire;

use gleaner_protocol::Digest;
use gleaner_protocol::job::STDERR;
use gleaner_protocol::limits::bounded_reason;
use wasmtime::{InstancePre, Store, Trap, UpdateDeadline, WasmBacktrace};

pub(super) use engine::ReadyModules;
pub use engine::check_module;
pub(super) use wire::Wire;

use super::folder::TaskFolder;
use super::order_files::OrderFiles;
use super::outputs::Collector;
use super::substitute::substitute;
use super::{FrameBuffer, Reply, StagedInput, WasmOrder, thread_cpu};
use crate::harvest::Product;
use crate::run::scheduling_class;
use checkpoint::Checkpoints;
use content::Content;
use descriptors::Descriptors;
use engine::Unready;
use files::{Files, NodeIx, Trouble};
use halt::Halt;
use interrupts::Ticks;
use limiter::Limiter;
use random::Random;
use state::{Clock, State, Tail, seed_of};

/// The module's name, as its first argument.
const PROGRAM: &str = "module";

/// Runs one module to its end, and returns what the agent has said meanwhile and does not concern
/// it.
pub(super) fn run(
    modules: &mut ReadyModules,
    folder: &mut TaskFolder,
    collector: &Collector,
    wire: Wire,
    order: &WasmOrder,
    files: OrderFiles,
) -> (Reply, FrameBuffer) {
    let (mut reply, wire) = attempt(modules, folder, collector, wire, order, files);
    folder.clear();
    if let Reply::Failed { reason, .. } | Reply::CannotRun(reason) = &mut reply {
        // Names in a module are as long as it likes.
        *reason = bounded_reason(std::mem::take(reason));
    }
    (reply, wire.into_frames())
}

fn attempt(
    modules: &mut ReadyModules,
    folder: &mut TaskFolder,
    collector: &Collector,
    wire: Wire,
    order: &WasmOrder,
    mut files: OrderFiles,
) -> (Reply, Wire) {
    let (module, fresh) = match modules.get(order, &mut files, collector.spool()) {
        Ok(ready) => ready,
        Err(Unready::Module(reason)) => return (Reply::Failed { reason, cpu_us: 0 }, wire),
        Err(Unready::Host(reason)) => return (Reply::CannotRun(reason), wire),
    };
    if let Some(fresh) = fresh {
        wire.tell(&Reply::Compiled { digest: fresh.digest, bytes: fresh.bytes });
    }
    let before = thread_cpu();
    let cpu_us = || (thread_cpu() - before).as_micros();
    let (state, stdout) = match prepare(folder, wire, order, files) {
        Ok(state) => state,
        Err((reason, wire)) => return (Reply::CannotRun(reason), *wire),
    };
    let mut store = Store::new(module.module().engine(), state);
    let ended = perform(&mut store, &module, order);
    // With it goes the module's memory.
    let mut state = store.into_data();
    if matches!(ended, Err(End::Halt(Halt::Stopped))) {
        scheduling_class::become_idle();
    }
    // A module's last words reach the agent also where it is stopped.
    state.wire.tell_checkpoint(&mut state.checkpoints.pending, true);
    let reply = match ended {
        Ok(()) | Err(End::Halt(Halt::Exit(0))) => match collect(&state, stdout, collector, order) {
            Ok(files) => Reply::Done { files, cpu_us: cpu_us(), measured: None },
            Err(reason) => Reply::Failed { reason, cpu_us: cpu_us() },
        },
        Err(End::Halt(Halt::Stopped)) => Reply::Stopped,
        Err(End::Halt(Halt::Host(reason))) => Reply::CannotRun(reason),
        Err(end) => {
            let mut reason = describe(&end, &state.stderr.text());
            if state.limiter.has_refused() {
                let most = order.memory_mib;
                reason.push_str(&format!(
                    "; it asked for more than its {most} MiB: raise memory_mib"
                ));
            }
            Reply::Failed { reason, cpu_us: cpu_us() }
        }
    };
    (reply, state.wire)
}

/// Puts together what the module will see; the file of its standard output beside it.
fn prepare(
    folder: &mut TaskFolder,
    wire: Wire,
    order: &WasmOrder,
    mut opened: OrderFiles,
) -> Result<(State, NodeIx), (String, Box<Wire>)> {
    let refuse = |reason: String, wire: Wire| Err((reason, Box::new(wire)));
    let scratch = match folder.enter() {
        Ok(path) => path.to_owned(),
        Err(error) => return refuse(format!("cannot make a task's folder: {error}"), wire),
    };
    let mut files = Files::new(scratch, u64::from(order.disk_mib) << 20);
    for input in &order.inputs {
        if let Err(reason) = stage(&mut files, input, &mut opened) {
            return refuse(format!("input {:?}: {reason}", input.name), wire);
        }
    }
    let Ok(stdout) = files.add_nameless() else {
        return refuse("more inputs than a module can have".into(), wire);
    };
    let descriptors = Descriptors::new(&mut files, stdout);
    let wants_errors = order.outputs.iter().any(|name| name == STDERR);
    let stderr_node = match wants_errors.then(|| files.add_nameless()).transpose() {
        Ok(node) => node,
        Err(_) => return refuse("more inputs than a module can have".into(), wire),
    };
    if let Some(node) = stderr_node {
        // It stays until it is collected, though no descriptor of the module leads to it.
        files.open(node);
    }
    let index = order.index.to_string();
    let item = order.item.as_deref().unwrap_or(&index);
    let chunk = order.chunk.as_deref();
    let arguments = order.arguments.iter();
    let arguments = arguments.map(|argument| substitute(argument, &index, item, chunk));
    let saved = order.checkpoint.as_deref().and_then(checkpoint::decode);
    let (clock, drawn, found) = match saved {
        Some((clock, drawn, bytes)) => (clock, drawn, Some(bytes)),
        None => (Clock::default(), 0, None),
    };
    let state = State {
        args: std::iter::once(PROGRAM.to_owned()).chain(arguments).collect(),
        files,
        descriptors,
        clock,
        random: Random::new(seed_of(&order.workunit), drawn),
        stderr: Tail::default(),
        stderr_node,
        memory: None,
        limiter: Limiter::new(order.memory_mib),
        checkpoints: Checkpoints { found, pending: None },
        wire,
    };
    Ok((state, stdout))
}

fn stage(files: &mut Files, input: &StagedInput, opened: &mut OrderFiles) -> Result<(), String> {
    let file = opened.next().map_err(|error| error.to_string())?;
    let bytes = file.metadata().map_err(|error| error.to_string())?.len();
    let found = Digest::of_reader(&file).map_err(|error| error.to_string())?;
    if found != input.digest {
        return Err(format!("the cached file is damaged: it holds {found}, not {}", input.digest));
    }
    files
        .add_input(&input.name, file, bytes)
        .map_err(|_| "more files than a module can have".into())
}

/// How a module ended, if not by coming to its end.
enum End {
    /// From our side.
    Halt(Halt),
    /// By itself.
    Trap(wasmtime::Error),
}

impl From<wasmtime::Error> for End {
    fn from(error: wasmtime::Error) -> Self {
        match error.downcast_ref::<Halt>() {
            Some(halt) => Self::Halt(halt.clone()),
            None => Self::Trap(error),
        }
    }
}

impl From<Halt> for End {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

fn perform(
    store: &mut Store<State>,
    module: &InstancePre<State>,
    order: &WasmOrder,
) -> Result<(), End> {
    interrupts::handle().map_err(|error| Halt::Host(format!("no signal handler: {error}")))?;
    store.limiter(|state| &mut state.limiter);
    if let Some(fuel) = order.fuel {
        store.set_fuel(fuel)?;
    }
    let (begin, cpu_s) = (thread_cpu(), order.cpu_s);
    store.epoch_deadline_callback(move |mut context| {
        let state: &mut State = context.data_mut();
        state.wire.check().inspect_err(|_| scheduling_class::become_ordinary())?;
        state.wire.tell_checkpoint(&mut state.checkpoints.pending, false);
        if (thread_cpu() - begin).as_micros() >= cpu_s.saturating_mul(1_000_000) {
            return Err(Halt::OutOfTime(cpu_s).into());
        }
        Ok(UpdateDeadline::Continue(1))
    });
    store.set_epoch_deadline(1);
    // What was said before the deadline stood would otherwise wait for the next tick.
    store.data_mut().wire.check()?;
    let _ticks = Ticks::start();
    let instance = module.instantiate(&mut *store)?;
    let start = instance.get_typed_func::<(), ()>(&mut *store, engine::START)?;
    start.call(&mut *store, ()).map_err(|error| match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => End::Halt(Halt::OutOfFuel(order.fuel.unwrap_or(0))),
        _ => End::from(error),
    })
}

/// Calls that a trap's description names.
const FRAMES_MAX: usize = 4;

fn describe(end: &End, stderr: &str) -> String {
    let mut text = match end {
        End::Halt(halt) => halt.to_string(),
        End::Trap(error) => describe_trap(error),
    };
    if !stderr.is_empty() {
        text.push_str("; standard error ends: ");
        text.push_str(stderr);
    }
    text
}

fn describe_trap(error: &wasmtime::Error) -> String {
    let mut text = match error.downcast_ref::<Trap>() {
        Some(trap) => {
            let what = trap.to_string();
            format!("it trapped: {}", what.strip_prefix("wasm trap: ").unwrap_or(&what))
        }
        None => format!("it cannot run: {}", error.root_cause()),
    };
    let Some(calls) = error.downcast_ref::<WasmBacktrace>() else { return text };
    for (place, frame) in calls.frames().iter().take(FRAMES_MAX).enumerate() {
        text.push_str(if place == 0 { ", in " } else { ", called by " });
        match frame.func_name() {
            Some(name) => text.push_str(name),
            None => text.push_str(&format!("function {}", frame.func_index())),
        }
    }
    text
}

fn collect(
    state: &State,
    stdout: NodeIx,
    collector: &Collector,
    order: &WasmOrder,
) -> Result<Vec<Product>, String> {
    let mut products = vec![keep(state, stdout, collector, order.token, "stdout")?];
    if let Some(node) = state.stderr_node {
        products.push(keep(state, node, collector, order.token, STDERR)?);
    }
    for name in order.outputs.iter().filter(|name| *name != STDERR) {
        let found =
            state.files.resolve(Files::ROOT, name).and_then(|place| state.files.look(&place));
        let node = found.map_err(|_| format!("output {name:?} was not written"))?;
        products.push(keep(state, node, collector, order.token, name)?);
    }
    Ok(products)
}

fn keep(
    state: &State,
    node: NodeIx,
    collector: &Collector,
    token: u64,
    name: &str,
) -> Result<Product, String> {
    match state.files.content(node) {
        Ok(Content::Memory(bytes)) => collector.keep_bytes(token, name, bytes.clone()),
        Ok(content) => match content.scratch_path() {
            Some(path) => collector.keep_file(token, path, name),
            None => Err(format!("output {name:?} is an input, which nothing was written to")),
        },
        Err(Trouble::Errno(_)) => Err(format!("output {name:?} is no regular file")),
        Err(Trouble::Halt(halt)) => Err(halt.to_string()),
    }
}
