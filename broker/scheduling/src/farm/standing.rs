//! What a host's votes were worth so far.

use std::collections::BTreeSet;

use gleaner_protocol::WorkunitId;

/// Checks that a host passed and failed, and its votes that wait for later ones.
///
/// # Invariants
/// - `due` holds exactly the open workunits that are decided provisionally with a vote of this
///   host which counts, by the number of passed checks at which the vote is good enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Checks passed: workunits on which another host gave the same output.
    pub passed: u32,
    /// Outputs that were not the canonical one. Votes from before the last of them count for
    /// nothing.
    pub failures: u16,
    /// Checks passed when the last failure was seen.
    pub failed_at: u32,
    /// Reports in a row that were valid where another host computed them too.
    pub(crate) due: BTreeSet<(u32, WorkunitId)>,
}

impl Standing {
    /// Checks passed since the last failure.
    #[must_use]
    pub fn passed_since(&self) -> u32 {
        self.passed - self.failed_at
    }

    /// How many of its results are final only after later checks.
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
