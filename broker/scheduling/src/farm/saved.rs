//! What replicas saved on the way, for those that take their place.
//!
//! A saved state decides a part of the output, so whoever saved it has a say in the vote that
//! comes of it, and so has everybody whose state that one went on from. None of them may have a
//! say in another vote on the same workunit.
//!
//! # Invariants
//! - While a replica goes on from what other hosts saved, these have no other replica of the
//!   workunit and get none; when it has voted, they never do.
//! - Nothing goes from one vote to another but between hosts of the farm that belong to no owner: who
//!   gets a wrong state has the blame for it.

use gleaner_protocol::control::GoesOn;
use gleaner_protocol::{Digest, LeaseToken, Origin, Trust};
use smallvec::{SmallVec, smallvec};

use super::{Farm, HostIx, VoterIx, Workunit, WorkunitIx};
use crate::limits::{FREE_STATES_MAX, OTHERS_LOOKED_AT_MAX, PARTIES_MAX};

/// Who has a say in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party {
    /// Which host.
    pub host: HostIx,
    /// Whose vote it has.
    pub voter: VoterIx,
}

/// What a replica saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// What.
    pub state: Digest,
    /// The lease under which it was saved, or the one that goes on from it.
    pub token: LeaseToken,
    /// Who has a say in it; the one that saved it is the last.
    pub said: SmallVec<[Party; 1]>,
}

impl SavedState {
    /// A host saved this under a lease; whether it had no say in it before.
    fn replace(&mut self, state: Digest, by: Party) -> bool {
        self.state = state;
        let before = self.said.iter().position(|party| *party == by);
        before.map(|at| self.said.remove(at));
        self.said.push(by);
        before.is_none()
    }

    /// Those who have a say in it, but for a host as it votes now.
    pub(crate) fn others(&self, than: Party) -> impl Iterator<Item = Party> {
        self.said.iter().copied().filter(move |party| *party != than)
    }
}

impl Workunit {
    /// Whether a replica that is leased goes on from it, or saved it.
    fn is_carried(&self, saved: &SavedState) -> bool {
        self.pending.iter().any(|pending| pending.token == saved.token)
    }

    /// Whether somebody has a say in a state that a leased replica goes on from.
    pub(super) fn has_say(&self, is_it: impl Fn(&Party) -> bool) -> bool {
        self.saved.iter().any(|saved| saved.said.iter().any(&is_it) && self.is_carried(saved))
    }

    /// Whether a replica goes on from what others saved.
    pub(crate) fn is_heir(&self, token: LeaseToken, holder: Party) -> bool {
        self.saved_under(token).is_some_and(|saved| saved.others(holder).next().is_some())
    }

    /// The replica under a lease failed, which went on from what others saved: from here on each goes
    /// on from its own. Who has a say in a replica that runs keeps it. The states that are let go of.
    pub(crate) fn begin_anew(&mut self, failed: LeaseToken) -> Vec<SavedState> {
        self.begins_anew = true;
        let (kept, dropped) = std::mem::take(&mut self.saved)
            .into_iter()
            .partition::<Vec<_>, _>(|saved| saved.token != failed && self.is_carried(saved));
        self.saved = kept.into();
        dropped
    }

    /// The state that goes with a lease.
    pub(crate) fn saved_under(&self, token: LeaseToken) -> Option<&SavedState> {
        self.saved.iter().find(|saved| saved.token == token)
    }

    /// Lets go of the state that goes with a lease.
    pub(crate) fn forget_saved(&mut self, token: LeaseToken) -> Option<SavedState> {
        let at = self.saved.iter().position(|saved| saved.token == token)?;
        Some(self.saved.remove(at))
    }
}

impl Farm {
    /// Notes what the holder of a lease has saved.
    pub(crate) fn save(
        &mut self,
        workunit: WorkunitIx,
        token: LeaseToken,
        state: Digest,
        by: Party,
    ) {
        let unit = self.workunits.get_mut(workunit);
        if let Some(saved) = unit.saved.iter_mut().find(|saved| saved.token == token) {
            if saved.replace(state, by) {
                self.hosts.mention(by.host);
            }
            return;
        }
        let is_free = |saved: &SavedState| !unit.is_carried(saved);
        let is_full = unit.saved.iter().filter(|saved| is_free(saved)).count() >= FREE_STATES_MAX;
        let oldest = unit.saved.iter().position(is_free).filter(|_| is_full);
        let dropped = oldest.map(|oldest| unit.saved.remove(oldest));
        unit.saved.push(SavedState { state, token, said: smallvec![by] });
        self.hosts.mention(by.host);
        dropped.iter().for_each(|saved| self.drop_saved(saved));
    }

    /// From what a replica that a host is about to get under `token` goes on: its own first.
    pub(crate) fn go_on(
        &mut self,
        workunit: WorkunitIx,
        host: HostIx,
        token: LeaseToken,
    ) -> Option<GoesOn> {
        let unit = self.workunits.get(workunit);
        if unit.saved.is_empty() {
            return None;
        }
        let me = Party { host, voter: self.hosts.get(host).voter };
        let may = |saved: &SavedState| !unit.is_carried(saved) && self.may_go_on(unit, saved, me);
        // Its own before those of others, and of these the newest.
        let newest_first = (0..unit.saved.len()).rev();
        let (own, others): (SmallVec<[usize; 8]>, SmallVec<[usize; 8]>) =
            newest_first.partition(|at| unit.saved[*at].said.last() == Some(&me));
        let at = own.into_iter().chain(others).find(|at| may(&unit.saved[*at]))?;
        let saved = &mut self.workunits.get_mut(workunit).saved[at];
        saved.token = token;
        Some(GoesOn { state: saved.state, is_own: saved.said[..] == [me] })
    }

    /// Whether a host may keep a lease that nobody has at present. Where it goes on from what others
    /// saved it has to be known who they are, and they may have no other replica by now.
    pub(crate) fn may_still(
        &self,
        workunit: WorkunitIx,
        host: HostIx,
        token: LeaseToken,
        goes_on: bool,
    ) -> bool {
        let unit = self.workunits.get(workunit);
        let me = Party { host, voter: self.hosts.get(host).voter };
        match unit.saved_under(token) {
            Some(saved) => self.may_go_on(unit, saved, me),
            None => !goes_on,
        }
    }

    /// Whether what a replica saves on a host may be of use to another one.
    pub(crate) fn hands_on(&self, workunit: WorkunitIx, host: HostIx) -> bool {
        let (unit, entry) = (self.workunits.get(workunit), self.hosts.get(host));
        let me = Party { host, voter: entry.voter };
        let has_owner = me.voter.owner_number().is_some();
        self.shares(unit) && (has_owner || self.is_of_farm_alone(&me))
    }

    /// Whether replicas of a workunit go on from what others saved. Where hosts vouch for what they
    /// give alone, nobody vouches for two.
    fn shares(&self, unit: &Workunit) -> bool {
        let job = self.jobs.get(&unit.id.job).expect("a workunit's job is known");
        job.spec.trust == Trust::Fixed && !unit.begins_anew
    }

    /// Whether a party is a host of the farm, and of no owner in it.
    fn is_of_farm_alone(&self, party: &Party) -> bool {
        let is_ownerless = party.voter.owner_number().is_none();
        is_ownerless && self.hosts.get(party.host).origin() == Origin::Farm
    }

    /// Whether a host may go on from a state that nobody goes on from now.
    fn may_go_on(&self, unit: &Workunit, saved: &SavedState, me: Party) -> bool {
        if saved.said[..] == [me] {
            return true;
        }
        let of_farm = self.is_of_farm_alone(&me);
        let has_owner = me.voter.owner_number().is_some();
        let is_ours = |party: &Party| {
            *party == me
                || (has_owner && party.voter == me.voter)
                || (of_farm && self.is_of_farm_alone(party))
        };
        self.shares(unit)
            && (saved.said.len() < PARTIES_MAX || saved.said.contains(&me))
            && saved.said.iter().all(is_ours)
            && saved.others(me).all(|party| !unit.is_touched_by(party.host, party.voter))
            && (saved.others(me).next().is_none() || self.has_others(unit, saved, me))
    }

    /// Whether there are hosts for all further replicas that a workunit may have, without those who
    /// lose their vote if `me` goes on from `saved`. Where one vote decides, nobody loses his. Of a
    /// large farm only some are looked at, those that came soon after `me` first.
    fn has_others(&self, unit: &Workunit, saved: &SavedState, me: Party) -> bool {
        let job = self.jobs.get(&unit.id.job).expect("a workunit's job is known");
        let begun = unit.reported() + unit.pending.len() + 1;
        let wanted = match job.spec.quorum() {
            1 => 0,
            _ => usize::from(job.spec.max_replicas()).saturating_sub(begun),
        };
        if wanted == 0 {
            return true;
        }
        let side = self.hosts.get(me.host).origin();
        let is_other = |(host, entry): &(HostIx, &super::Host)| {
            entry.connected
                && entry.origin() == side
                && entry.voter != me.voter
                && entry.abilities.contains(unit.ability)
                && !unit.is_touched_by(*host, entry.voter)
                && saved.said.iter().all(|party| party.voter != entry.voter)
        };
        let mut voters: SmallVec<[VoterIx; 8]> = SmallVec::new();
        let from_me = self.hosts.iter_from(me.host).chain(self.hosts());
        let looked_at = from_me.take(self.hosts.len().min(OTHERS_LOOKED_AT_MAX));
        for (_, entry) in looked_at.filter(is_other) {
            if !voters.contains(&entry.voter) {
                voters.push(entry.voter);
                if voters.len() >= wanted {
                    return true;
                }
            }
        }
        false
    }
}
