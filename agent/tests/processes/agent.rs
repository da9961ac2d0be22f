//! An agent under test: in a thread of this process, or a process of its own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use gleaner_agent::{Config, Liveness, Preferences, RunError, run};
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
            kernels: ["gametree", "noop", "volume", "view"].map(kernel).into(),
            // Other tests and builds on this machine are no business of these stories.
            preferences: Preferences { give_way: false, ..Preferences::default() },
            ..Config::default()
        }
    }

    /// This executable as a program that hosts may allow: by another user it might not be found where it
    /// is.
    pub(crate) fn probe(&self) -> PathBuf {
        let (own, probe) = (std::env::current_exe().expect("there"), self.path("probe"));
        let linked = std::fs::hard_link(&own, &probe);
        linked.or_else(|_| std::fs::copy(&own, &probe).map(drop)).expect("copied");
        probe
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
        let booked = Booked { cores, memory_mib: None, gpus: None };
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
    /// Whether all of it goes on; none where it did not come up.
    liveness: Option<Liveness>,
}

impl AgentThread {
    /// Starts one; returns when it is up.
    pub(crate) fn start(config: Config) -> Self {
        let (is_ready, ready) = std::sync::mpsc::channel();
        let (shutdown, told) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let ready = move |liveness| is_ready.send(liveness).expect("the story waits");
            as_agent(run(config, ready, async {
                let _ = told.await;
            }))
        });
        let liveness = ready.recv().ok();
        let (shutdown, thread) = (Some(shutdown), Some(thread));
        let mut agent = Self { shutdown, thread, liveness };
        if agent.liveness.is_none() {
            let thread = agent.thread.take().expect("not joined");
            panic!("{:?}", thread.join().expect("no panic").expect_err("it was never ready"));
        }
        agent
    }

    /// Turns that its parts have begun, by their names.
    pub(crate) fn turns(&self) -> Vec<(&'static str, u64)> {
        self.liveness.as_ref().expect("it came up").turns()
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
        // Said beside what a story found, which may be no more than its consequence.
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the agent ended: {error:?}");
        }
    }
}

/// An agent in a process of its own, killed on drop.
pub(crate) struct AgentProcess {
    pub(crate) child: Child,
}

/// What an agent is made to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handicap {
    /// Nothing.
    None,
    /// It may make no namespaces, as where a security module forbids that.
    NoNamespaces,
    /// Nor has it Landlock.
    NoLayers,
    /// It has no Landlock.
    NoLandlock,
    /// Nor can it change many mounts at once, as before Linux 5.12.
    OldMounts,
}

impl AgentProcess {
    pub(crate) fn start(config: &Config, folders: &Folders) -> Self {
        Self::start_as(config, folders, None, Handicap::None)
    }

    /// As another user, which takes root, and with a handicap.
    pub(crate) fn start_as(
        config: &Config,
        folders: &Folders,
        user: Option<u32>,
        handicap: Handicap,
    ) -> Self {
        let mut command = Self::command(config, folders, handicap);
        if let Some(user) = user {
            // Its owner's marks are not looked for in root's folders.
            command.uid(user).gid(user).env("HOME", folders.path("")).env_remove("XDG_STATE_HOME");
        }
        Self { child: command.spawn().expect("starts") }
    }

    /// With these variables.
    pub(crate) fn start_with(
        config: &Config,
        folders: &Folders,
        environment: &[(&str, &Path)],
    ) -> Self {
        let mut command = Self::command(config, folders, Handicap::None);
        Self { child: command.envs(environment.iter().copied()).spawn().expect("starts") }
    }

    fn command(config: &Config, folders: &Folders, handicap: Handicap) -> Command {
        let path = folders.path("agent.json");
        std::fs::write(&path, serde_json::to_vec(config).expect("plain")).expect("written");
        // Another user may not come through to where this was built.
        let mut command = Command::new("/proc/self/exe");
        command.arg(AGENT_ARGUMENT).arg(path).arg(format!("{handicap:?}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
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
pub(crate) fn agent_main(config: &str, handicap: &str) -> ! {
    match handicap {
        "NoNamespaces" => forbid(&[libc::SYS_unshare]),
        "NoLayers" => forbid(&[libc::SYS_unshare, libc::SYS_landlock_create_ruleset]),
        "NoLandlock" => forbid(&[libc::SYS_landlock_create_ruleset]),
        "OldMounts" => forbid(&[libc::SYS_landlock_create_ruleset, libc::SYS_mount_setattr]),
        _ => {}
    }
    let text = std::fs::read(Path::new(config)).expect("there");
    let config: Config = serde_json::from_slice(&text).expect("our own");
    let ended = as_agent(run(config, |_| {}, std::future::pending()));
    eprintln!("{ended:?}");
    std::process::exit(1)
}

/// On one thread, as agents are.
fn as_agent<T>(agent: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().expect("a runtime").block_on(agent)
}

/// Tells a story. The stand-ins are played on a thread of their own: they answer while the story
/// itself waits for a process, which on a slow machine takes longer than an agent waits for them.
pub(crate) fn block_on<T>(story: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().expect("a runtime").block_on(story)
}

/// Has these calls fail in this process and whatever it starts.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn forbid(calls: &[libc::c_long]) {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).expect("small"),
        jt: 0,
        jf,
        k,
    };
    let mut steps = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        let number = u32::try_from(*call).expect("small");
        steps.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
        steps.push(step(libc::BPF_RET | libc::BPF_K, 0, refusal));
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).expect("short"),
        filter: steps.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true).expect("anybody may");
    const SET_MODE_FILTER: libc::c_long = 1;
    // SAFETY: the kernel reads the structure and the instructions, which live as long as the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0_i64, &raw const program) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}
