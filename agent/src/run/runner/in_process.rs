//! What runs in a process itself, and not as a program that the process starts: kernels,
//! applications and modules.
//!
//! The process is the runner's worker, which is confined ([`super::worker`]); or the runner, where
//! the owner wants nothing confined.

use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Arc;

use gleaner_protocol::{Content, OutputFile, Span, Time, boottime};

use super::application::{self, News};
use super::data_limit::DataLimit;
use super::folder::TaskFolder;
use super::frame::{self, FrameBuffer, FrameError};
use super::look::look;
use super::order_files::OrderFiles;
use super::outputs::Collector;
use super::view::{self, KeptBricks};
#[cfg(feature = "wasm")]
use super::wasm;
use super::{
    ApplicationOrder, FrameOrder, KernelOrder, Order, Reply, WasmOrder, panic_text, thread_cpu,
};
use crate::harvest::Product;
use crate::limits::{DRIVER_MEMORY_MIB, PROGRESS_INTERVAL_MS};
use crate::run::kernels::kernel;
use crate::run::scheduling_class;

/// A process that takes orders and runs them itself.
pub(super) struct InProcess {
    pub(super) socket: Arc<UnixStream>,
    pub(super) frames: FrameBuffer,
    pub(super) folder: TaskFolder,
    pub(super) collector: Collector,
    pub(super) bricks: KeptBricks,
    #[cfg(feature = "wasm")]
    modules: wasm::ReadyModules,
}

impl InProcess {
    /// One that takes orders from `socket`, has `frames` of it already, works in `folder` and puts
    /// large outputs into `spool`.
    pub(super) fn new(
        socket: UnixStream,
        frames: FrameBuffer,
        folder: PathBuf,
        spool: PathBuf,
    ) -> Self {
        Self {
            socket: Arc::new(socket),
            frames,
            folder: TaskFolder::new(folder),
            collector: Collector::new(spool),
            bricks: KeptBricks::default(),
            #[cfg(feature = "wasm")]
            modules: wasm::ReadyModules::default(),
        }
    }

    /// Waits for the next order.
    pub(super) fn next_order(&mut self) -> Result<Order, FrameError> {
        self.frames.read_from(&*self.socket)
    }

    /// Answers the last order.
    pub(super) fn answer(&self, reply: &Reply) -> Result<(), FrameError> {
        frame::write_to(&*self.socket, reply)
    }

    /// Runs one order with its files; none where there is nothing to answer.
    pub(super) fn run(&mut self, order: &Order, files: OrderFiles) -> Option<Reply> {
        Some(match order {
            Order::Kernel(order) => self.run_kernel(order),
            Order::Wasm(order) => self.run_wasm(order, files),
            Order::Application(order) => self.run_application(order, files),
            Order::Frame(order) => self.draw(order, files),
            Order::Look(order) => Reply::Seen(look(order)),
            Order::Command(_) => Reply::CannotRun("a command is no work of this process".into()),
            // The replica ended in the moment in which it was to be stopped, and this thread was
            // hurried for that.
            Order::Stop { .. } | Order::Save { .. } => {
                scheduling_class::become_idle();
                return None;
            }
        })
    }

    #[cfg(feature = "wasm")]
    fn run_wasm(&mut self, order: &WasmOrder, files: OrderFiles) -> Reply {
        let frames = std::mem::take(&mut self.frames);
        let wire = wasm::Wire::new(Arc::clone(&self.socket), frames, order.token);
        let (modules, folder) = (&mut self.modules, &mut self.folder);
        let (reply, frames) = wasm::run(modules, folder, &self.collector, wire, order, files);
        self.frames = frames;
        reply
    }

    #[cfg(not(feature = "wasm"))]
    fn run_wasm(&mut self, _: &WasmOrder, _: OrderFiles) -> Reply {
        Reply::CannotRun("this agent was built without WebAssembly".into())
    }

    fn run_application(&mut self, order: &ApplicationOrder, files: OrderFiles) -> Reply {
        let mut progress = ProgressTeller { socket: &self.socket, next: boottime() };
        let mut tell = |news| progress.pass_on(news);
        let driver_mib = order.gpu.as_ref().map_or(0, |_| DRIVER_MEMORY_MIB);
        let _limit = DataLimit::set(u64::from(order.memory_mib.saturating_add(driver_mib)));
        application::run(&mut self.folder, &self.collector, order, files, &mut tell)
    }

    fn draw(&mut self, order: &FrameOrder, files: OrderFiles) -> Reply {
        let mut teller = ProgressTeller { socket: &self.socket, next: boottime() };
        let driver_mib = order.gpu.as_ref().map_or(0, |_| DRIVER_MEMORY_MIB);
        let _limit = DataLimit::set(u64::from(order.memory_mib.saturating_add(driver_mib)));
        view::run(&mut self.bricks, &self.collector, order, files, &mut |news| teller.pass_on(news))
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

/// Passes progress on, not too often.
struct ProgressTeller<'a> {
    socket: &'a UnixStream,
    next: Time,
}

impl ProgressTeller<'_> {
    fn pass_on(&mut self, news: News) {
        match news {
            News::Progress(permille) => self.tell(permille),
            News::OpensGpu => self.say(&Reply::OpensGpu),
            News::ComputedBy(gpu) => self.say(&Reply::ComputedBy { gpu }),
        }
    }

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
