//! `gleaner agent status | pause | finish | resume | tasks | limit | wishes | page`: talks to the agent that runs on this host.
//!
//! Whoever may write to the agent's socket may: its mode follows that of the run folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use gleaner_hooks::{
    AskError, GpuStanding, SocketAnswer, SocketRequest, Standing, StopMark, TaskLine, Wish, ask,
};
use gleaner_protocol::farm::SampledBooking;
use gleaner_protocol::{Limit, LimitsChange, Share, Span};
use jiff::{SpanRelativeTo, Unit};

use super::page;
use crate::client::Format;
use crate::failure::Failure;
use crate::show;

/// How long the agent may take.
const ANSWER_MAX: Span = Span::from_secs(5);
/// Longest pause that has an end.
const PAUSE_MAX_S: u64 = 366 * 86_400;

/// What the owner says to a running agent.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Control {
    /// Says whether the agent of this host works, and why not.
    Status(Options),
    /// Has nothing run, for a time or until it is resumed. What runs is frozen within milliseconds,
    /// and ended when the pause is longer than frozen work is kept.
    Pause {
        /// For how long: 30m, 2h, 1h30m, 90s, 1d [default: until `gleaner agent resume`].
        #[arg(value_name = "FOR", value_parser = parse_duration)]
        time: Option<Span>,
        #[command(flatten)]
        options: Options,
    },
    /// Has what runs come to its end and nothing new begin until it is resumed: before you leave with this
    /// machine, so that no work of others is lost. It holds across restarts.
    Finish(Options),
    /// Ends a pause.
    Resume(Options),
    /// Lists what runs on this host.
    Tasks(Options),
    /// Says what you have wished: each value, and where it was said.
    Wishes(Options),
    /// Shows all this in a browser, and takes your clicks: prints a link that is good once, and serves
    /// the page on this machine alone until you press Ctrl-C. The agent itself opens no port.
    Page {
        /// Port at 127.0.0.1; 0 takes a free one.
        #[arg(long, value_name = "PORT", default_value_t = 0)]
        port: u16,
        /// The run folder of the agent [default: as the agent's].
        #[arg(long, env = "GLEANER_RUN_DIR", value_name = "DIR")]
        run_dir: Option<PathBuf>,
    },
    /// Limits what runs in a slot, until it ends. `gleaner agent tasks` lists the slots.
    Limit {
        /// Which slot.
        slot: u32,
        #[command(flatten)]
        limits: Limits,
        #[command(flatten)]
        options: Options,
    },
}

/// What one replica may use; what is not given stays as it is.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Limits {
    /// Share of one core, in percent; 0 for all that it gets.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    share_percent: Option<u32>,
    /// Weight beside other replicas, in percent of the usual.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    weight_percent: Option<u32>,
    /// Memory with all that it has started, in MiB; 0 for what the host has.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    memory_mib: Option<u64>,
}

/// Of whom, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The run folder of the agent [default: as the agent's].
    #[arg(long, env = "GLEANER_RUN_DIR", value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// table for people, json for programs.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

impl Options {
    fn run_dir(&self) -> PathBuf {
        self.run_dir.clone().unwrap_or_else(usual_run_dir)
    }
}

fn usual_run_dir() -> PathBuf {
    gleaner_agent::Config::default().run_dir()
}

/// What isolates the work of the agent of this host, in words; none where none answers.
pub(crate) fn isolation_here() -> Option<String> {
    let run_dir = std::env::var_os("GLEANER_RUN_DIR").map(PathBuf::from);
    standing(&Options { run_dir, format: Format::Json }).ok().map(|standing| standing.isolation)
}

pub(crate) fn run(control: Control) -> anyhow::Result<ExitCode> {
    match control {
        Control::Status(options) => {
            let standing = standing(&options)?;
            match options.format {
                Format::Json => show::json(&standing),
                Format::Table => print_standing(&standing),
            }
        }
        Control::Pause { time, options } => {
            let request = SocketRequest::Pause { for_ms: time.map(Span::as_millis) };
            match tell(&options, &request)? {
                SocketAnswer::Paused { frozen } => match options.format {
                    Format::Json => show::json(&standing(&options)?),
                    Format::Table => show::line(paused(frozen, time)),
                },
                other => bail!("the agent answers {other:?}"),
            }
        }
        Control::Finish(options) => {
            tell(&options, &SocketRequest::Finish)?;
            let standing = standing(&options)?;
            match options.format {
                Format::Json => show::json(&standing),
                Format::Table => print_standing(&standing),
            }
        }
        Control::Resume(options) => {
            tell(&options, &SocketRequest::Resume)?;
            let standing = standing(&options)?;
            match options.format {
                Format::Json => show::json(&standing),
                Format::Table => print_standing(&standing),
            }
        }
        Control::Tasks(options) => match tell(&options, &SocketRequest::Tasks)? {
            SocketAnswer::Tasks { tasks, more } => match options.format {
                Format::Json => show::json(&tasks),
                Format::Table => print_tasks(&tasks, more),
            },
            other => bail!("the agent answers {other:?}"),
        },
        Control::Wishes(options) => match tell(&options, &SocketRequest::Wishes)? {
            SocketAnswer::Wishes { wishes } => match options.format {
                Format::Json => show::json(&wishes),
                Format::Table => print_wishes(wishes),
            },
            other => bail!("the agent answers {other:?}"),
        },
        Control::Page { port, run_dir } => {
            return page::run(port, run_dir.unwrap_or_else(usual_run_dir));
        }
        Control::Limit { slot, limits, options } => {
            let Limits { share_percent, weight_percent, memory_mib } = limits;
            let limits = LimitsChange {
                share: share_percent.map(|percent| limit(Share::percent(percent))),
                weight_permille: weight_percent.map(|percent| percent * 10),
                memory_mib: memory_mib.map(limit),
            };
            tell(&options, &SocketRequest::Limit { slot, limits })?;
            match options.format {
                Format::Json => show::json(&limits),
                Format::Table => show::line(format!("slot {slot} is limited until its task ends")),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(options: &Options, request: &SocketRequest) -> anyhow::Result<SocketAnswer> {
    tell_agent(&options.run_dir(), request)
}

/// Asks the agent of a run folder.
pub(super) fn tell_agent(run_dir: &Path, request: &SocketRequest) -> anyhow::Result<SocketAnswer> {
    match ask(&run_dir.join("agent.sock"), request, ANSWER_MAX) {
        Ok(SocketAnswer::Error { reason }) => bail!("the agent refuses: {reason}"),
        Ok(answer) => Ok(answer),
        Err(error) => bail!("{}", unreachable(run_dir, &error)),
    }
}

fn standing(options: &Options) -> anyhow::Result<Standing> {
    match tell(options, &SocketRequest::Standing)? {
        SocketAnswer::Standing(standing) => Ok(*standing),
        other => bail!("the agent answers {other:?}"),
    }
}

fn unreachable(run_dir: &Path, error: &AskError) -> String {
    let mut text = format!("no agent answers in {}: {error}", run_dir.display());
    if let Some(mark) = StopMark::of(run_dir).look() {
        text += &format!("; besides, harvest is stopped by {}", mark.path.display());
    }
    let elsewhere = "; where it has another run folder, name that by --run-dir";
    text + elsewhere
}

fn paused(frozen: u32, time: Option<Span>) -> String {
    let until = match time {
        Some(time) => format!("for {}", in_words(time)),
        None => "until `gleaner agent resume`".into(),
    };
    format!("paused {until}; {frozen} replicas were frozen")
}

fn print_standing(standing: &Standing) {
    let Standing { host, cores, isolation, slots, allowed, running, frozen, .. } = standing;
    let does = match (running, frozen) {
        (0, 0) => "runs nothing".to_owned(),
        (running, 0) => format!("runs {running} replicas"),
        (running, frozen) => format!("runs {running} replicas and keeps {frozen} frozen"),
    };
    let link = if standing.connected { "linked to its broker" } else { "without a broker" };
    show::line(format!("{host} {does}; {link}; its work is isolated by {isolation}"));
    show::line(format!(
        "{slots} replicas may run at once on its {cores} cores; the owner allows {allowed}"
    ));
    let machine = gleaner_agent::machine_cores();
    if machine > 0 && *cores > machine {
        show::line(format!("this machine has {machine} cores: replicas share them"));
    }
    for reason in &standing.reasons {
        show::line(format!("because {}", reason.text));
    }
    for SampledBooking { booking, resources } in &standing.bookings {
        let what = resources.cores.map_or("all of it".into(), |cores| format!("{cores} cores"));
        show::line(format!("booked by the render {booking}: {what}"));
    }
    for missing in &standing.missing_abilities {
        show::line(format!("{missing}; `gleaner doctor` says what mends it"));
    }
    if let Some(commands) = &standing.commands {
        show::line(format!("commands are {commands}"));
    }
    if let Some(gpu) = &standing.gpu {
        print_gpu(gpu);
    }
    if !standing.workers.is_empty() {
        let workers = standing.workers.join(", ");
        show::line(format!("takes for renders what these processes start: {workers}"));
    }
    for (what, text) in &standing.watched {
        show::line(format!("sees {what}: {text}"));
    }
}

fn print_gpu(gpu: &GpuStanding) {
    let GpuStanding { device, begun, failed, trouble, held_back, seen } = gpu;
    let trouble = trouble.as_deref().unwrap_or_default();
    match device {
        None => show::line(format!("no GPU is used: {trouble}")),
        Some(device) => {
            show::line(format!("{begun} replicas were computed on {device}"));
            show::line(format!("it takes {}", device.limits()));
        }
    }
    if let Some(reason) = held_back {
        show::line(format!("nothing begins on it now: {reason}"));
    }
    if let Some(seen) = seen {
        show::line(format!("sees GPU: {seen}"));
    }
    if *failed > 0 {
        show::line(format!("{failed} began again on the processor, the last one for: {trouble}"));
    }
}

fn print_tasks(tasks: &[TaskLine], more: u32) {
    let header = ["slot", "what", "state", "for", "group"];
    let rows = tasks.iter().map(|task| {
        [
            task.slot.to_string(),
            task.what.clone(),
            state(task),
            in_words(Span::from_millis(task.age_ms)),
            task.pgid.to_string(),
        ]
    });
    show::table(header, rows.collect());
    if more > 0 {
        show::line(format!("and {more} more"));
    }
}

fn print_wishes(wishes: Vec<Wish>) {
    let row = |Wish { key, value, origin }| [key, value, origin];
    show::table(["wish", "value", "said by"], wishes.into_iter().map(row).collect());
}

fn state(task: &TaskLine) -> String {
    match (task.frozen, task.share_percent) {
        (true, _) => "frozen".into(),
        (false, None) => "running".into(),
        (false, Some(percent)) => format!("running, {percent} % of a core"),
    }
}

/// 0 lifts a limit.
fn limit<T: Default + PartialEq>(value: T) -> Limit<T> {
    if value == T::default() { Limit::Lifted } else { Limit::At(value) }
}

/// The two largest units.
fn in_words(span: Span) -> String {
    let s = span.as_millis() / 1_000;
    let units = [(s / 86_400, "d"), (s / 3_600 % 24, "h"), (s / 60 % 60, "m"), (s % 60, "s")];
    let begin = units.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let words = units[begin..].iter().take(2).filter(|(count, _)| *count > 0);
    let text: String = words.map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".into() } else { text }
}

pub(crate) fn parse_duration(text: &str) -> Result<Span, String> {
    let refuse = || {
        let expected = "a duration like 30m, 2h, 1h30m, 90s or 1d, at most a year";
        Failure::Usage(format!("{text:?} is not {expected}")).to_string()
    };
    let parsed: jiff::Span = text.trim().parse().map_err(|_| refuse())?;
    let in_seconds = (Unit::Second, SpanRelativeTo::days_are_24_hours());
    let seconds = parsed.total(in_seconds).map_err(|_| refuse())?;
    if (1.0..=PAUSE_MAX_S as f64).contains(&seconds) {
        Ok(Span::from_micros((seconds * 1e6) as u64))
    } else {
        Err(refuse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_said() {
        for (text, seconds, said) in [
            ("90s", 90, "1m30s"),
            ("30m", 1_800, "30m"),
            ("2h", 7_200, "2h"),
            ("1h30m", 5_400, "1h30m"),
            ("1d1s", 86_401, "1d"),
            ("1.5 hours", 5_400, "1h30m"),
        ] {
            let span = parse_duration(text).expect(text);
            assert_eq!((span, in_words(span).as_str()), (Span::from_secs(seconds), said));
        }
        for text in ["", "0s", "5", "h", "2mo", "-2h", "2h ago", "400d", "99999999999999h", "2é"] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains("30m, 2h"), "{error}");
        }
    }
}
