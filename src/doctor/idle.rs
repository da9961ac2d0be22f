//! What an agent itself takes of a host while it has nothing to run.
//!
//! A broker without jobs and an agent are started as on any host. After a while, in which the agent
//! has got ready, its CPU time and its memory are read off `/proc`: its own, and with what it keeps
//! standing by.

use std::path::Path;
use std::process::ExitCode;

use gleaner_protocol::{Span, boottime};
use serde::Serialize;
use tokio::time::sleep;

use super::How;
use super::bench::{AgentSettings, Bench, end};
use super::family::{cpu_ns, descendants, resident_bytes};
use crate::client::Format;
use crate::show;

/// What does the agent itself take here?
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Slots that the agent gives.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// For how long it is looked at, in seconds.
    #[arg(long, default_value_t = 60, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    how: How,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Figures {
    backend: String,
    slots: u32,
    seconds: u64,
    agent: Share,
    /// The agent, and all that it has started.
    together: Share,
}

/// What processes took.
#[derive(Debug, Serialize)]
struct Share {
    /// Of one core.
    cpu_percent: f64,
    memory_mib: f64,
}

/// What an agent is given to get ready: threads that only its start has use for end after ten
/// seconds, and what they have used would be missed with them.
const SETTLING: Span = Span::from_secs(15);

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("gleaner-doctor-").tempdir()?;
    let figures = measure(folder.path(), &args).await?;
    match args.how.format {
        Format::Json => show::json(&figures),
        Format::Table => print(&figures),
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(folder: &Path, args: &Args) -> anyhow::Result<Figures> {
    let bench = Bench::start(folder).await?;
    let settings = AgentSettings {
        cores: args.slots,
        isolation: args.how.isolation,
        give_way: true,
        program: "/bin/true",
    };
    let agent = bench.agent(&settings).await?;
    let pid = agent.pid();
    let backend = bench.standing()?.isolation;
    sleep(SETTLING.into()).await;

    let family = || [vec![pid], descendants(pid)].concat();
    let before: Vec<(i32, u64)> = family().into_iter().map(|pid| (pid, cpu_ns(pid))).collect();
    let begun = boottime();
    sleep(Span::from_secs(args.seconds).into()).await;
    let ns = boottime().since(begun).as_micros() as f64 * 1e3;
    let used = |one: i32| {
        let earlier = before.iter().find(|(pid, _)| *pid == one).map_or(0, |(_, ns)| *ns);
        cpu_ns(one).saturating_sub(earlier)
    };
    let share = |pids: &[i32]| Share {
        cpu_percent: hundredths(pids.iter().map(|pid| used(*pid)).sum::<u64>() as f64 / ns * 100.0),
        memory_mib: hundredths(
            pids.iter().map(|pid| resident_bytes(*pid)).sum::<u64>() as f64 / f64::from(1 << 20),
        ),
    };
    let figures = Figures {
        backend,
        slots: args.slots,
        seconds: args.seconds,
        agent: share(&[pid]),
        together: share(&family()),
    };
    end(agent).await;
    bench.shut_down().await;
    Ok(figures)
}

fn print(figures: &Figures) {
    let Figures { backend, slots, seconds, agent, together } = figures;
    let share = |of: &Share| [format!("{} %", of.cpu_percent), format!("{} MiB", of.memory_mib)];
    let row = |what: &str, of: &Share| {
        let [cpu, memory] = share(of);
        [what.to_owned(), cpu, memory]
    };
    show::line(format_args!("idle for {seconds} s with {slots} slots, isolated by {backend}"));
    let rows = vec![row("the agent", agent), row("with what stands by", together)];
    show::table(["", "of a core", "memory"], rows);
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
