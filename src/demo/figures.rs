//! The figures that the demo ends with.

use gleaner_protocol::Span;
use serde::Serialize;

use super::farm::{FarmPhase, FrameRun};
use super::submitter::Harvest;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Frames that were rendered without and again with harvest.
    pub(super) render_frames: usize,
    /// How much longer these took with harvest, from the farm's decision to the end of the
    /// render, preflight included.
    pub(super) render_slowdown_percent: f64,
    /// CPU time of the renders over that of the machine, without harvest.
    pub(super) utilization_without_percent: f64,
    /// CPU time of the renders and of accepted harvested work over that of the machine.
    pub(super) utilization_with_percent: f64,
    /// Workunits decided.
    pub(super) workunits_completed: u64,
    /// Completed positions whose workunits add up to the published number.
    pub(super) results_correct: u64,
    /// Completed positions whose workunits do not, or that failed.
    pub(super) results_wrong: u64,
    /// Preflights that stopped at least one running replica.
    pub(super) preemptions: usize,
    /// From the hook's start to the last harvested process stopped.
    pub(super) release_ms_p50: f64,
    /// The same.
    pub(super) release_ms_p99: f64,
    /// Replicas given back or taken back before they were done.
    pub(super) replicas_aborted: u64,
    /// Accepted workunits and results that are not there any more.
    pub(super) lost: u64,
}

impl Figures {
    /// From the same frames without and with harvest, and from what was harvested meanwhile.
    pub(super) fn new(
        without: &FarmPhase,
        with: &FarmPhase,
        harvest: &Harvest,
        machine_cores: u32,
    ) -> Self {
        let total = |frames: &[FrameRun], of: fn(&FrameRun) -> Span| {
            frames.iter().map(|frame| of(frame).as_secs_f64()).sum::<f64>()
        };
        let slowdown =
            total(&with.frames, |frame| frame.took) / total(&without.frames, |frame| frame.took);
        let utilization = |phase: &FarmPhase, harvested: Span| {
            let cpu_s = total(&phase.frames, |frame| frame.cpu) + harvested.as_secs_f64();
            cpu_s / (phase.length.as_secs_f64() * f64::from(machine_cores))
        };
        let mut releases: Vec<f64> = with
            .frames
            .iter()
            .filter_map(|frame| frame.release?.took)
            .map(|took| took.as_secs_f64() * 1e3)
            .collect();
        releases.sort_unstable_by(f64::total_cmp);
        Self {
            render_frames: with.frames.len(),
            render_slowdown_percent: percent(slowdown - 1.0),
            utilization_without_percent: percent(utilization(without, Span::ZERO)),
            utilization_with_percent: percent(utilization(with, harvest.accepted_cpu)),
            workunits_completed: harvest.completed,
            results_correct: harvest.correct,
            results_wrong: harvest.wrong,
            preemptions: releases.len(),
            release_ms_p50: hundredths(percentile(&releases, 0.50)),
            release_ms_p99: hundredths(percentile(&releases, 0.99)),
            replicas_aborted: harvest.aborted,
            lost: harvest.lost,
        }
    }
}

fn percent(share: f64) -> f64 {
    hundredths(share * 100.0)
}

/// Rounded; 0 where there is nothing to tell.
fn hundredths(value: f64) -> f64 {
    if value.is_finite() { (value * 100.0).round() / 100.0 } else { 0.0 }
}

/// The smallest value that is not below `share` of all; 0 of none.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::Span;

    use super::*;
    use crate::release_watch::Release;

    fn phase(frames: &[(u64, u64, Option<u64>)]) -> FarmPhase {
        let release = |ms: u64| Release { took: Some(Span::from_millis(ms)), unfinished: false };
        let frames = frames.iter().map(|&(took, cpu, released)| FrameRun {
            took: Span::from_millis(took),
            cpu: Span::from_millis(cpu),
            release: released.map(release),
            intruders: 0,
        });
        FarmPhase { frames: frames.collect(), length: Span::from_secs(10), machine_cpu: Span::ZERO }
    }

    #[test]
    fn the_figures_follow_from_what_was_measured() {
        let without = phase(&[(1000, 1000, None), (3000, 3000, None)]);
        let with = phase(&[(1040, 1000, Some(7)), (3040, 3000, Some(9))]);
        let harvest =
            Harvest { accepted_cpu: Span::from_secs(12), completed: 5, ..Harvest::default() };
        let figures = Figures::new(&without, &with, &harvest, 2);
        assert_eq!(figures.render_slowdown_percent, 2.0);
        assert_eq!(figures.utilization_without_percent, 20.0);
        assert_eq!(figures.utilization_with_percent, 80.0);
        assert_eq!((figures.release_ms_p50, figures.release_ms_p99), (7.0, 9.0));
        assert_eq!((figures.preemptions, figures.workunits_completed), (2, 5));
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 100.0);
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values[..1], 0.99), 1.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn the_object_has_exactly_the_agreed_keys() {
        let figures = Figures::new(&phase(&[]), &phase(&[]), &Harvest::default(), 2);
        let object = serde_json::to_value(figures).expect("our own type");
        let mut keys: Vec<&String> = object.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        let agreed = [
            "lost",
            "preemptions",
            "release_ms_p50",
            "release_ms_p99",
            "render_frames",
            "render_slowdown_percent",
            "replicas_aborted",
            "results_correct",
            "results_wrong",
            "utilization_with_percent",
            "utilization_without_percent",
            "workunits_completed",
        ];
        assert_eq!(keys, agreed);
        assert!(object.as_object().expect("an object").values().all(serde_json::Value::is_number));
    }
}
