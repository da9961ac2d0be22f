//! The ended workunits of a job, packed: a digest each.

use std::collections::BTreeMap;

use gleaner_protocol::Digest;

const PAGE: u32 = 256;

/// Canonical outputs and failures of a job by workunit index. Takes 33 bytes per workunit,
/// in pages that appear as they are needed.
#[derive(Debug, Default)]
pub struct Ended {
    pages: BTreeMap<u32, Box<Page>>,
    failures: BTreeMap<u32, String>,
    decided: u32,
}

#[derive(Debug)]
struct Page {
    digests: [Digest; PAGE as usize],
    decided: [u64; PAGE as usize / 64],
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
        let page = self.pages.get(&(index / PAGE))?;
        let at = (index % PAGE) as usize;
        (page.decided[at / 64] >> (at % 64) & 1 == 1).then(|| page.digests[at])
    }

    /// Why there is none.
    #[must_use]
    pub fn failure(&self, index: u32) -> Option<&str> {
        self.failures.get(&index).map(String::as_str)
    }

    /// Records a canonical output. It never changes: a second one is ignored and `false`.
    pub(crate) fn decide(&mut self, index: u32, digest: Digest) -> bool {
        if self.contains(index) {
            return false;
        }
        let page = self.pages.entry(index / PAGE).or_insert_with(|| {
            Box::new(Page {
                digests: [Digest::from_bytes([0; 32]); PAGE as usize],
                decided: [0; PAGE as usize / 64],
            })
        });
        let at = (index % PAGE) as usize;
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
