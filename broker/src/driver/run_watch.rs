//! Which replicas run since when, so that their times are recorded when they end: those with a counted
//! output as they are, those that were given back or lost as lower bounds.
//!
//! # Invariants
//! - Nothing here decides anything: a lease that is not known here is not recorded.
//! - At most [`WATCHED_SPARE`] leases more are kept here than there are.

use gleaner_history::{ANY_KIND, Run};
use gleaner_protocol::{
    Computer, HostKind, HostName, LeaseToken, Measured, Share, Span, Time, WorkunitId,
};
use gleaner_scheduling::{Core, Host, HostIx};
use rustc_hash::{FxHashMap, FxHashSet};

use super::features::{application, features};

/// What was cut off earlier than this says nothing.
const CUT_OFF_MIN: Span = Span::from_secs(1);
/// See the module's page.
const WATCHED_SPARE: usize = 1_024;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct RunWatch {
    begun: FxHashMap<LeaseToken, Begun>,
    /// Looked through again where there are more.
    most: usize,
}

/// A replica that was given out.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    /// Its host, which may be forgotten before this is, and what that is called where it has a kind.
    host: HostName,
    kind: Option<HostKind>,
    workunit: WorkunitId,
    since: Time,
    /// When its host was heard of last, where that is gone.
    heard: Option<Time>,
    /// Since when it is frozen, and for how long it was before.
    frozen: Option<Time>,
    stood: Span,
    /// Whether it does all of the workunit.
    is_whole: bool,
    /// Whether it had anything but one core: what went by says little then.
    is_shared: bool,
}

/// What an agent measured of a replica.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub(super) cpu_us: u64,
    pub(super) wall_us: u64,
    pub(super) peak_memory_mib: Option<u64>,
    pub(super) measured: Option<Measured>,
}

impl RunWatch {
    /// A replica is given out, or its host was found to hold it.
    pub(super) fn begin(
        &mut self,
        core: &Core,
        now: Time,
        (host, token, workunit): (HostIx, LeaseToken, WorkunitId),
        is_whole: bool,
    ) {
        let (heard, frozen, stood) = (None, None, Span::ZERO);
        let info = &core.farm().host(host).info;
        let begun = Begun {
            host: info.name.clone(),
            kind: info.kind.clone(),
            workunit,
            since: now,
            heard,
            frozen,
            stood,
            is_whole,
            is_shared: false,
        };
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
    pub(super) fn share(&mut self, token: LeaseToken, share: Share) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.is_shared |= share != Share::WHOLE;
        }
    }

    /// A replica is frozen or parked, or goes on.
    pub(super) fn freeze(&mut self, token: LeaseToken, now: Time, frozen: bool) {
        if let Some(begun) = self.begun.get_mut(&token) {
            begun.stood = begun.stood + begun.stands(now);
            begun.frozen = frozen.then_some(now);
        }
    }

    /// A host is not heard of any more: nobody knows what its replicas do.
    pub(super) fn host_left(&mut self, host: &Host, now: Time) {
        for token in leased(host) {
            if let Some(begun) = self.begun.get_mut(&token) {
                begun.heard.get_or_insert(now);
            }
        }
    }

    /// A host is back, with these replicas: the others are found by [`RunWatch::cut_off`]. Those that
    /// take no slot stand still, as far as is known since the host was heard of last; those that run
    /// go on from now.
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
                Some(begun) => begun.heard.take(),
                // The broker has started anew: it runs for as long at least as we know of it.
                None => {
                    let workunit = core.farm().workunit(lease.workunit).id;
                    self.begin(core, now, (host, lease.token, workunit), false);
                    None
                }
            };
            let since = if stands { heard.unwrap_or(now) } else { now };
            self.freeze(lease.token, since, stands);
        }
    }

    /// Whether a host was given this.
    pub(super) fn is_of(&self, host: &HostName, token: LeaseToken) -> bool {
        self.begun.get(&token).is_some_and(|begun| begun.host == *host)
    }

    /// A replica is over; it is not recorded unless what this gives is.
    pub(super) fn end(&mut self, token: LeaseToken) -> Option<Begun> {
        self.begun.remove(&token)
    }

    /// A replica was cut off now: it would have taken longer.
    pub(super) fn cut_off(&mut self, core: &Core, now: Time, token: LeaseToken) -> Option<Run> {
        let begun = self.end(token)?;
        let until = begun.heard.unwrap_or(now);
        let stood = begun.stood + begun.stands(until);
        let ran = until.since(begun.since).as_micros().saturating_sub(stood.as_micros());
        if begun.is_shared || ran < CUT_OFF_MIN.as_micros() {
            return None;
        }
        let times = Times { cpu_us: 0, wall_us: ran, peak_memory_mib: None, measured: None };
        Some(Run { ended: false, ..begun.run(core, times)? })
    }
}

/// What a host has, running or not.
pub(super) fn leased(host: &Host) -> impl Iterator<Item = LeaseToken> {
    host.all_leases().map(|lease| lease.token)
}

impl Begun {
    /// For how long it has stood still since it was frozen last.
    fn stands(&self, now: Time) -> Span {
        self.frozen.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What is recorded of it where it came to its end. When, the history says itself.
    pub(super) fn run(&self, core: &Core, times: Times) -> Option<Run> {
        let Times { cpu_us, wall_us, peak_memory_mib, measured } = times;
        let farm = core.farm();
        let WorkunitId { job, index } = self.workunit;
        let spec = &farm.job(job)?.spec;
        let kind = self.kind.as_ref();
        let kind = match measured {
            Some(Measured { by: by @ Computer::Gpu, .. }) => by.kind(kind).to_string(),
            _ => kind.map_or_else(|| ANY_KIND.to_owned(), ToString::to_string),
        };
        Some(Run {
            application: application(spec, index),
            kind,
            features: features(spec, index),
            cpu_us,
            wall_us: if self.is_shared { 0 } else { wall_us },
            peak_memory_mib,
            // What another replica saved is no work of this one.
            ended: self.is_whole,
            at_ms: 0,
        })
    }
}

#[cfg(test)]
mod tests;
