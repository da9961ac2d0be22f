//! The ended workunits of a job, packed: a digest each.

use std::collections::BTreeMap;

use gleaner_protocol::Digest;

const PAGE: u32 = 256;
const WORDS: usize = PAGE as usize / 64;

/// Canonical outputs and failures of a job by workunit index. Takes 33 bytes per workunit,
/// in pages that appear, and grow, as they are needed: most jobs are small.
#[derive(Debug, Default)]
pub struct Ended {
    pages: BTreeMap<u32, Box<Page>>,
    failures: BTreeMap<u32, String>,
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
        self.failures.get(&index).map(String::as_str)
    }

    /// All canonical outputs, in order of index.
    pub fn digests(&self) -> impl Iterator<Item = (u32, Digest)> {
        self.pages.iter().flat_map(|(number, page)| {
            (0..PAGE).filter_map(move |at| {
                page.digest(at as usize).map(|digest| (number * PAGE + at, digest))
            })
        })
    }

    /// All that were given up and why, in order of index.
    pub fn failures(&self) -> impl Iterator<Item = (u32, &str)> {
        self.failures.iter().map(|(index, reason)| (*index, reason.as_str()))
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
    pub(crate) fn give_up(&mut self, index: u32, reason: String) -> bool {
        if self.contains(index) {
            return false;
        }
        self.failures.insert(index, reason);
        true
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
        assert!(!ended.give_up(300, "late".into()));
        assert!(ended.give_up(7, "failed".into()));
        assert!(!ended.decide(7, one));
        assert_eq!((ended.decided(), ended.failed()), (1, 1));
        assert_eq!(ended.digests().collect::<Vec<_>>(), [(300, one)]);
        assert_eq!(ended.failures().collect::<Vec<_>>(), [(7, "failed")]);
        assert!(!ended.contains(299) && !ended.contains(301));
    }
}
