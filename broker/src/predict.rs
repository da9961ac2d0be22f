//! What a job's workunits will take, from what such runs took before.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_history::{ANY_KIND, Basis, Clock, History, OWN_RUNS_ENOUGH};
use gleaner_protocol::HostKind;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::limits::PROFILE_S_MAX;
use gleaner_scheduling::{application, features};

/// As many workunits of a job are looked at, spread over all of them: they may differ.
const WORKUNITS_MAX: u32 = 16;
/// What a job with a due time is planned with: so many of such runs take no longer.
const CAREFUL: f64 = 0.9;
/// What a batch is planned with.
const USUAL: f64 = 0.5;

/// Whether a job is planned with times, and says none.
pub(crate) fn is_wanted(spec: &JobSpec) -> bool {
    let is_planned = matches!(spec.lane, Lane::Deadline | Lane::Batch);
    is_planned && spec.profile.cpu_us.is_none() && spec.profile.run_time_us.is_empty()
}

/// Completes a job's profile by what is known of such runs; nothing where nothing is. `kinds` are
/// those of the hosts that are connected.
pub(crate) fn fill_in(history: &mut History, spec: &mut JobSpec, kinds: &BTreeSet<HostKind>) {
    let part = if spec.lane == Lane::Deadline { CAREFUL } else { USUAL };
    let any = longest(history, spec, ANY_KIND, part);
    let known: BTreeMap<HostKind, Takes> = kinds
        .iter()
        .filter_map(|kind| Some((kind.clone(), longest(history, spec, kind.as_str(), part)?)))
        .collect();
    let all = known.values().chain(&any);
    spec.profile.cpu_us = all.clone().map(|of| of.time_us).max();
    spec.profile.cpu_sigma_permille = all.map(|of| of.sigma_permille).max();
    if spec.lane == Lane::Batch {
        // Kinds on which such work has run are named; of the others there is one guess, and the policy
        // tries them.
        let (own, guessed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            known.into_iter().partition(|(_, of)| of.is_own);
        spec.profile.run_time_us = own.into_iter().map(|(kind, of)| (kind, of.time_us)).collect();
        let guess = guessed.values().map(|of| of.time_us).max();
        spec.profile.cpu_us = guess.or(spec.profile.cpu_us);
    }
}

/// What a workunit takes.
#[derive(Debug, Clone, Copy)]
struct Takes {
    /// In microseconds of a core.
    time_us: u64,
    /// Standard deviation of its logarithm, in thousandths.
    sigma_permille: u16,
    /// Whether such work has run on the kind of host.
    is_own: bool,
}

/// What the longest of a job's workunits takes on a kind of host.
fn longest(history: &mut History, spec: &JobSpec, kind: &str, part: f64) -> Option<Takes> {
    let count = spec.workunits.len();
    let looked_at = count.min(WORKUNITS_MAX);
    let indices = (0..looked_at).map(|at| {
        u32::try_from(u64::from(at) * u64::from(count) / u64::from(looked_at)).unwrap_or(at)
    });
    let times = indices.filter_map(|index| {
        let (application, features) = (application(spec, index), features(spec, index));
        // What waits takes no CPU time, nor does what a GPU computes: their places are taken all the
        // same: of two clocks of which enough is known the wall's counts. Of runs on several cores, or on a
        // part of one, only CPU time is known.
        let clocks = [Clock::Cpu, Clock::Wall].into_iter();
        let known =
            clocks.filter_map(|clock| history.predict_by(clock, &application, kind, &features));
        let known = known
            .max_by_key(|known| (known.basis == Basis::Own, known.runs.min(OWN_RUNS_ENOUGH)))?;
        let sigma_permille = (known.sigma * 1000.0).clamp(1.0, 5_000.0) as u16;
        let time_us = (known.quantile(part).ceil() as u64).min(PROFILE_S_MAX * 1_000_000);
        Some(Takes { time_us, sigma_permille, is_own: known.basis == Basis::Own })
    });
    times.max_by_key(|of| of.time_us)
}

#[cfg(test)]
mod tests {
    use gleaner_history::Run;

    use super::*;

    fn spec(lane: &str) -> JobSpec {
        let text =
            format!(r#"{{"task":{{"kernel":"blur"}},"workunits":{{"count":3}},"lane":"{lane}"}}"#);
        serde_json::from_str(&text).expect("a job")
    }

    fn run(kind: &str, seconds: u64) -> Run {
        Run {
            application: "blur".into(),
            kind: kind.into(),
            features: BTreeMap::new(),
            cpu_us: seconds * 1_000_000,
            wall_us: seconds * 1_000_000,
            peak_memory_mib: None,
            ended: true,
            at_ms: 1,
        }
    }

    fn history(kind: &str, seconds: u64) -> History {
        let mut history = History::default();
        for _ in 0..20 {
            history.add(run(kind, seconds));
        }
        history
    }

    fn kinds(names: &[&str]) -> BTreeSet<HostKind> {
        names.iter().map(|name| HostKind::new(*name).expect("a plain name")).collect()
    }

    #[test]
    fn a_job_takes_what_such_runs_took() {
        let mut job = spec("deadline");
        assert!(is_wanted(&job) && !is_wanted(&spec("background")));
        fill_in(&mut History::default(), &mut job, &kinds(&["fat"]));
        assert_eq!(job.profile.cpu_us, None, "nothing is known");
        fill_in(&mut history("any", 30), &mut job, &kinds(&[]));
        let cpu_us = job.profile.cpu_us.expect("known");
        assert!((29_000_000..45_000_000).contains(&cpu_us), "{cpu_us}");
        assert!(job.profile.run_time_us.is_empty());
        assert!(!is_wanted(&job));
    }

    #[test]
    fn what_waits_takes_as_long_as_it_has_its_place_and_what_was_cut_off_longer_than_that() {
        let waits = |ended| Run { cpu_us: if ended { 1_000 } else { 0 }, ended, ..run("any", 30) };
        let mut history = History::default();
        (0..20).for_each(|_| history.add(waits(true)));
        let mut job = spec("deadline");
        fill_in(&mut history, &mut job, &kinds(&[]));
        let known_us = job.profile.cpu_us.expect("known");
        assert!((29_000_000..45_000_000).contains(&known_us), "{known_us}");
        (0..20).for_each(|_| history.add(Run { wall_us: 90_000_000, ..waits(false) }));
        let mut job = spec("deadline");
        fill_in(&mut history, &mut job, &kinds(&[]));
        assert!(job.profile.cpu_us.expect("known") > 60_000_000, "some were cut off after 90 s");
        // One that ran on a part of a core does not hide what the others waited.
        let mut history = History::default();
        (0..20).for_each(|_| history.add(waits(true)));
        history.add(Run { wall_us: 0, ..waits(true) });
        let mut job = spec("deadline");
        fill_in(&mut history, &mut job, &kinds(&[]));
        assert!(job.profile.cpu_us.is_some_and(|time_us| time_us > 29_000_000));
        // On a part of a core only CPU time says how large the work is.
        let mut history = History::default();
        (0..20).for_each(|_| history.add(Run { wall_us: 0, ..run("any", 30) }));
        let mut job = spec("deadline");
        fill_in(&mut history, &mut job, &kinds(&[]));
        assert!(job.profile.cpu_us.is_some_and(|cpu_us| cpu_us > 29_000_000));
    }

    #[test]
    fn what_is_predicted_is_within_the_bounds_of_a_job() {
        let mut job = spec("deadline");
        fill_in(&mut history("any", 2 * PROFILE_S_MAX), &mut job, &kinds(&[]));
        assert_eq!(job.profile.cpu_us, Some(PROFILE_S_MAX * 1_000_000));
        assert_eq!(job.check(), Ok(()));
    }

    #[test]
    fn a_batch_names_the_kinds_on_which_such_work_has_run_and_guesses_of_the_others() {
        let mut job = spec("batch");
        let mut history = history("fat", 30);
        fill_in(&mut history, &mut job, &kinds(&["fat", "light"]));
        let names: Vec<&str> = job.profile.run_time_us.keys().map(HostKind::as_str).collect();
        assert_eq!(names, ["fat"]);
        let fat = job.profile.run_time_us.values().copied().max().expect("named");
        assert!((29_000_000..40_000_000).contains(&fat), "{fat}");
        assert!(job.profile.cpu_us.is_some(), "light hosts may run it");
        // What other work took three times as long on light hosts is a guess for this work.
        for (kind, seconds) in [("fat", 10), ("light", 30)] {
            for _ in 0..5 {
                history.add(Run { application: "other".into(), ..run(kind, seconds) });
            }
        }
        let mut job = spec("batch");
        fill_in(&mut history, &mut job, &kinds(&["fat", "light"]));
        let guess = job.profile.cpu_us.expect("a guess");
        assert!((80_000_000..110_000_000).contains(&guess), "{guess}");
    }
}
