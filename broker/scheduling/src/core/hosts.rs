//! Hosts come and go, and change what they give.

use std::collections::BTreeMap;

use gleaner_protocol::control::{AbortReason, Fragment, Held};
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{HostInfo, HostName, LeaseToken, Share, Time, WorkunitId};

use rustc_hash::FxHashSet;

use super::Core;
use crate::Effect;
use crate::farm::{HostIx, JobPhase, Lease, Leased, WorkunitIx};
use crate::limits::{HOSTS_MAX, OWNERS_MAX};
use crate::policy::Change;

impl Core {
    pub(super) fn host_joined(
        &mut self,
        now: Time,
        info: HostInfo,
        fragment: Fragment,
        held: &[Held],
        effects: &mut Vec<Effect>,
    ) {
        let (name, origin) = (info.name.clone(), info.origin);
        let known = self.farm.hosts.find(&name);
        let has_room = known.is_some() || self.farm.hosts.len() < HOSTS_MAX;
        if !has_room || !self.farm.hosts.has_room_for(info.owner.as_ref(), OWNERS_MAX) {
            return;
        }
        let before = known.map(|host| {
            let entry = self.farm.hosts.get(host);
            (entry.voter, entry.origin())
        });
        let fragment = bounded(fragment);
        let abilities = self.farm.abilities.of(&info.capabilities);
        let host = self.farm.hosts.enter(info, abilities);
        self.farm.hosts.change(host, |entry| {
            entry.connected = true;
            entry.grace_until = None;
            entry.fragment = fragment;
            entry.alarm = None;
        });
        self.tell_all(Change::HostChanged(host));
        let is_same = before == Some((self.farm.hosts.get(host).voter, origin));
        let adopted = self.adopt_all(now, host, held, is_same);
        effects.push(Effect::Welcome { host, adopted });
        effects.push(Effect::HostConnected { host: name.clone(), origin });
        effects.push(Effect::FragmentChanged { host: name, slots: fragment.slots });
    }

    /// Keeps or restores the leases of what a host still holds, as far as it is still wanted
    /// and the host's fragment has room. What the host no longer holds goes to others.
    ///
    /// A host that is on another side or votes for another owner than before (`!is_same`) keeps
    /// nothing as a matter of course: all it holds is judged anew.
    fn adopt_all(
        &mut self,
        now: Time,
        host: HostIx,
        held: &[Held],
        is_same: bool,
    ) -> Vec<LeaseToken> {
        let said: BTreeMap<LeaseToken, Held> =
            held.iter().map(|held| (held.token, *held)).collect();
        let entry = self.farm.hosts.get(host);
        let leased: Vec<_> = entry.leases.iter().chain(&entry.finished).copied().collect();
        for Lease { token, .. } in leased {
            let lease = self.farm.leased(host, token).expect("it is listed");
            match said.get(&token).filter(|held| is_same && self.is_about(**held, lease)) {
                Some(held) => self.set_finished(host, *held),
                None => self.return_replica(lease),
            }
        }
        self.fit_to_fragment(host, &mut Vec::new());
        let entry = self.farm.hosts.get(host);
        let name = entry.info.name.clone();
        let mut room = entry.free_share().whole_cores();
        let mut kept: FxHashSet<_> =
            entry.leases.iter().chain(&entry.finished).map(|lease| lease.token).collect();
        for held in held {
            let has_room = held.takes_no_slot || room > 0;
            if has_room
                && !kept.contains(&held.token)
                && self.has_leased(&name, *held)
                && self.adopt(now, host, *held)
            {
                kept.insert(held.token);
                if held.takes_no_slot {
                    self.set_finished(host, *held);
                } else {
                    room -= 1;
                }
            }
        }
        let entry = self.farm.hosts.get(host);
        entry.finished.iter().chain(&entry.leases).map(|lease| lease.token).collect()
    }

    /// Whether a lease that a host speaks of was given, in this life or an earlier one, for the job
    /// that has its id now.
    fn has_leased(&self, host: &HostName, held: Held) -> bool {
        let job = self.farm.job(held.replica.workunit.job);
        job.is_some_and(|job| self.tokens.has_made(held.token, host, held.replica, job.asked))
    }

    /// Whether a host speaks of this very lease.
    fn is_about(&self, held: Held, lease: Leased) -> bool {
        lease.attempt == held.replica.attempt
            && self.farm.workunits.get(lease.workunit).id == held.replica.workunit
    }

    /// Notes whether a lease of the host still takes a slot.
    fn set_finished(&mut self, host: HostIx, held: Held) {
        self.move_lease(host, held.token, held.takes_no_slot);
    }

    fn move_lease(&mut self, host: HostIx, token: LeaseToken, takes_no_slot: bool) {
        self.farm.hosts.change(host, |entry| {
            let (from, to) = if takes_no_slot {
                (&mut entry.leases, &mut entry.finished)
            } else {
                (&mut entry.finished, &mut entry.leases)
            };
            // From the end: what was adopted is the last.
            if let Some(at) = from.iter().rposition(|lease| lease.token == token) {
                to.push(from.remove(at));
            }
        });
    }

    /// Leases a held replica anew under its old token, where nobody has that lease and the
    /// workunit still needs it.
    fn adopt(&mut self, now: Time, host: HostIx, held: Held) -> bool {
        let id = held.replica.workunit;
        if !self.farm.is_able(host, id.job) {
            return false;
        }
        let workunit = match self.farm.find(id) {
            Some(workunit) if self.may_keep(workunit, host, held) => workunit,
            None if self.may_open(id) && !held.goes_on => self.open(id),
            _ => return false,
        };
        let attempt = held.replica.attempt;
        self.farm.grant(now, workunit, host, held.token, attempt, Share::WHOLE);
        self.workunit_changed(workunit);
        true
    }

    fn may_keep(&self, workunit: WorkunitIx, host: HostIx, held: Held) -> bool {
        let Held { token, goes_on, .. } = held;
        let unit = self.farm.workunit(workunit);
        let lane = self.farm.lane_of(unit.id.job);
        !unit.pending.iter().any(|pending| pending.token == token)
            && self.farm.is_eligible(workunit, host).is_ok()
            && self.farm.may_still(workunit, host, token, goes_on)
            && lane
                .and_then(|lane| self.lanes.get(&lane))
                .is_some_and(|policy| policy.keeps(&self.farm, workunit, host))
    }

    fn may_open(&self, id: WorkunitId) -> bool {
        !self.farm.is_full()
            && self.farm.job(id.job).is_some_and(|job| {
                job.phase == JobPhase::Active
                    && id.index < job.workunit_count()
                    && job.is_untouched(id.index)
            })
    }

    pub(super) fn host_left(&mut self, now: Time, name: &HostName, effects: &mut Vec<Effect>) {
        let Some(host) = self.connected(name) else { return };
        let until = now + self.reconnect_grace;
        self.farm.hosts.change(host, |entry| {
            entry.connected = false;
            entry.asked = 0;
            let holds = !(entry.leases.is_empty() && entry.finished.is_empty());
            entry.grace_until = holds.then_some(until);
        });
        self.tell_all(Change::HostChanged(host));
        effects.push(Effect::HostDisconnected { host: name.clone() });
    }

    /// A host did not come back in time: its replicas go to others.
    pub(super) fn grace_ended(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        let leased = self.farm.hosts.change(host, |entry| {
            entry.grace_until = None;
            entry.leases.iter().chain(&entry.finished).copied().collect::<Vec<_>>()
        });
        for Lease { token, .. } in leased {
            let lease = self.farm.leased(host, token).expect("it is listed");
            self.expire(lease, effects);
        }
    }

    /// A host gives more or less. What no longer fits is taken back, the youngest first.
    pub(super) fn set_fragment(
        &mut self,
        host: HostIx,
        fragment: Fragment,
        effects: &mut Vec<Effect>,
    ) {
        let fragment = bounded(fragment);
        let (name, before) = self.farm.hosts.change(host, |entry| {
            let before = std::mem::replace(&mut entry.fragment, fragment);
            (entry.info.name.clone(), before)
        });
        self.fit_to_fragment(host, effects);
        if before.slots != fragment.slots {
            self.tell_all(Change::HostChanged(host));
            effects.push(Effect::FragmentChanged { host: name, slots: fragment.slots });
        }
    }

    /// A frozen replica takes no slot; one that goes on and no longer fits is taken back.
    pub(super) fn set_frozen(
        &mut self,
        host: HostIx,
        token: LeaseToken,
        frozen: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.move_lease(host, token, frozen);
        self.fit_to_fragment(host, effects);
    }

    fn fit_to_fragment(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        loop {
            let entry = self.farm.hosts.get(host);
            let excess = entry.leased_share() > entry.capacity();
            let Some(&Lease { token, .. }) = entry.leases.last().filter(|_| excess) else { return };
            effects.push(Effect::Abort { host, token, reason: AbortReason::FragmentClosed });
            let lease = self.farm.leased(host, token).expect("it is listed");
            self.give_back(lease);
        }
    }
}

/// A fragment with no more slots than a host may have cores.
fn bounded(fragment: Fragment) -> Fragment {
    Fragment { slots: fragment.slots.min(CORES_MAX), ..fragment }
}
