//! Hosts come and go, and change what they give.

use gleaner_protocol::control::{AbortReason, Fragment, Held};
use gleaner_protocol::{HostInfo, HostName, LeaseToken, Time, WorkunitId};

use super::Core;
use crate::Effect;
use crate::farm::{HostIx, Workunit, WorkunitIx};
use crate::limits::{HOSTS_MAX, OPEN_WORKUNITS_MAX};
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
        if self.farm.hosts.find(&name).is_none() && self.farm.hosts.len() >= HOSTS_MAX {
            return;
        }
        let abilities = self.farm.abilities.of(&info.capabilities);
        let host = self.farm.hosts.enter(info, abilities);
        self.farm.hosts.change(host, |entry| {
            entry.connected = true;
            entry.asked = 0;
            entry.grace_until = None;
            entry.fragment = fragment;
        });
        for policy in self.lanes.values_mut() {
            policy.observe(&self.farm, Change::HostChanged(host));
        }
        let adopted = self.adopt_all(now, host, held);
        effects.push(Effect::Welcome { host, adopted });
        effects.push(Effect::HostConnected { host: name.clone(), origin });
        effects.push(Effect::FragmentChanged { host: name, slots: fragment.slots });
    }

    /// Keeps or restores the leases of what a host still holds, as far as it is still wanted
    /// and the host's fragment has room. What the host no longer holds goes to others.
    fn adopt_all(&mut self, now: Time, host: HostIx, held: &[Held]) -> Vec<LeaseToken> {
        let leased: Vec<_> = self.farm.hosts.change(host, |entry| {
            entry.leases.append(&mut entry.finished);
            entry.leases.clone()
        });
        for token in leased {
            if !held.iter().any(|held| held.token == token && self.is_held(host, *held)) {
                self.return_replica(token);
            }
        }
        for held in held {
            if self.is_held(host, *held) || self.adopt(now, host, *held) {
                self.farm.hosts.change(host, |entry| {
                    if held.done
                        && let Some(at) = entry.leases.iter().position(|t| *t == held.token)
                    {
                        entry.finished.push(entry.leases.remove(at));
                    }
                });
            }
        }
        let mut excess = Vec::new();
        self.fit_to_fragment(host, &mut excess);
        let entry = self.farm.hosts.get(host);
        entry.finished.iter().chain(&entry.leases).copied().collect()
    }

    /// Whether the host has this very lease.
    fn is_held(&self, host: HostIx, held: Held) -> bool {
        self.farm.leases.get(held.token).is_some_and(|lease| {
            lease.host == host
                && lease.attempt == held.replica.attempt
                && self.farm.workunits.get(lease.workunit).id == held.replica.workunit
        })
    }

    /// Leases a held replica anew under its old token, where nobody has that lease and the
    /// workunit still needs it.
    fn adopt(&mut self, now: Time, host: HostIx, held: Held) -> bool {
        let id = held.replica.workunit;
        if self.farm.leases.get(held.token).is_some() || !self.farm.is_able(host, id.job) {
            return false;
        }
        let Some(workunit) = self.touch(id) else { return false };
        if self.farm.is_eligible(workunit, host).is_err() {
            return false;
        }
        self.farm.grant(now, workunit, host, held.token);
        let unit = self.farm.workunits.get_mut(workunit);
        unit.attempts = unit.attempts.max(held.replica.attempt);
        self.farm.leases.set_attempt(held.token, held.replica.attempt);
        self.workunit_changed(workunit);
        true
    }

    /// The open workunit of this id, opened where it is untouched.
    fn touch(&mut self, id: WorkunitId) -> Option<WorkunitIx> {
        if let Some(workunit) = self.farm.find(id) {
            return Some(workunit);
        }
        let job = self.farm.jobs.get_mut(&id.job)?;
        let untouched = id.index < job.workunit_count()
            && job.phase == crate::JobPhase::Active
            && job.is_untouched(id.index);
        if !untouched || self.farm.workunits.len() >= OPEN_WORKUNITS_MAX {
            return None;
        }
        Some(self.farm.open_at(id))
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
        effects.push(Effect::HostDisconnected { host: name.clone() });
    }

    /// A host did not come back in time: its replicas go to others.
    pub(super) fn grace_ended(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        let tokens = self.farm.hosts.change(host, |entry| {
            entry.grace_until = None;
            entry.leases.iter().chain(&entry.finished).copied().collect::<Vec<_>>()
        });
        for token in tokens {
            self.expire(token, effects);
        }
    }

    /// A host gives more or less. What no longer fits is taken back, the youngest first.
    pub(super) fn set_fragment(
        &mut self,
        host: HostIx,
        fragment: Fragment,
        effects: &mut Vec<Effect>,
    ) {
        let (name, before) = self.farm.hosts.change(host, |entry| {
            let before = std::mem::replace(&mut entry.fragment, fragment);
            (entry.info.name.clone(), before)
        });
        self.fit_to_fragment(host, effects);
        if before.slots != fragment.slots {
            effects.push(Effect::FragmentChanged { host: name, slots: fragment.slots });
        }
    }

    fn fit_to_fragment(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        loop {
            let entry = self.farm.hosts.get(host);
            let excess = entry.leases.len() > entry.fragment.slots as usize;
            let Some(&token) = entry.leases.last().filter(|_| excess) else { return };
            effects.push(Effect::Abort { host, token, reason: AbortReason::FragmentClosed });
            self.count_release(host, token);
            self.return_replica(token);
        }
    }
}

impl crate::Farm {
    /// Opens one untouched workunit by its id.
    pub(crate) fn open_at(&mut self, id: WorkunitId) -> WorkunitIx {
        let job = self.jobs.get_mut(&id.job).expect("the job was looked up");
        let unit = Workunit::new(id, job.spec.replication, job.ability);
        let workunit = self.workunits.insert(unit);
        job.open.insert(id.index, workunit);
        job.settle();
        workunit
    }
}
