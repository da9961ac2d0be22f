//! A whole Gleaner on loopback: a broker, a monitor, farm hosts and desktop hosts.
//!
//! # Invariants
//! - Every part is a process of the real binary, with folders of its own below one temporary
//!   folder, and logs into a file of its own.
//! - When it is dropped nothing of it runs any more. After a failure its logs are shown; after a
//!   success no log may tell of a panic.

use std::fs;
use std::ops::{Index, IndexMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::panicking;

use gleaner_calm::Turn;
use gleaner_protocol::{Origin, Span};
use tempfile::TempDir;

use crate::api::Api;
use crate::host::{GIVE_WAY, Host, RUN_DIR};
use crate::keys::Keys;
use crate::marks::{Marks, SHELL};
use crate::part::Part;
use crate::ports::free_port;
use crate::processes::{self, Process};
use crate::program::{Said, gleaner, run};

/// What is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    farm: usize,
    desktops: usize,
    cores: u32,
    quiet: Span,
    turn: fn() -> Turn,
    is_elsewhere: bool,
    broker: Vec<String>,
    monitor: Vec<String>,
    monitor_env: Vec<(String, String)>,
    agent_env: Vec<(String, String)>,
    has_keys: bool,
    ca_file: Option<PathBuf>,
    samples_as_usual: bool,
}

impl Plan {
    /// No hosts yet, two cores each, a quiet period of 0.3 s.
    pub(crate) fn new() -> Self {
        Self {
            farm: 0,
            desktops: 0,
            cores: 2,
            quiet: Span::from_millis(300),
            turn: Turn::shared,
            is_elsewhere: false,
            broker: Vec::new(),
            monitor: Vec::new(),
            monitor_env: Vec::new(),
            agent_env: Vec::new(),
            has_keys: false,
            ca_file: None,
            samples_as_usual: false,
        }
    }

    pub(crate) fn farm(mut self, hosts: usize) -> Self {
        self.farm = hosts;
        self
    }

    pub(crate) fn desktops(mut self, hosts: usize) -> Self {
        self.desktops = hosts;
        self
    }

    pub(crate) fn cores(mut self, cores: u32) -> Self {
        self.cores = cores;
        self
    }

    pub(crate) fn quiet(mut self, quiet: Span) -> Self {
        self.quiet = quiet;
        self
    }

    /// For a test that would fail beside others, or make them fail.
    pub(crate) fn alone(mut self) -> Self {
        self.turn = Turn::alone;
        self
    }

    /// For a test that measures times.
    pub(crate) fn measuring(mut self) -> Self {
        self.turn = Turn::measuring;
        self
    }

    /// Broker and monitor take from nobody's cores what others want, as on a farm, where they are on a
    /// machine of their own.
    pub(crate) fn elsewhere(mut self) -> Self {
        self.is_elsewhere = true;
        self
    }

    pub(crate) fn broker(mut self, options: &[&str]) -> Self {
        self.broker.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    pub(crate) fn monitor(mut self, options: &[&str]) -> Self {
        self.monitor.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Something in the monitor's environment.
    pub(crate) fn monitor_env(mut self, name: &str, value: &str) -> Self {
        self.monitor_env.push((name.into(), value.into()));
        self
    }

    /// Something in the environment of all agents.
    pub(crate) fn agent_env(mut self, name: &str, value: &str) -> Self {
        self.agent_env.push((name.into(), value.into()));
        self
    }

    /// Agents send their samples as often as they do where nobody says otherwise; else each second.
    pub(crate) fn samples_as_usual(mut self) -> Self {
        self.samples_as_usual = true;
        self
    }

    /// Everyone shows a key of their own.
    pub(crate) fn keys(mut self) -> Self {
        self.has_keys = true;
        self
    }

    /// Everyone trusts these certificates.
    pub(crate) fn trusting(mut self, file: &Path) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// Starts it; ready when the broker knows every host.
    pub(crate) async fn start(self) -> Cluster {
        self.start_through(reqwest::Client::builder()).await
    }

    /// As [`Plan::start`], with a client of this test's own for the broker.
    pub(crate) async fn start_through(self, client: reqwest::ClientBuilder) -> Cluster {
        let turn = (self.turn)();
        let folder = tempfile::Builder::new().prefix("gleaner-").tempdir().expect("a folder");
        fs::create_dir(folder.path().join("logs")).expect("a folder");
        // Nobody else is given their ports while they are away.
        let [listen, monitors] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
        let mut broker = self.start_broker(folder.path(), &listen);
        let url = broker.listening();
        let begin = || Keys::begin(folder.path(), &url, self.ca_file.as_deref());
        let keys = self.has_keys.then(begin);
        let client = match &keys {
            Some(keys) => client.default_headers(keys.headers()),
            None => client,
        };
        let api = Api::through(&url, client);
        let of_keys = keys.as_ref();
        let mut monitor =
            (self.farm > 0).then(|| self.start_monitor(folder.path(), &monitors, &url, of_keys));
        let monitor_url = monitor.as_mut().map(Part::listening);
        let mut cluster = Cluster {
            plan: self,
            keys,
            broker,
            api,
            monitor,
            monitor_url,
            hosts: Vec::new(),
            folder,
            _turn: turn,
        };
        let names = |side: &str, count| (1..=count).map(move |n| format!("{side}{n}")).collect();
        let farm: Vec<String> = names("farm", cluster.plan.farm);
        let desktops: Vec<String> = names("desk", cluster.plan.desktops);
        for name in farm {
            cluster.add_host(&name, Origin::Farm, &[]);
        }
        for name in desktops {
            cluster.add_host(&name, Origin::Desktop, &[]);
        }
        cluster.are_connected().await;
        cluster
    }

    fn start_broker(&self, folder: &Path, listen: &str) -> Part {
        let mut command = gleaner(["broker", "--listen", listen, "--data-dir"]);
        command.arg(folder.join("broker")).args(["--ownerless-hosts-vote", "each"]);
        command.args(&self.broker);
        command.args(self.has_keys.then_some("--require-keys"));
        Part::start("broker", self.placed(command), &log_of(folder, "broker"))
    }

    fn placed(&self, command: Command) -> Command {
        if !self.is_elsewhere {
            return command;
        }
        let mut nice = Command::new("nice");
        nice.env_clear().stdin(Stdio::null());
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        nice
    }

    fn start_monitor(
        &self,
        folder: &Path,
        listen: &str,
        broker: &str,
        keys: Option<&Keys>,
    ) -> Part {
        let quiet = self.quiet.as_secs_f64().to_string();
        let mut command = gleaner(["monitor", "--listen", listen, "--broker", broker]);
        command.args(["--quiet-period-s", &quiet]).args(&self.monitor);
        command.envs(self.monitor_env.iter().cloned());
        self.add_trust(&mut command);
        if let Some(keys) = keys {
            let folder = keys.of_part("monitor", "farm", "monitor");
            command.arg("--require-keys").arg("--broker-key-file").arg(Keys::key_in(&folder));
        }
        Part::start("monitor", self.placed(command), &log_of(folder, "monitor"))
    }

    fn add_trust(&self, command: &mut Command) {
        if let Some(ca) = &self.ca_file {
            command.arg("--ca-file").arg(ca);
        }
    }
}

fn log_of(folder: &Path, part: &str) -> PathBuf {
    folder.join("logs").join(format!("{part}.log"))
}

/// What runs.
pub(crate) struct Cluster {
    plan: Plan,
    keys: Option<Keys>,
    pub(crate) broker: Part,
    /// The broker's interface.
    pub(crate) api: Api,
    pub(crate) monitor: Option<Part>,
    monitor_url: Option<String>,
    hosts: Vec<Host>,
    folder: TempDir,
    _turn: Turn,
}

impl Cluster {
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn quiet(&self) -> Span {
        self.plan.quiet
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The monitor's interface.
    pub(crate) fn monitor_api(&self) -> Api {
        self.api.beside(self.monitor_url.as_ref().expect("there is a monitor"))
    }

    /// The keys of its parts.
    pub(crate) fn keys(&self) -> &Keys {
        self.keys.as_ref().expect("it has keys")
    }

    /// For work that can be seen.
    pub(crate) fn marks(&self) -> Marks {
        Marks::new(self.folder())
    }

    /// Starts one more host.
    pub(crate) fn add_host(&mut self, name: &str, origin: Origin, options: &[&str]) {
        let folder = self.folder().join(name);
        fs::create_dir(&folder).expect("a folder");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let agent = self.start_agent(name, origin, &options);
        let monitor = self.monitor_url.clone().filter(|_| origin == Origin::Farm);
        let (name, cores) = (name.to_owned(), self.plan.cores);
        let awaits_ready = true;
        let host = Host { name, origin, cores, folder, monitor, options, agent, awaits_ready };
        self.hosts.push(host);
    }

    /// Starts a host's agent again, which must have ended.
    pub(crate) fn restart_agent(&mut self, name: &str) {
        let (origin, options) = (self[name].origin, self[name].options.clone());
        let agent = self.start_agent(name, origin, &options);
        let host = &mut self[name];
        host.agent = agent;
        host.awaits_ready = true;
    }

    fn start_agent(&self, name: &str, origin: Origin, options: &[String]) -> Part {
        let folder = self.folder().join(name);
        let mut command = gleaner(["agent", "--name", name, "--origin", origin.as_str()]);
        command
            .args(["--broker", &self.api.url, "--cores", &self.plan.cores.to_string()])
            .args(["--allow-command", SHELL])
            .args(["--save-interval-s", "1"])
            // What runs says where it does, in a folder of the test.
            .args(["--confine", "off"])
            .arg("--work-dir")
            .arg(folder.join("work"))
            .args(options);
        if !self.plan.samples_as_usual {
            command.args(["--sample-interval-s", "1"]);
        }
        if !options.iter().any(|option| option == GIVE_WAY) {
            // What else this machine does is no business of a test that does not ask for it.
            command.args([GIVE_WAY, "false"]);
        }
        if !options.iter().any(|option| option == RUN_DIR) {
            command.arg(RUN_DIR).arg(folder.join("run"));
        }
        if let (Origin::Farm, Some(monitor)) = (origin, &self.monitor_url) {
            command.args(["--monitor", monitor]);
        }
        self.plan.add_trust(&mut command);
        if let Some(keys) = &self.keys {
            let at = options.iter().position(|option| option == "--owner");
            let owner = at.map_or(name, |at| &options[at + 1]);
            let folder = keys.of_part("agent", owner, name);
            command.arg("--config").arg(folder.join("agent.toml"));
        }
        command.envs(self.plan.agent_env.iter().cloned());
        Part::start(name, command, &log_of(self.folder(), name))
    }

    /// Waits until all agents are ready and the broker knows them.
    pub(crate) async fn are_connected(&mut self) {
        for host in self.hosts.iter_mut().filter(|host| host.awaits_ready) {
            assert_eq!(host.agent.ready(), "ready");
            host.awaits_ready = false;
        }
        let api = self.api.clone();
        api.until("all hosts", async || {
            let hosts = api.hosts().await;
            let connected = hosts.iter().filter(|host| host.connected).count();
            (connected == self.hosts.len()).then_some(())
        })
        .await;
    }

    /// Waits until every host gives all its cores.
    pub(crate) async fn are_open(&self) {
        for host in &self.hosts {
            self.api.until_cores(&host.name, host.cores).await;
        }
    }

    /// Starts the broker again where it was, once the one before is gone.
    pub(crate) fn restart_broker(&mut self) {
        self.broker.kill();
        let (_, address) = self.api.url.split_once("://").expect("an address");
        self.broker = self.plan.start_broker(self.folder.path(), address);
        assert_eq!(self.broker.listening(), self.api.url);
    }

    /// Starts the monitor again where it was, once the one before is gone.
    pub(crate) fn restart_monitor(&mut self) {
        drop(self.monitor.take());
        let url = self.monitor_url.clone().expect("there was one");
        let (_, address) = url.split_once("://").expect("an address");
        let mut monitor =
            self.plan.start_monitor(self.folder.path(), address, &self.api.url, self.keys.as_ref());
        assert_eq!(monitor.listening(), url);
        self.monitor = Some(monitor);
    }

    /// The command line, with this broker.
    #[track_caller]
    pub(crate) fn cli(&self, arguments: &[&str]) -> Said {
        run(gleaner(arguments.iter().copied()).env("GLEANER_BROKER", &self.api.url))
    }

    /// Every part's name and log.
    fn logs(&self) -> Vec<(String, String)> {
        let agents = self.hosts.iter().map(|host| &host.agent);
        let parts = agents.chain(&self.monitor).chain([&self.broker]);
        parts.map(|part| (part.name().to_owned(), part.said())).collect()
    }
}

impl Index<&str> for Cluster {
    type Output = Host;

    fn index(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).expect("there is such a host")
    }
}

impl IndexMut<&str> for Cluster {
    fn index_mut(&mut self, name: &str) -> &mut Host {
        self.hosts.iter_mut().find(|host| host.name == name).expect("there is such a host")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let workers: Vec<i32> = self.hosts.iter().flat_map(Host::workers).collect();
        for host in &mut self.hosts {
            host.agent.kill();
        }
        self.monitor.iter_mut().for_each(Part::kill);
        self.broker.kill();
        let left: Vec<Process> = workers
            .into_iter()
            .filter(|pid| !processes::dies(*pid))
            .filter_map(Process::of)
            .collect();
        if panicking() {
            for (part, log) in self.logs() {
                eprintln!("-- log of {part}\n{log}");
            }
            return;
        }
        assert!(left.is_empty(), "processes outlive their agents: {left:?}");
        for (part, log) in self.logs() {
            assert!(!log.contains("panicked"), "{part} panicked:\n{log}");
        }
    }
}
