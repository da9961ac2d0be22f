//! Hosts come and go, and change what they give.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gleaner_protocol::control::{AbortReason, Fragment, Held, HeldState};
use gleaner_protocol::job::{Cause, Lane};
use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{HostInfo, HostName, JobId, Kept, LeaseToken, Share, Time, WorkunitId};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::Core;
use crate::farm::{HostIx, JobPhase, Lease, Leased, WorkunitIx};
use crate::limits::{FORGOTTEN_HOSTS_MAX, HOSTS_MAX, OWNERS_MAX};
use crate::policy::Change;
use crate::{Desk, Effect, Fact, Refusal};

impl Core {
    pub(super) fn host_joined(
        &mut self,
        now: Time,
        info: HostInfo,
        fragment: Fragment,
        held: &[Held],
        incarnation: u64,
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
        let abilities = self.farm.abilities.of(&info);
        let host = self.farm.hosts.enter(info, abilities);
        let has_restarted = self.farm.change_giving(host, |entry| {
            entry.connected = true;
            entry.grace_until = None;
            entry.set_fragment(fragment, now);
            entry.alarm = None;
            entry.incarnation.replace(incarnation).is_some_and(|before| before != incarnation)
        });
        self.tell_all(Change::HostChanged(host));
        let is_same = before == Some((self.farm.hosts.get(host).voter, origin));
        if has_restarted {
            self.lose_forgotten(host, held, effects);
        }
        let adopted = self.adopt_all(now, host, held, is_same);
        effects.push(Effect::Welcome { host, adopted });
        effects.push(Effect::HostConnected { host: name.clone(), origin });
        effects.push(Effect::FragmentChanged { host: name, cores: fragment.cores });
    }

    /// A host's agent has started again: what it ran before and does not hold any more is lost.
    fn lose_forgotten(&mut self, host: HostIx, held: &[Held], effects: &mut Vec<Effect>) {
        let held: FxHashSet<LeaseToken> = held.iter().map(|held| held.token).collect();
        let entry = self.farm.hosts.get(host);
        let forgotten: Vec<_> =
            entry.leases.iter().filter(|lease| !held.contains(&lease.token)).copied().collect();
        for Lease { token, .. } in forgotten {
            // What was lost before may have ended its workunit.
            if let Some(lease) = self.farm.leased(host, token) {
                let why = "its agent started again without it";
                self.end_attempt(lease, Cause::Lost, why, effects);
            }
        }
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
        let leased: Vec<_> = entry.all_leases().copied().collect();
        for Lease { token, .. } in leased {
            let lease = self.farm.leased(host, token).expect("it is listed");
            match said.get(&token).filter(|held| is_same && self.is_about(**held, lease)) {
                Some(held) => {
                    let entry = self.farm.hosts.get(host);
                    let ran = entry.leases.iter().any(|lease| lease.token == token);
                    self.place_lease(host, token, held.state);
                    self.farm.change_giving(host, |entry| entry.note_share(token, held.share));
                    if ran != held.state.takes_slot() {
                        self.workunit_changed(lease.workunit);
                    }
                }
                None => self.return_replica(lease),
            }
        }
        self.fit_to_fragment(host, &mut Vec::new());
        let entry = self.farm.hosts.get(host);
        let name = entry.info.name.clone();
        let (mut room, mut left) = (entry.free_share(), entry.kept_left());
        let mut kept: FxHashSet<_> = entry.all_leases().map(|lease| lease.token).collect();
        for held in held {
            let has_room = !held.state.takes_slot() || held.share <= room;
            if has_room
                && self.kept_by(held.replica.workunit.job, held.state).fits(left)
                && !kept.contains(&held.token)
                && self.has_leased(&name, *held)
                && self.adopt(now, host, *held)
            {
                kept.insert(held.token);
                let taken = if held.state.takes_slot() { held.share } else { Share::NONE };
                room = room.minus(taken);
                // Of what is given without a bound as much is left.
                left = self.farm.hosts.get(host).kept_left();
            }
        }
        let entry = self.farm.hosts.get(host);
        let aside = entry.finished.iter().chain(&entry.parked);
        aside.chain(&entry.leases).map(|lease| lease.token).collect()
    }

    /// What a replica of a job that a host holds has there beside cores.
    fn kept_by(&self, job: JobId, state: HeldState) -> Kept {
        match self.farm.job(job) {
            Some(job) if state != HeldState::Ended => job.spec.kept(),
            _ => Kept::NONE,
        }
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

    /// Notes what a lease of the host does, as its agent says. Whatever it said before, what goes on has what its
    /// job takes beside cores; what has ended has nothing but a report to be heard.
    fn place_lease(&mut self, host: HostIx, token: LeaseToken, state: HeldState) {
        let Some(lease) = self.farm.leased(host, token) else { return };
        let id = self.farm.workunits.get(lease.workunit).id;
        let kept = self.kept_by(id.job, state);
        self.farm.change_giving(host, |entry| {
            let Some(lease) = entry.take_lease(token) else { return };
            let lease = lease.with(kept);
            match state {
                HeldState::Runs => entry.leases.push(lease),
                HeldState::Aside | HeldState::Ended => entry.finished.push(lease),
                HeldState::Parked => entry.parked.push(lease),
            }
        });
    }

    /// Leases a held replica anew under its old token, where nobody has that lease and the
    /// workunit still needs it.
    fn adopt(&mut self, now: Time, host: HostIx, held: Held) -> bool {
        let id = held.replica.workunit;
        if !self.farm.is_able(host, id.job) || held.share == Share::NONE {
            return false;
        }
        let workunit = match self.farm.find(id) {
            Some(workunit) if self.may_keep(workunit, host, held) => workunit,
            None if self.may_open(id) && !held.goes_on => self.open(id),
            _ => return false,
        };
        let attempt = held.replica.attempt;
        self.farm.grant(now, workunit, host, held.token, attempt, held.share);
        self.place_lease(host, held.token, held.state);
        self.workunit_changed(workunit);
        true
    }

    fn may_keep(&self, workunit: WorkunitIx, host: HostIx, held: Held) -> bool {
        let Held { token, state, goes_on, .. } = held;
        let unit = self.farm.workunit(workunit);
        let lane = self.farm.lane_of(unit.id.job);
        let is_eligible = match self.farm.is_eligible(workunit, host) {
            Ok(()) => true,
            // What has ended needs no memory any more.
            Err(refusal) => refusal == Refusal::TooLittleLeft && state == HeldState::Ended,
        };
        !unit.pending.iter().any(|pending| pending.token == token)
            && is_eligible
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
        self.farm.change_giving(host, |entry| {
            entry.connected = false;
            entry.left_at = now;
            entry.asked = 0;
            entry.alarm = None;
            // It says anew what it offers when it connects.
            entry.info.capabilities.kernels.clear();
            entry.info.capabilities.commands.clear();
            entry.grace_until = entry.holds_any().then_some(until);
        });
        self.tell_all(Change::HostChanged(host));
        effects.push(Effect::HostDisconnected { host: name.clone() });
    }

    /// A host leaves and may not come back: what it has had goes to others, and is no attempt.
    pub(super) fn expel(&mut self, now: Time, name: &HostName, effects: &mut Vec<Effect>) {
        let Some(host) = self.connected(name) else { return };
        self.host_left(now, name, effects);
        let leased: Vec<_> = self.farm.hosts.get(host).all_leases().copied().collect();
        for Lease { token, .. } in leased {
            if let Some(lease) = self.farm.leased(host, token) {
                self.give_back(lease);
            }
        }
    }

    /// A host is about to leave: where as many are remembered as may be that have left, the first of
    /// them are forgotten.
    pub(super) fn forget_gone(&mut self, effects: &mut Vec<Effect>) {
        for _ in 0..FORGOTTEN_HOSTS_MAX {
            let first = self.farm.hosts.first_in_oblivion();
            let Some((host, _)) = first.filter(|(_, count)| *count >= self.gone_hosts_max) else {
                return;
            };
            let forgotten = Fact::forgotten_host(self.farm.hosts.get(host));
            effects.extend(forgotten.map(Effect::Persist));
            self.forget_host(host);
        }
    }

    /// Forgets a host that has left and that nothing speaks of.
    pub(super) fn forget_host(&mut self, host: HostIx) {
        self.farm.copies.end_moves(host);
        self.farm.hosts.forget(host);
        self.tell_all(Change::HostForgotten(host));
    }

    /// A host did not come back in time: its replicas go to others.
    pub(super) fn grace_ended(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        let leased = self.farm.hosts.change(host, |entry| {
            entry.grace_until = None;
            entry.all_leases().copied().collect::<Vec<_>>()
        });
        for Lease { token, .. } in leased {
            // What was lost before may have ended its workunit.
            if let Some(lease) = self.farm.leased(host, token) {
                self.expire(lease, effects);
            }
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
        let now = self.farm.now;
        let (name, before) = self.farm.change_giving(host, |entry| {
            let before = entry.set_fragment(fragment, now);
            (entry.info.name.clone(), before)
        });
        self.fit_to_fragment(host, effects);
        if before.cores != fragment.cores || before.kept() != fragment.kept() {
            self.tell_all(Change::HostChanged(host));
            self.look_again();
        }
        if before.cores != fragment.cores {
            effects.push(Effect::FragmentChanged { host: name, cores: fragment.cores });
        }
    }

    /// A replica that a render froze takes no slot; one that goes on and no longer fits is taken
    /// back. What is parked stays so until it is told to go on.
    pub(super) fn set_frozen(
        &mut self,
        host: HostIx,
        token: LeaseToken,
        frozen: bool,
        effects: &mut Vec<Effect>,
    ) {
        let entry = self.farm.hosts.get(host);
        let from = if frozen { &entry.leases } else { &entry.finished };
        if from.iter().any(|lease| lease.token == token) {
            let state = if frozen { HeldState::Aside } else { HeldState::Runs };
            self.place_lease(host, token, state);
            self.tell_moved(host, token);
        }
        self.fit_to_fragment(host, effects);
    }

    /// Lets what was parked of a lane on a host go on, as far as there is room: what takes most first,
    /// and of equals the first one.
    pub(super) fn resume_parked(&mut self, lane: Lane, host: HostIx, effects: &mut Vec<Effect>) {
        let entry = self.farm.hosts.get(host);
        let of_lane = |lease: &&Lease| self.farm.workunits.get(lease.workunit).lane == lane;
        let mut parked: SmallVec<[Lease; 4]> =
            entry.parked.iter().filter(of_lane).copied().collect();
        parked.sort_by_key(|lease| Reverse(lease.share));
        for lease in parked {
            // One that goes on may have ended another that stood still.
            if !self.farm.hosts.get(host).is_parked(lease.token) {
                continue;
            }
            let mut desk = Desk::new(self.farm.now, &mut self.farm, &self.tokens, effects, lane);
            if desk.resume(host, lease).is_ok() {
                self.tell_moved(host, lease.token);
                self.tell_displaced();
            }
        }
    }

    /// Tells the policy of a lease that it takes a slot now, or takes none any more.
    fn tell_moved(&mut self, host: HostIx, token: LeaseToken) {
        if let Some(lease) = self.farm.leased(host, token) {
            let job = self.farm.workunits.get(lease.workunit).id.job;
            self.tell(job, Change::WorkunitChanged(lease.workunit));
        }
    }

    fn fit_to_fragment(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        loop {
            let beyond = self.farm.hosts.get(host).first_beyond();
            let Some(Lease { token, .. }) = beyond else { return };
            effects.push(Effect::Abort { host, token, reason: AbortReason::FragmentClosed });
            let lease = self.farm.leased(host, token).expect("it is listed");
            self.give_back(lease);
        }
    }
}

/// A fragment with no more cores than a host may have.
fn bounded(fragment: Fragment) -> Fragment {
    Fragment { cores: fragment.cores.min(CORES_MAX), ..fragment }
}
