//! How many cores were idle and open, over time.
//!
//! # Invariants
//! - Steps follow each other without a gap; one of which too little was seen is not `known`, and
//!   holds what was seen last.
//! - At most [`STEPS_MAX`] steps are kept; the oldest go first.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::limits::{STEP_S, STEPS_MAX};

/// A step of the record: means over its seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Cores that the farm did not use.
    pub idle: f32,
    /// Of these, those that could be harvested.
    pub open: f32,
    /// Whether at least half of the step was seen.
    pub known: bool,
}

/// A bounded series of harvested cores at a fixed step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CapacityRecord {
    steps: VecDeque<Sample>,
    /// Steps that were closed, those that are kept no longer included.
    closed: u64,
    /// Until when all is counted, in seconds.
    counted_s: u64,
    /// When the open step began.
    step_s: u64,
    /// Idle and open cores since then; `None` where nobody knows.
    now: Option<(u32, u32)>,
    /// Core-seconds and seconds that were seen of the open step.
    idle_sum: f64,
    open_sum: f64,
    seen_s: u64,
    /// Most cores that were idle at once.
    cores: u32,
}

impl CapacityRecord {
    /// From `at_s` on so many cores are idle, and so many of these open. Times are seconds of any
    /// clock that does not run backwards; what is told of a moment before the last one counts from
    /// the last one on.
    pub fn observe(&mut self, at_s: u64, idle: u32, open: u32) {
        self.advance(at_s);
        self.cores = self.cores.max(idle).max(open);
        self.now = Some((idle, open));
    }

    /// From `at_s` on nobody knows, until [`CapacityRecord::observe`] says more.
    pub fn lose_sight(&mut self, at_s: u64) {
        self.advance(at_s);
        self.now = None;
    }

    /// Lets time pass, and closes the steps that are over.
    pub fn advance(&mut self, at_s: u64) {
        if self.closed == 0 && self.now.is_none() && self.seen_s == 0 {
            (self.counted_s, self.step_s) = (at_s, at_s - at_s % STEP_S);
        }
        let longest = STEP_S * (STEPS_MAX as u64 + 1);
        if at_s.saturating_sub(self.step_s) > longest {
            // Nothing that is kept was seen: only where the days begin stays.
            let skipped = (at_s - self.step_s - longest) / STEP_S;
            self.step_s += skipped * STEP_S;
            self.counted_s = self.counted_s.max(self.step_s);
            self.closed += skipped;
        }
        while self.step_s + STEP_S <= at_s {
            self.count(self.step_s + STEP_S);
            self.close();
        }
        self.count(at_s);
    }

    fn count(&mut self, until_s: u64) {
        let span_s = until_s.saturating_sub(self.counted_s);
        if let Some((idle, open)) = self.now {
            self.idle_sum += f64::from(idle) * span_s as f64;
            self.open_sum += f64::from(open) * span_s as f64;
            self.seen_s += span_s;
        }
        self.counted_s = self.counted_s.max(until_s);
    }

    fn close(&mut self) {
        let known = 2 * self.seen_s >= STEP_S;
        let sample = if self.seen_s > 0 {
            let mean = |sum: f64| (sum / self.seen_s as f64) as f32;
            Sample { idle: mean(self.idle_sum), open: mean(self.open_sum), known }
        } else {
            Sample { known, ..self.steps.back().copied().unwrap_or_default() }
        };
        if self.steps.len() == STEPS_MAX {
            self.steps.pop_front();
        }
        self.steps.push_back(sample);
        (self.idle_sum, self.open_sum, self.seen_s) = (0.0, 0.0, 0);
        self.closed += 1;
        self.step_s += STEP_S;
    }

    /// The steps that are kept, oldest first.
    pub fn steps(&self) -> impl Iterator<Item = Sample> + '_ {
        self.steps.iter().copied()
    }

    /// How many steps are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether no step is closed yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Idle and open cores now; where nobody knows, as they were last.
    #[must_use]
    pub fn now(&self) -> (f32, f32) {
        let last = || self.steps.back().map_or((0.0, 0.0), |step| (step.idle, step.open));
        self.now.map_or_else(last, |(idle, open)| (idle as f32, open as f32))
    }

    /// Most cores that were ever idle at once.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Steps that were closed, those that are kept no longer included.
    #[must_use]
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Mean open cores over steps by their number, counted as [`CapacityRecord::closed`] counts;
    /// `None` where they are not all kept, or a tenth of them is not known.
    #[must_use]
    pub fn mean_open(&self, from: u64, until: u64) -> Option<f64> {
        let first = self.closed - self.steps.len() as u64;
        if from < first || until > self.closed || from >= until {
            return None;
        }
        let range = usize::try_from(from - first).ok()?..usize::try_from(until - first).ok()?;
        let (mut sum, mut unknown, count) = (0.0, 0, range.len());
        for step in self.steps.range(range) {
            sum += f64::from(step.open);
            unknown += usize::from(!step.known);
        }
        (10 * unknown <= count).then(|| sum / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_mean_of_its_seconds() {
        let mut record = CapacityRecord::default();
        record.observe(1_000_000_200, 8, 8);
        record.observe(1_000_000_260, 4, 2);
        record.advance(1_000_000_500);
        // The first step began before it was first seen: 1,000,000,200 is where one begins.
        let steps: Vec<_> = record.steps().collect();
        assert_eq!(steps, [Sample { idle: 4.8, open: 3.2, known: true }]);
        assert_eq!((record.now(), record.cores(), record.len()), ((4.0, 2.0), 8, 1));
    }

    #[test]
    fn what_nobody_saw_is_held_and_not_known() {
        let mut record = CapacityRecord::default();
        record.observe(0, 6, 5);
        record.lose_sight(STEP_S + 10);
        record.observe(3 * STEP_S, 1, 1);
        record.advance(4 * STEP_S);
        let opens: Vec<_> = record.steps().map(|step| (step.open, step.known)).collect();
        assert_eq!(opens, [(5.0, true), (5.0, false), (5.0, false), (1.0, true)]);
        assert_eq!(record.mean_open(3, 4), Some(1.0));
        assert_eq!(record.mean_open(0, 4), None);
        assert_eq!(record.mean_open(3, 5), None);
    }

    #[test]
    fn it_keeps_no_more_than_its_bound_however_long_it_was_away() {
        let mut record = CapacityRecord::default();
        record.observe(0, 3, 3);
        let away_s = STEP_S * (10 * STEPS_MAX as u64 + 7);
        record.lose_sight(STEP_S);
        record.observe(away_s, 2, 2);
        record.advance(away_s + STEP_S);
        assert_eq!(record.len(), STEPS_MAX);
        assert_eq!(record.closed(), away_s / STEP_S + 1);
        assert_eq!(record.steps().last().map(|step| step.open), Some(2.0));
    }

    #[test]
    fn a_time_before_the_last_one_changes_nothing_but_now() {
        let mut record = CapacityRecord::default();
        record.observe(10 * STEP_S, 3, 3);
        record.observe(4, 9, 9);
        record.advance(11 * STEP_S);
        assert_eq!(record.steps().map(|step| step.open).collect::<Vec<_>>(), [9.0]);
    }

    #[test]
    fn it_is_the_same_after_it_was_stored() {
        let mut record = CapacityRecord::default();
        for step in 0..50 {
            record.observe(step * 100, (step % 7) as u32, (step % 3) as u32);
        }
        let bytes = postcard::to_stdvec(&record).expect("it is plain data");
        assert_eq!(postcard::from_bytes::<CapacityRecord>(&bytes).expect("its own"), record);
    }
}
