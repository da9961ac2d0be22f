//! What a run of the studio is judged by.

use gleaner_protocol::Time;
use gleaner_protocol::job::Lane;

use super::loads::Loads;
use super::tally::Tally;
use crate::scenario::{Better, Metric, Numbers};

/// The metrics: `LANE.METRIC`, and one of all lanes.
pub(super) const METRICS: &[Metric] = &[
    metric("rendering.framerate_fps", Better::Higher, "frames a second, mean of user actions"),
    metric("rendering.framerate_solo_fps", Better::Neither, "the same of the lane alone"),
    metric("rendering.latency_s", Better::Lower, "from asking for a frame to having it, mean"),
    metric("rendering.latency_solo_s", Better::Neither, "the same of the lane alone"),
    metric("deadline.met_share", Better::Higher, "jobs done by their due times, of all that came"),
    metric("deadline.met_solo_share", Better::Neither, "the same of the lane alone"),
    metric("dataset.execution_s", Better::Lower, "from submitting the job to its last output"),
    metric(
        "dataset.execution_solo_s",
        Better::Neither,
        "the same of the lane alone on what rendering and deadline left",
    ),
    metric("batch.makespan_s", Better::Lower, "from submitting the batch to its last output"),
    metric(
        "batch.makespan_solo_s",
        Better::Neither,
        "the same of the lane alone on what the lanes before it left",
    ),
    metric(
        "background.of_leftover_share",
        Better::Higher,
        "core-time of replicas that came to something or still go on, of what the farm gave and \
         other lanes did not hold",
    ),
    metric(
        "lost",
        Better::Lower,
        "what was accepted and not done when nothing more happened, workunits that were given up, \
         and leases that no host knows of",
    ),
];

const fn metric(name: &'static str, better: Better, about: &'static str) -> Metric {
    Metric { name, about, better }
}

/// What a lane is judged by, in the order of the metrics: the first ones of [`METRICS`] with its
/// name, those of its solo run aside. Not a number where there is none.
pub(super) fn of_lane(lane: Lane, tally: &Tally, loads: &Loads) -> Vec<f64> {
    match lane {
        Lane::Rendering => {
            let numbers = tally.frames.numbers(&loads.frames);
            vec![numbers["framerate_fps"], numbers["interactive_latency_s"]]
        }
        Lane::Deadline => {
            let jobs = loads.deadline.iter().zip(&tally.due_done);
            let met = jobs.filter(|(job, done)| done.is_some_and(|done| done <= job.due)).count();
            vec![met as f64 / loads.deadline.len() as f64]
        }
        Lane::Dataset => vec![since(loads.dataset.at, tally.dataset_done)],
        Lane::Batch => {
            let is_done = tally.open(loads, Lane::Batch) == 0 && !loads.batch.times.is_empty();
            vec![since(loads.batch.at, is_done.then_some(tally.batch_last))]
        }
        Lane::Background => vec![of_leftover(tally)],
    }
}

fn since(from: Time, until: Option<Time>) -> f64 {
    until.map_or(f64::NAN, |until| until.since(from).as_secs_f64())
}

/// What came of the core-time that the other lanes left.
fn of_leftover(tally: &Tally) -> f64 {
    let (background, others) = (Lane::Background.index(), &tally.held.total_us);
    let held_by_others: u64 = others[..background].iter().sum();
    let left = tally.given_us.saturating_sub(held_by_others);
    others[background].saturating_sub(tally.wasted_us) as f64 / left as f64
}

/// What was lost in a run of these lanes.
pub(super) fn lost(tally: &Tally, loads: &Loads, lanes: &[Lane]) -> f64 {
    let open: u64 = lanes.iter().map(|lane| tally.open(loads, *lane)).sum();
    (open + tally.failed + tally.refused + tally.strays) as f64
}

/// Names what was measured of a lane beside the others and alone.
pub(super) fn insert(numbers: &mut Numbers, lane: Lane, beside: &[f64], solo: &[f64]) {
    let of_lane = |metric: &&Metric| {
        let name = metric.name.split_once('.');
        name.is_some_and(|(name, _)| name == lane.as_str())
    };
    let mut of = METRICS.iter().filter(of_lane).map(|metric| metric.name);
    for (place, number) in beside.iter().enumerate() {
        numbers.extend(of.next().map(|name| (name, *number)));
        let solo = solo.get(place).copied().zip(of.next());
        numbers.extend(solo.map(|(number, name)| (name, number)));
    }
}
