//! `gleaner farm status`: the farm as its monitor knows it.

use std::process::ExitCode;

use gleaner_monitor::Stop;
use gleaner_protocol::api::{
    Contradiction, FarmEventsStatus, FarmStopStatus, PollFailure, PollStatus,
};
use serde::Deserialize;
use serde_json::Value;

use super::monitor::Options;
use super::order::in_words;
use crate::client::Format;
use crate::show::{Cell, cut_middle, plain};
use crate::{process, show};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    options: Options,
    /// Only this host's line. May be given often.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// The farm's broker, which is asked as well whether somebody has stopped all its hosts.
    #[arg(long, env = "GLEANER_BROKER", value_name = "URL")]
    broker: Option<String>,
}

/// Most of a host's bookings that the table names, and of a name's characters.
const NAMED_MAX: usize = 3;
const NAME_CHARS_MAX: usize = 40;
/// Most notes on a poll that are printed.
const NOTES_MAX: usize = 8;

/// Of the monitor's answer, what is printed.
#[derive(Debug, Deserialize)]
struct Farm {
    stop: Option<Stop>,
    is_stop_kept: bool,
    totals: Totals,
    release: Option<Release>,
    learned: Vec<Learned>,
    farm_events: Option<FarmEventsStatus>,
    poll: Option<PollStatus>,
    hosts: Vec<Host>,
}

#[derive(Debug, Deserialize)]
struct Totals {
    hosts: u64,
    cores: u64,
    bookings: u64,
    fragments: u64,
    fragment_cores: u64,
    contradictions: u64,
}

#[derive(Debug, Deserialize)]
struct Learned {
    group: String,
    quiet_ms: u64,
    gaps: u64,
}

#[derive(Debug, Deserialize)]
struct Release {
    preflights: u64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    max_us: u64,
}

#[derive(Debug, Deserialize)]
struct Host {
    host: String,
    also_called: Vec<String>,
    cores: Option<u32>,
    bookings: Vec<Booking>,
    fragment: Fragment,
    event_age_ms: Option<u64>,
    sample_age_ms: Option<u64>,
    poll_age_ms: Option<u64>,
    contradictions: Vec<Contradiction>,
}

#[derive(Debug, Deserialize)]
struct Booking {
    booking: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Fragment {
    Open { cores: u32 },
    Closed { reason: String },
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    process::block_on(async {
        let mut answer: Value = args.options.client()?.get("/v1/farm").await?;
        keep(&args.hosts, &mut answer)?;
        let mut at_broker = None;
        if let Some(address) = &args.broker {
            // What the monitor knows is worth as much without it.
            match asked_of_broker(&args.options, address).await {
                Ok(FarmStopStatus { stopped, .. }) => {
                    answer["broker_stop"] = serde_json::to_value(&stopped)?;
                    at_broker = stopped;
                }
                Err(error) => {
                    show::note(format_args!(
                        "whether the broker has stopped harvest is not known: {error:#}"
                    ));
                }
            }
        }
        match args.options.format() {
            Format::Json => show::json(&answer),
            Format::Table => {
                if let Some(stopped) = &at_broker {
                    show::line(format_args!("STOPPED: {}", in_words(stopped)));
                    show::line(
                        "  `gleaner farm resume --broker URL`, or the broker's page, lifts it",
                    );
                }
                print(&serde_json::from_value(answer)?);
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Whether somebody has stopped all hosts of a broker.
async fn asked_of_broker(options: &Options, address: &str) -> anyhow::Result<FarmStopStatus> {
    Ok(options.broker(address)?.get("/v1/farm/stop").await?)
}

/// Leaves of the hosts those that are asked for, where any are.
fn keep(hosts: &[String], farm: &mut Value) -> anyhow::Result<()> {
    let Some(all) = farm["hosts"].as_array_mut().filter(|_| !hosts.is_empty()) else {
        return Ok(());
    };
    let is = |host: &Value, name: &String| {
        let others = host["also_called"].as_array();
        let names = [&host["host"]].into_iter().chain(others.into_iter().flatten());
        names.filter_map(Value::as_str).any(|known| known == name)
    };
    if let Some(unknown) = hosts.iter().find(|name| !all.iter().any(|host| is(host, name))) {
        anyhow::bail!(
            "the monitor knows no host {unknown:?}; `gleaner farm status` without --host shows those that \
             it knows"
        );
    }
    all.retain(|host| hosts.iter().any(|name| is(host, name)));
    Ok(())
}

fn print(farm: &Farm) {
    match &farm.stop {
        Some(stop) => {
            show::line(format_args!("STOPPED: {stop}"));
            show::line("  `gleaner farm resume` lifts it");
        }
        None => show::line("harvested; `gleaner farm stop --reason TEXT` stops it"),
    }
    if !farm.is_stop_kept {
        show::line("  the monitor has no state_dir: a stop ends when it restarts");
    }
    let Totals { hosts, cores, bookings, fragments, fragment_cores, contradictions } = farm.totals;
    show::line(format_args!(
        "{hosts} hosts with {cores} cores; {bookings} renders; {fragment_cores} cores of {fragments} \
         hosts free for harvest; {contradictions} contradictions"
    ));
    if let Some(release) = &farm.release {
        let Release { preflights, p50_us, p90_us, p99_us, max_us } = release;
        let [p50, p90, p99, max] = [p50_us, p90_us, p99_us, max_us].map(|us| *us as f64 / 1_000.0);
        show::line(format_args!(
            "the newest {preflights} preflights had their cores after ms: p50 {p50:.1}, \
             p90 {p90:.1}, p99 {p99:.1}, max {max:.1}"
        ));
    }
    for Learned { group, quiet_ms, gaps } in &farm.learned {
        let quiet_s = *quiet_ms as f64 / 1_000.0;
        show::line(format_args!(
            "the hosts of {group:?} wait {quiet_s:.0} s after a render, by {gaps} idle gaps"
        ));
    }
    if let Some(FarmEventsStatus { url, is_connected, trouble, heard }) = &farm.farm_events {
        let trouble = trouble.as_deref().unwrap_or("not connected yet");
        show::line(match is_connected {
            true => format!("polled at once when {url} tells of something: {heard} times so far"),
            false => format!("polled in turn only: {url} is not heard ({trouble})"),
        });
    }
    farm.poll.iter().flat_map(poll_lines).for_each(show::line);
    let header = ["host", "free", "renders", "hook", "agent", "poll", "why not, or contradictions"];
    show::table(header, farm.hosts.iter().map(row).collect());
}

/// How its polls go: what fails, since when and what to do about it, and what is not understood.
fn poll_lines(poll: &PollStatus) -> Vec<String> {
    let PollStatus { source, answered_age_ms, hosts, not_understood, notes, failing, .. } = poll;
    let mut lines = Vec::new();
    let answered = answered_age_ms.map_or_else(
        || "it has not answered since the monitor started".to_owned(),
        |age_ms| format!("its newest answer, of {hosts} hosts, is {} old", age(age_ms)),
    );
    match failing {
        Some(PollFailure { since_ms, polls, error, cure }) => {
            lines.push(format!(
                "POLLS FAIL: {source}, for {} now ({polls} polls); {answered}",
                age(*since_ms)
            ));
            lines.push(format!("  {error}"));
            lines.push(format!("  -> {cure}"));
        }
        None => lines.push(format!("{source} is polled; {answered}")),
    }
    if *not_understood > 0 {
        lines.push(format!(
            "  {not_understood} parts of its answer are not understood: their hosts are not harvested"
        ));
    }
    lines.extend(notes.iter().take(NOTES_MAX).map(|note| format!("  {note}")));
    if notes.len() > NOTES_MAX {
        lines.push(format!("  and {} more, in --format json", notes.len() - NOTES_MAX));
    }
    lines
}

fn row(host: &Host) -> [Cell; 7] {
    let cores = host.cores.map_or_else(|| "?".into(), |cores| cores.to_string());
    let (free, mut notes) = match &host.fragment {
        Fragment::Open { cores } => (*cores, Vec::new()),
        Fragment::Closed { reason } => (0, vec![reason.clone()]),
    };
    notes.extend(host.contradictions.iter().map(|Contradiction { text, times, age_ms }| {
        format!("{text} ({times} times, last {} ago)", age(*age_ms))
    }));
    let ago = |age_ms: Option<u64>| age_ms.map_or_else(|| "never".into(), age);
    let others = host.also_called.iter().map(|other| format!("also {}", show::name(other)));
    let names = [show::name(&host.host)].into_iter().chain(others);
    [
        Cell::lines(names),
        format!("{free} of {cores} cores").into(),
        Cell::lines(renders(&host.bookings)),
        ago(host.event_age_ms).into(),
        ago(host.sample_age_ms).into(),
        ago(host.poll_age_ms).into(),
        Cell::lines(notes),
    ]
}

/// How many there are, and the names of the first, a line each.
fn renders(bookings: &[Booking]) -> Vec<String> {
    let mut lines = vec![bookings.len().to_string()];
    lines.extend(bookings.iter().take(NAMED_MAX).map(|one| named(&one.booking)));
    if bookings.len() > NAMED_MAX {
        lines.push(format!("and {} more", bookings.len() - NAMED_MAX));
    }
    lines
}

/// A booking's name in a column, with what tells it from others: its end.
fn named(booking: &str) -> String {
    cut_middle(&plain(booking), NAME_CHARS_MAX).into_owned()
}

/// How long ago, in two figures or so.
fn age(age_ms: u64) -> String {
    match age_ms / 1_000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn renders_are_named_in_a_column_of_bounded_width() {
        let of = |names: &[&str]| {
            let bookings = names.iter().map(|name| Booking { booking: (*name).to_owned() });
            renders(&bookings.collect::<Vec<_>>()).join("\n")
        };
        assert_eq!(of(&[]), "0");
        assert_eq!(of(&["slurm:7", "pbs:1"]), "2\nslurm:7\npbs:1");
        assert_eq!(of(&["a", "b", "c", "d", "e"]), "5\na\nb\nc\nand 2 more");
        assert_eq!(
            named("htcondor:123456.12@submit.farm.example.com:1795509941"),
            "htcondor:123456.12@…ample.com:1795509941"
        );
        let long = format!("htcondor:{}+12.3+ends", "ü".repeat(300));
        let shown = of(&[&long]);
        assert!(shown.starts_with("1\nhtcondor:") && shown.ends_with("+12.3+ends"), "{shown}");
        assert_eq!(shown.lines().map(|line| line.chars().count()).max(), Some(NAME_CHARS_MAX));
    }

    #[test]
    fn polls_that_fail_are_told_of_with_what_since_when_and_what_to_do() {
        let poll = |value: Value| poll_lines(&serde_json::from_value(value).expect("a poll"));
        let good = json!({"source": "slurm", "polls": 40, "failed": 0, "answered_age_ms": 3_000, "hosts": 24, "not_understood": 0,
                          "notes": [], "failing": null});
        assert_eq!(
            poll(good.clone()),
            ["slurm is polled; its newest answer, of 24 hosts, is 3 s old"]
        );
        let mut bad = good;
        bad["failing"] = json!({"since_ms": 600_000, "polls": 40, "error": "`squeue`: no",
                                "cure": "run it"});
        bad["answered_age_ms"] = Value::Null;
        bad["not_understood"] = json!(2);
        bad["notes"] = json!(["a", "b"]);
        assert_eq!(
            poll(bad),
            [
                "POLLS FAIL: slurm, for 10 min now (40 polls); it has not answered since the monitor \
                 started",
                "  `squeue`: no",
                "  -> run it",
                "  2 parts of its answer are not understood: their hosts are not harvested",
                "  a",
                "  b",
            ]
        );
    }

    #[test]
    fn hosts_that_are_asked_for_are_left_and_an_unknown_one_is_said() {
        let farm = json!({"hosts": [{"host": "a"}, {"host": "b"}, {"host": "c"}]});
        let kept = |hosts: &[&str]| {
            let mut farm = farm.clone();
            let hosts: Vec<String> = hosts.iter().map(|name| (*name).to_owned()).collect();
            keep(&hosts, &mut farm).map(|()| farm["hosts"].clone())
        };
        assert_eq!(kept(&[]).expect("all"), farm["hosts"]);
        assert_eq!(kept(&["c", "a"]).expect("two"), json!([{"host": "a"}, {"host": "c"}]));
        let said = kept(&["a", "x"]).expect_err("there is none").to_string();
        assert!(said.contains("no host \"x\""), "{said}");
    }

    #[test]
    fn ages_are_short() {
        let ages = [0, 119_999, 120_000, 7_200_000, 200_000_000].map(age);
        assert_eq!(ages, ["0 s", "119 s", "2 min", "2 h", "2 d"]);
    }
}
