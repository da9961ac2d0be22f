//! The spawner: a small process that starts all runners and leads their one session.
//!
//! Where the kernel weighs sessions against each other (autogroups), each that has work on a core
//! gets a turn there, however low it ranks: sixty-four runners with a session each keep whatever
//! starts on that core, a render's hook say, from its first instruction for sixty-four turns, and
//! one session with all of them for one. A process enters a session only when it is forked in it, so the
//! process that leads it forks all runners. They are the agent's children all the same
//! (`CLONE_PARENT` of `clone(2)`): the agent waits for them, so that their numbers are theirs until
//! it has.
//!
//! ```text
//! slot ─ runner files ─► requests ─ message with open files ─► spawner process ─ clones ─► runner
//!   ◄─── child ─────┘ ◄────────── its number ────────────┘     (the agent's child) │
//!   ◄──────────────────── a pipe that closes as it executes the runner ────────────┘
//! ```
//!
//! # Invariants
//! - A new runner has the open files of its [`RunnerFiles`], and nothing that the agent has open.
//! - A spawner ends with its agent. One that ends earlier, or does not answer, is replaced.
//! - Of whoever asks for a runner and goes away no runner is left, nor of one that was started too late.

mod child;
mod process;
mod session;

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::warn;

use crate::limits::{
    LATE_SPAWN_MS_MAX, SPAWN_MS_MAX, SPAWNER_END_MS_MAX, SPAWNERS_MAX, SPAWNS_MAX,
};
use process::{Lost, Retired, SpawnerProcess};

pub(crate) use child::Child;
pub(crate) use process::run_as_spawner_if_asked;
pub(crate) use session::Session;

/// What a runner is given.
#[derive(Debug)]
pub(crate) struct RunnerFiles {
    /// Its standard input.
    pub(crate) stdin: OwnedFd,
    /// Its standard output.
    pub(crate) stdout: OwnedFd,
    /// The control groups that it enters before it executes anything: it writes `0` into each.
    pub(crate) doors: Vec<OwnedFd>,
}

/// The agent's side of it.
#[derive(Debug)]
pub(crate) struct Spawner {
    orders: mpsc::Sender<Order>,
    session: Arc<Session>,
}

#[derive(Debug)]
enum Order {
    Start { files: Vec<OwnedFd>, started: oneshot::Sender<io::Result<Child>> },
    End { ended: oneshot::Sender<()> },
}

impl Spawner {
    /// Starts the process out of `program`, an executable that calls
    /// [`run_as_runner_if_asked`](crate::run_as_runner_if_asked). To be called on a runtime.
    ///
    /// # Errors
    /// The process could not be started.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let session = Arc::new(Session::default());
        let process = SpawnerProcess::start(program)?;
        let (orders, heard) = mpsc::channel(SPAWNS_MAX);
        let requests = Requests {
            program: program.to_owned(),
            process: Some(process),
            leads: false,
            retired: VecDeque::new(),
            session: Arc::clone(&session),
        };
        let told = Arc::clone(&session);
        tokio::spawn(async move {
            tokio::select! {
                () = requests.serve(heard) => {}
                never = told.keep_up() => never,
            }
        });
        Ok(Self { orders, session })
    }

    /// The session of all runners.
    pub(crate) const fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Starts a runner: the leader of a group of its own in that session. Returns when it has
    /// executed its program.
    ///
    /// # Errors
    /// It could not be cloned or executed, or did not come into its control groups.
    pub(crate) async fn start_runner(&self, runner_files: RunnerFiles) -> io::Result<Child> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut trouble = Receiver::from_owned_fd(ours)?;
        let files = [runner_files.stdin, runner_files.stdout, theirs]
            .into_iter()
            .chain(runner_files.doors)
            .collect();
        let (started, answer) = oneshot::channel();
        let gone = || io::Error::other("the agent is about to end");
        self.orders.send(Order::Start { files, started }).await.map_err(|_| gone())?;
        let child = answer.await.map_err(|_| gone())??;
        let mut errno = Vec::new();
        // One that a hook has frozen in a control group comes to nothing before that is thawed.
        timeout(Duration::from_millis(SPAWN_MS_MAX), trouble.read_to_end(&mut errno)).await??;
        match <[u8; 4]>::try_from(errno) {
            Ok(errno) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
            // The kernel has closed it, as it does where a program is executed.
            Err(_) => Ok(child),
        }
    }

    /// Ends it, and waits for that, unless it takes too long: then it ends with this process.
    pub(crate) async fn end(&self) {
        let (ended, end) = oneshot::channel();
        let ends = async {
            if self.orders.send(Order::End { ended }).await.is_ok() {
                let _ = end.await;
            }
        };
        let limit = Duration::from_millis(LATE_SPAWN_MS_MAX + 2 * SPAWNER_END_MS_MAX);
        let _ = timeout(limit, ends).await;
    }
}

/// Who talks to the process.
struct Requests {
    program: PathBuf,
    /// None where one is to be started.
    process: Option<SpawnerProcess>,
    /// Whether it has started a runner: then it has a session of its own.
    leads: bool,
    /// Those before it. While they are not waited for, their numbers name the sessions in which what
    /// they have started may live.
    retired: VecDeque<Retired>,
    session: Arc<Session>,
}

impl Requests {
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = orders.recv().await {
            match order {
                // Nobody waits for it any more.
                Order::Start { started, .. } if started.is_closed() => {}
                Order::Start { files, started } => {
                    let child = self.start_runner(&files).await;
                    // Where nobody waits for it by now it is dropped, and that kills it.
                    let _ = started.send(child);
                }
                Order::End { ended } => {
                    let last = self.process.map(SpawnerProcess::retire);
                    for process in self.retired.into_iter().chain(last) {
                        process.end().await;
                    }
                    let _ = ended.send(());
                    return;
                }
            }
        }
    }

    async fn start_runner(&mut self, files: &[OwnedFd]) -> io::Result<Child> {
        let mut answer = self.ask(files).await;
        if matches!(answer, Err(Lost::Before(_))) {
            // It has not heard of this one.
            answer = self.ask(files).await;
        }
        let child = answer.map_err(|(Lost::Before(error) | Lost::After(error))| error)?;
        let child = Child::of(child?);
        if !self.leads
            && let Some(leader) = self.process.as_ref().and_then(SpawnerProcess::pid)
        {
            self.session.is_led_by(leader);
            self.leads = true;
        }
        Ok(child)
    }

    /// Asks the process, or another one where there is none any more.
    async fn ask(&mut self, files: &[OwnedFd]) -> Result<io::Result<Pid>, Lost> {
        let process = match &mut self.process {
            Some(process) => process,
            none => none.insert(SpawnerProcess::start(&self.program).map_err(Lost::After)?),
        };
        let answer =
            timeout(Duration::from_millis(SPAWN_MS_MAX), process.start_runner(files)).await;
        let answer = answer.unwrap_or_else(|_| {
            let why = format!("the process that starts runners was silent for {SPAWN_MS_MAX} ms");
            Err(Lost::After(io::Error::new(io::ErrorKind::TimedOut, why)))
        });
        if let Err(Lost::Before(why) | Lost::After(why)) = &answer {
            warn!("another process is to start runners: {why}");
            self.retire().await;
        }
        answer
    }

    /// Has nobody ask the process any more: what it answered late would be taken for the answer to what
    /// it is asked next.
    async fn retire(&mut self) {
        let Some(last) = self.process.take().map(SpawnerProcess::retire) else { return };
        if std::mem::take(&mut self.leads) {
            self.retired.push_back(last);
        } else {
            last.end().await;
        }
        while self.retired.len() >= SPAWNERS_MAX
            && let Some(first) = self.retired.pop_front()
        {
            first.pid().into_iter().for_each(|pid| self.session.forget(pid));
            first.end().await;
        }
    }
}
