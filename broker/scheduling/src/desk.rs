//! Where a policy acts on the farm.

#[cfg(feature = "sabotage")]
mod sabotage;

#[cfg(feature = "sabotage")]
pub use sabotage::Sabotage;

use gleaner_protocol::control::AbortReason;
use gleaner_protocol::job::Lane;
use gleaner_protocol::limits::REPLICAS_MAX;
use gleaner_protocol::{
    ChunkId, JobId, Kept, LeaseToken, ReplicaId, Share, Span, Time, WorkunitId,
};
use thiserror::Error;

use crate::ability::AbilityIx;
use crate::core::TokenMint;
use crate::farm::{
    AccountIx, Begins, Farm, HostIx, Lease, Leased, Pending, Room, Rule, Takes, WorkunitIx,
};
use crate::{Effect, Patience};

/// Why the rules forbid an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The host's agent is not connected.
    #[error("the host is not connected")]
    Disconnected,
    /// The host gives nothing now.
    #[error("the host's fragment is closed")]
    FragmentClosed,
    /// The host's slots are all leased.
    #[error("the host has no free slot")]
    NoFreeSlot,
    /// Others have the host's memory or its GPU, or it gives too little of them now.
    #[error("the host has too little memory, or no GPU, left for it")]
    TooLittleLeft,
    /// The host has erred, and has been given as many replicas as it may for now.
    #[error("the host has erred, and has been given as many replicas as it may for now")]
    QuotaSpent,
    /// Whoever submitted it may hold no more for now.
    #[error("whoever submitted it may hold no more cores for now")]
    AtLimit,
    /// The lane holds as much as it may, or lanes behind it hold what they are to keep.
    #[error("the lane may hold no more of the farm now")]
    LaneIsFull,
    /// Work is given to hosts that ask.
    #[error("the host did not ask for work")]
    DidNotAsk,
    /// All replicas are leased or complete.
    #[error("the workunit has no waiting replica")]
    NoReplicaWaits,
    /// The host, or its owner, has a replica or a vote already.
    #[error("the host has a replica or a vote of this workunit already")]
    OneVotePerHost,
    /// The kernel or program is not there or not allowed, or the host backs off from it.
    #[error("the host does not offer what the job runs, or backs off from it")]
    CannotRun,
    /// The host's owner has no voice, and what waits is for one who has.
    #[error("the host's owner has no voice yet, and the workunit waits for one who has")]
    AwaitsVoice,
    /// The host has failed or refused the workunit, and others have not tried it.
    #[error("the host has tried the workunit, and others come first")]
    OthersFirst,
    /// The host has no such lease.
    #[error("the host holds no lease of this token")]
    NoSuchLease,
    /// The chunk is not where it is to be moved from, or is on its way already.
    #[error("the host has no copy of the chunk, or it is on its way")]
    NoCopy,
    /// The workunit has all the replicas that it may have.
    #[error("the workunit has as many replicas as it may have")]
    TooManyReplicas,
}

/// A policy's hands: everything it may do to the farm, each step checked against the rules and
/// visible in [`Desk::farm`] at once, so that one plan can make many steps that build on each
/// other.
///
/// Every method is of one kind: check, change the farm, push an effect. What a policy does here
/// is not told back to it through [`Policy::observe`](crate::Policy::observe).
#[derive(Debug)]
pub struct Desk<'a> {
    farm: &'a mut Farm,
    tokens: &'a TokenMint,
    effects: &'a mut Vec<Effect>,
    now: Time,
    lane: Lane,
}

impl<'a> Desk<'a> {
    pub(crate) fn new(
        now: Time,
        farm: &'a mut Farm,
        tokens: &'a TokenMint,
        effects: &'a mut Vec<Effect>,
        lane: Lane,
    ) -> Self {
        Self { farm, tokens, effects, now, lane }
    }

    /// How many replicas on whole cores the policy could start on a host now: in idle slots that
    /// were asked for, and in the place of replicas of lanes behind its own.
    #[must_use]
    pub fn room(&self, host: HostIx) -> u32 {
        self.farm.room(self.lane, host)
    }

    /// The lane whose policy acts.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Whether the lane may hold one more whole core of the farm.
    #[must_use]
    pub fn may_hold_more(&self) -> bool {
        !self.farm.is_lane_full(self.lane)
    }

    /// Whether a host has an idle slot that it asks for work for, and the lane may take it.
    #[must_use]
    pub fn may_serve(&self, host: HostIx) -> bool {
        self.farm.host(host).has_room() && self.may_hold_more()
    }

    /// Whether a host has an ability, and may be given now what a replica of it takes.
    pub(crate) fn may_begin(&self, host: HostIx, ability: AbilityIx) -> bool {
        self.farm.may_begin(self.lane, host, ability)
    }

    /// What of a host's fragment is the policy's to use: all but what lanes before its own hold.
    #[must_use]
    pub fn reach(&self, host: HostIx) -> Share {
        self.farm.reach(self.lane, host)
    }

    /// Accounts whose place among others may be another one since this was asked last, and the place.
    pub(crate) fn take_moved_accounts(&mut self) -> Vec<(AccountIx, u64)> {
        let (usage, now) = (&mut self.farm.usage, self.now);
        let changed = usage.take_changed().into_iter();
        changed.map(|account| (account, usage.place(account, now))).collect()
    }

    /// The farm as it is now.
    #[must_use]
    pub fn farm(&self) -> &Farm {
        self.farm
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Touches the job's next untouched workunit: its replicas are generated and wait. `None`
    /// where the job has none left, or too many workunits are open.
    pub fn open(&mut self, job: JobId) -> Option<WorkunitIx> {
        let begins = Begins::fixed(&self.farm.jobs.get(&job)?.spec);
        self.open_as(job, begins)
    }

    /// Like [`Desk::open`], with other replicas and another rule than the job's own.
    pub fn open_as(&mut self, job: JobId, begins: Begins) -> Option<WorkunitIx> {
        if self.farm.is_full() {
            return None;
        }
        let index = self.farm.jobs.get(&job)?.next_untouched()?;
        Some(self.farm.open_at(WorkunitId { job, index }, begins))
    }

    /// Touches one untouched workunit of the job: its replicas are generated and wait. `None`
    /// where it was touched before, or too many workunits are open.
    pub fn open_index(&mut self, job: JobId, index: u32) -> Option<WorkunitIx> {
        let entry = self.farm.jobs.get(&job)?;
        let may_open = !self.farm.is_full()
            && entry.has_untouched()
            && index < entry.workunit_count()
            && entry.is_untouched(index);
        let begins = Begins::fixed(&entry.spec);
        may_open.then(|| self.farm.open_at(WorkunitId { job, index }, begins))
    }

    /// Replicates a workunit that was to be decided by a single vote: as many replicas are
    /// brought as it lacks, and `quorum` of them have to agree.
    pub fn replicate(&mut self, workunit: WorkunitIx, replication: u8, quorum: u8) {
        let unit = self.farm.workunits.get_mut(workunit);
        let outputs = unit.votes.iter().filter(|vote| vote.digest.is_some()).count();
        let known = usize::from(unit.waiting) + unit.pending.len() + outputs;
        let missing = usize::from(replication).saturating_sub(known);
        unit.waiting += u16::try_from(missing).expect("a replication fits u8");
        unit.replication = replication;
        unit.rule = Rule::Quorum(quorum);
    }

    /// Gives a waiting replica of the workunit to the host: it moves from waiting to pending.
    /// The first one fixes the workunit's side. Where the host has no idle slot, a replica of a
    /// lane behind is parked, or taken back.
    ///
    /// # Errors
    /// The rule that forbids it; then nothing has changed.
    pub fn start(&mut self, workunit: WorkunitIx, host: HostIx) -> Result<LeaseToken, Refusal> {
        self.start_with_share(workunit, host, self.farm.share_of(workunit))
    }

    /// Like [`Desk::start`], with another share of the host's cores than the job says. A part of a
    /// core uses up nothing of what the host asked for.
    ///
    /// # Errors
    /// The rule that forbids it; then nothing has changed.
    pub fn start_with_share(
        &mut self,
        workunit: WorkunitIx,
        host: HostIx,
        share: Share,
    ) -> Result<LeaseToken, Refusal> {
        let room = self.farm.room_for(workunit, host, share)?;
        if room == Room::Lent {
            let takes = self.farm.takes(workunit, share);
            self.make_room(self.farm.workunit(workunit).lane, host, takes);
        }
        let (token, attempt) = self.next_lease(workunit, host);
        let goes_on = self.farm.go_on(workunit, host, token);
        let hands_on = self.farm.hands_on(workunit, host);
        let replica = self.farm.grant(self.now, workunit, host, token, attempt, share);
        self.farm.note_left(self.lane);
        self.farm.hosts.change(host, |entry| {
            entry.asked = entry.asked.saturating_sub(share.whole_cores());
            entry.spend_quota();
        });
        self.effects.push(Effect::Lease { host, token, replica, share, goes_on, hands_on });
        Ok(token)
    }

    /// Displaces replicas on a host until this much of it is free, as [`Farm::may_take`] has found
    /// that it can be.
    fn make_room(&mut self, lane: Lane, host: HostIx, takes: Takes) {
        let displaced = self.farm.to_displace(lane, host, takes, takes.share);
        for lease in displaced.parked {
            self.end_for_another(host, lease);
        }
        for (lease, ends) in displaced.running {
            if ends {
                // What it leaves counts as asked for, as its agent counts it.
                let cores = lease.share.whole_cores();
                self.farm.hosts.change(host, |entry| entry.asked += cores);
                self.end_for_another(host, lease);
            } else {
                self.displace(host, lease, lane);
            }
        }
    }

    /// Ends a replica on a host in favour of another lane's. Policies are told of it after this plan.
    fn end_for_another(&mut self, host: HostIx, lease: Lease) {
        if let Some(leased) = self.farm.leased(host, lease.token) {
            self.farm.displaced.push(lease.workunit);
            self.take_back(leased);
        }
    }

    /// Lets a parked replica go on, where need be in the place of others as if it began.
    ///
    /// # Errors
    /// The host holds no such lease, or has no room for it.
    pub(crate) fn resume(&mut self, host: HostIx, lease: Lease) -> Result<(), Refusal> {
        let Lease { token, workunit, share, .. } = lease;
        let lane = self.farm.workunit(workunit).lane;
        // It has its memory and its GPU.
        let takes = Takes { share, kept: Kept::NONE };
        if self.farm.may_take(lane, host, takes)? == Room::Lent {
            // What lanes behind hold is for what has more to lose: that waits for a core of its own.
            if share <= Share::WHOLE {
                return Err(Refusal::NoFreeSlot);
            }
            self.make_room(lane, host, takes);
        }
        self.farm.change_giving(host, |entry| {
            entry.asked = entry.asked.saturating_sub(share.whole_cores());
            let lease = entry.take_lease(token);
            entry.leases.extend(lease);
        });
        self.farm.note_left(lane);
        self.effects.push(Effect::Resume { host, token });
        Ok(())
    }

    /// Makes room where a replica of another lane runs: it is parked where its host can keep it, if
    /// need be in the place of one of a lane behind its own, else it waits again. Policies are told
    /// of it after this plan.
    fn displace(&mut self, host: HostIx, lease: Lease, lane: Lane) {
        let Lease { token, workunit, share, .. } = lease;
        let steps_aside = self.farm.workunit(workunit).lane == lane;
        // What it leaves counts as asked for, as its agent counts it.
        self.farm.hosts.change(host, |entry| entry.asked += share.whole_cores());
        self.farm.displaced.push(workunit);
        if !self.farm.host(host).can_park()
            && let Some(parked) = self.farm.next_to_unpark(host, workunit)
        {
            self.farm.displaced.push(parked.workunit);
            let parked = self.farm.leased(host, parked.token).expect("a host's lease is known");
            self.take_back(parked);
        }
        if self.farm.host(host).can_park() {
            self.farm.change_giving(host, |entry| {
                let lease = entry.take_lease(token);
                entry.parked.extend(lease.map(|lease| Lease {
                    has_stepped_aside: lease.has_stepped_aside || steps_aside,
                    ..lease
                }));
            });
            return self.effects.push(Effect::Park { host, token });
        }
        let leased = self.farm.leased(host, token).expect("a host's lease is known");
        self.take_back(leased);
    }

    /// Ends a replica in favour of another: it waits again. Its host takes the slot for one that it
    /// has asked for.
    fn take_back(&mut self, lease: Leased) {
        let Leased { host, token, workunit, .. } = lease;
        self.farm.end_lease(lease);
        self.farm.workunits.get_mut(workunit).waiting += 1;
        self.farm.tally_of(workunit, |counts| counts.aborted += 1);
        self.effects.push(Effect::Abort { host, token, reason: AbortReason::Preempted });
    }

    /// Token and number of the next try at a workunit.
    fn next_lease(&self, workunit: WorkunitIx, host: HostIx) -> (LeaseToken, u32) {
        let (unit, entry) = (self.farm.workunit(workunit), self.farm.host(host));
        let job = self.farm.job(unit.id.job).expect("a workunit's job is known");
        let mut attempt = unit.attempts;
        loop {
            attempt = attempt.saturating_add(1);
            let replica = ReplicaId { workunit: unit.id, attempt };
            let token = self.tokens.mint(&entry.info.name, replica, job.asked);
            if entry.lease(token).is_none() || attempt == u32::MAX {
                return (token, attempt);
            }
        }
    }

    /// Changes the share of a lease.
    ///
    /// # Errors
    /// The host holds no such lease, or its fragment has no room for that share.
    pub fn set_share(
        &mut self,
        host: HostIx,
        token: LeaseToken,
        share: Share,
    ) -> Result<(), Refusal> {
        let entry = self.farm.hosts.get(host);
        if !entry.leases.iter().any(|lease| lease.token == token) {
            return Err(Refusal::NoSuchLease);
        }
        if !self.farm.change_giving(host, |entry| entry.set_share(token, share)) {
            return Err(Refusal::NoFreeSlot);
        }
        self.effects.push(Effect::Share { host, token, share });
        Ok(())
    }

    /// Takes a replica back from a host: it waits again, and its slot is one that the host asks for
    /// work for.
    ///
    /// # Errors
    /// The host holds no such lease.
    pub fn revoke(&mut self, host: HostIx, token: LeaseToken) -> Result<WorkunitIx, Refusal> {
        let lease = self.farm.leased(host, token).ok_or(Refusal::NoSuchLease)?;
        let entry = self.farm.hosts.get(host);
        let taking = entry.leases.iter().find(|lease| lease.token == token && entry.connected);
        let freed = taking.map_or(0, |lease| lease.share.cores_touched());
        self.take_back(lease);
        self.farm.hosts.change(host, |entry| entry.ask(freed));
        Ok(lease.workunit)
    }

    /// Adds a replica to the workunit, beyond those that its quorum needs: it waits.
    ///
    /// # Errors
    /// The workunit has as many as it may have.
    pub fn duplicate(&mut self, workunit: WorkunitIx) -> Result<(), Refusal> {
        let unit = self.farm.workunits.get_mut(workunit);
        let known = usize::from(unit.waiting) + unit.pending.len() + unit.reported();
        if known >= usize::from(REPLICAS_MAX) {
            return Err(Refusal::TooManyReplicas);
        }
        unit.waiting += 1;
        Ok(())
    }

    /// Takes a waiting replica of the workunit off again, where its quorum does not need it.
    pub fn withdraw(&mut self, workunit: WorkunitIx) {
        let unit = self.farm.workunits.get(workunit);
        let (waiting, others) = (usize::from(unit.waiting), unit.pending.len());
        let demand = self.farm.demand(unit);
        if waiting > 0 && demand.agreeing + others + waiting > demand.wanted {
            self.farm.workunits.get_mut(workunit).waiting -= 1;
        }
    }

    /// Has a host fetch a copy of a chunk from another. It is on its way until the host says
    /// that it has it, or that it could not be had.
    ///
    /// # Errors
    /// `from` has no copy, `to` has one or gets one already, or one of them is not connected.
    pub fn move_copy(&mut self, chunk: ChunkId, from: HostIx, to: HostIx) -> Result<(), Refusal> {
        self.move_copy_within(chunk, from, to, None)
    }

    /// Like [`Desk::move_copy`], given up by the host where it takes longer than there is
    /// patience for.
    ///
    /// # Errors
    /// `from` has no copy, `to` has one or gets one already, or one of them is not connected.
    pub fn move_copy_within(
        &mut self,
        chunk: ChunkId,
        from: HostIx,
        to: HostIx,
        patience: Option<Patience>,
    ) -> Result<(), Refusal> {
        if !(self.farm.hosts.get(from).connected && self.farm.hosts.get(to).connected) {
            return Err(Refusal::Disconnected);
        }
        if !self.farm.copies.begin_move(chunk, from, to) {
            return Err(Refusal::NoCopy);
        }
        self.effects.push(Effect::Move { chunk, from, to, patience });
        Ok(())
    }
}

impl Farm {
    /// Moves a waiting replica to pending under `token`: a new try, or `attempt` where the host
    /// has begun it before. The rules were checked.
    pub(crate) fn grant(
        &mut self,
        now: Time,
        workunit: WorkunitIx,
        host: HostIx,
        token: LeaseToken,
        attempt: u32,
        share: Share,
    ) -> ReplicaId {
        let Kept { memory_mib, gpus } = self.takes(workunit, share).kept;
        let (voter, origin) = self.hosts.change(host, |entry| {
            let has_stepped_aside = false;
            let lease = Lease { token, workunit, share, memory_mib, gpus, has_stepped_aside };
            entry.leases.push(lease);
            (entry.voter, entry.origin())
        });
        let unit = self.workunits.get_mut(workunit);
        let job = self.jobs.get_mut(&unit.id.job).expect("a workunit's job is known");
        if self.hosts.get(host).connected {
            self.lanes.take(unit.lane, share);
            self.usage.hold(job.account, self.now, share, true);
        }
        let until = now + Span::from_secs(job.spec.lease_s);
        let serial = self.ends.insert(until, job.spec.lease_s, workunit);
        unit.waiting -= 1;
        unit.attempts = unit.attempts.max(attempt);
        unit.side.get_or_insert(origin);
        unit.pending.push(Pending { token, voter, host, attempt, serial });
        job.counts.leased += 1;
        job.pending += 1;
        self.totals.leased += 1;
        ReplicaId { workunit: unit.id, attempt }
    }
}
