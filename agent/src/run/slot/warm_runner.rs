//! A runner process, from the agent's side.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gleaner_hooks::{RunDir, RunDirError, TaskGroup, kill};
use gleaner_isolation::Leaf;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tracing::warn;

use crate::limits::DIE_PAUSE_MS;
use crate::run::runner::{FrameBuffer, Reply, encode_frame};
use crate::run::spawner::{Child, RunnerFiles, Spawner};

/// A living runner.
#[derive(Debug)]
pub(super) struct WarmRunner {
    child: Child,
    pgid: i32,
    socket: UnixStream,
    frames: FrameBuffer,
    /// When this closes, the kernel kills the group.
    _life_pipe: OwnedFd,
}

/// It died, or speaks nonsense and has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunnerGone;

/// How its leader ended.
#[derive(Debug)]
pub(super) struct End {
    /// In words.
    pub(super) status: String,
    /// It gave up by itself, as where it gets no memory.
    pub(super) aborted: bool,
    /// It touched memory that it does not have, as where a driver is broken.
    pub(super) crashed: bool,
}

/// Why there is no runner.
#[derive(Debug, Error)]
pub(super) enum StartError {
    /// The process could not be started.
    #[error("cannot start a runner: {0}")]
    Spawn(io::Error),
    /// It could not be entered into the run folder, without which no hook could stop it.
    #[error(transparent)]
    Register(#[from] RunDirError),
}

/// Kills what has left the runner's group.
fn empty(leaf: Option<&Leaf>) {
    if let Some(error) = leaf.filter(|leaf| leaf.can_freeze()).and_then(|leaf| leaf.kill().err()) {
        warn!("cannot kill what is left in a control group: {error}");
    }
}

impl WarmRunner {
    /// Has one started in `leaf`, as the leader of its own group, and enters the group into the run
    /// folder.
    pub(super) async fn start(
        spawner: &Spawner,
        run_dir: &RunDir,
        leaf: Option<&Leaf>,
    ) -> Result<Self, StartError> {
        let (ours, theirs) = StdStream::pair().map_err(StartError::Spawn)?;
        ours.set_nonblocking(true).map_err(StartError::Spawn)?;
        let socket = UnixStream::from_std(ours).map_err(StartError::Spawn)?;
        let pipe = pipe_with(PipeFlags::CLOEXEC).map_err(|error| StartError::Spawn(error.into()));
        let (stdout, agent_watch) = pipe?;
        let doors = leaf.map(Leaf::doors).transpose().map_err(StartError::Spawn)?;
        let (stdin, doors) = (OwnedFd::from(theirs), doors.unwrap_or_default());
        let child = spawner.start_runner(RunnerFiles { stdin, stdout, doors }).await;
        let child = child.map_err(StartError::Spawn)?;
        let pgid = child.pid().as_raw_nonzero().get();
        let group = TaskGroup::of_leader(pgid).map_err(StartError::Spawn)?;
        run_dir.register_group(&group)?;
        Ok(Self { child, pgid, socket, frames: FrameBuffer::default(), _life_pipe: agent_watch })
    }

    /// The number of its group.
    pub(super) fn pgid(&self) -> i32 {
        self.pgid
    }

    /// Sends one message.
    pub(super) async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), RunnerGone> {
        let frame = encode_frame(message).map_err(|error| {
            warn!("cannot pass a task to a runner: {error}");
            RunnerGone
        })?;
        self.socket.write_all(&frame).await.map_err(|_| RunnerGone)
    }

    /// Has its leader look up from what it runs: there is something to read. One that runs
    /// nothing that can look up is not disturbed.
    pub(super) fn look_up(&self) {
        // While the leader has not been waited for, its number is nobody else's.
        if let Some(leader) = Pid::from_raw(self.pgid) {
            let _ = kill_process(leader, Signal::URG);
        }
    }

    /// Waits for a message.
    pub(super) async fn receive(&mut self) -> Result<Reply, RunnerGone> {
        let mut part = [0; 8192];
        loop {
            match self.frames.next() {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(error) => {
                    warn!("a runner speaks nonsense and is ended: {error}");
                    return Err(RunnerGone);
                }
            }
            match self.socket.read(&mut part).await {
                Ok(0) | Err(_) => return Err(RunnerGone),
                Ok(read) => self.frames.extend(&part[..read]),
            }
        }
    }

    /// Whether an idle runner is known to have died.
    pub(super) fn is_gone(&mut self) -> bool {
        let mut byte = [0];
        // An idle runner says nothing: whatever can be read means that it is not usable.
        !matches!(self.socket.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Returns when an idle runner has died.
    pub(super) async fn gone(&mut self) {
        while !self.is_gone() {
            if self.socket.readable().await.is_err() {
                return;
            }
        }
    }

    /// Kills the whole group and waits for the leader's end, and for that of all that its leaf
    /// holds; says how the leader ended.
    ///
    /// The group must not be in the slot table any more: its number is free afterwards.
    pub(super) async fn reap(mut self, leaf: Option<&Leaf>) -> End {
        // While the leader has not been waited for, its number is nobody else's.
        let _ = kill(self.pgid);
        empty(leaf);
        let end = match self.child.wait().await {
            Ok(status) => End {
                status: status.to_string(),
                aborted: status.signal() == Some(Signal::ABORT.as_raw()),
                crashed: [Signal::SEGV, Signal::BUS]
                    .iter()
                    .any(|signal| status.signal() == Some(signal.as_raw())),
            },
            Err(error) => End { status: error.to_string(), aborted: false, crashed: false },
        };
        while leaf.is_some_and(|leaf| leaf.can_freeze() && !leaf.marks().members().is_empty()) {
            // Groups have no event for this in both versions.
            tokio::time::sleep(Duration::from_millis(DIE_PAUSE_MS)).await;
            empty(leaf);
        }
        // The next one is to run.
        if let Some(leaf) = leaf.filter(|leaf| leaf.can_freeze()) {
            let _ = leaf.thaw();
        }
        end
    }
}
