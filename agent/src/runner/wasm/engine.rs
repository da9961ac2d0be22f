//! Modules: compiled, loaded, and kept ready.
//!
//! # Invariants
//! - Compiled code is loaded only where its hash is the one that the agent named, which kept it
//!   in its own folder; a process that could change it there could change the agent itself.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use gleaner_protocol::Digest;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Config, Engine, ExternType, InstancePre, Linker, Module, UnknownImportError};

use super::interrupts::CompileLimit;
use super::limits::{LOADED_MAX, STACK_BYTES};
use super::state::State;
use super::{gleaner_calls, wasi};
use crate::runner::order::{CompiledModule, WasmOrder};
use crate::runner::outputs::{COMPILED_NAME, spool_path};

/// One engine without and one with counted instructions: their code differs.
static ENGINES: [OnceLock<Engine>; 2] = [OnceLock::new(), OnceLock::new()];

/// Has all running modules look up. Async-signal-safe.
pub(super) fn raise_epochs() {
    for engine in ENGINES.iter().filter_map(OnceLock::get) {
        engine.increment_epoch();
    }
}

fn engine(counts: bool) -> Result<&'static Engine, String> {
    let place = &ENGINES[usize::from(counts)];
    if let Some(engine) = place.get() {
        return Ok(engine);
    }
    let engine = Engine::new(&config(counts)).map_err(|error| format!("no engine: {error:#}"))?;
    Ok(place.get_or_init(|| engine))
}

/// The same module and the same input give the same bytes on every host.
fn config(counts: bool) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .consume_fuel(counts)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        .wasm_custom_page_sizes(false)
        .max_wasm_stack(STACK_BYTES);
    config
}

/// Why a module is not ready.
#[derive(Debug)]
pub(super) enum Unready {
    /// It never will be, on any host.
    Module(String),
    /// This host could not.
    Host(String),
}

/// A module that was compiled just now, for the agent to keep.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
}

/// Modules that are ready to start.
#[derive(Default)]
pub(in crate::runner) struct Shelf {
    /// What was used last comes last.
    ready: Vec<((Digest, bool), InstancePre<State>)>,
    linkers: [Option<Linker<State>>; 2],
}

impl Shelf {
    /// The module of an order, ready to start; and whether it had to be compiled.
    pub(super) fn get(
        &mut self,
        order: &WasmOrder,
        spool: &Path,
    ) -> Result<(InstancePre<State>, Option<Fresh>), Unready> {
        let counts = order.fuel.is_some();
        let key = (order.module.digest, counts);
        if let Some(place) = self.ready.iter().position(|(other, _)| *other == key) {
            let found = self.ready.remove(place);
            let module = found.1.clone();
            self.ready.push(found);
            return Ok((module, None));
        }
        let engine = engine(counts).map_err(Unready::Host)?;
        let loaded = match &order.compiled {
            Some(compiled) => load(engine, compiled)?,
            None => None,
        };
        let (module, fresh) = match loaded {
            Some(module) => (module, None),
            None => compile(engine, order, spool)?,
        };
        let module = self.prepare(engine, counts, &module)?;
        if self.ready.len() >= LOADED_MAX {
            self.ready.remove(0);
        }
        self.ready.push((key, module.clone()));
        Ok((module, fresh))
    }

    fn prepare(
        &mut self,
        engine: &Engine,
        counts: bool,
        module: &Module,
    ) -> Result<InstancePre<State>, Unready> {
        let place = &mut self.linkers[usize::from(counts)];
        let linker = match place {
            Some(linker) => linker,
            None => place.insert(linker(engine).map_err(|error| {
                Unready::Host(format!("the calls of a module cannot be offered: {error:#}"))
            })?),
        };
        if !module.exports().any(|export| export.name() == START && export.ty().func().is_some()) {
            return Err(Unready::Module(format!(
                "the module exports no function {START:?}: compile it as a program, not as a library"
            )));
        }
        linker.instantiate_pre(module).map_err(|error| {
            let missing = missing_imports(linker.clone(), module);
            if missing.is_empty() {
                return Unready::Module(format!("the module does not fit: {error:#}"));
            }
            Unready::Module(format!(
                "the module imports what is not offered: {}; compile it for wasm32-wasip1, without \
                 threads and sockets",
                missing.join(", ")
            ))
        })
    }
}

/// Where a module begins.
pub(super) const START: &str = "_start";

fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasi::link(&mut linker)?;
    gleaner_calls::link(&mut linker)?;
    Ok(linker)
}

/// Names of imports that an error lists at most.
const NAMED_MAX: usize = 8;

/// Names what is missing, and not the first one only.
fn missing_imports(mut linker: Linker<State>, module: &Module) -> Vec<String> {
    let mut missing = Vec::new();
    while let Err(error) = linker.instantiate_pre(module) {
        let Some(unknown) = error.downcast_ref::<UnknownImportError>() else { break };
        if missing.len() == NAMED_MAX {
            missing.push("and more".into());
            break;
        }
        missing.push(format!("{}.{}", unknown.module(), unknown.name()));
        // Offered for the sake of the next one's name.
        let ExternType::Func(ty) = unknown.ty() else { break };
        let offered = linker.func_new(unknown.module(), unknown.name(), ty, |_, _, _| Ok(()));
        if offered.is_err() {
            break;
        }
    }
    missing
}

/// Loads what was compiled before; none where it is for another processor or runtime.
fn load(engine: &Engine, compiled: &CompiledModule) -> Result<Option<Module>, Unready> {
    let bytes = fs::read(&compiled.path)
        .map_err(|error| Unready::Host(format!("the compiled module cannot be read: {error}")))?;
    if Digest::of(&bytes) != compiled.digest {
        return Err(Unready::Host("the compiled module is damaged".into()));
    }
    Ok(deserialize(engine, &bytes))
}

#[expect(unsafe_code, reason = "loading native code is what it says")]
fn deserialize(engine: &Engine, bytes: &[u8]) -> Option<Module> {
    // SAFETY: the bytes are, by their hash, what a runner of this agent compiled and the agent
    // kept in a folder that nobody else can write in.
    unsafe { Module::deserialize(engine, bytes) }.ok()
}

fn compile(
    engine: &Engine,
    order: &WasmOrder,
    spool: &Path,
) -> Result<(Module, Option<Fresh>), Unready> {
    let host = |what: &str, error: &dyn std::fmt::Display| {
        Unready::Host(format!("the {what} module cannot be used: {error}"))
    };
    let bytes = fs::read(&order.module.source).map_err(|error| host("fetched", &error))?;
    if Digest::of(&bytes) != order.module.digest {
        return Err(Unready::Host("the cached module is damaged".into()));
    }
    let module = {
        let _limit = CompileLimit::start(cpu_s_used());
        Module::from_binary(engine, &bytes)
            .map_err(|error| Unready::Module(format!("it is no module that can run: {error:#}")))?
    };
    // Where it cannot be kept it runs all the same.
    let fresh = keep(&module, &spool_path(spool, order.token, COMPILED_NAME));
    Ok((module, fresh))
}

fn keep(module: &Module, path: &Path) -> Option<Fresh> {
    let code = module.serialize().ok()?;
    if let Some(folder) = path.parent() {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let mut options = fs::File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).ok()?;
    file.write_all(&code).ok()?;
    Some(Fresh { digest: Digest::of(&code), bytes: code.len() as u64 })
}

fn cpu_s_used() -> u64 {
    u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0)
}
