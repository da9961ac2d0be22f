//! What the rules forbid, done all the same: only for tests, which show that the checks see it.

use std::sync::Arc;

use gleaner_protocol::job::{Cause, Lane};
use gleaner_protocol::limits::ATTEMPTS_MAX;
use gleaner_protocol::{LeaseToken, Share, Span};

use super::Desk;
use crate::farm::{FailedAttempt, HostIx, Job, JobPhase, WorkunitIx};

/// Something that must never happen inside a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A workunit is forgotten: breaks `no-workunit-lost`.
    LosesAWorkunit,
    /// A host gets two replicas of one workunit: breaks `one-vote`.
    LetsAHostVoteTwice,
    /// A host gets a replica more than it has slots: breaks `fragment`.
    FillsBeyondTheFragment,
    /// A host's replica is pending nowhere: breaks `lease-tables`.
    LosesALease,
    /// A replica waits that nobody asked for: breaks `quorum`.
    BringsTooManyReplicas,
    /// A workunit's progress changes behind its queue's back: breaks `queue-keys`.
    ChangesAKey,
    /// A sum is not what it sums up: breaks `counts`.
    Miscounts,
    /// More is open than may be: breaks `bounds`.
    OpensTooMany,
    /// A job ends before its workunits: breaks `job-end`.
    EndsAJobTooSoon,
    /// Standing requests are overlooked: breaks `asking`.
    OverlooksRequests,
    /// A host with room asks and is not served: breaks `nobody-idles`.
    ServesNobody,
    /// A host with a link has a time when it loses its leases: breaks `grace`.
    DoubtsAHost,
    /// A job leaves its lane without its queue knowing: breaks `queue-members`.
    MovesAJob,
    /// A workunit goes on that has used up its attempts: breaks `attempts`.
    TriesForEver,
    /// A time when a host gets work again is noted of a host that gets some now: breaks `back-off`.
    HoldsNobodyBack,
    /// A lane is said to hold what nobody of it holds: breaks `lanes`.
    MiscountsALane,
    /// A host is thought to be spoken of that is not: breaks `mentions`.
    RemembersForEver,
}

impl Sabotage {
    /// All of them, each with the check that has to see it.
    pub const ALL: [(Self, &'static str); 17] = [
        (Self::LosesAWorkunit, "no-workunit-lost"),
        (Self::LetsAHostVoteTwice, "one-vote"),
        (Self::FillsBeyondTheFragment, "fragment"),
        (Self::LosesALease, "lease-tables"),
        (Self::BringsTooManyReplicas, "quorum"),
        (Self::ChangesAKey, "queue-keys"),
        (Self::Miscounts, "counts"),
        (Self::OpensTooMany, "bounds"),
        (Self::EndsAJobTooSoon, "job-end"),
        (Self::OverlooksRequests, "asking"),
        (Self::ServesNobody, "nobody-idles"),
        (Self::MiscountsALane, "lanes"),
        (Self::DoubtsAHost, "grace"),
        (Self::MovesAJob, "queue-members"),
        (Self::TriesForEver, "attempts"),
        (Self::HoldsNobodyBack, "back-off"),
        (Self::RemembersForEver, "mentions"),
    ];
}

impl Desk<'_> {
    /// Breaks one invariant, and nothing else where that is possible. `false` where there is
    /// nothing to break now.
    pub fn sabotage(&mut self, sabotage: Sabotage) -> bool {
        match sabotage {
            Sabotage::LosesAWorkunit => {
                let Some((workunit, id)) = self.idle() else { return false };
                let job = self.farm.jobs.get_mut(&id.job).expect("a workunit's job is known");
                job.open.remove(&self.farm.workunits.get(workunit).id.index).is_some()
            }
            Sabotage::LetsAHostVoteTwice => {
                let Some((workunit, host)) = self.pending_with_room() else { return false };
                self.grant_unasked(workunit, host)
            }
            Sabotage::FillsBeyondTheFragment => {
                let full = self
                    .farm
                    .hosts()
                    .find(|(_, host)| host.connected && host.leased_share() >= host.capacity());
                let Some((host, _)) = full else { return false };
                let voter = self.farm.host(host).voter;
                let found = self
                    .farm
                    .workunits()
                    .find(|(_, unit)| unit.waiting > 1 && !unit.is_touched_by(host, voter));
                let Some((workunit, _)) = found else { return false };
                self.grant_unasked(workunit, host)
            }
            Sabotage::LosesALease => {
                let holds = self.farm.hosts().find(|(_, host)| !host.leases.is_empty());
                let Some((host, entry)) = holds else { return false };
                let token = entry.leases[0].token;
                self.farm.hosts.change(host, |entry| entry.drop_lease(token));
                true
            }
            Sabotage::BringsTooManyReplicas => {
                let Some((workunit, _)) = self.idle() else { return false };
                self.farm.workunits.get_mut(workunit).waiting += 1_000;
                true
            }
            Sabotage::ChangesAKey => {
                let Some((workunit, _)) = self.idle() else { return false };
                let unit = self.farm.workunits.get_mut(workunit);
                unit.replication += 1;
                true
            }
            Sabotage::Miscounts => {
                self.farm.totals.leased += 1;
                true
            }
            Sabotage::OpensTooMany => {
                let open = self.farm.workunits.len();
                self.farm.workunits.max = open.saturating_sub(1);
                open > 0
            }
            Sabotage::EndsAJobTooSoon => {
                let is_open = |job: &&Job| job.phase == JobPhase::Active && !job.open.is_empty();
                let Some(id) = self.farm.jobs().find(is_open).map(|job| job.id) else {
                    return false;
                };
                self.farm.jobs.get_mut(&id).expect("it was just seen").phase = JobPhase::Ended;
                true
            }
            Sabotage::OverlooksRequests => {
                let asks = !self.farm.hosts.asking().is_empty();
                self.farm.hosts.asking_mut().clear();
                asks
            }
            Sabotage::ServesNobody => {
                let Some(host) = self.idle_host_with_work() else { return false };
                self.farm.hosts.tamper(host, |entry| entry.asked = 1);
                self.farm.hosts.list(host);
                true
            }
            Sabotage::DoubtsAHost => {
                let linked = self.farm.hosts().find(|(_, host)| host.connected);
                let Some((host, _)) = linked else { return false };
                let later = self.now + Span::from_secs(3600);
                self.farm.hosts.tamper(host, |entry| entry.grace_until = Some(later));
                true
            }
            Sabotage::MiscountsALane => {
                self.farm.lanes.take(Lane::Rendering, Share::WHOLE);
                true
            }
            Sabotage::MovesAJob => {
                let waits = |workunit: &WorkunitIx| self.farm.workunit(*workunit).waiting > 0;
                let is_queued_whole =
                    |job: &&Job| job.has_untouched() && !job.open.values().any(waits);
                let Some(id) = self.farm.jobs().find(is_queued_whole).map(|job| job.id) else {
                    return false;
                };
                let job = self.farm.jobs.get_mut(&id).expect("it was just seen");
                Arc::make_mut(&mut job.spec).lane = Lane::Batch;
                true
            }
            Sabotage::TriesForEver => {
                let Some((workunit, _)) = self.idle() else { return false };
                let Some((host, entry)) = self.farm.hosts().next() else { return false };
                let (voter, token) = (entry.voter, LeaseToken::new(0));
                let (cause, why) = (Cause::Lost, Arc::from("a test"));
                let attempt = FailedAttempt { token, host, voter, cause, why };
                let attempts = vec![attempt; ATTEMPTS_MAX.into()];
                self.farm.workunits.get_mut(workunit).failed_attempts.extend(attempts);
                true
            }
            Sabotage::HoldsNobodyBack => {
                let Some((host, _)) = self.farm.hosts().next() else { return false };
                let Some(ability) = self.farm.jobs().next().map(|job| job.ability) else {
                    return false;
                };
                self.farm.hosts.note_backoff_end(self.now + Span::from_secs(3600), host, ability);
                true
            }
            Sabotage::RemembersForEver => {
                let Some((host, _)) = self.farm.hosts().next() else { return false };
                self.farm.hosts.mention(host);
                true
            }
        }
    }

    /// A host with room that asks for nothing, though there is an untouched workunit for it.
    fn idle_host_with_work(&self) -> Option<HostIx> {
        let farm = &self.farm;
        let has_work = |host| {
            let mut jobs = farm.jobs().filter(|job| job.has_untouched());
            jobs.any(|job| farm.has_ability(host, job.ability))
        };
        let mut hosts = farm.hosts().filter(|(_, host)| {
            host.connected && host.asked == 0 && host.leased_share() < host.capacity()
        });
        hosts.find(|(host, _)| !farm.is_full() && has_work(*host)).map(|(host, _)| host)
    }

    /// A workunit with a vote and a replica that waits.
    fn idle(&self) -> Option<(WorkunitIx, gleaner_protocol::WorkunitId)> {
        let mut open = self.farm.workunits();
        let found = open.find(|(_, unit)| unit.waiting > 0 && unit.pending.is_empty());
        found.map(|(workunit, unit)| (workunit, unit.id))
    }

    /// A workunit with a replica that waits and another on a host that has room.
    fn pending_with_room(&self) -> Option<(WorkunitIx, HostIx)> {
        self.farm.workunits().find_map(|(workunit, unit)| {
            let has_room = |host: &HostIx| {
                let entry = self.farm.host(*host);
                entry.connected && entry.leased_share() < entry.capacity()
            };
            let host = unit.pending.iter().map(|pending| pending.host).find(has_room)?;
            (unit.waiting > 0).then_some((workunit, host))
        })
    }

    fn grant_unasked(&mut self, workunit: WorkunitIx, host: HostIx) -> bool {
        let (token, attempt) = self.next_lease(workunit, host);
        self.farm.grant(self.now, workunit, host, token, attempt, Share::WHOLE);
        true
    }
}
