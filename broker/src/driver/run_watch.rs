//! Which replicas run since when, so that it is recorded what they took when they end. Their times:
//! those with a counted output as they are, those that were given back or lost as lower bounds. For
//! the accounts: how long each had which share of a core.
//!
//! # Invariants
//! - Nothing here decides anything: a lease that is not known here is not recorded.
//! - A lease is recorded once, when it ends. The core tells nobody how leases of hosts end that are
//!   away: those are known by their workunits, and else found by looking now and then.
//! - At most [`WATCHED_SPARE`] leases more are kept here than there are.

mod begun;
mod untold;

pub(super) use begun::{Beginning, Begun, End, Times};

use std::collections::BTreeSet;

use gleaner_protocol::{HostName, JobId, LeaseToken, Share, Time, WorkunitId};
use gleaner_scheduling::{Core, Host, HostIx};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::limits::AWAY_LOOK;
use crate::usage::EndedReplica;
use untold::Untold;

/// See the module's page.
const WATCHED_SPARE: usize = 1_024;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct RunWatch {
    begun: FxHashMap<LeaseToken, Begun>,
    /// Looked through again where there are more.
    most: usize,
    /// Those of hosts that are not heard of.
    away: BTreeSet<(WorkunitId, LeaseToken)>,
    /// When these are looked for next.
    look: Option<Time>,
    /// Those that were aborted.
    pub(super) untold: Untold,
}

impl RunWatch {
    /// A replica is given out, or its host was found to hold it.
    pub(super) fn begin(
        &mut self,
        core: &Core,
        now: Time,
        (host, token, workunit): (HostIx, LeaseToken, WorkunitId),
        share: Share,
        beginning: Beginning,
    ) {
        let info = &core.farm().host(host).info;
        let begun = Begun::new(info, workunit, now, share, beginning);
        self.begun.insert(token, begun);
        if self.begun.len() > self.most.max(WATCHED_SPARE) {
            let farm = core.farm();
            let known: FxHashSet<LeaseToken> =
                farm.hosts().flat_map(|(_, host)| leased(host)).collect();
            // The one that was given just now may not be listed yet.
            self.begun.retain(|of, _| *of == token || known.contains(of));
            self.most = 2 * self.begun.len() + WATCHED_SPARE;
        }
    }

    /// A replica has another share of its host's cores.
    pub(super) fn share(&mut self, token: LeaseToken, now: Time, share: Share) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.share(now, share);
        }
    }

    /// A replica is frozen or parked, or goes on.
    pub(super) fn freeze(&mut self, token: LeaseToken, now: Time, frozen: bool) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.freeze(now, frozen);
        }
    }

    /// A replica's agent has said what it took.
    pub(super) fn tell(&mut self, token: LeaseToken, times: &Times) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.tell(times);
        }
    }

    /// A replica's agent has given it back, and says about what it took.
    pub(super) fn estimate(&mut self, token: LeaseToken, now: Time, cpu_us: u64) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.estimate(now, cpu_us);
        }
    }

    /// A replica was ended by the broker, and its agent has not said yet what it took.
    pub(super) fn aborted(&mut self, token: LeaseToken, ended: EndedReplica) {
        self.untold.note(token, ended, self.most);
    }

    /// A host is not heard of any more: nobody knows what its replicas do.
    pub(super) fn host_left(&mut self, host: &Host, now: Time) {
        for token in leased(host) {
            if let Some(begun) = self.begun.get_mut(&token) {
                begun.heard.get_or_insert(now);
                self.away.insert((begun.workunit, token));
                self.look.get_or_insert(now + AWAY_LOOK);
            }
        }
    }

    /// A host is back, with these replicas: the others are found by who compares what it had. Those
    /// that take no slot stand still, as far as is known since the host was heard of last; those that
    /// run go on from now.
    pub(super) fn host_came(
        &mut self,
        core: &Core,
        now: Time,
        host: HostIx,
        adopted: &[LeaseToken],
    ) {
        let entry = core.farm().host(host);
        let running = entry.leases.iter().map(|lease| (lease, false));
        let aside = entry.finished.iter().chain(&entry.parked).map(|lease| (lease, true));
        for (lease, stands) in running.chain(aside) {
            if !adopted.contains(&lease.token) {
                continue;
            }
            let heard = match self.begun.get_mut(&lease.token) {
                Some(begun) => {
                    self.away.remove(&(begun.workunit, lease.token));
                    begun.heard.take()
                }
                // The broker has started anew: it runs for as long at least as we know of it.
                None => {
                    let workunit = core.farm().workunit(lease.workunit).id;
                    let what = (host, lease.token, workunit);
                    self.begin(core, now, what, lease.share, Beginning::Held);
                    None
                }
            };
            let since = if stands { heard.unwrap_or(now) } else { now };
            self.freeze(lease.token, since, stands);
        }
    }

    /// Whether a host was given this.
    pub(super) fn is_of(&self, host: &HostName, token: LeaseToken) -> bool {
        self.get(token).is_some_and(|begun| begun.host == *host)
    }

    /// What is known of a replica.
    pub(super) fn get(&self, token: LeaseToken) -> Option<&Begun> {
        self.begun.get(&token)
    }

    /// A replica is over; it is not recorded unless what this gives is.
    pub(super) fn end(&mut self, token: LeaseToken) -> Option<Begun> {
        let begun = self.begun.remove(&token)?;
        self.away.remove(&(begun.workunit, token));
        Some(begun)
    }

    /// Replicas of a workunit on hosts that are away.
    pub(super) fn away_of(&self, workunit: WorkunitId) -> Vec<LeaseToken> {
        let (first, last) = (LeaseToken::new(0), LeaseToken::new(u64::MAX));
        self.away.range((workunit, first)..=(workunit, last)).map(|of| of.1).collect()
    }

    /// Replicas of a job on hosts that are away.
    pub(super) fn away_of_job(&self, job: JobId) -> Vec<LeaseToken> {
        let at = |index, token| (WorkunitId { job, index }, LeaseToken::new(token));
        self.away.range(at(0, 0)..=at(u32::MAX, u64::MAX)).map(|of| of.1).collect()
    }

    /// Replicas on hosts that are away of which the core knows nothing any more, now and then.
    pub(super) fn look(&mut self, core: &Core, now: Time) -> Vec<LeaseToken> {
        if self.look.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let begun = &self.begun;
        self.away.retain(|(_, token)| begun.contains_key(token));
        self.look = (!self.away.is_empty()).then_some(now + AWAY_LOOK);
        let is_gone = |token: &LeaseToken| {
            let host = self.get(*token).and_then(|begun| core.farm().host_named(&begun.host));
            host.is_none_or(|host| leased(host).all(|held| held != *token))
        };
        self.away.iter().map(|of| of.1).filter(is_gone).collect()
    }
}

/// What a host has, running or not.
pub(super) fn leased(host: &Host) -> impl Iterator<Item = LeaseToken> {
    host.all_leases().map(|lease| lease.token)
}

#[cfg(test)]
mod tests;
