//! The runner process: where harvested work runs, never in the agent itself.
//!
//! An agent has its own executable started with the argument `__runner` once per slot, by its
//! [nursery](crate::nursery), and keeps it warm: it reads orders from its standard input, a socket,
//! and writes what came of them back.
//! Its standard output is what ties it to the agent's life ([`leash`]).
//! Kernels and modules run inside it, commands are its children; all of them are one process group,
//! which the releaser freezes and kills as a whole. All runners are in one session.
//!
//! # Invariants
//! - One order at a time.
//! - When the agent ends, the whole group is killed: no work outlives its agent.
//! - Work runs in the idle scheduling class.

mod application;
mod capture;
mod children_cpu;
mod command;
mod crowd;
mod data_limit;
mod device;
mod folder;
mod frame;
mod leash;
mod order;
mod outputs;
pub(crate) mod sandbox;
mod substitute;
mod sweep;
#[cfg(feature = "wasm")]
mod wasm;

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::process::exit;
use std::sync::Arc;

use gleaner_protocol::{Content, OutputFile, Span, Time, boottime};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, Signal, kill_current_process_group, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use command::HUGE_PAGES;
pub(crate) use folder::remove_all;
pub(crate) use frame::{FrameBuffer, FrameError, encode as encode_frame};
pub(crate) use order::{
    ApplicationOrder, CommandLimits, CommandOrder, CompiledModule, Fault, GpuOrder, KernelOrder,
    Order, Reply, Setup, StagedInput, WasmOrder,
};
pub(crate) use outputs::{COMPILED_NAME, discard_spooled, spool_path};

use crate::harvest::Product;
use crate::kernels::kernel;
use crate::limits::{DRIVER_MEMORY_MIB, PROGRESS_INTERVAL_MS};
use crate::scheduling_class;
use application::News;
use command::Commands;
use data_limit::DataLimit;
use folder::TaskFolder;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use outputs::Collector;

/// The argument that makes an executable a runner.
pub const RUNNER_ARGUMENT: &str = "__runner";

/// Becomes a runner, an agent's keeper or nursery, a trial, or what looks for a GPU or at one, if this
/// process was started as one; returns otherwise.
/// To be called first in the `main` of every executable that runs an agent.
pub fn run_as_runner_if_asked() {
    crate::keeper::run_as_keeper_if_asked();
    crate::nursery::run_as_nursery_if_asked();
    sandbox::run_as_trial_if_asked();
    crate::gpu::look_if_asked();
    crate::gpu::watch_if_asked();
    if std::env::args_os().nth(1).is_some_and(|argument| argument == RUNNER_ARGUMENT) {
        runner_main()
    }
}

/// The `main` of a runner process.
pub fn runner_main() -> ! {
    let leads = leads_group();
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    if !leads || rustix::net::sockopt::socket_type(&stdin).is_err() {
        // Started by hand: killing "our" group at the end would kill somebody else's.
        exit(NOT_FOR_PEOPLE);
    }
    // Under other numbers, that commands do not inherit.
    let ours = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, FIRST_FREE_FD);
    let (Ok(socket), Ok(pipe)) = (ours(stdin.as_fd()), ours(stdout.as_fd())) else {
        exit(NOT_FOR_PEOPLE)
    };
    prepare(pipe);
    let Ok(mut runner) = Runner::set_up(UnixStream::from(socket)) else { end_group() };
    while runner.serve_one().is_ok() {}
    end_group()
}

/// Whether this process leads its group. A task that starts us sees none where its group is outside
/// of its namespace, which rustix takes for impossible.
#[expect(unsafe_code, reason = "rustix panics where there is no group to see")]
fn leads_group() -> bool {
    // SAFETY: takes nothing, and returns a number.
    unsafe { libc::getpgrp() == libc::getpid() }
}

/// Above the three standard ones.
const FIRST_FREE_FD: i32 = 3;

/// Exit code of a runner that no agent started.
const NOT_FOR_PEOPLE: i32 = 2;

/// Name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"gleaner-runner";

fn prepare(pipe: OwnedFd) {
    // None of these is essential; what fails leaves a runner that does its work all the same.
    let _ = rustix::thread::set_name(NAME);
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    let _ = setrlimit(Resource::Core, limit(0));
    let _ = setrlimit(Resource::Fsize, limit(BLOB_BYTES_MAX));
    drop_privileges();
    leash::tie(pipe, || end_group());
    scheduling_class::make_io_idle();
    // Last, for a thread that watches for the agent's end must not inherit it.
    scheduling_class::become_idle();
    panic::set_hook(Box::new(|_| {}));
}

/// An agent that is not root may have been given the right to go before other work; what it runs
/// must not have it.
fn drop_privileges() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    let _ = rustix::thread::set_capabilities(None, sets);
    let _ = rustix::thread::set_no_new_privs(true);
}

/// Ends this process and everything it started.
fn end_group() -> ! {
    let _ = kill_current_process_group(Signal::KILL);
    exit(1)
}

struct Runner {
    socket: Arc<UnixStream>,
    frames: FrameBuffer,
    folder: TaskFolder,
    collector: Collector,
    commands: Commands,
    #[cfg(feature = "wasm")]
    shelf: wasm::Shelf,
}

impl Runner {
    fn set_up(socket: UnixStream) -> Result<Self, FrameError> {
        let mut frames = FrameBuffer::default();
        let setup: Setup = frames.read_from(&socket)?;
        // While there is one thread.
        let commands = Commands::prepare(setup.confines, setup.limits, &setup.folder);
        Ok(Self {
            socket: Arc::new(socket),
            frames,
            commands,
            folder: TaskFolder::new(setup.folder),
            collector: Collector::new(setup.spool),
            #[cfg(feature = "wasm")]
            shelf: wasm::Shelf::default(),
        })
    }

    fn serve_one(&mut self) -> Result<(), FrameError> {
        let order: Order = self.frames.read_from(&*self.socket)?;
        let reply = match order {
            Order::Kernel(order) => self.run_kernel(&order),
            Order::Command(order) => self.commands.run(&mut self.folder, &self.collector, &order),
            Order::Wasm(order) => self.run_wasm(&order),
            Order::Application(order) => self.run_application(&order),
            // It ended in the moment in which it was to be stopped, and this thread was hurried for
            // that.
            Order::Stop { .. } | Order::Save { .. } => {
                scheduling_class::become_idle();
                return Ok(());
            }
        };
        frame::write_to(&*self.socket, &reply)
    }

    #[cfg(feature = "wasm")]
    fn run_wasm(&mut self, order: &WasmOrder) -> Reply {
        let frames = std::mem::take(&mut self.frames);
        let wire = wasm::Wire::new(Arc::clone(&self.socket), frames, order.token);
        let (reply, frames) =
            wasm::run(&mut self.shelf, &mut self.folder, &self.collector, wire, order);
        self.frames = frames;
        reply
    }

    #[cfg(not(feature = "wasm"))]
    fn run_wasm(&mut self, _: &WasmOrder) -> Reply {
        Reply::CannotRun("this agent was built without WebAssembly".into())
    }

    fn run_application(&mut self, order: &ApplicationOrder) -> Reply {
        let mut progress = ProgressTeller { socket: &self.socket, next: boottime() };
        let mut tell = |news| match news {
            News::Progress(permille) => progress.tell(permille),
            News::OpensGpu => progress.say(&Reply::OpensGpu),
            News::ComputedBy(gpu) => progress.say(&Reply::ComputedBy { gpu }),
        };
        let driver_mib = order.gpu.as_ref().map_or(0, |_| DRIVER_MEMORY_MIB);
        let _limit = DataLimit::set(u64::from(order.memory_mib.saturating_add(driver_mib)));
        application::run(&mut self.folder, &self.collector, order, &mut tell)
    }

    fn run_kernel(&self, order: &KernelOrder) -> Reply {
        let Some(kernel) = kernel(order.kernel.as_str()) else {
            return Reply::CannotRun(format!("kernel {} is not built in", order.kernel));
        };
        let mut progress = ProgressTeller { socket: &self.socket, next: boottime() };
        let before = thread_cpu();
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            kernel.run(order.index, order.item.as_deref(), &mut |permille| progress.tell(permille))
        }));
        let cpu_us = (thread_cpu() - before).as_micros();
        match outcome {
            Ok(Ok(files)) => match self.keep(order.token, files) {
                Ok(files) => Reply::Done { files, cpu_us, measured: None },
                Err(reason) => Reply::Failed { reason, cpu_us },
            },
            Ok(Err(error)) => Reply::Failed { reason: error.to_string(), cpu_us },
            Err(panic) => {
                let text = panic_text(&*panic);
                let reason = format!("kernel {} panicked: {text}", order.kernel);
                Reply::Failed { reason, cpu_us }
            }
        }
    }

    fn keep(&self, token: u64, files: Vec<OutputFile>) -> Result<Vec<Product>, String> {
        files
            .into_iter()
            .map(|file| match file.content {
                Content::Inline(bytes) => self.collector.keep_bytes(token, &file.name, bytes),
                stored @ Content::Stored { .. } => Ok(Product { name: file.name, content: stored }),
            })
            .collect()
    }
}

/// What somebody said who panicked.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given")
}

/// CPU time of this thread, as an instant on its own clock.
fn thread_cpu() -> Time {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let micros = time.tv_sec.saturating_mul(1_000_000) + time.tv_nsec / 1_000;
    Time::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Passes progress on, not too often.
struct ProgressTeller<'a> {
    socket: &'a UnixStream,
    next: Time,
}

impl ProgressTeller<'_> {
    fn tell(&mut self, permille: u16) {
        let now = boottime();
        if now >= self.next {
            self.next = now + Span::from_millis(PROGRESS_INTERVAL_MS);
            self.say(&Reply::Progress { permille });
        }
    }

    fn say(&self, reply: &Reply) {
        // Where the agent is gone the watcher is about to end us.
        let _ = frame::write_to(self.socket, reply);
    }
}
