//! Memory and GPUs of a host: what a replica keeps even while it stands still.

use serde::{Deserialize, Serialize};

/// So much memory and so many GPUs. A replica has them from its beginning to its end: one that is
/// frozen, or parked for another lane, is still in memory, and its context still on the GPU.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Kept {
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// GPUs.
    pub gpus: u8,
}

impl Kept {
    /// Nothing.
    pub const NONE: Self = Self { memory_mib: 0, gpus: 0 };
    /// As much as there can be.
    pub const ALL: Self = Self { memory_mib: u32::MAX, gpus: u8::MAX };

    /// Of both no more than of the other.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.memory_mib <= other.memory_mib && self.gpus <= other.gpus
    }

    /// The sum, at the type's end where it is more.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
            gpus: self.gpus.saturating_add(other.gpus),
        }
    }

    /// The difference, nothing where it is less.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            memory_mib: self.memory_mib.saturating_sub(other.memory_mib),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }

    /// How often it is there in what is given: any number of times where it is nothing, and as often as
    /// there are GPUs of memory without a bound.
    #[must_use]
    pub fn times_in(self, given: Self) -> u32 {
        let gpus = given.gpus.checked_div(self.gpus).map_or(u32::MAX, u32::from);
        match given.memory_mib {
            u32::MAX => gpus,
            mib => gpus.min(mib.checked_div(self.memory_mib).unwrap_or(u32::MAX)),
        }
    }

    /// Whether there is any of what `other` has.
    #[must_use]
    pub const fn has_any_of(self, other: Self) -> bool {
        (self.memory_mib > 0 && other.memory_mib > 0) || (self.gpus > 0 && other.gpus > 0)
    }

    /// Memory that a task asks for, in MiB, up by less than a sixteenth, so that jobs with limits of all
    /// kinds ask for few different amounts. It is counted so wherever it is counted.
    #[must_use]
    pub const fn counted_mib(asked_mib: u32) -> u32 {
        let step = match asked_mib.checked_next_power_of_two() {
            Some(power) if power >= 32 => power / 32,
            Some(_) => 1,
            None => 1 << 27,
        };
        match asked_mib.checked_next_multiple_of(step) {
            Some(mib) => mib,
            None => u32::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_count_by_themselves() {
        let (small, large) = (Kept { memory_mib: 4, gpus: 1 }, Kept { memory_mib: 9, gpus: 0 });
        assert!(!small.fits(large) && !large.fits(small) && small.fits(small));
        assert_eq!(small.plus(large), Kept { memory_mib: 13, gpus: 1 });
        assert_eq!(large.minus(small), Kept { memory_mib: 5, gpus: 0 });
        assert!(large.has_any_of(small) && !Kept::NONE.has_any_of(small));
        assert!(!large.has_any_of(Kept { memory_mib: 0, gpus: 1 }));
        assert!(Kept::ALL.plus(small) == Kept::ALL && small.fits(Kept::ALL));
        assert_eq!((small.times_in(large), large.times_in(small)), (0, 0));
        assert_eq!(small.times_in(Kept { memory_mib: 9, gpus: 3 }), 2);
        assert_eq!(small.times_in(Kept { memory_mib: u32::MAX, gpus: 3 }), 3);
        assert_eq!(Kept::NONE.times_in(Kept::NONE), u32::MAX);
    }

    #[test]
    fn memory_is_counted_up_by_less_than_a_sixteenth() {
        let mut counted = std::collections::BTreeSet::new();
        for mib in (0..100_000).chain([u32::MAX - 1, u32::MAX]) {
            let up = Kept::counted_mib(mib);
            assert!(up >= mib && up - mib <= mib / 16, "{mib} counts as {up}");
            assert_eq!(Kept::counted_mib(up), up);
            counted.insert(up);
        }
        assert!(counted.len() < 300, "{} amounts", counted.len());
        assert_eq!([0, 1, 256, 12_288].map(Kept::counted_mib), [0, 1, 256, 12_288]);
    }
}
