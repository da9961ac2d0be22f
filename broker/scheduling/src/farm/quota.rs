//! How many replicas a host that errs may be given.
//!
//! A host may be given any number, until it fails or refuses one, or gives an output that is outvoted:
//! then [`QUOTA_FIRST`] an hour, and half as many with each further one, one at least. An output that
//! is accepted doubles it; beyond the first quota there is none again. Back-offs are by ability and
//! in a row, and end with the first output, whatever it is worth: this counts all that a host does, and
//! what is accepted alone makes up for an error.
//!
//! It is not written down: a broker that starts again gives everybody another chance.
//!
//! # Invariants
//! - `quota_ends` of the hosts holds exactly those with a quota, by the time when it begins anew.

use std::collections::BTreeSet;

use gleaner_protocol::Time;

use super::hosts::Hosts;
use super::{Host, HostIx};
use crate::limits::{QUOTA_FIRST, QUOTA_WINDOW};

/// How many replicas a host may be given until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// So many.
    pub allowed: u32,
    /// Of these, given.
    pub given: u32,
    /// Then they are counted anew.
    pub until: Time,
}

impl Quota {
    fn first(now: Time) -> Self {
        Self { allowed: QUOTA_FIRST, given: 0, until: now + QUOTA_WINDOW }
    }
}

impl Host {
    /// Whether it has been given as many replicas as it may for now.
    #[must_use]
    pub fn has_spent_quota(&self) -> bool {
        self.quota.is_some_and(|quota| quota.given >= quota.allowed)
    }

    /// How many more it may be given now.
    pub(crate) fn quota_left(&self) -> u32 {
        self.quota.map_or(u32::MAX, |quota| quota.allowed.saturating_sub(quota.given))
    }

    /// It is given one.
    pub(crate) fn spend_quota(&mut self) {
        if let Some(quota) = &mut self.quota {
            quota.given = quota.given.saturating_add(1);
        }
    }

    fn err(&mut self, now: Time) {
        self.quota = Some(match self.quota {
            None => Quota::first(now),
            Some(quota) => Quota { allowed: (quota.allowed / 2).max(1), ..quota },
        });
    }

    /// So many outputs of it were accepted, or errors of it were none.
    fn make_up(&mut self, for_many: u32) {
        let doubled = |quota: Quota| {
            let factor = 1_u32.checked_shl(for_many).unwrap_or(u32::MAX);
            Quota { allowed: quota.allowed.saturating_mul(factor), ..quota }
        };
        self.quota = self.quota.map(doubled).filter(|quota| quota.allowed <= QUOTA_FIRST);
    }
}

impl Hosts {
    /// A host has erred.
    pub(crate) fn halve_quota(&mut self, host: HostIx, now: Time) {
        self.change(host, |entry| entry.err(now));
    }

    /// So many outputs of a host were accepted, or errors of it were none.
    pub(crate) fn double_quota(&mut self, host: HostIx, times: u32) {
        if self.get(host).quota.is_some() {
            self.change(host, |entry| entry.make_up(times));
        }
    }

    /// The quota that begins anew first.
    pub(crate) fn first_quota(&self) -> Option<(Time, HostIx)> {
        self.quota_ends.first().copied()
    }

    /// The quota of a host begins anew.
    pub(crate) fn renew_quota(&mut self, host: HostIx, now: Time) {
        self.change(host, |entry| {
            if let Some(quota) = &mut entry.quota {
                (quota.given, quota.until) = (0, now + QUOTA_WINDOW);
            }
        });
    }

    /// When quotas begin anew.
    pub(crate) fn quota_ends(&self) -> &BTreeSet<(Time, HostIx)> {
        &self.quota_ends
    }
}
