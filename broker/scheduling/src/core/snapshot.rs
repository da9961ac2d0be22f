//! The core as the fewest facts that restore it.

use std::sync::Arc;

use gleaner_protocol::{JobId, WorkunitId};

use super::Core;
use crate::Fact;
use crate::farm::{FailedAttempt, Farm, Host, Job, JobPhase, Reputation, Standing, Vote, Workunit};

impl Core {
    /// Facts that restore this core as all the facts so far do, leases aside: votes of decided
    /// workunits are left out, what they counted is kept.
    pub fn facts(&self) -> impl Iterator<Item = Fact> + '_ {
        let settled = self.farm.kept_jobs().flat_map(settled_facts);
        settled.chain(self.standing_facts())
    }

    /// Those of them that may still change: all but accepted jobs, and outputs and failures of
    /// workunits. To be restored after these.
    pub fn standing_facts(&self) -> impl Iterator<Item = Fact> + '_ {
        let last = JobId::new(self.next_job - 1);
        let forgotten = (last.get() > 0 && self.farm.job(last).is_none())
            .then_some(Fact::JobForgotten { job: last });
        forgotten
            .into_iter()
            .chain(self.farm.kept_jobs().flat_map(|job| self.farm.facts_of(job)))
            .chain(self.farm.kept_jobs().flat_map(|job| self.farm.standings_of(job)))
            .chain(self.farm.hosts_behind(None).filter_map(fact_of_host))
            .chain(self.farm.hosts.reputations().map(
                |(owner, Reputation { agreed, disagreed })| Fact::OwnerStood {
                    owner: owner.clone(),
                    agreed,
                    disagreed,
                },
            ))
    }
}

/// What was accepted, and how workunits have ended.
fn settled_facts(job: &Job) -> impl Iterator<Item = Fact> + '_ {
    let id = job.id;
    let accepted =
        Fact::JobAccepted { job: id, spec: job.spec.clone(), accepted_us: job.accepted_us };
    let decided = job.ended.digests().map(move |(index, digest)| {
        let workunit = WorkunitId { job: id, index };
        Fact::Decided { workunit, digest }
    });
    let given_up = job.ended.failures().map(move |(index, reason)| {
        let workunit = WorkunitId { job: id, index };
        Fact::GivenUp { workunit, reason: reason.to_owned() }
    });
    std::iter::once(accepted).chain(decided).chain(given_up)
}

pub(super) fn fact_of_host(host: &Host) -> Option<Fact> {
    let Standing { passed, failures, failed_at, .. } = host.standing;
    // One may have failed by what it handed over alone.
    (host.reported > 0 || failures > 0).then(|| Fact::HostStood {
        host: host.info.name.clone(),
        owner: host.info.owner.clone(),
        side: host.origin(),
        reported: host.reported,
        disagreed: host.disagreed,
        passed,
        failures,
        failed_at,
    })
}

impl Fact {
    /// That a host is forgotten, where facts speak of what it did.
    pub(super) fn forgotten_host(host: &Host) -> Option<Self> {
        fact_of_host(host).map(|_| Self::HostStood {
            host: host.info.name.clone(),
            owner: None,
            side: host.origin(),
            reported: 0,
            disagreed: 0,
            passed: 0,
            failures: 0,
            failed_at: 0,
        })
    }
}

impl Farm {
    fn facts_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = Fact> + 'a {
        let id = job.id;
        let votes = job.open.values().flat_map(move |open| {
            let unit = self.workunit(*open);
            let votes = unit.votes.iter().map(move |vote| self.fact_of(unit, vote));
            votes.chain(unit.failed_attempts.iter().map(move |of| self.fact_of_attempt(unit, of)))
        });
        let cancelled =
            (job.phase == JobPhase::Cancelled).then_some(Fact::JobCancelled { job: id });
        let counted = Fact::Counted { job: id, counts: job.counts };
        votes.chain(cancelled).chain([counted])
    }

    fn standings_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = Fact> + 'a {
        let open = job.open.values().map(|open| self.workunit(*open));
        open.flat_map(|unit| {
            let given = unit.votes.iter().filter(|vote| !vote.handed_over);
            given.map(move |vote| Fact::VoteStood {
                workunit: unit.id,
                token: vote.token,
                mark: vote.mark,
                failures: vote.failures,
                per_check: vote.per_check,
            })
        })
    }

    fn fact_of(&self, unit: &Workunit, vote: &Vote) -> Fact {
        let info = &self.host(vote.host).info;
        let (workunit, token) = (unit.id, vote.token);
        let (host, owner) = (info.name.clone(), self.hosts.owner_of(vote.voter).cloned());
        let side = unit.side.unwrap_or(info.origin);
        if vote.handed_over {
            return Fact::HandedOver { workunit, side, host, owner, token };
        }
        let digest = vote.digest.expect("a vote that is not handed over has an output");
        Fact::Voted { workunit, side, host, owner, token, digest, cpu_us: vote.cpu_us }
    }

    /// An attempt that ended without an output, as a fact.
    pub(super) fn fact_of_attempt(&self, unit: &Workunit, attempt: &FailedAttempt) -> Fact {
        let info = &self.host(attempt.host).info;
        Fact::AttemptFailed {
            workunit: unit.id,
            side: unit.side.unwrap_or(info.origin),
            host: info.name.clone(),
            owner: self.hosts.owner_of(attempt.voter).cloned(),
            token: attempt.token,
            cause: attempt.cause,
            why: Arc::clone(&attempt.why),
        }
    }
}
