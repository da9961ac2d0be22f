//! Hosts gain and lose trust, and what they gave alone becomes final or is computed again.

use gleaner_protocol::Digest;
use smallvec::SmallVec;

use super::Core;
use crate::Effect;
use crate::farm::{Demand, HostIx, Leased, Rule, Standing, Vote, WorkunitIx};

impl Core {
    /// The vote that the holder of a lease gives now.
    pub(super) fn vote_of(&self, lease: Leased, digest: Digest, cpu_us: u64) -> Vote {
        let host = self.farm.hosts.get(lease.host);
        let standing = &host.standing;
        let per_check = standing.reports_per_check(self.farm.now);
        Vote {
            token: lease.token,
            voter: host.voter,
            host: lease.host,
            digest: Some(digest),
            cpu_us,
            mark: standing.passed,
            failures: standing.failures,
            per_check: u8::try_from(per_check).expect("a host is checked more often"),
            handed_over: false,
        }
    }

    /// Counts a vote on its workunit. Its hosts have passed a check each where it is the second
    /// of its kind, and its own where it is a later one.
    pub(super) fn enter_vote(&mut self, workunit: WorkunitIx, vote: Vote) {
        self.forget_due(workunit);
        let unit = self.farm.workunits.get_mut(workunit);
        unit.push_vote(vote);
        self.farm.hosts.mention(vote.host);
        let Some(digest) = vote.digest else { return };
        let equal = unit.votes.iter().filter(|vote| vote.digest == Some(digest)).count();
        if equal < 2 {
            return;
        }
        for of in unit.votes.iter_mut().filter(|vote| vote.digest == Some(digest)) {
            if equal == 2 || of.token == vote.token {
                of.mark += 1;
                self.farm.hosts.change_standing(of.host, |standing| standing.passed += 1);
                self.unsettled.push(of.host);
            }
        }
    }

    /// A host gave an output that is not the canonical one: what it gave before counts no more.
    pub(super) fn catch(&mut self, vote: &Vote) {
        if self.farm.counts(vote) {
            self.farm.hosts.change_standing(vote.host, Standing::fail);
            self.unsettled.push(vote.host);
        }
    }

    /// Notes with the hosts whose votes on a workunit count what it waits for: their later checks,
    /// where it is decided provisionally, and in any case that none of them is caught.
    pub(super) fn note_due(&mut self, workunit: WorkunitIx, demand: &Demand) {
        let unit = self.farm.workunits.get_mut(workunit);
        if unit.rule != Rule::Credible {
            return;
        }
        let checks = demand.later_checks.unwrap_or(0);
        unit.due_after = u8::try_from(checks).expect("more than so many checks are not waited for");
        let unit = self.farm.workunits.get(workunit);
        let outputs = unit.votes.iter().filter(|vote| vote.digest.is_some());
        let counting: SmallVec<[Vote; 4]> =
            outputs.filter(|vote| self.farm.counts(vote)).copied().collect();
        let id = unit.id;
        for vote in counting {
            self.farm.hosts.change_standing(vote.host, |standing| {
                let at = vote.mark + checks;
                let is_due = checks > 0 && vote.digest == demand.leader && standing.passed < at;
                standing.due.insert((if is_due { at } else { u32::MAX }, id));
            });
        }
    }

    /// The workunit waits for nobody any more.
    pub(super) fn forget_due(&mut self, workunit: WorkunitIx) {
        let unit = self.farm.workunits.get_mut(workunit);
        if unit.rule != Rule::Credible {
            return;
        }
        let checks = u32::from(std::mem::take(&mut unit.due_after));
        let id = unit.id;
        for vote in unit.votes.iter().filter(|vote| vote.digest.is_some()) {
            self.farm.hosts.change_standing(vote.host, |standing| {
                standing.due.remove(&(vote.mark + checks, id));
                standing.due.remove(&(u32::MAX, id));
            });
        }
    }

    /// Decides what waited for the checks that hosts have passed, and has computed again what was
    /// given by hosts that were caught.
    pub(super) fn settle(&mut self, effects: &mut Vec<Effect>) {
        while let Some(host) = self.unsettled.pop() {
            let standing = &self.farm.hosts.get(host).standing;
            if standing.failed_at == standing.passed && standing.failures > 0 {
                self.doubt_all(host, effects);
            }
            while let Some(id) = self.farm.hosts.get(host).standing.first_due() {
                let workunit = self.farm.find(id).expect("what is due is open");
                self.forget_due(workunit);
                self.after_vote(workunit, effects);
            }
        }
    }

    fn doubt_all(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        let due: Vec<_> = self.farm.hosts.get(host).standing.due.iter().map(|of| of.1).collect();
        for id in due {
            if let Some(workunit) = self.farm.find(id) {
                self.forget_due(workunit);
                self.after_vote(workunit, effects);
            }
        }
    }
}
