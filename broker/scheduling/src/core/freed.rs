//! Accounts that may hold so much and no more, and may hold something again.

use smallvec::SmallVec;

use super::Core;
use crate::ability::AbilityIx;
use crate::farm::Freed;
use crate::limits::FREED_WOKEN_MAX;

impl Core {
    /// Offers limited accounts what they could not have before, some hosts at a time: mostly the first of
    /// them takes it all.
    pub(super) fn wake_for_freed(&mut self) {
        for (account, Freed { held, from }) in self.farm.usage.take_freed() {
            let (usage, abilities) = (&self.farm.usage, &self.farm.abilities);
            let may_again = |of: &AbilityIx| usage.may_again(&account, held, abilities.share(*of));
            let able: SmallVec<[AbilityIx; 4]> =
                abilities.of_limited(&account).filter(may_again).collect();
            if able.is_empty() {
                continue;
            }
            if let Some(from) = self.farm.hosts.wake_able(&able, from, FREED_WOKEN_MAX) {
                self.farm.usage.ask_on(account, Freed { held, from });
            }
        }
    }
}
