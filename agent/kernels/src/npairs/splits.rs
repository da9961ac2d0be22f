//! Halves of scans.

use std::collections::{BTreeMap, BTreeSet};

use super::design::Design;
use crate::dice::Dice;
use crate::limits::{SCANS_PER_CLASS_MIN, SPLIT_GROUPS_LISTED, SPLIT_MISSES_MAX, SPLIT_TRIES};

/// Scans in two halves, by number, in order.
pub(super) type Split = [Vec<usize>; 2];

/// At most `count` different ways to split scans in halves; all that there are, if there are no
/// more. Groups of scans stay together; groups that have equally many scans of each class are
/// shared out evenly. Each half has scans of each class. Empty where that cannot be done.
pub(super) fn splits(design: &Design, count: usize, seed: u64) -> Vec<Split> {
    let groups = design.scans_by_group();
    let mut alike: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (group, scans) in groups.iter().enumerate() {
        alike.entry(design.counts(scans)).or_default().push(group);
    }
    let alike: Vec<Vec<usize>> = alike.into_values().collect();
    let mut dice = Dice::new(seed, 1);
    let halves = |sides: Vec<bool>| -> Split {
        let half = |side: bool| -> Vec<usize> {
            let mut scans: Vec<usize> = (0..groups.len())
                .filter(|group| sides[*group] == side)
                .flat_map(|group| groups[group].iter().copied())
                .collect();
            scans.sort_unstable();
            scans
        };
        [half(false), half(true)]
    };
    let is_enough = |split: &Split| {
        let counts = split.iter().flat_map(|half| design.counts(half));
        counts.min().is_some_and(|least| least >= SCANS_PER_CLASS_MIN)
    };
    if groups.len() <= SPLIT_GROUPS_LISTED {
        let mut all = listed(&alike, groups.len());
        if all.len() > count {
            dice.shuffle(&mut all);
        }
        return all.into_iter().map(halves).filter(is_enough).take(count).collect();
    }
    let mut known = BTreeSet::new();
    let mut splits = Vec::new();
    let mut misses = 0;
    for _ in 0..count.saturating_mul(SPLIT_TRIES) {
        if splits.len() == count || misses == SPLIT_MISSES_MAX {
            break;
        }
        let split = halves(drawn(&alike, groups.len(), &mut dice));
        if is_enough(&split) && known.insert(split[0].clone()) {
            splits.push(split);
            misses = 0;
        } else {
            misses += 1;
        }
    }
    splits
}

/// Whether groups that are alike are shared out evenly, and all groups too.
fn is_even(alike: &[Vec<usize>], sides: &[bool]) -> bool {
    let on_one_side = |groups: &[usize]| groups.iter().filter(|group| sides[**group]).count();
    let is_half = |part: usize, whole: usize| part == whole / 2 || part == whole.div_ceil(2);
    alike.iter().all(|groups| is_half(on_one_side(groups), groups.len()))
        && is_half(sides.iter().filter(|side| **side).count(), sides.len())
}

/// All even ways, the first group always on the first side: the other way around is the same.
fn listed(alike: &[Vec<usize>], groups: usize) -> Vec<Vec<bool>> {
    let ways = 1_u32 << groups.saturating_sub(1);
    let sides = |way: u32| (0..groups).map(move |group| group > 0 && way >> (group - 1) & 1 == 1);
    let all = (0..ways).map(|way| sides(way).collect::<Vec<bool>>());
    all.filter(|sides| is_even(alike, sides)).collect()
}

/// An even way, as chance has it, the first group on the first side.
fn drawn(alike: &[Vec<usize>], groups: usize, dice: &mut Dice) -> Vec<bool> {
    let mut sides = vec![false; groups];
    let begin = dice.below(2);
    // What is left over where an odd number of groups is alike.
    let mut odd: Vec<usize> = Vec::new();
    for groups in alike {
        let mut order = groups.clone();
        dice.shuffle(&mut order);
        let half = groups.len() / 2;
        order[..half].iter().for_each(|group| sides[*group] = true);
        odd.extend(&order[2 * half..]);
    }
    // These go to the one side and the other by turns, in no order of their own.
    dice.shuffle(&mut odd);
    odd.iter().skip(begin).step_by(2).for_each(|group| sides[*group] = true);
    if sides[0] {
        sides.iter_mut().for_each(|side| *side = !*side);
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_splits(design: &Design, splits: &[Split]) {
        for [first, second] in splits {
            let mut all = [first.clone(), second.clone()].concat();
            all.sort_unstable();
            assert_eq!(all, (0..design.scans()).collect::<Vec<_>>());
            for scans in design.scans_by_group() {
                assert!(scans.iter().all(|scan| first.contains(scan) == first.contains(&scans[0])));
            }
        }
        let different: BTreeSet<&Split> = splits.iter().collect();
        assert_eq!(different.len(), splits.len());
    }

    #[test]
    fn all_splits_of_few_subjects_are_made_once() {
        let classes: Vec<i64> = (0..24).map(|scan| scan % 2).collect();
        let subjects: Vec<i64> = (0..24).map(|scan| scan / 4).collect();
        let design = Design::new(&classes, Some(&subjects)).expect("a design");
        // Half of the ways to choose 3 of 6.
        let all = splits(&design, 100, 1);
        assert_eq!(all.len(), 10);
        assert_splits(&design, &all);
        let some = splits(&design, 4, 1);
        assert_eq!(some.len(), 4);
        assert_splits(&design, &some);
        assert_eq!(splits(&design, 4, 1), some);
        assert_ne!(splits(&design, 4, 2), some);
    }

    #[test]
    fn scans_without_groups_are_split_class_by_class() {
        let classes: Vec<i64> = (0..41).map(|scan| i64::from(scan >= 20)).collect();
        let design = Design::new(&classes, None).expect("a design");
        let splits = splits(&design, 50, 3);
        assert_eq!(splits.len(), 50);
        assert_splits(&design, &splits);
        for half in splits.iter().flatten() {
            let counts = design.counts(half);
            assert!(counts[0] == 10 && (10..=11).contains(&counts[1]), "{counts:?}");
        }
    }

    #[test]
    fn many_groups_that_are_all_different_are_split_in_many_ways() {
        // Subject s has s + 2 scans of each of two classes.
        let subjects: Vec<i64> =
            (0_i64..17).flat_map(|s| (0..2 * (s + 2)).map(move |_| s)).collect();
        let classes: Vec<i64> = (0_i64..).take(subjects.len()).map(|scan| scan % 2).collect();
        let design = Design::new(&classes, Some(&subjects)).expect("a design");
        let some = splits(&design, 50, 1);
        assert_eq!(some.len(), 50);
        assert_splits(&design, &some);
        for half in some.iter().flatten() {
            let groups: BTreeSet<i64> = half.iter().map(|scan| subjects[*scan]).collect();
            assert!((8..=9).contains(&groups.len()), "{groups:?}");
        }
        // A subject is as likely with the first one as with the others.
        let together = |s: i64| {
            let with = |half: &[usize]| half.iter().any(|scan| subjects[*scan] == s);
            some.iter().filter(|[first, _]| with(first)).count()
        };
        assert!((1..17).all(|s| (10..=40).contains(&together(s))));
        assert_eq!(splits(&design, 50, 1), some);
        assert_ne!(splits(&design, 50, 2), some);
    }

    #[test]
    fn ways_that_are_all_of_no_use_are_not_drawn_on_and_on() {
        // Class 1 is in two groups, of three scans and of one: there is always one half with too few.
        let mut classes = vec![0; 100];
        classes.extend([1; 4]);
        let mut groups: Vec<i64> = (0..100).collect();
        groups.extend([100, 100, 100, 101]);
        let design = Design::new(&classes, Some(&groups)).expect("a design");
        assert_eq!(splits(&design, usize::MAX, 1), Vec::<Split>::new());
    }

    #[test]
    fn a_half_without_a_class_is_none() {
        // Class 1 is in two groups that stand against each other in every split but some.
        let classes = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1];
        let groups = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4];
        let design = Design::new(&classes, Some(&groups)).expect("a design");
        let splits = splits(&design, 100, 1);
        assert!(!splits.is_empty());
        assert!(splits.iter().flatten().all(|half| design.counts(half).iter().all(|n| *n >= 2)));
    }
}
