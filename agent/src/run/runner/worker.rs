//! The runner's worker: the process in which kernels, applications and modules run, behind the same
//! walls as commands.
//!
//! The runner itself keeps the agent's rights and stays the leader of its group. It starts the worker
//! as it starts a command ([`super::sandbox`]), but the worker executes no program: it goes on as a
//! copy of the runner, so that no file has to be read for it. The worker stays for the next order.
//!
//! ```text
//! agent ◄─ orders, replies ─► runner ◄─ orders, replies ─► worker
//!                                │ ── open input files ──► │
//!                     the cache, the spool         its own folder
//! ```
//!
//! # Invariants
//! - A worker gets the files of its order open, and sees no other file of the agent.
//! - A worker that ends takes its runner with it, in the same way: the agent judges by that.
//! - No command runs beside a worker.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, exit};

use gleaner_protocol::Content;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};

use super::folder::TaskFolder;
use super::frame::{self, FrameBuffer, FrameError};
use super::in_process::InProcess;
use super::look::{LookOrder, Seen};
use super::order_files::OrderFiles;
use super::outputs::{COMPILED_NAME, Collector, discard_spooled};
use super::sandbox::{Cell, CellError, CellOrder, CellWork, Sandbox};
use super::{Order, Reply};
use crate::harvest::Product;
use crate::run::scheduling_class;

/// A living worker, seen from its runner.
#[derive(Debug)]
pub(super) struct Worker {
    cell: Cell,
    orders: UnixStream,
    files: OwnedFd,
    frames: FrameBuffer,
    /// The worker's folder, as the runner sees it.
    folder: PathBuf,
    /// Whether it sees the GPU.
    has_gpu: bool,
}

/// Why an order has no reply.
#[derive(Debug)]
pub(super) enum Lost {
    /// The worker has ended, so.
    Ended(ExitStatus),
    /// The agent is gone, or speaks nonsense.
    Agent,
}

impl Worker {
    /// Starts one, which works in `folder`.
    ///
    /// # Errors
    /// It cannot be started or confined, in words.
    pub(super) fn start(
        sandbox: &Sandbox,
        folder: &mut TaskFolder,
        has_gpu: bool,
    ) -> Result<Self, String> {
        let say = |error: io::Error| format!("cannot start a worker: {error}");
        let (path, tmp) = (folder.enter().map_err(say)?.to_owned(), folder.tmp().to_owned());
        let identity = sandbox.identity_of_work();
        if identity.is_other {
            for path in [&path, &tmp] {
                chown(path, Some(identity.uid), Some(identity.gid)).map_err(say)?;
            }
        }
        let (mut orders, theirs) = UnixStream::pair().map_err(say)?;
        let (files, their_files) = UnixStream::pair().map_err(say)?;
        let sockets = [theirs.into(), their_files.into()];
        let work = CellWork { main: work, sockets, has_gpu, is_command: false };
        let order = CellOrder::work(&work, &path, &tmp);
        let mut cell = sandbox.start(&order).map_err(|error| error.to_string())?;
        drop(work);
        // It says so when it is behind its walls.
        let mut ready = [0];
        if io::Read::read_exact(&mut orders, &mut ready).is_err() {
            return Err(match cell.wait() {
                Ok(status) => format!("a worker has ended as it started: {status}"),
                Err(error @ CellError::Confine { .. }) => error.to_string(),
                Err(error) => format!("cannot start a worker: {error}"),
            });
        }
        let frames = FrameBuffer::default();
        Ok(Self { cell, orders, files: files.into(), frames, folder: path, has_gpu })
    }

    /// Whether it can run an order as it is: what draws a frame with the GPU draws the next one without it
    /// too, for it has the bricks.
    pub(super) const fn suits(&self, needs_gpu: bool, draws: bool) -> bool {
        self.has_gpu == needs_gpu || (self.has_gpu && draws)
    }

    /// Has it look at what confines it.
    ///
    /// # Errors
    /// It says nothing of that.
    pub(super) fn look(&mut self, order: &LookOrder) -> Result<Seen, String> {
        let say = |error: FrameError| format!("a worker says nothing: {error}");
        frame::write_to(&self.orders, &Order::Look(order.clone())).map_err(say)?;
        match self.frames.read_from(&self.orders).map_err(say)? {
            Reply::Seen(seen) => Ok(seen),
            other => Err(format!("a worker says {other:?}")),
        }
    }

    /// Ends it, with all that it started.
    pub(super) fn end(mut self) {
        self.cell.kill();
        let _ = self.cell.wait();
    }

    /// Has an order run, and passes on what is said meanwhile: by the worker to the agent, and by the
    /// agent to the worker.
    pub(super) fn run(
        &mut self,
        order: &Order,
        files: &OrderFiles,
        agent: &UnixStream,
        said: &mut FrameBuffer,
        collector: &Collector,
    ) -> Result<Reply, Lost> {
        // What the worker does not take shows when it is read from.
        let _ = frame::write_to(&self.orders, order);
        let _ = files.send(&self.files);
        loop {
            match self.frames.next::<Reply>() {
                Ok(Some(reply)) => {
                    if let Some(last) = self.take(order, reply, agent, collector)? {
                        discard_spooled(&self.folder, token_of(order));
                        return Ok(last);
                    }
                    continue;
                }
                Ok(None) => {}
                Err(_) => return Err(self.nonsense()),
            }
            while let Some(order) = said.next::<Order>().map_err(|_| Lost::Agent)? {
                self.pass_on(&order)?;
            }
            let mut ready =
                [PollFd::new(agent, PollFlags::IN), PollFd::new(&self.orders, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Lost::Agent),
            }
            let [from_agent, from_worker] = ready.map(|ready| !ready.revents().is_empty());
            if from_agent && !read_into(agent, said) {
                return Err(Lost::Agent);
            }
            if from_worker && !read_into(&self.orders, &mut self.frames) {
                return Err(Lost::Ended(self.status()));
            }
        }
    }

    /// Passes on what the agent says of the order that runs.
    fn pass_on(&self, order: &Order) -> Result<(), Lost> {
        if !matches!(order, Order::Stop { .. } | Order::Save { .. }) {
            return Err(Lost::Agent);
        }
        let _ = frame::write_to(&self.orders, order);
        // The worker looks up at this; nobody else in the group does anything.
        let _ = kill_current_process_group(Signal::URG);
        Ok(())
    }

    /// Passes a reply on; the last one is returned with its files kept.
    fn take(
        &self,
        order: &Order,
        reply: Reply,
        agent: &UnixStream,
        collector: &Collector,
    ) -> Result<Option<Reply>, Lost> {
        let reply = match reply {
            Reply::Compiled { .. } => {
                if collector.take(&self.folder, token_of(order), COMPILED_NAME).is_err() {
                    // The agent compiles it again next time.
                    return Ok(None);
                }
                reply
            }
            Reply::Progress { .. }
            | Reply::OpensGpu
            | Reply::ComputedBy { .. }
            | Reply::Checkpoint { .. } => reply,
            Reply::Done { files, cpu_us, measured } => {
                return Ok(Some(match self.keep(order, &files, collector) {
                    Ok(()) => Reply::Done { files, cpu_us, measured },
                    Err(reason) => Reply::Failed { reason, cpu_us },
                }));
            }
            Reply::Stopped => {
                // This thread was hurried for that too.
                scheduling_class::become_idle();
                return Ok(Some(Reply::Stopped));
            }
            last => return Ok(Some(last)),
        };
        frame::write_to(agent, &reply).map_err(|_: FrameError| Lost::Agent)?;
        Ok(None)
    }

    /// Takes large outputs out of the worker's folder.
    fn keep(&self, order: &Order, files: &[Product], collector: &Collector) -> Result<(), String> {
        for file in files {
            // It says what it likes.
            if Path::new(&file.name).file_name() != Some(file.name.as_ref()) {
                return Err(format!("output {:?} has no plain name", file.name));
            }
            if let Content::Stored { .. } = file.content {
                collector.take(&self.folder, token_of(order), &file.name)?;
            }
        }
        Ok(())
    }

    fn nonsense(&mut self) -> Lost {
        self.cell.kill();
        Lost::Ended(self.status())
    }

    fn status(&mut self) -> ExitStatus {
        self.cell.wait().unwrap_or(ExitStatus::from_raw(Signal::KILL.as_raw()))
    }
}

/// The token of an order that has outputs.
fn token_of(order: &Order) -> u64 {
    match order {
        Order::Kernel(order) => order.token,
        Order::Command(order) => order.token,
        Order::Wasm(order) => order.token,
        Order::Application(order) => order.token,
        Order::Frame(order) => order.token,
        Order::Save { token } | Order::Stop { token } => *token,
        Order::Look(_) => 0,
    }
}

/// Reads what is there. False where the other end is closed.
fn read_into(socket: &UnixStream, frames: &mut FrameBuffer) -> bool {
    let mut part = [0; 8192];
    match recv(socket, &mut part, RecvFlags::DONTWAIT).map(|(read, _)| read) {
        Ok(0) => false,
        Ok(read) => {
            frames.extend(&part[..read]);
            true
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Ends this process as its worker has ended.
pub(super) fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal().and_then(Signal::from_named_raw) {
        default_action(signal);
        let _ = kill_process(getpid(), signal);
    }
    exit(status.code().unwrap_or(1))
}

#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn default_action(signal: Signal) {
    // SAFETY: sets no handler.
    unsafe {
        libc::signal(signal.as_raw(), libc::SIG_DFL);
    }
}

/// The `main` of a worker: it is in its folder, behind its walls, and has nothing open but these.
fn work([orders, files]: [OwnedFd; 2]) -> ! {
    let mut socket = UnixStream::from(orders);
    let _ = rustix::thread::set_name(NAME);
    if io::Write::write_all(&mut socket, b"r").is_err() {
        exit(1)
    }
    let here = Path::new(".");
    let frames = FrameBuffer::default();
    // Large outputs lie beside the folder of an order, and the runner takes them from there.
    let mut inside = InProcess::new(socket, frames, here.join(OWN_FOLDER), here.to_owned());
    while let Ok(order) = inside.next_order() {
        let reply = match OrderFiles::receive(&order, &files) {
            Ok(files) => inside.run(&order, files),
            Err(error) => Some(Reply::CannotRun(format!("cannot receive its files: {error}"))),
        };
        if reply.is_some_and(|reply| inside.answer(&reply).is_err()) {
            break;
        }
    }
    exit(0)
}

/// Name of a worker, as `ps` shows it.
const NAME: &std::ffi::CStr = c"gleaner-worker";
/// Where a worker puts the files of an order; no output has this name.
const OWN_FOLDER: &str = ".order";
