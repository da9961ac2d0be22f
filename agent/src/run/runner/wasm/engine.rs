//! Modules: compiled, loaded, and kept ready.
//!
//! # Invariants
//! - Compiled code is loaded only where its hash is the one that the agent named, which kept it
//!   in its own folder; a process that could change it there could change the agent itself.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

use gleaner_protocol::Digest;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Config, Engine, ExternType, InstancePre, Linker, Module, UnknownImportError};

use super::interrupts::CompileLimit;
use super::limits::{LOADED_MAX, STACK_BYTES};
use super::outline::outline;
use super::state::State;
use super::{gleaner_calls, wasi};
use crate::run::runner::order::{CompiledModule, WasmOrder};
use crate::run::runner::order_files::OrderFiles;
use crate::run::runner::outputs::{COMPILED_NAME, spool_path};

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
pub(in crate::run::runner) struct ReadyModules {
    /// What was used last comes last.
    ready: Vec<((Digest, bool), InstancePre<State>)>,
    linkers: [Option<Linker<State>>; 2],
}

impl ReadyModules {
    /// The module of an order, ready to start; and whether it had to be compiled.
    pub(super) fn get(
        &mut self,
        order: &WasmOrder,
        files: &mut OrderFiles,
        spool: &Path,
    ) -> Result<(InstancePre<State>, Option<Fresh>), Unready> {
        let given = |file: io::Result<File>| {
            file.map_err(|error| Unready::Host(format!("a module cannot be read: {error}")))
        };
        let source = given(files.next())?;
        let compiled = match &order.compiled {
            Some(compiled) => Some((given(files.next())?, compiled)),
            None => None,
        };
        let counts = order.fuel.is_some();
        let key = (order.module.digest, counts);
        if let Some(place) = self.ready.iter().position(|(other, _)| *other == key) {
            let found = self.ready.remove(place);
            let module = found.1.clone();
            self.ready.push(found);
            return Ok((module, None));
        }
        let engine = engine(counts).map_err(Unready::Host)?;
        let loaded = match compiled {
            Some((file, compiled)) => load(engine, file, compiled)?,
            None => None,
        };
        let (module, fresh) = match loaded {
            Some(module) => (module, None),
            None => compile(engine, source, order, spool)?,
        };
        let module = self.prepare(engine, counts, &module, order.memory_mib)?;
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
        memory_mib: u32,
    ) -> Result<InstancePre<State>, Unready> {
        let place = &mut self.linkers[usize::from(counts)];
        let linker = match place {
            Some(linker) => linker,
            None => place.insert(linker(engine).map_err(|error| {
                Unready::Host(format!("the calls of a module cannot be offered: {error:#}"))
            })?),
        };
        fitted(linker, module, memory_mib).map_err(Unready::Module)
    }
}

/// What is wrong with a module, whatever it computes, in the words of an agent that was to run it.
///
/// Its code is checked and not compiled, so that it takes little time.
///
/// # Errors
/// No host can run it.
pub fn check_module(content: &[u8], memory_mib: u32) -> Result<(), String> {
    check_kind(content)?;
    let engine = engine(false)?;
    Module::validate(engine, content).map_err(invalid)?;
    let outline = outline(content)?;
    let module = Module::from_binary(engine, &outline).map_err(invalid)?;
    let linker = linker(engine)
        .map_err(|error| format!("the calls of a module cannot be offered: {error:#}"))?;
    fitted(&linker, &module, memory_mib).map(drop)
}

/// Whether it is a module in binary form.
fn check_kind(content: &[u8]) -> Result<(), String> {
    if content.starts_with(COMPONENT_HEAD) {
        return Err("it is a WebAssembly component, and modules are run: compile it for \
                    wasm32-wasip1, not for wasm32-wasip2, and make no component of it"
            .into());
    }
    if content.starts_with(MODULE_HEAD) {
        return Ok(());
    }
    Err("it is no WebAssembly module in binary form: compile it for wasm32-wasip1".into())
}

/// How every module in binary form begins: its mark, and the one version that there is.
const MODULE_HEAD: &[u8] = b"\0asm\x01\0\0\0";
/// How every component does.
const COMPONENT_HEAD: &[u8] = b"\0asm\x0d\0\x01\0";

fn invalid(error: wasmtime::Error) -> String {
    format!("it is no module that can run: {error:#}")
}

/// A module, ready to start where it can be started at all.
fn fitted(
    linker: &Linker<State>,
    module: &Module,
    memory_mib: u32,
) -> Result<InstancePre<State>, String> {
    let start = module.exports().find(|export| export.name() == START);
    let Some(start) = start.and_then(|export| export.ty().func().cloned()) else {
        return Err(format!(
            "the module exports no function {START:?}: compile it as a program, not as a library"
        ));
    };
    if start.params().len() + start.results().len() > 0 {
        return Err(format!(
            "the module's function {START:?} takes or returns values, and a program's has none: \
             compile it as a program for wasm32-wasip1"
        ));
    }
    let pages = module.resources_required().max_initial_memory_size.unwrap_or(0);
    let mib = pages.saturating_mul(PAGE_BYTES).div_ceil(1 << 20);
    if mib > memory_mib.into() {
        return Err(format!(
            "the module begins with {mib} MiB of memory, more than its {memory_mib} MiB: raise \
             memory_mib"
        ));
    }
    linker.instantiate_pre(module).map_err(|error| {
        let missing = missing_imports(linker.clone(), module);
        if missing.is_empty() {
            return format!("the module does not fit: {error:#}");
        }
        format!(
            "the module imports what is not offered: {}; compile it for wasm32-wasip1, without \
             threads and sockets",
            missing.join(", ")
        )
    })
}

/// Length of a page of a module's memory.
const PAGE_BYTES: u64 = 64 << 10;

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
fn load(engine: &Engine, file: File, compiled: &CompiledModule) -> Result<Option<Module>, Unready> {
    let bytes = read(file)
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
    source: File,
    order: &WasmOrder,
    spool: &Path,
) -> Result<(Module, Option<Fresh>), Unready> {
    let host = |what: &str, error: &dyn std::fmt::Display| {
        Unready::Host(format!("the {what} module cannot be used: {error}"))
    };
    let bytes = read(source).map_err(|error| host("fetched", &error))?;
    if Digest::of(&bytes) != order.module.digest {
        return Err(Unready::Host("the cached module is damaged".into()));
    }
    check_kind(&bytes).map_err(Unready::Module)?;
    let module = {
        let _limit = CompileLimit::start(cpu_s_used());
        Module::from_binary(engine, &bytes).map_err(|error| Unready::Module(invalid(error)))?
    };
    // Where it cannot be kept it runs all the same.
    let fresh = keep(&module, &spool_path(spool, order.token, COMPILED_NAME));
    Ok((module, fresh))
}

fn read(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn keep(module: &Module, path: &Path) -> Option<Fresh> {
    let code = module.serialize().ok()?;
    if let Some(folder) = path.parent() {
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).ok()?;
    file.write_all(&code).ok()?;
    Some(Fresh { digest: Digest::of(&code), bytes: code.len() as u64 })
}

fn cpu_s_used() -> u64 {
    u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec).unwrap_or(0)
}
