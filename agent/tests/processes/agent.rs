//! An agent under test: in a thread of this process, or a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use gleaner_agent::{Config, Preferences, RunError, run};
use gleaner_hooks::{RunDir, SocketAnswer, SocketRequest, ask};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, HostName, KernelName, Origin, Span};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Makes this executable an agent, with the path of a configuration.
pub(crate) const AGENT_ARGUMENT: &str = "__agent";

/// Folders of one host.
pub(crate) struct Folders {
    base: TempDir,
}

impl Folders {
    pub(crate) fn new() -> Self {
        Self { base: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir::open(self.path("run")).expect("a run folder")
    }

    /// A desktop host with these cores, where the usual programs are allowed.
    pub(crate) fn config(&self, broker: &str, cores: u32) -> Config {
        let programs = ["/bin/true", "/bin/false", "/bin/sh", "/bin/echo", "/bin/cat"];
        let kernel = |name| KernelName::new(name).expect("plain");
        Config {
            name: Some(HostName::new("render042").expect("plain")),
            origin: Origin::Desktop,
            cores,
            broker: broker.into(),
            run_dir: Some(self.path("run")),
            work_dir: Some(self.path("work")),
            allow_commands: programs.iter().map(PathBuf::from).collect(),
            kernels: vec![kernel("gametree"), kernel("noop")],
            // Other tests and builds on this machine are no business of these stories.
            preferences: Preferences { give_way: false, ..Preferences::default() },
            ..Config::default()
        }
    }

    /// What a preflight hook does, as far as the agent is concerned.
    pub(crate) fn preflight(&self, booking: &str, cores: Option<u32>) -> SocketAnswer {
        let request = self.book(booking, cores);
        self.ask(&request)
    }

    /// What it does before it asks the agent; returns the question.
    pub(crate) fn book(&self, booking: &str, cores: Option<u32>) -> SocketRequest {
        let run_dir = self.run_dir();
        let booking = BookingId::new(booking).expect("plain");
        let booked = Booked { cores, memory_mib: None };
        let epoch = Some(run_dir.raise_epoch().expect("there"));
        run_dir.begin_booking(&booking, &booked).expect("there");
        SocketRequest::Preflight { booking, booked, epoch }
    }

    /// What a postflight hook does.
    pub(crate) fn postflight(&self, booking: &str) {
        let booking = BookingId::new(booking).expect("plain");
        self.run_dir().end_booking(&booking).expect("there");
        let answer = self.ask(&SocketRequest::Postflight { booking, epoch: None });
        assert_eq!(answer, SocketAnswer::Noted);
    }

    pub(crate) fn ask(&self, request: &SocketRequest) -> SocketAnswer {
        ask(&self.run_dir().socket_path(), request, Span::from_secs(60)).expect("an answer")
    }

    /// Groups of the runners, in order of their numbers.
    pub(crate) fn groups(&self) -> Vec<i32> {
        let groups = self.run_dir().groups().expect("there");
        groups.into_iter().map(|group| group.pgid).collect()
    }
}

/// An agent in a thread.
pub(crate) struct AgentThread {
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl AgentThread {
    /// Starts one; returns when it is up.
    pub(crate) fn start(config: Config) -> Self {
        let (is_ready, ready) = std::sync::mpsc::channel();
        let (shutdown, told) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let ready = move || is_ready.send(()).expect("the story waits");
            block_on(run(config, ready, async {
                let _ = told.await;
            }))
        });
        let mut agent = Self { shutdown: Some(shutdown), thread: Some(thread) };
        if ready.recv().is_err() {
            let thread = agent.thread.take().expect("not joined");
            panic!("{:?}", thread.join().expect("no panic").expect_err("it was never ready"));
        }
        agent
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        drop(self.shutdown.take());
        let thread = self.thread.take().expect("not joined");
        thread.join().expect("no panic").expect("an orderly end");
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        drop(self.shutdown.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An agent in a process of its own, killed on drop.
pub(crate) struct AgentProcess {
    pub(crate) child: Child,
}

impl AgentProcess {
    pub(crate) fn start(config: &Config, folders: &Folders) -> Self {
        let path = folders.path("agent.json");
        std::fs::write(&path, serde_json::to_vec(config).expect("plain")).expect("written");
        let child = Command::new(std::env::current_exe().expect("there"))
            .arg(AGENT_ARGUMENT)
            .arg(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        Self { child }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The `main` of such a process.
pub(crate) fn agent_main(config: &str) -> ! {
    let text = std::fs::read(Path::new(config)).expect("there");
    let config: Config = serde_json::from_slice(&text).expect("our own");
    let ended = block_on(run(config, || {}, std::future::pending()));
    eprintln!("{ended:?}");
    std::process::exit(1)
}

pub(crate) fn block_on<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(story)
}
