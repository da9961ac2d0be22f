//! Hosts of a group that are kept free of harvest, so that renders find empty ones.
//!
//! A host that renders nothing is spare. Of a group's spare hosts as many are kept as its orders
//! say, first those that are closed anyway; a kept one that renders gives its place to another at
//! once.
//!
//! # Invariants
//! - A group keeps as many hosts as it wants, or every spare one.
//! - A host that is kept is spare, and no harvest runs on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gleaner_protocol::HostName;

use crate::Orders;

/// Whether a host could be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Spare {
    /// It renders, or nobody knows.
    #[default]
    No,
    /// It is not harvested now.
    Closed,
    /// It is.
    Open,
}

/// Of all groups, by their place in the orders.
#[derive(Debug, Default)]
pub(super) struct Reserves(Vec<Reserve>);

#[derive(Debug)]
struct Reserve {
    why: Arc<str>,
    wanted: usize,
    kept: BTreeSet<HostName>,
    /// Spare and not kept, the next to be kept first.
    waiting: BTreeSet<(Spare, HostName)>,
}

impl Reserves {
    pub(super) fn new(orders: &Orders) -> Self {
        let reserve = |group: &crate::orders::GroupOrder| Reserve {
            why: format!("it is one of {} kept free in {:?}", group.reserve_hosts, group.name)
                .into(),
            wanted: group.reserve_hosts as usize,
            kept: BTreeSet::new(),
            waiting: BTreeSet::new(),
        };
        Self(orders.groups.iter().map(reserve).collect())
    }

    /// Takes note of how a host stands now; how it stood `before` is forgotten.
    pub(super) fn note(&mut self, groups: &[usize], host: &HostName, before: Spare, now: Spare) {
        for group in groups {
            let Some(reserve) = self.0.get_mut(*group) else { continue };
            reserve.waiting.remove(&(before, host.clone()));
            if now == Spare::No {
                reserve.kept.remove(host);
            } else if !reserve.kept.contains(host) {
                reserve.waiting.insert((now, host.clone()));
            }
        }
    }

    /// Keeps as many hosts of these groups as are wanted; those that are kept from now on.
    pub(super) fn fill(&mut self, groups: &[usize]) -> Vec<HostName> {
        let mut new = Vec::new();
        for group in groups {
            let Some(reserve) = self.0.get_mut(*group) else { continue };
            while reserve.kept.len() < reserve.wanted {
                let Some((_, host)) = reserve.waiting.pop_first() else { break };
                reserve.kept.insert(host.clone());
                new.push(host);
            }
        }
        new
    }

    /// Why a host is kept, if it is.
    pub(super) fn why_kept(&self, groups: &[usize], host: &HostName) -> Option<Arc<str>> {
        let reserves = groups.iter().filter_map(|group| self.0.get(*group));
        let mut keeping = reserves.filter(|reserve| reserve.kept.contains(host));
        keeping.next().map(|reserve| reserve.why.clone())
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_full = |reserve: &Reserve| {
            reserve.kept.len() == reserve.wanted
                || (reserve.kept.len() < reserve.wanted && reserve.waiting.is_empty())
        };
        match self.0.iter().all(is_full) {
            true => Ok(()),
            false => Err("groups_keep_as_many_hosts_as_they_want"),
        }
    }
}
