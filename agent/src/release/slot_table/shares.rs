//! What replicas take of the cores: one, a part of one, or several, as their leases say.

use gleaner_protocol::{LeaseToken, Share};

use super::{Busy, Inner};

/// Replicas, and their slots.
type Replicas = Vec<(LeaseToken, usize)>;

impl Inner {
    /// What is taken of the cores by what runs or is kept frozen for the owner, and by this replica.
    pub(super) fn taken_with(&self, slot: usize, token: LeaseToken) -> Share {
        let others = self.taken(|busy| busy.takes_slot() && busy.token != token);
        others.plus(self.share_of(slot, token))
    }

    /// What some replicas take of the cores.
    pub(super) fn taken(&self, which: impl Fn(&Busy) -> bool) -> Share {
        let slots = self.busy.iter().enumerate();
        let chosen = slots.filter_map(|(slot, busy)| Some((slot, busy.filter(&which)?.token)));
        chosen.fold(Share::NONE, |sum, (slot, token)| sum.plus(self.share_of(slot, token)))
    }

    /// What a replica takes of the cores: what its lease says, or one.
    pub(super) fn share_of(&self, slot: usize, token: LeaseToken) -> Share {
        let asked = u32::try_from(slot).ok().and_then(|slot| self.asked_of(slot, token));
        asked.and_then(|asked| asked.share()).unwrap_or(Share::WHOLE)
    }

    /// Those of these replicas, in their order, that together take no more than this; and the rest.
    pub(super) fn fitting(
        &self,
        all: impl IntoIterator<Item = (LeaseToken, usize)>,
        room: Share,
    ) -> (Replicas, Replicas) {
        let mut left = room;
        all.into_iter().partition(|(token, slot)| {
            let share = self.share_of(*slot, *token);
            let fits = share <= left;
            left = if fits { left.minus(share) } else { left };
            fits
        })
    }
}
