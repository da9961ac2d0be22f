//! The ended workunits of a job, packed: a digest each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::Digest;

use crate::limits::FAILURE_REASONS_MAX;

const PAGE: u32 = 256;
const WORDS: usize = PAGE as usize / 64;

/// Said in the place of a reason that is one too many.
const ONE_REASON_TOO_MANY: &str =
    "for a reason that is not kept: other workunits of the job failed for too many others before";

/// Canonical outputs and failures of a job by workunit index. Takes 33 bytes per decided workunit,
/// in pages that appear, and grow, as they are needed: most jobs are small. One that was given up
/// takes about as many; equal reasons are kept once, and [`FAILURE_REASONS_MAX`] different ones.
#[derive(Debug, Default)]
pub struct Ended {
    pages: BTreeMap<u32, Box<Page>>,
    failures: BTreeMap<u32, Arc<str>>,
    reasons: BTreeSet<Arc<str>>,
    decided: u32,
}

#[derive(Debug)]
struct Page {
    /// As many as the highest index that is decided asks for.
    digests: Vec<Digest>,
    decided: [u64; WORDS],
}

impl Page {
    fn digest(&self, at: usize) -> Option<Digest> {
        (self.decided[at / 64] >> (at % 64) & 1 == 1).then(|| self.digests[at])
    }

    /// The places from `from` on that are decided.
    fn decided_from(&self, from: usize) -> impl Iterator<Item = usize> {
        (from / 64..WORDS).flat_map(move |word| {
            let below = if word == from / 64 { from % 64 } else { 0 };
            let mut bits = self.decided[word] & (u64::MAX << below);
            std::iter::from_fn(move || {
                let at = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + at)
            })
        })
    }
}

impl Ended {
    /// How many have a canonical output.
    #[must_use]
    pub fn decided(&self) -> u32 {
        self.decided
    }

    /// How many were given up.
    #[must_use]
    pub fn failed(&self) -> u32 {
        u32::try_from(self.failures.len()).expect("WORKUNITS_MAX fits u32")
    }

    /// Whether this one has ended.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        self.digest(index).is_some() || self.failures.contains_key(&index)
    }

    /// The canonical output.
    #[must_use]
    pub fn digest(&self, index: u32) -> Option<Digest> {
        self.pages.get(&(index / PAGE))?.digest((index % PAGE) as usize)
    }

    /// Why there is none.
    #[must_use]
    pub fn failure(&self, index: u32) -> Option<&str> {
        self.failures.get(&index).map(AsRef::as_ref)
    }

    /// All canonical outputs, in order of index.
    pub fn digests(&self) -> impl Iterator<Item = (u32, Digest)> {
        self.digests_from(0)
    }

    /// The canonical outputs from an index on, in order; those before it cost nothing.
    pub fn digests_from(&self, from: u32) -> impl Iterator<Item = (u32, Digest)> {
        self.pages.range(from / PAGE..).flat_map(move |(number, page)| {
            let first = if *number == from / PAGE { from % PAGE } else { 0 };
            let decided = page.decided_from(first as usize);
            decided.map(move |at| (number * PAGE + at as u32, page.digests[at]))
        })
    }

    /// All that were given up and why, in order of index.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.failures_from(0)
    }

    fn failures_from(&self, from: u32) -> impl Iterator<Item = (u32, &str)> {
        self.failures.range(from..).map(|(index, reason)| (*index, reason.as_ref()))
    }

    /// All that have ended from an index on, in order: the canonical output, or why there is none.
    pub fn ended_from(&self, from: u32) -> impl Iterator<Item = (u32, Result<Digest, &str>)> {
        let decided = self.digests_from(from).map(|(index, digest)| (index, Ok(digest)));
        let failed = self.failures_from(from).map(|(index, reason)| (index, Err(reason)));
        let (mut decided, mut failed) = (decided.peekable(), failed.peekable());
        std::iter::from_fn(move || {
            let index = |of: Option<&(u32, _)>| of.map_or(u64::MAX, |of| of.0.into());
            if index(decided.peek()) <= index(failed.peek()) {
                decided.next()
            } else {
                failed.next()
            }
        })
    }

    /// Records a canonical output. It never changes: a second one is ignored and `false`.
    pub(crate) fn decide(&mut self, index: u32, digest: Digest) -> bool {
        if self.contains(index) {
            return false;
        }
        let fresh = || Box::new(Page { digests: Vec::new(), decided: [0; WORDS] });
        let page = self.pages.entry(index / PAGE).or_insert_with(fresh);
        let at = (index % PAGE) as usize;
        if page.digests.len() <= at {
            page.digests.resize(at + 1, Digest::from_bytes([0; 32]));
        }
        page.digests[at] = digest;
        page.decided[at / 64] |= 1 << (at % 64);
        self.decided += 1;
        true
    }

    /// Records that there will be none.
    pub(crate) fn give_up(&mut self, index: u32, reason: &str) -> bool {
        if self.contains(index) {
            return false;
        }
        let kept = self.kept(reason).to_owned();
        let kept = self.reasons.get(kept.as_str()).cloned().unwrap_or_else(|| {
            let reason: Arc<str> = kept.into();
            self.reasons.insert(Arc::clone(&reason));
            reason
        });
        self.failures.insert(index, kept);
        true
    }

    /// What is kept of a reason.
    pub(crate) fn kept<'a>(&self, reason: &'a str) -> &'a str {
        let others = self.reasons.len() - usize::from(self.reasons.contains(ONE_REASON_TOO_MANY));
        let is_one_too_many = others >= FAILURE_REASONS_MAX && !self.reasons.contains(reason);
        if is_one_too_many { ONE_REASON_TOO_MANY } else { reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_never_changes() {
        let mut ended = Ended::default();
        let (one, other) = (Digest::of(b"1"), Digest::of(b"2"));
        assert!(ended.decide(300, one));
        assert!(!ended.decide(300, other), "a canonical output stays");
        assert!(!ended.give_up(300, "late"));
        assert!(ended.give_up(7, "failed"));
        assert!(!ended.decide(7, one));
        assert_eq!((ended.decided(), ended.failed()), (1, 1));
        assert_eq!(ended.digests().collect::<Vec<_>>(), [(300, one)]);
        assert_eq!(ended.failures().collect::<Vec<_>>(), [(7, "failed")]);
        assert!(!ended.contains(299) && !ended.contains(301));
    }

    #[test]
    fn lists_begin_where_they_are_asked_to() {
        let mut ended = Ended::default();
        let digest = Digest::of(b"1");
        for index in [0, 63, 64, 255, 256, 700, 99_999_999] {
            assert!(ended.decide(index, digest));
        }
        for index in [1, 65, 1_000] {
            assert!(ended.give_up(index, "failed"));
        }
        let all = [0, 1, 63, 64, 65, 255, 256, 700, 1_000, 99_999_999];
        for from in [0, 1, 2, 63, 64, 65, 66, 255, 256, 257, 701, 1_001, 99_999_999, u32::MAX] {
            let expected: Vec<u32> = all.into_iter().filter(|index| *index >= from).collect();
            let found: Vec<u32> = ended.ended_from(from).map(|(index, _)| index).collect();
            assert_eq!(found, expected, "from {from}");
            let expected: Vec<u32> =
                expected.into_iter().filter(|index| ended.digest(*index).is_some()).collect();
            let found: Vec<u32> = ended.digests_from(from).map(|(index, _)| index).collect();
            assert_eq!(found, expected, "from {from}");
        }
    }

    #[test]
    fn reasons_are_kept_once_and_not_too_many() {
        let mut ended = Ended::default();
        let many = 4 * FAILURE_REASONS_MAX as u32;
        for index in 0..many {
            assert!(ended.give_up(index, &format!("reason {}", index / 2)));
        }
        assert!(ended.reasons.len() <= FAILURE_REASONS_MAX + 1, "{}", ended.reasons.len());
        assert_eq!(ended.failure(1), Some("reason 0"));
        assert_eq!(ended.failure(many - 1), Some(ONE_REASON_TOO_MANY));
        assert!(ended.give_up(many, "reason 3"));
        assert_eq!(ended.failure(many), Some("reason 3"), "one that is known");
        let kept = ended.failures.values().map(|reason| reason.as_ptr()).collect::<BTreeSet<_>>();
        assert_eq!(kept.len(), ended.reasons.len());
    }
}
