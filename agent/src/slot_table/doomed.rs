//! What is frozen for a render, and whoever looks after it once the render has its answer.
//!
//! To kill a group, and to look for what has left it, are walks over processes: they take
//! milliseconds where there are many threads, in which a next render would go unheard. So they are
//! not done by whoever answers.

use std::sync::Arc;

use gleaner_protocol::LeaseToken;

use super::group::Group;
use super::{Inner, SlotTable, State};

/// Groups of which something may have left that is to be stopped.
#[derive(Debug, Default)]
pub(crate) struct Stragglers(Vec<Arc<Group>>);

impl Stragglers {
    /// None where there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Groups that are to be killed.
#[must_use = "they are frozen, and stay so until they are killed"]
#[derive(Debug, Default)]
pub(crate) struct Doomed(Vec<Arc<Group>>);

impl Doomed {
    /// None where there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over what another one has.
    pub(crate) fn extend(&mut self, other: Self) {
        let others = other.0.into_iter();
        let new: Vec<_> =
            others.filter(|one| !self.0.iter().any(|o| Arc::ptr_eq(o, one))).collect();
        self.0.extend(new);
    }

    /// Kills them. What somebody else has in hand just now is left, to be tried again: who kills
    /// for a render waits for nobody.
    pub(crate) fn kill(&mut self) {
        self.0.retain(|group| match group.try_reach() {
            Ok(Some(reach)) => {
                reach.kill_frozen();
                false
            }
            Ok(None) => false,
            Err(_) => true,
        });
    }

    /// Kills them, and waits for whoever has one in hand.
    pub(crate) fn kill_waiting(self) {
        self.0.iter().filter_map(|group| group.reach()).for_each(|reach| reach.kill_frozen());
    }
}

impl SlotTable {
    /// All that is frozen for renders and to be killed.
    pub(crate) fn doomed(&self) -> Doomed {
        Doomed(self.lock().stopped_groups())
    }

    /// Kills it. False where somebody else has a part of it in hand.
    #[cfg(test)]
    pub(crate) fn kill_frozen(&self) -> bool {
        let mut doomed = self.doomed();
        doomed.kill();
        doomed.is_empty()
    }

    /// Groups that are frozen, of which a [release](SlotTable::freeze) may have had no time to look for
    /// all that has left them.
    pub(crate) fn frozen_groups(&self) -> Stragglers {
        let inner = self.lock();
        Stragglers(inner.frozen_runners().map(|runner| Arc::clone(&runner.group)).collect())
    }

    /// Stops what has left one of these groups, where there is no freezer. False where there are no more.
    pub(crate) fn stop_stragglers(&self, stragglers: &mut Stragglers) -> bool {
        let Some(group) = stragglers.0.pop() else { return false };
        // Who reaches it otherwise kills it, or looks for the same.
        if let Ok(Some(reach)) = group.try_reach() {
            reach.stop_stragglers();
        }
        if self.goes_on(&group) {
            // It was let go on meanwhile.
            self.strays_go_on(&group);
        }
        !stragglers.is_empty()
    }

    /// Lets what has left a group run on, which does so itself. Only a walk finds that, for which no
    /// release waits.
    pub(super) fn strays_go_on(&self, group: &Group) {
        if group.freezer().is_some() {
            return;
        }
        if let Some(reach) = group.reach() {
            reach.thaw_strays();
        }
        // A release that came in between may have left that to whoever reached it.
        if !self.goes_on(group)
            && let Some(reach) = group.reach()
        {
            reach.stop_stragglers();
        }
    }

    /// Whether this is the group of a runner that is not frozen.
    fn goes_on(&self, group: &Group) -> bool {
        let inner = self.lock();
        let is_it = |runner: &super::RunnerEntry| std::ptr::eq(&*runner.group, group);
        inner.runners.iter().flatten().any(is_it) && !inner.frozen_runners().any(is_it)
    }

    /// Replicas that were stopped for renders and are to be killed, by slots.
    pub(crate) fn stopped_tokens(&self) -> Vec<LeaseToken> {
        self.lock().tokens(|busy| busy.state == State::Stopped)
    }

    /// Replicas that are frozen for renders and not to be killed, by slots.
    pub(crate) fn parked_tokens(&self) -> Vec<LeaseToken> {
        self.lock().tokens(|busy| busy.state == State::Parked)
    }
}

impl Inner {
    /// Freezes what runs in these slots, to be killed.
    pub(super) fn doom_all(&mut self, slots: &[(LeaseToken, usize)]) -> Doomed {
        self.stir_if(!slots.is_empty());
        slots.iter().for_each(|(_, slot)| self.doom(*slot));
        Doomed(slots.iter().filter_map(|(_, slot)| self.group(*slot)).collect())
    }
}
