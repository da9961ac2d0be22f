//! A broker and some agents on this machine, for as long as something is measured.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::try_join_all;

use crate::child::{Child, Log};

/// How long a part may take to be ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// How long all parts together may take to end when they are asked to.
const END_MAX: Duration = Duration::from_secs(3);

/// What runs.
pub(super) struct Farm {
    pub(super) broker: String,
    parts: Vec<Child>,
}

impl Farm {
    /// Starts a broker and agents of so many cores each, all of which write below `folder`; they read from
    /// each other where they `listen`.
    pub(super) async fn start(
        folder: &Path,
        agents: u32,
        cores: u32,
        memory_mib: Option<u64>,
        policy: Option<&str>,
        listen: bool,
    ) -> anyhow::Result<Self> {
        let mut broker = gleaner(&["broker", "--listen", "127.0.0.1:0", "--data-dir"])?;
        broker.arg(folder.join("broker")).args(["--ownerless-hosts-vote", "each"]);
        if let Some(policy) = policy {
            broker.args(["--lane", &format!("rendering={policy}")]);
        }
        let mut broker = Child::start("the broker", broker, &Log::create(folder, "broker")?)?;
        let line = broker.line(READY_MAX).await?;
        let Some(address) = line.strip_prefix("listening on ").map(str::to_owned) else {
            bail!("the broker said {line:?} instead of the address that it listens on");
        };
        let mut parts = Vec::new();
        for number in 1..=agents {
            let name = format!("host{number}");
            let settings = folder.join(format!("{name}.toml"));
            let memory = memory_mib.map(|mib| format!("memory_mib = {mib}\n"));
            let chunks = format!("[chunks]\ndisk_mib = 4096\n{}", memory.unwrap_or_default());
            std::fs::write(&settings, chunks)
                .with_context(|| format!("cannot write {}", settings.display()))?;
            let mut agent = gleaner(&["agent", "--origin", "desktop", "--give-way", "false"])?;
            agent.args(["--name", &name, "--broker", &address, "--cores", &cores.to_string()]);
            agent.arg("--config").arg(settings);
            if listen {
                agent.args(["--chunk-listen", "127.0.0.1:0"]);
            }
            agent.arg("--run-dir").arg(folder.join(format!("{name}-run")));
            agent.arg("--work-dir").arg(folder.join(format!("{name}-work")));
            parts.push(Child::start(&name, agent, &Log::create(folder, &name)?)?);
        }
        try_join_all(parts.iter_mut().map(|agent| agent.line(READY_MAX))).await?;
        parts.push(broker);
        Ok(Self { broker: address, parts })
    }

    /// Runs a command of this program with this broker.
    pub(super) async fn run(&self, folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = gleaner(arguments)?;
        command.args(["--broker", &self.broker]);
        Child::start(arguments[0], command, &Log::create(folder, "commands")?)?.success().await
    }

    /// Runs a hook of a host, as its farm manager does before and after a render.
    pub(super) async fn hook(
        &self,
        folder: &Path,
        which: &str,
        host: &str,
        render: u32,
    ) -> anyhow::Result<()> {
        let mut command = gleaner(&["hook", which, "--host", host, "--run-dir"])?;
        command.arg(folder.join(format!("{host}-run")));
        command.args(["--", &format!("render:{render}")]);
        Child::start("a hook", command, &Log::create(folder, "hooks")?)?.success().await
    }

    /// Ends all parts in good order; what takes too long is killed.
    pub(super) async fn shut_down(mut self) {
        self.parts.iter().for_each(Child::ask_to_end);
        let all = try_join_all(self.parts.iter_mut().map(Child::status));
        let _ = tokio::time::timeout(END_MAX, all).await;
    }
}

fn gleaner(arguments: &[&str]) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}
