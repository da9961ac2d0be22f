//! One host of the cluster: its agent, its folders, its hooks, and what runs on it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gleaner_hooks::{RunDir, SocketAnswer, SocketRequest, ask};
use gleaner_protocol::{Epoch, HostName, Origin, Span};

use crate::hook::Hook;
use crate::part::Part;
use crate::patience::eventually;
use crate::processes::{self, Process};

/// How long an agent may take to answer a question of this test's.
const ANSWER_MAX: Span = Span::from_secs(20);

/// The option that puts the run folder elsewhere than below the host's folder.
pub(crate) const RUN_DIR: &str = "--run-dir";

/// The option that says whether it gives way to what runs unannounced.
pub(crate) const GIVE_WAY: &str = "--give-way";

/// A host.
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) cores: u32,
    /// Everything of it.
    pub(crate) folder: PathBuf,
    /// Where the monitor listens, for its hooks.
    pub(crate) monitor: Option<String>,
    /// What its agent was told beside what all are told.
    pub(crate) options: Vec<String>,
    pub(crate) agent: Part,
    /// Its agent has not said yet that it is ready.
    pub(crate) awaits_ready: bool,
}

impl Host {
    pub(crate) fn id(&self) -> HostName {
        HostName::new(&self.name).expect("a plain name")
    }

    /// The folder that its agent and its hooks share.
    pub(crate) fn run_dir(&self) -> PathBuf {
        let mut options = self.options.iter().skip_while(|option| *option != RUN_DIR);
        options.nth(1).map_or_else(|| self.folder.join("run"), PathBuf::from)
    }

    /// What the settings beside its hooks' scripts say, with time for a machine that is busy with
    /// other tests.
    pub(crate) fn hook_settings(&self) -> String {
        format!(
            "GLEANER={}\nGLEANER_RUN_DIR={}\nGLEANER_MONITOR={}\nGLEANER_HOST={}
GLEANER_HOOK_AGENT_TIMEOUT_MS=1500\nGLEANER_HOOK_DEADLINE_MS=1900\n",
            env!("CARGO_BIN_EXE_gleaner"),
            self.run_dir().display(),
            self.monitor.as_ref().expect("a farm host"),
            self.name,
        )
    }

    pub(crate) fn run_folder(&self) -> RunDir {
        RunDir::open(self.run_dir()).expect("it opens")
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.run_folder().epoch().expect("it reads")
    }

    /// The hook before a render that books the whole host, unless it says how many cores.
    pub(crate) fn preflight(&self, booking: &str) -> Hook {
        self.hook("preflight", booking).patient()
    }

    /// The hook after it.
    pub(crate) fn postflight(&self, booking: &str) -> Hook {
        self.hook("postflight", booking).patient()
    }

    /// A hook that tells the agent alone.
    pub(crate) fn untold(&self, kind: &str, booking: &str) -> Hook {
        self.quiet_hook(kind, booking).patient()
    }

    /// A hook as a farm calls it, with its own time-outs.
    pub(crate) fn hook(&self, kind: &str, booking: &str) -> Hook {
        let hook = self.quiet_hook(kind, booking);
        match &self.monitor {
            Some(monitor) => hook.with(&["--monitor", monitor]),
            None => hook,
        }
    }

    fn quiet_hook(&self, kind: &str, booking: &str) -> Hook {
        Hook::new(kind, &self.run_dir())
            .with(&["--host", &self.name])
            .env("GLEANER_BOOKING", booking)
    }

    /// Asks its agent over the Unix socket.
    pub(crate) fn ask(&self, request: &SocketRequest) -> SocketAnswer {
        let socket = self.run_dir().join("agent.sock");
        ask(&socket, request, ANSWER_MAX).expect("the agent answers")
    }

    /// The processes that could run harvested work now: its agent's children, their groups, and
    /// whatever the run folder has recorded.
    pub(crate) fn workers(&self) -> Vec<i32> {
        let all = processes::all();
        // A folder that a test has spoiled records nothing.
        let recorded = RunDir::open(self.run_dir()).and_then(|folder| folder.groups());
        let mut groups: BTreeSet<i32> =
            recorded.unwrap_or_default().iter().map(|group| group.pgid).collect();
        let children = all.iter().filter(|process| process.parent == self.agent.pid());
        groups.extend(children.map(|child| child.pgid));
        // A child that was started in this moment is still in its agent's group, as this test is.
        let own = all.iter().find(|process| process.pid == self.agent.pid());
        own.map(|agent| groups.remove(&agent.pgid));
        all.iter()
            .filter(|process| groups.contains(&process.pgid))
            .map(|process| process.pid)
            .collect()
    }

    /// Waits until none of its workers computes. A runner that starts, or that has just been
    /// stopped, has something to do for a moment.
    pub(crate) async fn is_idle(&self) {
        let what = format!("{} to be idle", self.name);
        eventually(&what, async || self.computing().is_empty().then_some(())).await;
    }

    /// Waits until something computes in so many slots.
    pub(crate) async fn computes_in(&self, slots: usize) {
        let what = format!("{} to compute in {slots} slots", self.name);
        eventually(&what, async || (self.slots_computing() == slots).then_some(())).await;
    }

    /// Those of its workers that compute now.
    pub(crate) fn computing(&self) -> Vec<Process> {
        processes::computing(&self.workers())
    }

    /// How many slots have a runner that computes: one that has been born has had some time of a core
    /// by then. Before that it is on its way into its group, and no hook finds it there.
    pub(crate) fn slots_computing(&self) -> usize {
        let processes = self.computing().into_iter().filter(|process| process.cpu_ticks > 0);
        processes.map(|process| process.pgid).collect::<BTreeSet<i32>>().len()
    }
}
