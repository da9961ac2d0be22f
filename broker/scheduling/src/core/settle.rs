//! Hosts gain and lose trust, and what they gave alone becomes final or is computed again.

use gleaner_protocol::{Digest, WorkunitId};

use super::Core;
use crate::farm::{Demand, HostIx, Leased, Rule, Vote, WorkunitIx};
use crate::{Effect, trust};

impl Core {
    /// The vote that the holder of a lease gives now.
    pub(super) fn vote_of(&self, lease: Leased, digest: Option<Digest>, cpu_us: u64) -> Vote {
        let host = self.farm.hosts.get(lease.host);
        let standing = &host.standing;
        let per_check =
            trust::reports_per_check(standing.passed_since(), standing.failures, host.reported);
        Vote {
            token: lease.token,
            voter: host.voter,
            host: lease.host,
            digest,
            cpu_us,
            mark: standing.passed,
            failures: standing.failures,
            per_check: u8::try_from(per_check).expect("a host is checked more often"),
        }
    }

    /// Counts a vote on its workunit. Its hosts have passed a check each where it is the second
    /// of its kind, and its own where it is a later one; where it is the first vote at all, it
    /// is drawn whether it is checked.
    pub(super) fn enter_vote(&mut self, workunit: WorkunitIx, vote: Vote) {
        self.forget_due(workunit);
        let is_drawn = self.is_drawn(workunit, &vote);
        let unit = self.farm.workunits.get_mut(workunit);
        let is_first = unit.votes.iter().all(|vote| vote.digest.is_none());
        unit.push_vote(vote);
        if let (Rule::Credible { is_checked }, true) = (&mut unit.rule, is_first) {
            *is_checked = is_drawn;
        }
        let Some(digest) = vote.digest else { return };
        let equal = unit.votes.iter().filter(|vote| vote.digest == Some(digest)).count();
        if equal < 2 {
            return;
        }
        for of in unit.votes.iter_mut().filter(|vote| vote.digest == Some(digest)) {
            if equal == 2 || of.token == vote.token {
                of.mark += 1;
                self.farm.hosts.change(of.host, |host| host.standing.passed += 1);
                self.unsettled.push(of.host);
            }
        }
    }

    /// Nobody but the holder of the seed can tell beforehand.
    fn is_drawn(&self, workunit: WorkunitIx, vote: &Vote) -> bool {
        if vote.per_check < 2 {
            return true;
        }
        let WorkunitId { job, index } = self.farm.workunits.get(workunit).id;
        let mut text = [0; 28];
        text[..8].copy_from_slice(&self.audit_seed.to_le_bytes());
        text[8..16].copy_from_slice(&job.get().to_le_bytes());
        text[16..20].copy_from_slice(&index.to_le_bytes());
        text[20..].copy_from_slice(&vote.token.get().to_le_bytes());
        let hash = Digest::of(&text);
        let (first, _) = hash.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        u64::from_le_bytes(*first) < u64::MAX / u64::from(vote.per_check)
    }

    /// A host gave an output that is not the canonical one: what it gave before counts no more.
    pub(super) fn catch(&mut self, vote: &Vote) {
        if self.farm.counts(vote) {
            self.farm.hosts.change(vote.host, |host| host.standing.fail());
            self.unsettled.push(vote.host);
        }
    }

    /// Notes with the hosts that agree on it that a workunit waits for their later checks.
    pub(super) fn note_due(&mut self, workunit: WorkunitIx, demand: &Demand) {
        let (Some(checks), Some(digest)) = (demand.later_checks, demand.leader) else { return };
        self.farm.workunits.get_mut(workunit).due_after =
            u8::try_from(checks).expect("more than so many checks are not waited for");
        let unit = self.farm.workunits.get(workunit);
        let hosts: Vec<_> =
            self.farm.votes_for(unit, digest).map(|vote| (vote.host, vote.mark)).collect();
        let id = unit.id;
        for (host, mark) in hosts {
            self.farm.hosts.change(host, |host| {
                let at = mark + checks;
                let at = if host.standing.passed >= at { u32::MAX } else { at };
                host.standing.due.insert((at, id));
            });
        }
    }

    /// The workunit waits for nobody's checks any more.
    pub(super) fn forget_due(&mut self, workunit: WorkunitIx) {
        let unit = self.farm.workunits.get_mut(workunit);
        let checks = u32::from(std::mem::take(&mut unit.due_after));
        if checks == 0 {
            return;
        }
        let id = unit.id;
        for vote in &unit.votes {
            self.farm.hosts.change(vote.host, |host| {
                host.standing.due.remove(&(vote.mark + checks, id));
                host.standing.due.remove(&(u32::MAX, id));
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
                self.after_vote(workunit, None, effects);
            }
        }
    }

    fn doubt_all(&mut self, host: HostIx, effects: &mut Vec<Effect>) {
        let due: Vec<_> = self.farm.hosts.get(host).standing.due.iter().map(|of| of.1).collect();
        for id in due {
            if let Some(workunit) = self.farm.find(id) {
                self.forget_due(workunit);
                self.after_vote(workunit, None, effects);
            }
        }
    }
}
