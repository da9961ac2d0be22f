//! Replays a recorded farm: what lies idle on it, and what would have been harvested.
//!
//! The recording says which cores of which hosts the farm used, and when. It comes from our own
//! resource monitor ([`recording`]), from the user logs of [HTCondor](condor), or in the
//! [Standard Workload Format](swf). What the farm leaves is given away as the resource monitor
//! gives it ([`openings`](mod@openings)), and the scheduling core fills it with background work
//! ([`harvest`](mod@harvest)), policy by policy.
//!
//! It gives away by one quiet period and one reserve of cores. What a monitor did beyond that, by an
//! administrator's orders, by quiet periods that it learned, and over restarts, it does not do again:
//! beside what could have been harvested stands what that monitor gave.

pub(crate) mod bookings;
mod condor;
pub(crate) mod format;
mod fragments;
mod harvest;
pub(crate) mod log;
pub(crate) mod openings;
mod recording;
mod sample;
mod settings;
mod swf;
pub(crate) mod trace;

use std::collections::BTreeMap;

use gleaner_protocol::Span;
use gleaner_scheduling::PolicyName;

use self::fragments::Fragments;
use self::harvest::{Harvest, System, harvest};
use self::openings::{given_core_us, openings};
use self::sample::Sample;
use self::settings::{METRICS, Replayed, parameters};
use self::trace::Trace;
use crate::ability::Ability;
use crate::parameters::Parameter;
use crate::scenario::{Metric, Numbers, Order, Outcome, Progress, Scenario};

/// The scenarios, in the order of listing.
pub(crate) const SCENARIOS: &[&dyn Scenario] = &[&Replay];

/// A recorded farm.
#[derive(Debug)]
struct Replay;

impl Scenario for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn about(&self) -> &'static str {
        "a recorded farm: what lies idle, and what would have been harvested"
    }

    fn parameters(&self) -> Vec<Parameter> {
        parameters()
    }

    fn policies(&self) -> &'static [&'static str] {
        &["plain", "fragment-aware", "boinc-adaptive", "gleaner"]
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let replayed = Replayed::of(order.settings)?;
        progress.done(0, "reading");
        let trace = format::read(&replayed.log, replayed.format, replayed.cores_per_host);
        let trace = trace.map_err(|error| error.to_string())?;
        let steps = openings(&trace, replayed.quiet, replayed.reserve_cores);
        let given = given_core_us(&trace, &steps);
        let sample = Sample::of(&trace, &steps, replayed.replicas_max, replayed.work.workunit);
        let mut facts = facts(&trace, given);
        facts.insert("sampled_percent", sample.percent());
        let mut outcome = Outcome { bound: bound(given, &replayed), ..Outcome::default() };
        let span = 1_000_000 / u32::try_from(order.policies.len().max(1)).unwrap_or(u32::MAX);
        for (from, name) in (0..).map(|place| place * span).zip(order.policies) {
            let system = system(name, order.seed, replayed.frozen);
            let run = harvest(&sample, replayed.work, system, progress, (from, span));
            let run = run.map_err(|violation| format!("{name}: {violation}"))?;
            let mut numbers = facts.clone();
            numbers.extend(results(&run, &sample, &replayed));
            outcome.policies.push((name, numbers));
        }
        progress.done(1_000_000, "done");
        Ok(outcome)
    }
}

fn system(name: &str, seed: u64, frozen: Ability) -> System {
    let policy: PolicyName = name.parse().expect("its policies are known by their names");
    System { policy: policy.build(seed), freezes: frozen.is_of(name), seed }
}

/// Whole core-microseconds as core-hours.
fn core_hours(core_us: u128) -> f64 {
    core_us as f64 / 3.6e9
}

fn minutes(span: Span) -> f64 {
    span.as_secs_f64() / 60.0
}

fn percent(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// What the recording says of the farm, whatever the policy.
fn facts(trace: &Trace, given: u128) -> Numbers {
    let fragments = Fragments::of(trace);
    let (sums, idle) = (trace.core_time(), fragments.core_us());
    let share = |least_min: u64| {
        percent(fragments.core_us_longer_than(Span::from_secs(60 * least_min)), idle)
    };
    let told = trace.told_core_us.map(|told| ("monitor_gave_core_hours", core_hours(told)));
    let known = BTreeMap::from([
        ("hosts", trace.hosts.len() as f64),
        ("cores", trace.cores() as f64),
        ("recorded_h", trace.length().as_secs_f64() / 3600.0),
        ("farm_jobs", trace.jobs as f64),
        ("peak_busy_cores", trace.peak_busy as f64),
        ("busy_percent", percent(sums.busy, sums.known)),
        ("overbooked_core_hours", core_hours(trace.overbooked_core_us.into())),
        ("idle_core_hours", core_hours(idle)),
        ("fragments", fragments.count() as f64),
        ("fragment_p10_min", minutes(fragments.percentile(10))),
        ("fragment_p50_min", minutes(fragments.percentile(50))),
        ("fragment_p90_min", minutes(fragments.percentile(90))),
        ("idle_over_1_min_percent", share(1)),
        ("idle_over_10_min_percent", share(10)),
        ("idle_over_60_min_percent", share(60)),
        ("harvestable_core_hours", core_hours(given)),
    ]);
    known.into_iter().chain(told).collect()
}

/// What came of it under one policy, on the whole farm.
fn results(run: &Harvest, sample: &Sample, replayed: &Replayed) -> Numbers {
    let accepted = u128::from(run.workunits) * u128::from(replayed.work.workunit.as_micros());
    let hours = |core_us| sample.scale() * core_hours(core_us);
    let count = |count: u64| libm::round(sample.scale() * count as f64);
    BTreeMap::from([
        ("harvested_core_hours", hours(run.completed_us)),
        ("harvested_percent", percent(run.completed_us, sample.given_core_us())),
        ("accepted_core_hours", hours(accepted)),
        ("lost_to_preemption_core_hours", hours(run.preempted_us)),
        ("aborted_core_hours", hours(run.aborted_us)),
        ("unused_core_hours", hours(run.unused_us(sample.given_core_us()))),
        ("unfinished_core_hours", hours(run.unfinished_us)),
        ("preemptions", count(run.preemptions)),
        ("freezes", count(run.freezes)),
        ("workunits_completed", count(run.workunits)),
    ])
}

/// All that the farm gives, used without a loss and without a second replica.
fn bound(given: u128, replayed: &Replayed) -> Numbers {
    let workunit = u128::from(replayed.work.workunit.as_micros());
    BTreeMap::from([
        ("harvested_core_hours", core_hours(given)),
        ("harvested_percent", percent(given, given)),
        ("accepted_core_hours", core_hours(given)),
        ("lost_to_preemption_core_hours", 0.0),
        ("preemptions", 0.0),
        ("workunits_completed", (given / workunit) as f64),
    ])
}

#[cfg(test)]
mod tests;
