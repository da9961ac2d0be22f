//! What a host's votes were worth so far.

use std::collections::BTreeSet;

use gleaner_protocol::{Span, Time, WorkunitId};

use crate::trust;

/// Checks that a host passed and failed, and its votes that wait for later ones.
///
/// # Invariants
/// - `due` holds exactly the open workunits that are not decided by a quorum and on which a vote
///   of this host counts, by the number of passed checks at which the vote is good enough; the
///   greatest there is, where the workunit does not wait for that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Checks passed: workunits on which another host gave the same output.
    pub passed: u32,
    /// Outputs that were not the canonical one. Votes from before the last of them count for
    /// nothing.
    pub failures: u16,
    /// Checks passed when the last failure was seen.
    pub failed_at: u32,
    /// Results reported since this time, in this life of the broker.
    pub(crate) rated: u64,
    pub(crate) rated_since: Option<Time>,
    pub(crate) due: BTreeSet<(u32, WorkunitId)>,
}

impl Standing {
    /// Checks passed since the last failure.
    #[must_use]
    pub fn passed_since(&self) -> u32 {
        self.passed - self.failed_at
    }

    /// One in so many of its results is to be computed by another host too.
    #[must_use]
    pub fn reports_per_check(&self, now: Time) -> u64 {
        if !self.is_proven() {
            return 1;
        }
        let elapsed = self.rated_since.map_or(Span::ZERO, |since| now.since(since));
        trust::reports_per_check(self.rated, elapsed)
    }

    /// It reported a result.
    pub(crate) fn rate(&mut self, now: Time) {
        self.rated_since.get_or_insert(now);
        self.rated += 1;
    }

    /// Whether it was caught more than once, and has not proven itself since.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.failures > 1 && !self.is_proven()
    }

    /// Whether it has passed enough checks in a row to be left alone at times.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        trust::is_proven(self.passed_since(), self.failures)
    }

    /// On how many workunits a vote of it counts that are not final.
    #[must_use]
    pub fn provisional(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.failed_at = self.passed;
    }

    /// The first workunit for which it has passed enough checks.
    pub(crate) fn first_due(&self) -> Option<WorkunitId> {
        self.due.first().filter(|(at, _)| *at <= self.passed).map(|(_, id)| *id)
    }
}
