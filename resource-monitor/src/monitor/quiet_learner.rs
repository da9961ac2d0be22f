//! How long the hosts of a group have to be quiet, learned from how long they were idle.
//!
//! Each time that a host has ended its last render an admin could ask: open it now, or wait for
//! another render that comes soon? Waiting costs the idle time; an opening costs `C`, what is lost
//! when the next render ends it: work that was under way, and its start. Of idle gaps `g` that were
//! seen, a wait of `w` would have lost
//!
//! ```text
//! lost(w) = Σ { g      where g ≤ w      (waited all the time, opened nothing)
//!             { w + C  where g > w      (waited, opened, and the next render ended it)
//! ```
//!
//! and the `w` that loses least is the one to use. `C` is the quiet period of the configuration: who
//! knows nothing of the gaps loses at most twice what the best choice would by waiting as long as
//! an opening costs, so it is also the wait to begin with.
//!
//! What a manager withholds in between is no render: a gap goes on until the next one begins.
//!
//! Source: A. R. Karlin, M. S. Manasse, L. Rudolph, D. D. Sleator, Competitive Snoopy Caching
//! (1988), for the wait without history; S. Keshav, C. Lund, S. Phillips, N. Reingold, H. Saran, An
//! Empirical Evaluation of Virtual Circuit Holding Time Policies in IP-over-ATM Networks (1995),
//! for the one that a histogram of gaps gives.
//!
//! # Invariants
//! - A wait is within [`QUIET_LEARNED_MIN`] and [`QUIET_LEARNED_MAX`], or the configured one; where that
//!   is shorter than the least of these, it is the least.
//! - Before [`GAPS_MIN`] gaps were seen it is the configured one.

use std::collections::VecDeque;

use gleaner_protocol::Span;

use crate::limits::{GAPS_MAX, GAPS_MIN, QUIET_LEARNED_MAX, QUIET_LEARNED_MIN};

/// What was seen of one group.
#[derive(Debug, Clone)]
pub(super) struct QuietLearner {
    cost: Span,
    /// The newest.
    gaps: VecDeque<Span>,
    wait: Span,
}

impl QuietLearner {
    /// That knows nothing yet; `cost` is what an opening costs.
    pub(super) const fn new(cost: Span) -> Self {
        Self { cost, gaps: VecDeque::new(), wait: cost }
    }

    /// That knows what was seen before: the newest of these gaps, in microseconds.
    pub(super) fn recall(cost: Span, gaps_us: &[u64]) -> Self {
        let newest = &gaps_us[gaps_us.len().saturating_sub(GAPS_MAX)..];
        let gaps = newest.iter().copied().map(Span::from_micros).collect();
        let mut learner = Self { cost, gaps, wait: cost };
        learner.wait = learner.best();
        learner
    }

    /// Takes note that a host was idle for so long between two renders.
    pub(super) fn note(&mut self, gap: Span) {
        if self.gaps.len() == GAPS_MAX {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
        self.wait = self.best();
    }

    /// How long to wait.
    pub(super) const fn wait(&self) -> Span {
        self.wait
    }

    /// What it goes by, the oldest first.
    pub(super) fn gaps(&self) -> impl ExactSizeIterator<Item = Span> + '_ {
        self.gaps.iter().copied()
    }

    fn best(&self) -> Span {
        if self.gaps.len() < GAPS_MIN {
            return self.cost;
        }
        let mut gaps: Vec<u64> = self.gaps.iter().map(|gap| gap.as_micros()).collect();
        gaps.sort_unstable();
        // Between two gaps a longer wait only loses more: the best is at one, or the least of all.
        let least = QUIET_LEARNED_MIN.min(self.cost).as_micros();
        let most = QUIET_LEARNED_MAX.as_micros();
        let cost = u128::from(self.cost.as_micros());
        let mut waited_out: u128 = 0;
        let mut shorter = 0;
        let mut best = None;
        let within = gaps.iter().copied().filter(|gap| (least..=most).contains(gap));
        for wait in std::iter::once(least).chain(within) {
            while let Some(gap) = gaps.get(shorter).filter(|gap| **gap <= wait) {
                waited_out += u128::from(*gap);
                shorter += 1;
            }
            let longer = (gaps.len() - shorter) as u128;
            let lost = waited_out + longer * (u128::from(wait) + cost);
            if best.is_none_or(|(known, _)| lost < known) {
                best = Some((lost, wait));
            }
        }
        best.map_or(self.cost, |(_, wait)| Span::from_micros(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Span = Span::from_secs(60);

    fn learned(gaps_s: &[u64]) -> u64 {
        let mut learner = QuietLearner::new(COST);
        gaps_s.iter().for_each(|gap| learner.note(Span::from_secs(*gap)));
        learner.wait().as_millis() / 1_000
    }

    fn repeated(gaps_s: &[u64], times: usize) -> Vec<u64> {
        gaps_s.iter().copied().cycle().take(gaps_s.len() * times).collect()
    }

    #[test]
    fn it_begins_with_the_configured_wait() {
        assert_eq!(learned(&[]), 60);
        assert_eq!(learned(&vec![1; GAPS_MIN - 1]), 60);
    }

    #[test]
    fn gaps_that_are_short_or_long_are_told_apart_by_a_wait_between() {
        // Frames follow each other after 20 s; else the host is idle for an hour.
        assert_eq!(learned(&repeated(&[20, 20, 20, 3_600], 20)), 20);
        // All gaps are long: waiting only loses.
        assert_eq!(learned(&vec![3_600; 50]), 10);
        // All are short: whoever waits them out opens nothing.
        assert_eq!(learned(&vec![120; 50]), 10, "a gap of twice the cost is worth an opening");
        assert_eq!(learned(&vec![45; 50]), 45);
    }

    #[test]
    fn it_is_bounded_and_forgets_what_is_long_ago() {
        assert_eq!(learned(&vec![1; 50]), 10);
        let mut gaps = vec![45; GAPS_MAX];
        assert_eq!(learned(&gaps), 45);
        gaps.extend(vec![3_600; GAPS_MAX]);
        assert_eq!(learned(&gaps), 10);
    }

    #[test]
    fn who_configures_less_than_the_least_is_not_made_to_wait_for_it() {
        let mut learner = QuietLearner::new(Span::from_secs(2));
        (0..50).for_each(|_| learner.note(Span::from_secs(3_600)));
        assert_eq!(learner.wait(), Span::from_secs(2));
        (0..GAPS_MAX).for_each(|_| learner.note(Span::from_secs(3)));
        assert_eq!(learner.wait(), Span::from_secs(3));
    }

    #[test]
    fn no_other_wait_would_have_lost_less() {
        let gaps = repeated(&[3, 14, 15, 92, 65, 35, 89, 79, 323, 84, 626, 433, 33, 27], 5);
        let lost = |wait: u64| -> u64 {
            gaps.iter().map(|gap| if *gap <= wait { *gap } else { wait + 60 }).sum()
        };
        let best = (10..=600).map(lost).min().expect("many");
        assert_eq!(lost(learned(&gaps)), best);
    }
}
