//! Who has a GPU open and cannot be seen from here: those outside of this container, of whom nothing
//! but a number is told.
//!
//! A replica of this agent may be told by such a number too, and which one it is nobody says. But
//! there is no more than one at a time.

use std::collections::BTreeSet;

/// Which of the numbers that are nobody's here are of others.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    others: BTreeSet<u32>,
    /// The one that is taken for this agent's.
    own: Option<u32>,
    /// All that were there at the last look: what has just ended is gone at the next.
    last: BTreeSet<u32>,
    had_ours: bool,
}

impl Strangers {
    /// Looks at the numbers that there are now; `has_ours` says whether a replica of this agent has
    /// the GPU. One that stays is somebody else's, but for one of those that came with the replica.
    pub(super) fn look(&mut self, hidden: BTreeSet<u32>, has_ours: bool) {
        let stayed: BTreeSet<u32> = self.last.intersection(&hidden).copied().collect();
        self.others.retain(|pid| hidden.contains(pid));
        self.own = match has_ours || self.had_ours {
            true => self
                .own
                .filter(|own| hidden.contains(own))
                .or_else(|| stayed.difference(&self.others).next().copied()),
            false => None,
        };
        self.others.extend(stayed.into_iter().filter(|pid| Some(*pid) != self.own));
        (self.last, self.had_ours) = (hidden, has_ours);
    }

    /// Whether a number is somebody else's.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.others.contains(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is said to be others, look by look.
    fn others(looks: &[(&[u32], bool)]) -> Vec<Vec<u32>> {
        let mut strangers = Strangers::default();
        let look = |(hidden, has_ours): &(&[u32], bool)| {
            strangers.look(hidden.iter().copied().collect(), *has_ours);
            strangers.others.iter().copied().collect()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_number_that_stays_while_nothing_of_ours_is_there_is_somebody_elses() {
        let looks: [(&[u32], bool); 5] =
            [(&[7], false), (&[8], false), (&[8], false), (&[8, 9], false), (&[9], false)];
        let expected: [&[u32]; 5] = [&[], &[], &[8], &[8], &[9]];
        assert_eq!(others(&looks), expected);
    }

    #[test]
    fn of_those_that_come_with_a_replica_one_is_the_replica() {
        // It goes a look later than the replica does.
        let looks: [(&[u32], bool); 5] =
            [(&[], false), (&[5], true), (&[5], true), (&[5], false), (&[], false)];
        assert!(others(&looks).iter().all(Vec::is_empty));
        // Somebody comes meanwhile, and is still there when the replica is gone.
        let looks: [(&[u32], bool); 5] =
            [(&[5], true), (&[5], true), (&[4, 5], true), (&[4, 5], true), (&[4], false)];
        let expected: [&[u32]; 5] = [&[], &[], &[], &[4], &[4]];
        assert_eq!(others(&looks), expected);
        // Who was there before is not the replica.
        let looks: [(&[u32], bool); 5] =
            [(&[3], false), (&[3], false), (&[3, 5], true), (&[3, 5], true), (&[3], true)];
        let expected: [&[u32]; 5] = [&[], &[3], &[3], &[3], &[3]];
        assert_eq!(others(&looks), expected);
    }

    #[test]
    fn what_a_replica_leaves_behind_is_somebody_elses_when_it_stays() {
        let looks: [(&[u32], bool); 5] =
            [(&[5], true), (&[5], true), (&[5], false), (&[5], false), (&[5], false)];
        let expected: [&[u32]; 5] = [&[], &[], &[], &[5], &[5]];
        assert_eq!(others(&looks), expected);
    }
}
