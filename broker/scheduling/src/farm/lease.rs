//! Leases and when they end.

use std::collections::BTreeSet;

use gleaner_protocol::{LeaseToken, Time};
use rustc_hash::FxHashMap;

use super::{HostIx, WorkunitIx};

/// A replica on a host, until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// What it is a replica of.
    pub workunit: WorkunitIx,
    /// Where.
    pub host: HostIx,
    /// Which try at the workunit.
    pub attempt: u32,
    /// When it ends by itself.
    pub until: Time,
}

/// All leases.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    by_token: FxHashMap<LeaseToken, Lease>,
    by_end: BTreeSet<(Time, LeaseToken)>,
}

impl Leases {
    pub(crate) fn len(&self) -> usize {
        self.by_token.len()
    }

    pub(crate) fn get(&self, token: LeaseToken) -> Option<&Lease> {
        self.by_token.get(&token)
    }

    pub(crate) fn insert(&mut self, token: LeaseToken, lease: Lease) {
        self.by_end.insert((lease.until, token));
        let before = self.by_token.insert(token, lease);
        debug_assert!(before.is_none(), "{token} was given twice");
    }

    pub(crate) fn set_attempt(&mut self, token: LeaseToken, attempt: u32) {
        if let Some(lease) = self.by_token.get_mut(&token) {
            lease.attempt = attempt;
        }
    }

    pub(crate) fn remove(&mut self, token: LeaseToken) -> Option<Lease> {
        let lease = self.by_token.remove(&token)?;
        self.by_end.remove(&(lease.until, token));
        Some(lease)
    }

    pub(crate) fn first_end(&self) -> Option<(Time, LeaseToken)> {
        self.by_end.first().copied()
    }

    /// In order of their ends.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseToken, &Lease)> {
        self.by_end.iter().map(|(_, token)| (*token, &self.by_token[token]))
    }
}
