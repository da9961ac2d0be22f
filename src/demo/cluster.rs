//! Everything that runs in the demo: a broker, a monitor, and six hosts that share this machine.
//!
//! # Invariants
//! - Every part logs into a file of its own.
//! - Nothing of it outlives the [`Parts`].

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::{select_all, try_join_all};
use gleaner_hooks::RunDir;
use gleaner_protocol::Origin;

use super::folders::Folders;
use crate::child::{Child, Log};

/// Hosts on each side.
pub(super) const FARM_HOSTS: usize = 3;
const DESKTOP_HOSTS: usize = 3;
/// How long a part may take to be ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long all parts together may take to end when they are asked to.
const END_MAX: Duration = Duration::from_secs(3);
/// The farm's quiet period; a real farm has a minute, and renders of minutes.
const QUIET_PERIOD_S: &str = "0.5";
/// How often an agent tells the monitor of its host.
const SAMPLE_INTERVAL_S: &str = "1";

/// A host of the demo.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) cores: u32,
    run_dir: PathBuf,
}

impl Host {
    /// What its hooks and its agent share.
    pub(super) fn run_dir(&self) -> anyhow::Result<RunDir> {
        Ok(RunDir::open(&self.run_dir)?)
    }
}

/// Where everything is.
pub(super) struct Cluster {
    pub(super) program: PathBuf,
    pub(super) broker_url: String,
    /// The farm's hosts first.
    pub(super) hosts: Vec<Host>,
    monitor_url: String,
}

/// The running processes of a cluster.
pub(super) struct Parts(Vec<Child>);

impl Cluster {
    /// Starts all parts; ready when every agent is connected.
    pub(super) async fn start(folders: &Folders, cores: u32) -> anyhow::Result<(Self, Parts)> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let gleaner = |arguments: &[&str]| {
            let mut command = Command::new(&program);
            command.args(arguments);
            command
        };
        let mut broker = gleaner(&["broker", "--listen", "127.0.0.1:0", "--data-dir"]);
        broker.arg(folders.scratch().join("broker"));
        // All its hosts are of this demo: each has a vote.
        broker.args(["--ownerless-hosts-vote", "each"]);
        let mut broker =
            Child::start("the broker", broker, &Log::create(&folders.logs, "broker")?)?;
        let broker_url = listening(&mut broker).await?;

        let mut monitor = gleaner(&["monitor", "--listen", "127.0.0.1:0"]);
        monitor.args(["--broker", &broker_url, "--quiet-period-s", QUIET_PERIOD_S]);
        let mut monitor =
            Child::start("the monitor", monitor, &Log::create(&folders.logs, "monitor")?)?;
        let monitor_url = listening(&mut monitor).await?;

        let hosts = hosts(folders.run(), cores);
        let mut agents = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let mut agent = gleaner(&["agent", "--name", &host.name, "--broker", &broker_url]);
            agent.args(["--cores", &host.cores.to_string()]);
            agent.arg("--run-dir").arg(&host.run_dir);
            agent.arg("--work-dir").arg(folders.scratch().join(&host.name));
            match host.origin {
                Origin::Farm => agent.args(["--origin", "farm", "--monitor", &monitor_url]),
                Origin::Desktop => agent.args(["--origin", "desktop"]),
            };
            agent.args(["--sample-interval-s", SAMPLE_INTERVAL_S]);
            // All hosts of the demo share one machine; each would give way to the others.
            agent.args(["--give-way", "false"]);
            let name = format!("the agent of {}", host.name);
            agents.push(Child::start(&name, agent, &Log::create(&folders.logs, &host.name)?)?);
        }
        try_join_all(agents.iter_mut().map(|agent| agent.line(READY_MAX))).await?;
        let mut parts = agents;
        parts.extend([monitor, broker]);
        let cluster = Self { program, broker_url, hosts, monitor_url };
        Ok((cluster, Parts(parts)))
    }

    /// The hosts of the farm.
    pub(super) fn farm(&self) -> &[Host] {
        &self.hosts[..FARM_HOSTS]
    }

    /// The hook of a host, before or after a render.
    pub(super) fn hook(&self, kind: &str, host: &Host, booking: &str, cores: u32) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["hook", kind, "--farm", "generic", "--host", &host.name]);
        command.args(["--monitor", &self.monitor_url]).arg("--run-dir").arg(&host.run_dir);
        command.env("GLEANER_BOOKING", booking).env("GLEANER_CORES", cores.to_string());
        command
    }
}

impl Parts {
    /// Ends when a part has died, and says which.
    pub(super) async fn first_death(&mut self) -> anyhow::Error {
        let deaths = self.0.iter_mut().map(|part| Box::pin(part.death()));
        select_all(deaths).await.0
    }

    /// Ends all parts in good order; what takes too long is killed.
    pub(super) async fn shut_down(mut self) {
        for part in &mut self.0 {
            part.ask_to_end();
        }
        let all = try_join_all(self.0.iter_mut().map(Child::status));
        // Those that have not ended by then are killed as they are dropped.
        let _ = tokio::time::timeout(END_MAX, all).await;
    }
}

fn hosts(run: &Path, cores: u32) -> Vec<Host> {
    let host = |side: &str, number: usize, origin, cores| {
        let name = format!("{side}{number}");
        let run_dir = run.join(&name);
        Host { name, origin, cores, run_dir }
    };
    let farm = (1..=FARM_HOSTS).map(|number| host("farm", number, Origin::Farm, cores));
    let desktops = (1..=DESKTOP_HOSTS).map(|number| host("desk", number, Origin::Desktop, cores));
    farm.chain(desktops).collect()
}

/// The address that a part says it listens on.
async fn listening(part: &mut Child) -> anyhow::Result<String> {
    let line = part.line(READY_MAX).await?;
    match line.strip_prefix("listening on ") {
        Some(url) => Ok(url.to_owned()),
        None => bail!("a part said {line:?} instead of the address that it listens on"),
    }
}
