//! What was learned of each group of hosts whose quiet period is learned.
//!
//! # Invariants
//! - There is none but of groups that the orders name, once there are orders.
//! - What is remembered is how long hosts were idle, and not the wait that followed: that one is
//!   found anew by the settings of the monitor that recalls it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gleaner_protocol::Span;
use serde::{Deserialize, Serialize};

use super::LearnedView;
use super::quiet_learner::QuietLearner;
use crate::Orders;
use crate::limits::LEARNED_GROUPS_MAX;
use crate::orders::Standing;

/// How long the hosts of a group were idle between two renders, as a monitor saw it before it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RememberedGaps {
    /// The group's name.
    group: String,
    /// The newest gaps, the oldest first, in microseconds.
    gaps_us: Vec<u64>,
}

/// All that was learned.
#[derive(Debug)]
pub(super) struct Learners {
    /// What an opening costs, see [`QuietLearner`].
    cost: Span,
    by_group: BTreeMap<Arc<str>, QuietLearner>,
}

impl Learners {
    pub(super) const fn new(cost: Span) -> Self {
        Self { cost, by_group: BTreeMap::new() }
    }

    /// Goes on with what a monitor learned before this one.
    pub(super) fn recall(&mut self, memory: Vec<RememberedGaps>) {
        let known = memory.into_iter().take(LEARNED_GROUPS_MAX);
        self.by_group = known
            .map(|RememberedGaps { group, gaps_us }| {
                (group.into(), QuietLearner::recall(self.cost, &gaps_us))
            })
            .collect();
    }

    /// What the next monitor should know.
    pub(super) fn remember(&self) -> Vec<RememberedGaps> {
        let known = self.by_group.iter().map(|(group, learner)| RememberedGaps {
            group: group.to_string(),
            gaps_us: learner.gaps().map(Span::as_micros).collect(),
        });
        known.take(LEARNED_GROUPS_MAX).collect()
    }

    /// Forgets the groups of which nothing is to be learned any more.
    pub(super) fn follow(&mut self, orders: &Orders) {
        self.by_group.retain(|group, _| orders.learns_quiet_of(group));
    }

    /// A host of a group was idle for so long.
    pub(super) fn note(&mut self, group: &Arc<str>, gap: Span) {
        let cost = self.cost;
        self.by_group.entry(group.clone()).or_insert_with(|| QuietLearner::new(cost)).note(gap);
    }

    /// How long a host of this standing waits, where that was learned.
    pub(super) fn wait(&self, standing: &Standing) -> Option<Span> {
        let learner = self.by_group.get(standing.learns_quiet.as_ref()?)?;
        Some(learner.wait())
    }

    /// In order of the groups' names.
    pub(super) fn views(&self) -> impl Iterator<Item = LearnedView> + '_ {
        self.by_group.iter().map(|(group, learner)| LearnedView {
            group: group.to_string(),
            quiet_ms: learner.wait().as_millis(),
            gaps: learner.gaps().len(),
        })
    }

    pub(super) fn check(&self, orders: &Orders) -> Result<(), &'static str> {
        match self.by_group.keys().all(|group| orders.learns_quiet_of(group)) {
            true => Ok(()),
            false => Err("only_what_is_ordered_is_learned"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{GAPS_MAX, LEARNED_FILE_BYTES_MAX, RULE_NAME_CHARS_MAX};

    const COST: Span = Span::from_secs(60);

    fn group() -> Arc<str> {
        "frames".into()
    }

    fn standing() -> Standing {
        Standing { learns_quiet: Some(group()), ..Standing::default() }
    }

    #[test]
    fn who_recalls_waits_as_long_and_goes_on_learning() {
        let mut before = Learners::new(COST);
        for gap_s in [20, 20, 20, 3_600].repeat(20) {
            before.note(&group(), Span::from_secs(gap_s));
        }
        assert_eq!(before.wait(&standing()), Some(Span::from_secs(20)));
        let text = serde_json::to_string(&before.remember()).expect("serialises");
        let mut after = Learners::new(COST);
        after.recall(serde_json::from_str(&text).expect("is understood"));
        assert_eq!(after.wait(&standing()), before.wait(&standing()));
        assert_eq!(after.views().collect::<Vec<_>>(), before.views().collect::<Vec<_>>());
        for _ in 0..GAPS_MAX {
            before.note(&group(), Span::from_secs(3_600));
            after.note(&group(), Span::from_secs(3_600));
            assert_eq!(after.remember(), before.remember());
        }
        assert_eq!(after.wait(&standing()), Some(Span::from_secs(10)));
        // Another price of an opening, by the same gaps.
        let mut dearer = Learners::new(Span::from_secs(600));
        dearer.recall(serde_json::from_str(&text).expect("is understood"));
        assert_eq!(dearer.wait(&standing()), Some(Span::from_secs(20)));
        assert_eq!(dearer.cost, Span::from_secs(600));
    }

    #[test]
    fn what_is_recalled_is_bounded_and_the_newest_of_it() {
        let gaps_us: Vec<u64> = (0..3 * GAPS_MAX as u64).collect();
        let named = |n: usize| RememberedGaps { group: format!("g{n}"), gaps_us: gaps_us.clone() };
        let mut learners = Learners::new(COST);
        learners.recall((0..2 * LEARNED_GROUPS_MAX).map(named).collect());
        let kept = learners.remember();
        assert_eq!(kept.len(), LEARNED_GROUPS_MAX);
        assert!(kept.iter().all(|known| known.gaps_us == gaps_us[2 * GAPS_MAX..]));
        let fullest = |n: usize| RememberedGaps {
            group: format!("{n:\u{10000}>RULE_NAME_CHARS_MAX$}"),
            gaps_us: vec![u64::MAX; GAPS_MAX],
        };
        let all: Vec<_> = (0..LEARNED_GROUPS_MAX).map(fullest).collect();
        let text = serde_json::to_string(&all).expect("serialises");
        assert!((text.len() as u64) < LEARNED_FILE_BYTES_MAX - 100, "{} bytes", text.len());
        // The longest that can be written does no harm.
        let longest = RememberedGaps { group: group().to_string(), gaps_us: vec![u64::MAX; 600] };
        learners.recall(vec![longest]);
        assert_eq!(learners.wait(&standing()), Some(Span::from_secs(10)));
        learners.follow(&Orders::default());
        assert_eq!(learners.remember(), []);
    }
}
