//! The runner process: where harvested work runs, never in the agent itself.
//!
//! An agent has its own executable started with the argument `__runner` once per slot, by its
//! [spawner](crate::run::spawner), and keeps it warm: it reads orders from its standard input, a socket,
//! and writes what came of them back.
//! Its standard output is what ties it to the agent's life ([`agent_watch`]).
//! Kernels and modules run inside it, commands are its children; all of them are one process group,
//! which the releaser freezes and kills as a whole. All runners are in one session.
//!
//! # Invariants
//! - One order at a time.
//! - When the agent ends, the whole group is killed: no work outlives its agent.
//! - Work runs in the idle scheduling class.

mod agent_watch;
mod application;
mod capture;
mod children_cpu;
mod command;
mod data_limit;
mod device;
mod folder;
mod frame;
mod in_process;
mod look;
mod order;
mod order_files;
mod outputs;
mod process_count;
pub(crate) mod sandbox;
mod substitute;
mod sweep;
mod view;
#[cfg(feature = "wasm")]
mod wasm;
mod worker;

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::exit;

use gleaner_protocol::Time;
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, Signal, kill_current_process_group, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::time::{ClockId, clock_gettime};

pub(crate) use command::HUGE_PAGES;
pub(crate) use folder::remove_all;
pub(crate) use frame::{FrameBuffer, FrameError, encode as encode_frame};
pub use look::Seen;
pub(crate) use order::{
    ApplicationOrder, CommandLimits, CommandOrder, CompiledModule, Fault, FrameInput, FrameOrder,
    GpuOrder, KernelOrder, Order, Reply, Setup, StagedInput, WasmOrder,
};
pub(crate) use outputs::{COMPILED_NAME, discard_spooled, spool_path};
#[cfg(feature = "wasm")]
pub use wasm::check_module;

use crate::run::scheduling_class;
use command::Commands;
use in_process::InProcess;
use order_files::OrderFiles;
use worker::{Lost, Worker, end_as};

/// The argument that makes an executable a runner.
pub const RUNNER_ARGUMENT: &str = "__runner";

/// Becomes a runner, an agent's cleaner or spawner, a trial, or what looks for a GPU or at one, if this
/// process was started as one; returns otherwise.
/// To be called first in the `main` of every executable that runs an agent.
pub fn run_as_runner_if_asked() {
    crate::release::cleaner::run_as_cleaner_if_asked();
    crate::run::spawner::run_as_spawner_if_asked();
    sandbox::run_as_trial_if_asked();
    crate::host::gpu::look_if_asked();
    crate::host::gpu::watch_if_asked();
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
    agent_watch::tie(pipe, || end_group());
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
    /// What runs an order where nothing is confined; in any case the line to the agent.
    inside: InProcess,
    commands: Commands,
    /// The process in which what is no command runs; none where it is not needed yet.
    worker: Option<Worker>,
}

impl Runner {
    fn set_up(socket: UnixStream) -> Result<Self, FrameError> {
        let mut frames = FrameBuffer::default();
        let setup: Setup = frames.read_from(&socket)?;
        // While there is one thread.
        let commands = Commands::prepare(setup.confines, setup.limits, &setup.folder);
        let inside = InProcess::new(socket, frames, setup.folder, setup.spool);
        Ok(Self { inside, commands, worker: None })
    }

    fn serve_one(&mut self) -> Result<(), FrameError> {
        let order = self.inside.next_order()?;
        if let Order::Command(order) = &order {
            // The command's end is that of all that this process has started.
            if let Some(worker) = self.worker.take() {
                worker.end();
                self.inside.folder.clear();
            }
            let InProcess { folder, collector, bricks, .. } = &mut self.inside;
            // What it may take is the command's.
            bricks.forget();
            let reply = self.commands.run(folder, collector, order);
            return self.inside.answer(&reply);
        }
        match self.run(&order) {
            Some(reply) => self.inside.answer(&reply),
            None => Ok(()),
        }
    }

    /// Runs what is no command; none where there is nothing to answer.
    fn run(&mut self, order: &Order) -> Option<Reply> {
        if matches!(order, Order::Stop { .. } | Order::Save { .. }) {
            return self.inside.run(order, OrderFiles::default());
        }
        let files = match OrderFiles::open(order) {
            Ok(files) => files,
            Err(reason) => return Some(Reply::CannotRun(reason)),
        };
        let sandbox = match self.commands.sandbox() {
            Ok(None) => return self.inside.run(order, files),
            Ok(Some(sandbox)) => sandbox,
            Err(refusal) => return Some(Reply::CannotRun(refusal.clone())),
        };
        let (needs_gpu, draws) = match order {
            Order::Application(order) => (order.gpu.is_some(), false),
            Order::Frame(order) => (order.gpu.is_some(), true),
            _ => (false, false),
        };
        if let Some(other) = self.worker.take_if(|worker| !worker.suits(needs_gpu, draws)) {
            other.end();
            self.inside.folder.clear();
        }
        let InProcess { socket, frames, folder, collector, .. } = &mut self.inside;
        let worker = match &mut self.worker {
            Some(worker) => worker,
            none => match Worker::start(sandbox, folder, needs_gpu) {
                Ok(worker) => none.insert(worker),
                Err(reason) => return Some(Reply::CannotRun(reason)),
            },
        };
        match worker.run(order, &files, socket, frames, collector) {
            Ok(reply) => Some(reply),
            Err(Lost::Ended(status)) => end_as(status),
            Err(Lost::Agent) => end_group(),
        }
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
