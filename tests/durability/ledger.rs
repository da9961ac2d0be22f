//! Everything that the broker acknowledged, and every fault that was found.
//!
//! An answer is compared with what had been acknowledged before the question was asked: what
//! came in between may be in it or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gleaner_protocol::api::{JobState, JobStatus};
use gleaner_protocol::control::{Lease, Verdict};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{Digest, HostName, JobId, LeaseToken, ReplicaId, WorkunitId};

use crate::plan::Fate;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something acknowledged is not there any more.
    Lost,
    /// Something is there that is not right, or has changed.
    Wrong,
}

/// Something that must not be.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) what: String,
}

/// See the module's page.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// Every job that was sent, by its name.
    plans: BTreeMap<String, Arc<JobSpec>>,
    named: BTreeMap<String, JobId>,
    jobs: BTreeMap<JobId, Known>,
    leases: BTreeMap<LeaseToken, (HostName, ReplicaId)>,
    /// The broker's incarnation at each of its starts.
    incarnations: BTreeMap<u32, u32>,
    pub(crate) acknowledged: u64,
    pub(crate) faults: Vec<Fault>,
}

/// A job that the broker has spoken of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// What was asked for, once it is known which job it is.
    pub(crate) spec: Option<Arc<JobSpec>>,
    pub(crate) least: Least,
    pub(crate) units: BTreeMap<u32, Unit>,
    /// Whether votes came since its results were looked at.
    pub(crate) news: bool,
}

/// What a job's status must show at the least.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Least {
    counted: u64,
    failed_replicas: u64,
    decided: u32,
    given_up: u32,
    end: Option<JobState>,
}

/// A workunit that votes came for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unit {
    pub(crate) votes: Vec<(String, Option<Digest>)>,
    hosts: BTreeSet<HostName>,
    pub(crate) end: Option<End>,
}

/// How a workunit ended, for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Decided(Digest),
    GivenUp(String),
}

impl Ledger {
    pub(crate) fn fault(&mut self, kind: Kind, what: impl Into<String>) {
        self.faults.push(Fault { kind, what: what.into() });
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = (JobId, &Known)> {
        self.jobs.iter().map(|(id, known)| (*id, known))
    }

    pub(crate) fn job(&self, id: JobId) -> Option<&Known> {
        self.jobs.get(&id)
    }

    pub(crate) fn job_mut(&mut self, id: JobId) -> Option<&mut Known> {
        self.jobs.get_mut(&id)
    }

    /// Jobs of these that have not come to their end.
    pub(crate) fn open_of(&self, ids: &BTreeSet<JobId>) -> usize {
        ids.iter().filter(|id| !self.jobs.get(id).is_some_and(Known::has_ended)).count()
    }

    /// Whether everything that is known has come to its end.
    pub(crate) fn all_ended(&self) -> bool {
        self.jobs.values().all(Known::has_ended)
    }

    /// A job is about to be sent.
    pub(crate) fn planned(&mut self, spec: Arc<JobSpec>) {
        let before = self.plans.insert(spec.name.clone(), spec);
        assert!(before.is_none(), "each job has a name of its own");
    }

    /// A submission was acknowledged.
    pub(crate) fn accepted(&mut self, id: JobId, name: &str) {
        self.acknowledged += 1;
        self.name(id, name);
        self.jobs.entry(id).or_default().news = true;
    }

    /// The broker says that this job has this name.
    fn name(&mut self, id: JobId, name: &str) {
        let Some(plan) = self.plans.get(name).cloned() else {
            return self.fault(Kind::Wrong, format!("{id} is {name:?}, which nobody sent"));
        };
        if let Some(other) = self.named.insert(name.to_owned(), id).filter(|other| *other != id) {
            self.fault(Kind::Wrong, format!("{name:?} is {other} and {id}"));
        }
        let known = self.jobs.entry(id).or_default();
        if let Some(other) = known.spec.replace(plan).filter(|other| other.name != name) {
            let what = format!("{id} was {:?} and is now {name:?}", other.name);
            self.fault(Kind::Wrong, what);
        }
    }

    /// The event stream told of a job.
    pub(crate) fn heard_of(&mut self, id: JobId) {
        self.jobs.entry(id).or_default();
    }

    /// The event stream told how far a job is.
    pub(crate) fn heard(&mut self, id: JobId, state: JobState, decided: u32, given_up: u32) {
        let least = &mut self.jobs.entry(id).or_default().least;
        least.decided = least.decided.max(decided);
        least.given_up = least.given_up.max(given_up);
        if state.is_final() {
            least.end = Some(state);
        }
    }

    /// A broker greets with its incarnation.
    pub(crate) fn welcomed(&mut self, start: u32, incarnation: u32) {
        let before = self.incarnations.range(..start).next_back().map(|(_, before)| *before);
        let now = *self.incarnations.entry(start).or_insert(incarnation);
        if now != incarnation || before.is_some_and(|before| before >= incarnation) {
            let what =
                format!("start {start} is incarnation {incarnation} and {now} after {before:?}");
            self.fault(Kind::Wrong, what);
        }
    }

    /// A lease was given out. That promises nothing: its job may be lost with the broker.
    pub(crate) fn leased(&mut self, start: u32, host: &HostName, lease: &Lease) {
        let Lease { token, replica, .. } = lease;
        let whose = (host.clone(), *replica);
        if let Some(before) = self.leases.insert(*token, whose) {
            self.fault(
                Kind::Wrong,
                format!("{token} is for {before:?} and for {replica} on {host}"),
            );
        }
        if self.incarnations.get(&start).map(|of| *of as u16) != Some((token.get() >> 48) as u16) {
            self.fault(Kind::Wrong, format!("{token} is not of the incarnation that gave it"));
        }
        let WorkunitId { job, index } = replica.workunit;
        let unit = self.jobs.get(&job).and_then(|known| known.units.get(&index));
        // Not so for another host of its owner: what comes over two links has no order.
        if unit.is_some_and(|unit| unit.hosts.contains(host)) {
            self.fault(Kind::Lost, format!("{host} got {replica}, on which it has voted"));
        }
    }

    /// A report of this host counts, as the vote of its owner.
    pub(crate) fn counted(
        &mut self,
        host: &HostName,
        voter: &str,
        replica: ReplicaId,
        vote: Option<Digest>,
    ) {
        self.acknowledged += 1;
        let unit = self.unit(replica);
        // Whoever failed may try again.
        let mut before = unit.votes.iter().filter(|(_, before)| before.is_some());
        let twice = vote.is_some() && before.any(|(before, _)| before == voter);
        unit.votes.push((voter.to_owned(), vote));
        if vote.is_some() {
            unit.hosts.insert(host.clone());
        }
        if twice {
            self.fault(Kind::Lost, format!("{voter} votes on {replica} a second time"));
        }
        let known = self.jobs.entry(replica.workunit.job).or_default();
        known.news = true;
        match vote {
            Some(_) => known.least.counted += 1,
            None => known.least.failed_replicas += 1,
        }
    }

    /// What became of a report that had counted before and was sent again.
    pub(crate) fn retold(&mut self, replica: ReplicaId, verdict: Verdict) {
        if !matches!(verdict, Verdict::Duplicate | Verdict::Late) {
            self.fault(
                Kind::Lost,
                format!("the report of {replica} counted; now it is {verdict:?}"),
            );
        }
    }

    fn unit(&mut self, replica: ReplicaId) -> &mut Unit {
        let known = self.jobs.entry(replica.workunit.job).or_default();
        known.units.entry(replica.workunit.index).or_default()
    }

    /// What each job must show at the least when it is asked for from now on.
    pub(crate) fn least(&self) -> BTreeMap<JobId, Least> {
        self.jobs.iter().map(|(id, known)| (*id, known.least)).collect()
    }

    /// Compares a job's status with what was known when it was asked for.
    pub(crate) fn judge(&mut self, least: Option<&Least>, status: &JobStatus) {
        let id = status.job;
        self.name(id, &status.name);
        let known = self.jobs.entry(id).or_default();
        let Some(spec) = known.spec.clone() else { return };
        let least = least.copied().unwrap_or_default();
        let mut found = least.compare(id, status);
        if status.workunits != spec.workunits.len() || status.owner != spec.owner {
            found.push((Kind::Wrong, format!("{id} is another job than {:?}", spec.name)));
        }
        if status.state.is_final() {
            known.least.end.get_or_insert(status.state);
            if !Fate::of(&spec.task).allows(status.state) {
                found.push((Kind::Wrong, format!("{id}, {:?}, is {:?}", spec.name, status.state)));
            }
        }
        known.least.decided = known.least.decided.max(status.decided);
        known.least.given_up = known.least.given_up.max(status.failed);
        for (kind, what) in found {
            self.fault(kind, what);
        }
    }
}

impl Known {
    pub(crate) fn has_ended(&self) -> bool {
        self.least.end.is_some()
    }

    /// The ends that its results must show from now on: those that were shown before, and those
    /// that the counted votes demand.
    pub(crate) fn ends(&self) -> BTreeMap<u32, Option<End>> {
        let Some(spec) = &self.spec else { return BTreeMap::new() };
        let due = |(index, unit): (&u32, &Unit)| unit.due(spec).map(|due| (*index, due));
        self.units.iter().filter_map(due).collect()
    }
}

impl Unit {
    /// How it must have ended: known exactly, or known to be given up for some reason (`None`).
    fn due(&self, spec: &JobSpec) -> Option<Option<End>> {
        if self.end.is_some() {
            return Some(self.end.clone());
        }
        let agreeing = |digest: &Digest| {
            self.votes.iter().filter(|(_, vote)| vote.as_ref() == Some(digest)).count()
        };
        let decided = self.votes.iter().find_map(|(_, vote)| {
            vote.filter(|digest| agreeing(digest) >= usize::from(spec.quorum()))
        });
        if let Some(digest) = decided {
            return Some(Some(End::Decided(digest)));
        }
        let doomed = Fate::of(&spec.task) == Fate::Doomed;
        (doomed && self.votes.len() >= usize::from(spec.attempts.failed)).then_some(None)
    }
}

impl Least {
    fn compare(&self, id: JobId, status: &JobStatus) -> Vec<(Kind, String)> {
        let mut found = Vec::new();
        let counts = [
            ("reported replicas", self.counted, status.replicas.reported),
            ("failed replicas", self.failed_replicas, status.replicas.failed),
            ("decided workunits", self.decided.into(), status.decided.into()),
            ("given-up workunits", self.given_up.into(), status.failed.into()),
        ];
        for (what, told, there) in counts {
            if there < told {
                found.push((
                    Kind::Lost,
                    format!("{id}: {told} {what} were told, {there} are there"),
                ));
            }
        }
        if let Some(end) = self.end.filter(|end| *end != status.state) {
            found.push((Kind::Lost, format!("{id} was {end:?} and is {:?}", status.state)));
        }
        found
    }
}
