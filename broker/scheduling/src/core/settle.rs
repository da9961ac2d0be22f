//! Hosts gain and lose trust, and what they gave alone becomes final or is computed again.

use gleaner_protocol::{Digest, HostName, LeaseToken, OwnerName};
use smallvec::SmallVec;

use super::Core;
use super::snapshot::fact_of_host;
use crate::farm::{
    Demand, HostIx, Leased, Reputation, Rule, Standing, VOICES_WANTED, Voice, Vote, VoterIx,
    Workunit, WorkunitIx,
};
use crate::{Effect, Fact};

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

    /// Counts a vote on its workunit. A host passes a check with the first equal output of another one
    /// whose owner has a voice: those without one prove nothing to each other.
    pub(super) fn enter_vote(&mut self, workunit: WorkunitIx, vote: Vote) {
        self.forget_due(workunit);
        let unit = self.farm.workunits.get_mut(workunit);
        unit.push_vote(vote);
        self.farm.hosts.mention(vote.host);
        let Some(digest) = vote.digest else { return };
        let unit = self.farm.workunits.get(workunit);
        let equal = || unit.votes.iter().filter(|of| of.digest == Some(digest));
        let has_voice = |vote: &Vote| usize::from(self.farm.hosts.voice(vote.voter) != Voice::New);
        let voices: usize = equal().map(has_voice).sum();
        let before = voices - has_voice(&vote);
        let passes = |of: &&Vote| {
            let own = has_voice(of);
            let was_checked = of.token != vote.token && before > own;
            voices > own && !was_checked
        };
        let passed: SmallVec<[LeaseToken; 4]> = equal().filter(passes).map(|of| of.token).collect();
        let unit = self.farm.workunits.get_mut(workunit);
        let is_one = |of: &&mut Vote| of.digest == Some(digest) && passed.contains(&of.token);
        for of in unit.votes.iter_mut().filter(is_one) {
            of.mark += 1;
            self.farm.hosts.change_standing(of.host, |standing| standing.passed += 1);
            self.unsettled.push(of.host);
        }
    }

    /// A workunit is decided: owners who agree with voices that decide without theirs earn one, and who
    /// does not loses it. Quotas of hosts are doubled or halved.
    pub(super) fn count_agreements(
        &mut self,
        workunit: WorkunitIx,
        digest: Digest,
        effects: &mut Vec<Effect>,
    ) {
        let unit = self.farm.workunits.get(workunit);
        let votes: SmallVec<[Vote; 4]> =
            unit.votes.iter().filter(|vote| vote.digest.is_some()).copied().collect();
        for vote in votes {
            match vote.digest == Some(digest) {
                true => self.farm.hosts.double_quota(vote.host, 1),
                false => self.farm.hosts.halve_quota(vote.host, self.farm.now),
            }
        }
        let unit = self.farm.workunits.get(workunit);
        if !self.farm.hosts.has_vouched() || unit.is_decided_by_one() {
            return;
        }
        // Where later checks decide, each voice is one of a host that is trusted alone.
        let wanted = if unit.rule == Rule::Credible { 1 } else { VOICES_WANTED };
        let mut after: SmallVec<[(VoterIx, Reputation); 4]> = SmallVec::new();
        for vote in unit.votes.iter().filter(|vote| vote.digest.is_some()) {
            let agrees = vote.digest == Some(digest);
            if self.farm.voices_beside(unit, digest, vote.voter) >= wanted {
                let reputation = self.farm.hosts.reputation_after(vote.voter, agrees);
                after.extend(reputation.map(|reputation| (vote.voter, reputation)));
            }
        }
        for (voter, reputation) in after {
            self.set_reputation(voter, reputation, effects);
        }
    }

    /// The key of a host was revoked: trust belongs to a key. The host begins anew as one that was
    /// caught, and so does its owner where that was the last of its keys.
    pub(super) fn distrust(
        &mut self,
        name: &HostName,
        last_of: Option<&OwnerName>,
        effects: &mut Vec<Effect>,
    ) {
        let known = self.farm.hosts.find(name);
        let has_stood = |host: &HostIx| self.farm.hosts.get(*host).standing.passed_since() > 0;
        if let Some(host) = known.filter(has_stood) {
            self.farm.hosts.change_standing(host, Standing::fail);
            effects.extend(fact_of_host(self.farm.hosts.get(host)).map(Effect::Persist));
            self.unsettled.push(host);
        }
        let voter = last_of.map(|owner| self.farm.hosts.voter_of_owner(owner));
        let has_stood = |voter: &VoterIx| self.farm.hosts.reputation(*voter).agreed > 0;
        if let Some(voter) = voter.filter(has_stood) {
            let disagreed = self.farm.hosts.reputation(voter).disagreed;
            self.set_reputation(voter, Reputation { agreed: 0, disagreed }, effects);
        }
    }

    /// An owner's outputs are worth something else from now on.
    pub(super) fn set_reputation(
        &mut self,
        voter: VoterIx,
        reputation: Reputation,
        effects: &mut Vec<Effect>,
    ) {
        let Some(owner) = self.farm.hosts.owner_of(voter).cloned() else { return };
        let Reputation { agreed, disagreed } = reputation;
        effects.push(Effect::Persist(Fact::OwnerStood { owner, agreed, disagreed }));
        if self.farm.hosts.set_reputation(voter, reputation) {
            self.revoiced.push(Some(voter));
        }
    }

    /// Decides what waited for a voice that there is now, and has more done of what has lost one.
    fn hear_again(&mut self, voter: Option<VoterIx>, effects: &mut Vec<Effect>) {
        let has_part = |unit: &Workunit| voter.is_none_or(|voter| unit.is_touched_by_voter(voter));
        let of_it = self.farm.workunits().map(|(_, unit)| unit).filter(|unit| has_part(unit));
        let of_it: Vec<_> = of_it.map(|unit| unit.id).collect();
        for id in of_it {
            if let Some(workunit) = self.farm.find(id) {
                self.forget_due(workunit);
                self.after_vote(workunit, effects);
            }
        }
        self.farm.hosts.wake_all_of(voter);
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
        loop {
            self.settle_hosts(effects);
            let Some(voter) = self.revoiced.pop() else { return };
            self.hear_again(voter, effects);
        }
    }

    fn settle_hosts(&mut self, effects: &mut Vec<Effect>) {
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
