//! Where all chance of a storm comes from.

use crate::dice::Dice;

/// One stream for each purpose, so that one more draw for one leaves the others as they are.
pub(super) struct Chances {
    pub(super) hosts: Dice,
    pub(super) network: Dice,
    pub(super) work: Dice,
    pub(super) broker: Dice,
    pub(super) renders: Dice,
    pub(super) faults: Dice,
    pub(super) copies: Dice,
    pub(super) views: Dice,
}

impl Chances {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            hosts: Dice::new(seed, 1),
            network: Dice::new(seed, 2),
            work: Dice::new(seed, 3),
            broker: Dice::new(seed, 4),
            renders: Dice::new(seed, 5),
            faults: Dice::new(seed, 6),
            copies: Dice::new(seed, 7),
            views: Dice::new(seed, 8),
        }
    }
}
