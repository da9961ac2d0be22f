//! What became of attempts at a workunit that have no output.

use std::fmt::Write;
use std::sync::Arc;

use gleaner_protocol::LeaseToken;
use gleaner_protocol::job::{Cause, Lane};

use super::{Farm, HostIx, VoterIx, Workunit};
use crate::limits::{HISTORY_MAX, OTHERS_LOOKED_AT_MAX, REFUSALS_KEPT_MAX};

/// An attempt that ended without an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Its lease.
    pub token: LeaseToken,
    /// Where it ran.
    pub host: HostIx,
    /// Whose vote that host had then.
    pub voter: VoterIx,
    /// What ended it.
    pub cause: Cause,
    /// In words.
    pub why: Arc<str>,
}

impl Workunit {
    /// Whether it failed on more than one host.
    #[must_use]
    pub fn failed_on_several(&self) -> bool {
        let mut failed = self.failed_attempts.iter().filter(|one| one.cause == Cause::Failed);
        let first = failed.next();
        first.is_some_and(|first| failed.any(|other| other.host != first.host))
    }

    /// How many attempts ended for this cause.
    #[must_use]
    pub fn attempts_of(&self, cause: Cause) -> usize {
        self.failed_attempts.iter().filter(|attempt| attempt.cause == cause).count()
    }

    /// Whether this host has refused it.
    pub(crate) fn is_refused_by(&self, host: HostIx) -> bool {
        self.refused.contains(&host)
    }

    /// Whether an attempt on this host has failed or timed out, or the host has refused it: others
    /// come first. A host that was lost may have it again as any other may.
    pub(crate) fn is_tried_on(&self, host: HostIx) -> bool {
        self.is_refused_by(host)
            || self
                .failed_attempts
                .iter()
                .any(|attempt| attempt.host == host && attempt.cause != Cause::Lost)
    }

    /// A host refused it. Of many the first is let go of, which is returned; so is what this host
    /// refused before.
    pub(crate) fn push_refusal(&mut self, host: HostIx) -> Option<HostIx> {
        let before = self.refused.iter().position(|before| *before == host);
        let is_full = self.refused.len() >= REFUSALS_KEPT_MAX;
        let dropped = before.or(is_full.then_some(0)).map(|at| self.refused.remove(at));
        self.refused.push(host);
        dropped
    }
}

impl Farm {
    /// Whether an awaited host is left that could run a workunit and has not tried it. Of a large
    /// farm only some are looked at, those that came soon after `host` first.
    pub(crate) fn has_untried_hosts(&self, unit: &Workunit, host: HostIx) -> bool {
        // Whoever turns a volume does not wait for a render to end.
        let job = self.jobs.get(&unit.id.job);
        let is_watched = job.is_some_and(|job| job.spec.profile.session.is_some());
        let from_host = self.hosts.iter_from(host).chain(self.hosts());
        let mut looked_at = from_host.take(self.hosts.len().min(OTHERS_LOOKED_AT_MAX));
        looked_at.any(|(index, entry)| {
            entry.is_awaited(self.now)
                && (entry.fragment.cores > 0 || !is_watched)
                && unit.side.is_none_or(|side| side == entry.origin())
                && entry.offers(unit.ability)
                && (entry.fragment.cores == 0 || self.gives_enough(index, unit.ability))
                && !unit.is_touched_by(index, entry.voter)
                && self.has_place_for(unit, entry.voter)
                && !unit.is_tried_on(index)
                && self.may_read(unit, index)
        })
    }

    /// Whether a host has what a workunit reads, where that is no matter of loading it first.
    fn may_read(&self, unit: &Workunit, host: HostIx) -> bool {
        let chunk = if unit.lane == Lane::Dataset { self.chunk_of(unit.id) } else { None };
        chunk.is_none_or(|chunk| self.copies.is_held(chunk, host))
    }

    /// The cause whose attempts a workunit has used up, and how many those are.
    pub(crate) fn used_up(&self, unit: &Workunit) -> Option<(Cause, u16)> {
        if unit.failed_attempts.is_empty() {
            return None;
        }
        let job = self.jobs.get(&unit.id.job).expect("a workunit's job is known");
        let limits = Cause::ALL.into_iter().map(|cause| (cause, job.spec.attempts.of(cause)));
        limits.into_iter().find(|(cause, most)| unit.attempts_of(*cause) >= usize::from(*most))
    }

    /// The attempts at a workunit that have no output, in order: where, what, and in what words.
    /// Those alike are one.
    pub(crate) fn history(&self, unit: &Workunit) -> String {
        let mut groups: Vec<(&FailedAttempt, usize)> = Vec::new();
        for attempt in &unit.failed_attempts {
            let is_alike = |(of, _): &&mut (&FailedAttempt, usize)| {
                (of.host, of.cause, &of.why) == (attempt.host, attempt.cause, &attempt.why)
            };
            match groups.iter_mut().find(is_alike) {
                Some((_, times)) => *times += 1,
                None => groups.push((attempt, 1)),
            }
        }
        let mut history = String::new();
        for (attempt, times) in groups.iter().take(HISTORY_MAX) {
            let separator = if history.is_empty() { "" } else { "; " };
            let name = &self.host(attempt.host).info.name;
            let FailedAttempt { cause, why, .. } = attempt;
            let often = if *times > 1 { format!(" {times} times") } else { String::new() };
            let written = write!(history, "{separator}{name} {cause}{often}: {why}");
            written.expect("a string takes all");
        }
        if groups.len() > HISTORY_MAX {
            let written = write!(history, "; and {} more", groups.len() - HISTORY_MAX);
            written.expect("a string takes all");
        }
        history
    }
}
