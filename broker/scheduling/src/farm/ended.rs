//! The ended workunits of a job, packed: a digest each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::Digest;

use crate::limits::FAILURE_REASON_BYTES_MAX;

const PAGE: u32 = 256;
const WORDS: usize = PAGE as usize / 64;

/// Said in the place of a reason that is one too many.
const ONE_REASON_TOO_MANY: &str =
    "for a reason that is not kept: other workunits of the job failed for too many others before";

/// Canonical outputs and failures of a job by workunit index. Takes 33 bytes per decided workunit,
/// in pages that appear, and grow, as they are needed: most jobs are small. One that was given up
/// takes about as many; equal reasons are kept once, and different ones up to
/// [`FAILURE_REASON_BYTES_MAX`] together.
#[derive(Debug, Default)]
pub struct Ended {
    pages: BTreeMap<u32, Box<Page>>,
    failures: BTreeMap<u32, Arc<str>>,
    reasons: BTreeSet<Arc<str>>,
    reason_bytes: usize,
    decided: u32,
    /// Whether only what has ended is noted, and not with which output.
    is_bare: bool,
}

#[derive(Debug)]
struct Page {
    /// As many as the highest index that is decided asks for.
    digests: Vec<Digest>,
    decided: [u64; WORDS],
}

impl Page {
    fn digest(&self, at: usize) -> Option<Digest> {
        if self.is_decided(at) { self.digests.get(at).copied() } else { None }
    }

    fn is_decided(&self, at: usize) -> bool {
        self.decided[at / 64] >> (at % 64) & 1 == 1
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
    /// One that notes what has ended, and no outputs: a bit per workunit.
    pub(crate) fn bare() -> Self {
        Self { is_bare: true, ..Self::default() }
    }

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
        let page = self.pages.get(&(index / PAGE));
        page.is_some_and(|page| page.is_decided((index % PAGE) as usize))
            || self.failures.contains_key(&index)
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
            let digest = |at: usize| Some((at, *page.digests.get(at)?));
            decided.filter_map(digest).map(move |(at, digest)| (number * PAGE + at as u32, digest))
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
        if !self.is_bare {
            if page.digests.len() <= at {
                page.digests.resize(at + 1, Digest::from_bytes([0; 32]));
            }
            page.digests[at] = digest;
        }
        page.decided[at / 64] |= 1 << (at % 64);
        self.decided += 1;
        true
    }

    /// Records that there will be none.
    pub(crate) fn give_up(&mut self, index: u32, reason: &str) -> bool {
        if self.contains(index) {
            return false;
        }
        let kept = self.kept([reason]);
        let kept = self.reasons.get(kept).cloned().unwrap_or_else(|| {
            let reason: Arc<str> = kept.into();
            self.reasons.insert(Arc::clone(&reason));
            self.reason_bytes += reason.len();
            reason
        });
        self.failures.insert(index, kept);
        true
    }

    /// What is kept of a reason that can be given at different lengths: the first that is known, or
    /// for which there is room.
    pub(crate) fn kept<'a, const N: usize>(&self, lengths: [&'a str; N]) -> &'a str {
        let has_room = |reason: &&str| {
            self.reasons.contains(*reason)
                || self.reason_bytes + reason.len() <= FAILURE_REASON_BYTES_MAX
        };
        lengths.into_iter().find(has_room).unwrap_or(ONE_REASON_TOO_MANY)
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
    fn a_bare_one_knows_what_has_ended_and_no_output() {
        let mut ended = Ended::bare();
        assert!(ended.decide(300, Digest::of(b"1")) && !ended.decide(300, Digest::of(b"2")));
        assert!(ended.contains(300) && !ended.contains(299));
        assert_eq!((ended.decided(), ended.digest(300)), (1, None));
        assert_eq!(ended.digests().count(), 0);
        assert!(ended.pages.values().all(|page| page.digests.capacity() == 0));
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
        let many = 2_000;
        for index in 0..many {
            assert!(ended.give_up(index, &format!("reason {}{:1000}", index / 2, "")));
        }
        let most = FAILURE_REASON_BYTES_MAX + ONE_REASON_TOO_MANY.len();
        assert!((most / 2..=most).contains(&ended.reason_bytes), "{}", ended.reason_bytes);
        assert_eq!(ended.failure(1).map(str::trim), Some("reason 0"));
        assert_eq!(ended.failure(many - 1), Some(ONE_REASON_TOO_MANY));
        let known = format!("reason 3{:1000}", "");
        assert_eq!(ended.kept([&format!("{known}, in full"), &known]), known);
        assert!(ended.give_up(many, &known));
        assert_eq!(ended.failure(many), Some(known.as_str()), "one that is known");
        let kept = ended.failures.values().map(|reason| reason.as_ptr()).collect::<BTreeSet<_>>();
        assert_eq!(kept.len(), ended.reasons.len());
    }
}
