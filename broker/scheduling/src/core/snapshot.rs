//! The core as the fewest facts that restore it.

use gleaner_protocol::{JobId, WorkunitId};

use super::Core;
use crate::Fact;
use crate::farm::{Farm, Host, Job, JobPhase, Standing, Vote, Workunit};

impl Core {
    /// Facts that restore this core as all the facts so far do, leases aside: votes of decided
    /// workunits are left out, what they counted is kept.
    pub fn facts(&self) -> impl Iterator<Item = Fact> + '_ {
        let last = JobId::new(self.next_job - 1);
        let forgotten = (last.get() > 0 && self.farm.job(last).is_none())
            .then_some(Fact::JobForgotten { job: last });
        let mut hosts: Vec<_> = self.farm.hosts().map(|(_, host)| host).collect();
        hosts.sort_unstable_by(|one, other| one.info.name.cmp(&other.info.name));
        forgotten
            .into_iter()
            .chain(self.farm.jobs().flat_map(|job| self.farm.facts_of(job)))
            .chain(self.farm.jobs().flat_map(|job| self.farm.standings_of(job)))
            .chain(hosts.into_iter().filter_map(fact_of_host))
    }
}

fn fact_of_host(host: &Host) -> Option<Fact> {
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

impl Farm {
    fn facts_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = Fact> + 'a {
        let id = job.id;
        let accepted = Fact::JobAccepted { job: id, spec: job.spec.clone() };
        let decided = job.ended.digests().map(move |(index, digest)| {
            let workunit = WorkunitId { job: id, index };
            Fact::Decided { workunit, digest }
        });
        let given_up = job.ended.failures().map(move |(index, reason)| {
            let workunit = WorkunitId { job: id, index };
            Fact::GivenUp { workunit, reason: reason.to_owned() }
        });
        let votes = job.open.values().flat_map(move |open| {
            let unit = self.workunit(*open);
            unit.votes.iter().map(move |vote| self.fact_of(unit, vote))
        });
        let cancelled =
            (job.phase == JobPhase::Cancelled).then_some(Fact::JobCancelled { job: id });
        let counted = Fact::Counted { job: id, counts: job.counts };
        std::iter::once(accepted)
            .chain(decided)
            .chain(given_up)
            .chain(votes)
            .chain(cancelled)
            .chain([counted])
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
        match vote.digest {
            Some(digest) => {
                Fact::Voted { workunit, side, host, owner, token, digest, cpu_us: vote.cpu_us }
            }
            None => Fact::ReplicaFailed { workunit, side, host, owner, token },
        }
    }
}
