//! What can be set of a replay, and what it measures.

use gleaner_protocol::Span;
use gleaner_protocol::limits::CORES_MAX;

use super::format::FORMATS;
use super::harvest::Work;
use crate::ability::Ability;
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Better, Metric};

/// The parameters, in the order of listing.
pub(super) fn parameters() -> Vec<Parameter> {
    vec![
        Parameter::file("log", "the recording, plain or packed by gzip"),
        Parameter::word(
            "format",
            FORMATS,
            "what kind of log it is: of gleaner monitor, HTCondor's user log, or the Standard \
             Workload Format",
            "the first line of the log says it",
        ),
        Parameter::count(
            "cores_per_host",
            0,
            (0, CORES_MAX.into()),
            "cores of every host, where the log does not say it; 0: one in HTCondor's logs, \
             MaxProcs / MaxNodes in the Standard Workload Format",
            "user logs name slots only, and most slots have one core",
        ),
        Parameter::number(
            "quiet_s",
            60.0,
            (0.0, 86_400.0),
            "for how long nothing must begin or end on a host before its idle cores are given \
             away",
            "the default of the resource monitor",
        ),
        Parameter::count(
            "reserve_cores",
            0,
            (0, CORES_MAX.into()),
            "cores of every host that are never given away",
            "the default of the resource monitor",
        ),
        Parameter::number(
            "workunit_min",
            10.0,
            (0.1, 3_600.0),
            "how long a workunit takes on one core",
            "the short workunits of the fragment-aware scheduler's evaluation",
        ),
        Parameter::count(
            "replication",
            2,
            (1, 32),
            "replicas of each workunit, of which a majority must agree, under policies that \
             replicate all alike",
            "what BOINC projects ask for",
        ),
        Parameter::count(
            "error_ppm",
            1_000,
            (1, 50_000),
            "accepted results of a million that may be wrong, under policies that replicate as \
             far as they trust; no host of a replay is wrong",
            "one in a thousand, as for the fragment scenarios",
        ),
        Parameter::number(
            "freeze_fails_share",
            0.05,
            (0.0, 1.0),
            "share of the farm's jobs that need the memory of what is frozen, which is lost then",
            "assumed, as for the fragment scenarios: small tasks beside a render on 48 GB",
        ),
        Parameter::word(
            "frozen",
            Ability::NOBODY_FIRST,
            "whose hosts freeze what has to go and go on with it afterwards; the others kill it",
            "agents kill what a render drives out, whatever the policy",
        ),
        Parameter::count(
            "replicas_max",
            1_000_000,
            (1_000, 1_000_000_000),
            "about how many replicas each policy is run through: where a farm would run more, \
             every second, third, ... host stands for all",
            "a few seconds of computing",
        ),
    ]
}

/// The parameters of one run.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) log: String,
    pub(super) format: &'static str,
    pub(super) cores_per_host: u32,
    pub(super) quiet: Span,
    pub(super) reserve_cores: u32,
    pub(super) work: Work,
    /// Whose hosts freeze what has to go.
    pub(super) frozen: Ability,
    pub(super) replicas_max: u64,
}

impl Replayed {
    /// # Errors
    /// No log is named.
    pub(super) fn of(settings: &Settings) -> Result<Self, String> {
        let Some(log) = settings.file("log") else {
            return Err("replay needs a log: name a recording of the farm, --log FILE".into());
        };
        let small = |name: &str| u32::try_from(settings.count(name)).unwrap_or(u32::MAX);
        let seconds = |seconds: f64| Span::from_micros((seconds * 1e6) as u64);
        Ok(Self {
            log: log.to_owned(),
            format: settings.word("format"),
            cores_per_host: small("cores_per_host"),
            quiet: seconds(settings.number("quiet_s")),
            reserve_cores: small("reserve_cores"),
            work: Work {
                workunit: seconds(60.0 * settings.number("workunit_min")),
                replication: u8::try_from(settings.count("replication")).unwrap_or(u8::MAX),
                error_ppb: small("error_ppm").saturating_mul(1_000),
                freeze_fails_share: settings.number("freeze_fails_share"),
            },
            frozen: Ability::of(settings.word("frozen")),
            replicas_max: settings.count("replicas_max"),
        })
    }
}

const fn fact(name: &'static str, about: &'static str) -> Metric {
    Metric { name, about, better: Better::Neither }
}

const fn more(name: &'static str, about: &'static str) -> Metric {
    Metric { name, about, better: Better::Higher }
}

const fn less(name: &'static str, about: &'static str) -> Metric {
    Metric { name, about, better: Better::Lower }
}

/// What the recording says, and then what came of it.
pub(super) const METRICS: &[Metric] = &[
    fact("hosts", "hosts in the log"),
    fact("cores", "cores of them"),
    fact("recorded_h", "hours from the first to the last line of the log"),
    fact("farm_jobs", "jobs or renders that ran, each try of them"),
    fact("peak_busy_cores", "most cores that the farm used at once"),
    fact("busy_percent", "core-time that the farm used"),
    fact(
        "overbooked_core_hours",
        "core-hours of jobs beyond the cores that the log's header names",
    ),
    fact("idle_core_hours", "core-hours that the farm left idle"),
    fact("fragments", "times in which one core was idle without a break"),
    fact("fragment_p10_min", "one in ten of them was at most so long"),
    fact("fragment_p50_min", "half of them were at most so long"),
    fact("fragment_p90_min", "nine in ten of them were at most so long"),
    fact("idle_over_1_min_percent", "idle core-time in fragments longer than 1 min"),
    fact("idle_over_10_min_percent", "idle core-time in fragments longer than 10 min"),
    fact("idle_over_60_min_percent", "idle core-time in fragments longer than 60 min"),
    fact(
        "harvestable_core_hours",
        "idle core-hours after quiet_s, without reserve_cores, whatever was ordered",
    ),
    fact(
        "monitor_gave_core_hours",
        "what the recorded monitor gave, by its settings, orders, schedules and learned quiet periods",
    ),
    fact("sampled_percent", "of the harvestable core-hours, on whose hosts the policies ran"),
    more("harvested_core_hours", "core-hours of replicas that were completed"),
    more("harvested_percent", "of what was harvestable"),
    more("accepted_core_hours", "core-hours of workunits with an accepted result, each once"),
    less("lost_to_preemption_core_hours", "core-hours of replicas that had to go"),
    fact("aborted_core_hours", "core-hours of replicas that nobody needed any longer"),
    fact("unused_core_hours", "core-hours that were given and ran nothing"),
    fact("unfinished_core_hours", "core-hours of replicas that still ran as the log ended"),
    less("preemptions", "replicas that had to go"),
    fact("freezes", "times that a replica was frozen instead"),
    more("workunits_completed", "workunits with an accepted result"),
];
