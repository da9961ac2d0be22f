//! The farm as the core knows it: hosts, jobs, workunits and leases, and the rules that hold
//! between them whatever the policy.
//!
//! The seed's three lists of a workunit are here: `waitResults` is [`Workunit::waiting`] (its
//! replicas are alike, so a count is the list), `pendResults` is [`Workunit::pending`],
//! `completeResults` is [`Workunit::votes`] and the failed ones.
//!
//! # Invariants
//! - A lease is in its workunit's pending list, in its host's list and among the ends of leases,
//!   or in none of them.
//! - Hash maps are only looked up, never iterated.

mod asking;
mod backoff;
mod copies;
mod demand;
mod displaced;
mod ended;
mod failed_attempt;
mod host;
mod hosts;
mod job;
mod lease;
mod open_workunits;
mod quota;
mod room;
mod saved;
mod standing;
mod usage;
mod voice;
mod vote;
mod workunit;

pub use backoff::Backoff;
pub use ended::Ended;
pub use failed_attempt::FailedAttempt;
pub use host::{Host, HostIx, OwnerlessVote, VoterIx};
pub(crate) use job::Accepted;
pub use job::{Job, JobPhase};
pub use lease::Lease;
pub use quota::Quota;
pub use room::LaneLimits;
pub use saved::{Party, SavedState};
pub use standing::Standing;
pub use usage::{AccountLimit, AccountShare};
pub use voice::{Reputation, Voice};
pub use vote::Vote;
pub use workunit::{Pending, Rule, Workunit, WorkunitIx};

pub(crate) use backoff::Step;
pub(crate) use copies::Copies;
pub(crate) use demand::Demand;
pub(crate) use displaced::Takes;
pub(crate) use hosts::Hosts;
pub(crate) use lease::{LeaseEnds, Leased};
pub(crate) use open_workunits::OpenWorkunits;
pub(crate) use room::{LaneUse, Room};
pub(crate) use usage::{AccountIx, AtLimit, Freed, Usage};
pub(crate) use voice::VOICES_WANTED;

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::api::ReplicaCounts;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{
    ChunkId, DatasetId, HostName, JobId, LeaseToken, Origin, Share, Span, Time, WorkunitId,
};

use crate::Refusal;
use crate::ability::{Abilities, AbilityIx};
use crate::trust;

/// How a workunit begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begins {
    /// Replicas that are generated at once.
    pub replicas: u8,
    /// What decides it.
    pub rule: Rule,
    /// Tries are counted from here: an agent that sees the number of its own cannot tell whether
    /// there are others.
    pub attempts: u32,
}

impl Begins {
    /// As the job says: replicated at once, decided by its quorum.
    #[must_use]
    pub fn fixed(spec: &JobSpec) -> Self {
        Self { replicas: spec.replication, rule: Rule::Quorum(spec.quorum()), attempts: 0 }
    }

    /// As few replicas as the error allows that the job names, where it names one.
    #[must_use]
    pub fn credible(spec: &JobSpec) -> Self {
        let fewest = trust::allowed_error(spec.trust).map(trust::fewest);
        let fewest = fewest.and_then(|votes| u8::try_from(votes).ok());
        fewest.map_or(Self::fixed(spec), |replicas| Self {
            replicas,
            rule: Rule::Credible,
            attempts: 0,
        })
    }
}

/// The state that all policies see.
#[derive(Debug, Default)]
pub struct Farm {
    pub(crate) hosts: Hosts,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    pub(crate) workunits: OpenWorkunits,
    pub(crate) ends: LeaseEnds,
    pub(crate) abilities: Abilities,
    pub(crate) copies: Copies,
    /// What lanes hold, and how much they may.
    pub(crate) lanes: LaneUse,
    /// What owners have used.
    pub(crate) usage: Usage,
    /// Workunits whose replicas were displaced by a plan of another lane, which their policies
    /// are still to be told of.
    pub(crate) displaced: Vec<WorkunitIx>,
    /// Jobs that go on and are due at a time.
    pub(crate) due: BTreeSet<JobId>,
    /// When the input in hand was taken.
    pub(crate) now: Time,
    /// Open workunits with a failed attempt or a refusal.
    pub(crate) troubled: BTreeSet<WorkunitIx>,
    pub(crate) totals: ReplicaCounts,
    /// What jobs that are forgotten have in the totals.
    pub(crate) forgotten: ReplicaCounts,
    /// Whether canonical outputs are not kept.
    pub(crate) keeps_no_outputs: bool,
}

impl Farm {
    /// A host.
    #[must_use]
    pub fn host(&self, host: HostIx) -> &Host {
        self.hosts.get(host)
    }

    /// The host of this name, connected or not.
    #[must_use]
    pub fn host_named(&self, name: &HostName) -> Option<&Host> {
        self.hosts.find(name).map(|host| self.hosts.get(host))
    }

    /// All hosts, connected or not, in order of their numbers: those of forgotten ones are used again,
    /// otherwise it is the order of their first appearance.
    pub fn hosts(&self) -> impl Iterator<Item = (HostIx, &Host)> {
        self.hosts.iter()
    }

    /// The hosts behind this name, or all, in the order of names.
    pub fn hosts_behind(&self, name: Option<&HostName>) -> impl Iterator<Item = &Host> {
        self.hosts.iter_behind(name)
    }

    /// The numbers of all hosts are below this one.
    #[must_use]
    pub fn host_numbers(&self) -> usize {
        self.hosts.end()
    }

    /// Whether there is a standing request: a host that asked, has room, and found nothing.
    #[must_use]
    pub fn anyone_asks(&self) -> bool {
        !self.hosts.asking().is_empty()
    }

    /// The first standing request of a host that `may`, in a fixed order that keeps hosts of one
    /// side with the same abilities together.
    pub fn first_asking(&self, may: impl Fn(&Host) -> bool) -> Option<HostIx> {
        self.hosts.asking().first(|host| may(self.host(host)))
    }

    /// The first standing request of a host that `may`, of the same side with the same abilities
    /// as `host`.
    pub fn first_asking_like(&self, host: HostIx, may: impl Fn(&Host) -> bool) -> Option<HostIx> {
        self.hosts.asking().first_like(self.host(host), |host| may(self.host(host)))
    }

    /// The first standing request of a host that `may`, behind those of hosts like `host`. Where jobs
    /// take anything but one core, hosts like it may be given what it was not: then right behind it.
    pub fn first_asking_behind(&self, host: HostIx, may: impl Fn(&Host) -> bool) -> Option<HostIx> {
        let may = |host| may(self.host(host));
        if self.hosts.has_uneven {
            return self.hosts.asking().first_after(host, self.host(host), may);
        }
        self.hosts.asking().first_behind(self.host(host), may)
    }

    /// The first standing request of a host that `may` and may take a replica of `workunit`, on
    /// `side` where one is given.
    pub fn first_asking_for(
        &self,
        workunit: WorkunitIx,
        side: Option<Origin>,
        may: impl Fn(&Host) -> bool,
    ) -> Option<HostIx> {
        self.first_to_begin(workunit, side, |unit, host| {
            may(self.host(host))
                && !unit.is_refused_by(host)
                && (!unit.is_tried_on(host) || !self.has_untried_hosts(unit, host))
        })
    }

    /// The same, hosts that have tried it aside.
    pub(crate) fn first_asking_untried(
        &self,
        workunit: WorkunitIx,
        side: Option<Origin>,
        may: impl Fn(&Host) -> bool,
    ) -> Option<HostIx> {
        self.first_to_begin(workunit, side, |unit, host| {
            may(self.host(host)) && !unit.is_tried_on(host)
        })
    }

    fn first_to_begin(
        &self,
        workunit: WorkunitIx,
        side: Option<Origin>,
        may: impl Fn(&Workunit, HostIx) -> bool,
    ) -> Option<HostIx> {
        let unit = self.workunits.get(workunit);
        let waits = unit.waiting > 0;
        waits.then(|| self.first_that_fits(unit, side, |host| may(unit, host))).flatten()
    }

    fn first_that_fits(
        &self,
        unit: &Workunit,
        side: Option<Origin>,
        may: impl Fn(HostIx) -> bool,
    ) -> Option<HostIx> {
        let has_place = |host| self.has_place_for(unit, self.hosts.get(host).voter);
        let may = |host| may(host) && has_place(host) && self.fits(unit.lane, host, unit.ability);
        self.hosts.asking().first_for(unit, side, may)
    }

    /// The first standing request of a host that `may` and could run something of `job`.
    pub fn first_asking_able(&self, job: JobId, may: impl Fn(&Host) -> bool) -> Option<HostIx> {
        let (ability, lane) = self.jobs.get(&job).map(|job| (job.ability, job.spec.lane))?;
        let may = |host| may(self.host(host)) && self.fits(lane, host, ability);
        self.hosts.asking().first_able(ability, may)
    }

    /// A job.
    #[must_use]
    pub fn job(&self, job: JobId) -> Option<&Job> {
        self.jobs.get(&job)
    }

    /// All jobs in order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// The jobs from this one on, in order of submission, parts of frames left out.
    pub fn jobs_from(&self, first: JobId) -> impl Iterator<Item = &Job> {
        let end = JobId::FRAMES_FROM.max(first);
        self.jobs.range(first..end).map(|(_, job)| job)
    }

    /// All jobs that are written down: parts of frames are not.
    pub fn kept_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs_from(JobId::new(0))
    }

    /// Jobs that go on and are due at a time.
    pub fn due_jobs(&self) -> impl Iterator<Item = &Job> {
        self.due.iter().filter_map(|job| self.jobs.get(job))
    }

    /// How accounts stand to each other, in the order of their names.
    pub fn account_shares(&self) -> impl Iterator<Item = AccountShare> {
        self.usage.shares(self.now)
    }

    /// How many jobs are known, parts of frames left out.
    #[must_use]
    pub fn job_count(&self) -> usize {
        self.jobs.len() - self.jobs.range(JobId::FRAMES_FROM..).count()
    }

    /// The lane of a job.
    #[must_use]
    pub fn lane_of(&self, job: JobId) -> Option<Lane> {
        self.jobs.get(&job).map(|job| job.spec.lane)
    }

    /// An open workunit.
    #[must_use]
    pub fn workunit(&self, workunit: WorkunitIx) -> &Workunit {
        self.workunits.get(workunit)
    }

    /// The open workunit of this id, if it is open.
    #[must_use]
    pub fn find(&self, id: WorkunitId) -> Option<WorkunitIx> {
        self.jobs.get(&id.job)?.open.get(&id.index).copied()
    }

    /// All open workunits.
    pub fn workunits(&self) -> impl Iterator<Item = (WorkunitIx, &Workunit)> {
        self.workunits.iter()
    }

    /// How many workunits are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.workunits.len()
    }

    /// Whether no more workunits may be opened before some end.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.workunits.is_full()
    }

    /// How many replicas are leased.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.ends.len()
    }

    /// Counts over the life of this core.
    #[must_use]
    pub fn totals(&self) -> ReplicaCounts {
        self.totals
    }

    /// Whether `host` could run something of `job` at all, even if it backs off from it now.
    #[must_use]
    pub fn is_able(&self, host: HostIx, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| self.host(host).offers(job.ability))
    }

    /// Whether a replica of `workunit` may start on `host` now.
    ///
    /// # Errors
    /// The first rule against it.
    pub fn may_start(&self, workunit: WorkunitIx, host: HostIx) -> Result<(), Refusal> {
        self.room_for(workunit, host, self.share_of(workunit)).map(drop)
    }

    /// What a replica of a workunit takes of its host's cores.
    #[must_use]
    pub fn share_of(&self, workunit: WorkunitIx) -> Share {
        self.abilities.share(self.workunits.get(workunit).ability)
    }

    /// Where a replica of `workunit` would run that starts on `host` now with this share of its cores:
    /// where need be in the place of replicas of lanes behind its own.
    pub(crate) fn room_for(
        &self,
        workunit: WorkunitIx,
        host: HostIx,
        share: Share,
    ) -> Result<Room, Refusal> {
        if self.hosts.get(host).has_spent_quota() {
            return Err(Refusal::QuotaSpent);
        }
        let unit = self.workunits.get(workunit);
        if self.at_limit(unit.lane, unit.ability).is_some() {
            return Err(Refusal::AtLimit);
        }
        let room = self.may_take(unit.lane, host, self.takes(workunit, share))?;
        self.is_eligible(workunit, host).map(|()| room)
    }

    /// The chunk that a workunit of this job reads, where it reads one.
    #[must_use]
    pub fn chunk_of(&self, id: WorkunitId) -> Option<ChunkId> {
        let reads = self.jobs.get(&id.job)?.spec.profile.reads?;
        Some(ChunkId { dataset: reads.dataset, index: reads.first.saturating_add(id.index) })
    }

    /// The hosts that have a copy of a chunk, connected or not, in order.
    pub fn copies(&self, chunk: ChunkId) -> impl Iterator<Item = HostIx> {
        self.copies.holders(chunk)
    }

    /// Whether a host has a copy of a chunk.
    #[must_use]
    pub fn has_copy(&self, chunk: ChunkId, host: HostIx) -> bool {
        self.copies.is_held(chunk, host)
    }

    /// The chunks of a dataset that each host has copies of, in order.
    #[must_use]
    pub fn copies_of(&self, dataset: DatasetId) -> BTreeMap<HostIx, Vec<ChunkId>> {
        self.copies.of_dataset(dataset)
    }

    /// Whether a copy of a chunk is on its way to a host.
    #[must_use]
    pub fn is_moving(&self, chunk: ChunkId, to: HostIx) -> bool {
        self.copies.is_moving(chunk, to)
    }

    /// The chunks on their way to a host, in order.
    pub fn moving_to(&self, host: HostIx) -> impl Iterator<Item = ChunkId> {
        self.copies.moving_to(host)
    }

    /// Whether `host` is a right one for a replica of `workunit`, free slots aside.
    ///
    /// # Errors
    /// The first rule against it.
    pub fn is_eligible(&self, workunit: WorkunitIx, host: HostIx) -> Result<(), Refusal> {
        if self.workunits.get(workunit).waiting == 0 {
            return Err(Refusal::NoReplicaWaits);
        }
        self.may_have(workunit, host)
    }

    /// The same, whether or not a replica waits.
    pub(crate) fn may_have(&self, workunit: WorkunitIx, host: HostIx) -> Result<(), Refusal> {
        let (unit, entry) = (self.workunits.get(workunit), self.hosts.get(host));
        if unit.is_touched_by(host, entry.voter) {
            return Err(Refusal::OneVotePerHost);
        }
        if !entry.abilities.contains(unit.ability) {
            return Err(Refusal::CannotRun);
        }
        if !self.has_place_for(unit, entry.voter) {
            return Err(Refusal::AwaitsVoice);
        }
        if unit.is_tried_on(host) && self.has_untried_hosts(unit, host) {
            return Err(Refusal::OthersFirst);
        }
        if !self.gives_enough(host, unit.ability) {
            return Err(Refusal::TooLittleLeft);
        }
        Ok(())
    }

    /// Whether `host` is a right one for a replica of `workunit` that it has not refused.
    pub(crate) fn is_welcome(&self, workunit: WorkunitIx, host: HostIx) -> bool {
        !self.workunits.get(workunit).is_refused_by(host)
            && self.is_eligible(workunit, host).is_ok()
    }

    /// Whether `host` has refused a workunit, and is a right one for it all the same: nobody else
    /// is left who could run it.
    pub(crate) fn is_last_resort(&self, workunit: WorkunitIx, host: HostIx) -> bool {
        self.workunits.get(workunit).is_refused_by(host) && self.is_eligible(workunit, host).is_ok()
    }

    /// Whether a workunit is decided provisionally, and nothing of it waits or runs.
    pub(crate) fn is_doubtful(&self, unit: &Workunit) -> bool {
        unit.due_after > 0 && unit.waiting == 0 && unit.pending.is_empty()
    }

    /// Whether `host` has no part in `workunit`, can run it and has room for it, waiting replicas
    /// aside.
    pub(crate) fn may_compute(&self, workunit: WorkunitIx, host: HostIx) -> bool {
        let (unit, entry) = (self.workunits.get(workunit), self.hosts.get(host));
        !unit.is_touched_by(host, entry.voter)
            && !unit.is_tried_on(host)
            && self.has_place_for(unit, entry.voter)
            && entry.abilities.contains(unit.ability)
            && self.fits(unit.lane, host, unit.ability)
    }

    /// The first standing request of a host that `may`, has no part in `workunit` and can run it.
    pub(crate) fn first_asking_to_compute(
        &self,
        workunit: WorkunitIx,
        may: impl Fn(&Host) -> bool,
    ) -> Option<HostIx> {
        let unit = self.workunits.get(workunit);
        let may = |host| may(self.host(host)) && !unit.is_tried_on(host);
        self.first_that_fits(unit, None, may)
    }

    /// Whether `host` can run a job now, and does not back off from what it runs.
    pub(crate) fn can_run(&self, host: HostIx, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| self.has_ability(host, job.ability))
    }

    pub(crate) fn has_ability(&self, host: HostIx, ability: AbilityIx) -> bool {
        self.hosts.get(host).abilities.contains(ability) && self.gives_enough(host, ability)
    }

    /// Opens an untouched workunit: its replicas are generated and wait.
    pub(crate) fn open_at(&mut self, id: WorkunitId, begins: Begins) -> WorkunitIx {
        let job = self.jobs.get_mut(&id.job).expect("the job was looked up");
        let unit = Workunit::new(id, job.spec.lane, begins, job.ability);
        let workunit = self.workunits.insert(unit);
        job.open_at(id.index, workunit);
        workunit
    }

    /// The lease that a host has under this token.
    pub(crate) fn leased(&self, host: HostIx, token: LeaseToken) -> Option<Leased> {
        let workunit = self.hosts.get(host).lease(token)?.workunit;
        let mut pending = self.workunits.get(workunit).pending.iter();
        let pending = pending.find(|pending| pending.token == token && pending.host == host);
        let attempt = pending.expect("a host's lease is pending at its workunit").attempt;
        Some(Leased { host, workunit, token, attempt })
    }

    /// The lease that ends first, if it has ended by `now`.
    pub(crate) fn first_overdue(&self, now: Time) -> Option<Leased> {
        let end = self.ends.first().filter(|end| end.until <= now)?;
        let pending = self.workunits.pending_at(&end).expect("the first end is that of a lease");
        let Pending { host, token, attempt, .. } = pending;
        Some(Leased { host, workunit: end.workunit, token, attempt })
    }

    /// Takes a lease out of its workunit's pending list, its host's list and the ends.
    pub(crate) fn end_lease(&mut self, lease: Leased) {
        let unit = self.workunits.get_mut(lease.workunit);
        let mut pending = unit.pending.iter();
        let at =
            pending.position(|pending| pending.token == lease.token && pending.host == lease.host);
        let serial = unit.pending.remove(at.expect("a lease is pending at its workunit")).serial;
        let lane = unit.lane;
        let job = self.jobs.get_mut(&unit.id.job).expect("a workunit's job is known");
        job.pending -= 1;
        let account = job.account;
        let workunits = &self.workunits;
        let is_live = |end: &_| workunits.pending_at(end).is_some();
        self.ends.remove(job.spec.lease_s, serial, is_live);
        let dropped = self.hosts.change(lease.host, |entry| entry.drop_lease(lease.token));
        if let Some(share) = dropped.filter(|_| self.hosts.get(lease.host).connected) {
            self.give_back_share(lane, account, share);
        }
    }

    /// Gives a lease its whole time once more.
    pub(crate) fn renew(&mut self, lease: Leased) {
        let unit = self.workunits.get(lease.workunit);
        let lease_s = self.jobs.get(&unit.id.job).expect("a workunit's job is known").spec.lease_s;
        let is_it = |pending: &Pending| pending.token == lease.token && pending.host == lease.host;
        let serial = unit.pending.iter().find(|pending| is_it(pending)).map(|of| of.serial);
        let serial = serial.expect("a lease is pending at its workunit");
        let until = self.now + Span::from_secs(lease_s);
        let next = self.ends.insert(until, lease_s, lease.workunit);
        let unit = self.workunits.get_mut(lease.workunit);
        let mut pending = unit.pending.iter_mut();
        if let Some(pending) = pending.find(|pending| is_it(pending)) {
            pending.serial = next;
        }
        let workunits = &self.workunits;
        self.ends.remove(lease_s, serial, |end| workunits.pending_at(end).is_some());
    }

    /// A workunit has ended: it speaks of no host any more.
    pub(crate) fn remove_workunit(&mut self, workunit: WorkunitIx) {
        let unit = self.workunits.remove(workunit);
        unit.mentioned().for_each(|host| self.hosts.drop_mention(host));
    }

    /// What a replica saved is let go of.
    pub(crate) fn drop_saved(&mut self, saved: &SavedState) {
        saved.said.iter().for_each(|party| self.hosts.drop_mention(party.host));
    }

    /// Nobody is held to be unfit for a job any more.
    pub(crate) fn clear_unfit(&mut self, job: JobId) {
        let job = self.jobs.get_mut(&job).expect("its workunits are known");
        job.unfit.drain(..).for_each(|host| self.hosts.drop_mention(host));
    }

    /// Lets go of a job that has ended.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(job) = self.jobs.remove(&job) {
            self.forgotten = self.forgotten.plus(job.counts);
            self.usage.drop_job(job.account);
            if let Some(ability) = self.abilities.release(job.ability) {
                self.hosts.drop_ability(ability);
            }
        }
    }

    /// Counts something that happened to a replica of a workunit.
    pub(crate) fn tally_of(&mut self, workunit: WorkunitIx, count: impl Fn(&mut ReplicaCounts)) {
        self.tally(self.workunits.get(workunit).id.job, count);
    }

    /// Counts something that happened to a replica of a job.
    pub(crate) fn tally(&mut self, job: JobId, count: impl Fn(&mut ReplicaCounts)) {
        let job = self.jobs.get_mut(&job).expect("a workunit's job is known");
        count(&mut job.counts);
        count(&mut self.totals);
    }
}
