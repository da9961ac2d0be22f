//! What was done while scans were taken.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::limits::{CLASSES_MAX, SCANS_PER_CLASS_MIN};

/// The class of each scan (what the subject did) and the group that it belongs to (a session or
/// a subject): scans of one group are never in different halves, as they are not independent.
///
/// # Invariants
/// There is a group for each scan, and at least two classes. Each class has as many scans as two
/// halves need, in two groups at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    classes: Vec<usize>,
    class_count: usize,
    groups: Vec<usize>,
    group_count: usize,
}

/// Why scans cannot be split in halves that are predicted from each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DesignError {
    /// Another number of groups than of classes.
    #[error("{groups} groups for {classes} classes: give one of each for each scan")]
    Count {
        /// Classes of scans.
        classes: usize,
        /// Groups of scans.
        groups: usize,
    },
    /// Nothing to tell apart.
    #[error("{0} classes: give scans of 2 to {CLASSES_MAX}, so that there is something to predict")]
    Classes(usize),
    /// A class that one half would have too little of.
    #[error(
        "class {class} has {scans} scans: give at least {needed}, so that each half has \
         {SCANS_PER_CLASS_MIN}",
        needed = 2 * SCANS_PER_CLASS_MIN
    )]
    TooFew {
        /// Its label.
        class: i64,
        /// Its scans.
        scans: usize,
    },
    /// A class that cannot be in both halves.
    #[error(
        "all scans of class {class} are in group {group}, which is in one half only: give scans \
         of more groups"
    )]
    OneGroup {
        /// Its label.
        class: i64,
        /// The group's label.
        group: i64,
    },
}

impl Design {
    /// Scans by the labels of their classes and groups. Without groups each scan is one by itself.
    ///
    /// # Errors
    /// There are not as many groups as classes, a single class, or too few scans of a class.
    pub fn new(classes: &[i64], groups: Option<&[i64]>) -> Result<Self, DesignError> {
        if let Some(groups) = groups.filter(|groups| groups.len() != classes.len()) {
            return Err(DesignError::Count { classes: classes.len(), groups: groups.len() });
        }
        let (class_of, class_labels) = numbered(classes);
        let class_count = class_labels.len();
        if !(2..=CLASSES_MAX).contains(&class_count) {
            return Err(DesignError::Classes(class_count));
        }
        let (group_of, group_labels) = match groups {
            Some(groups) => numbered(groups),
            None => ((0..classes.len()).collect(), (0_i64..).take(classes.len()).collect()),
        };
        for (class, label) in class_labels.iter().enumerate() {
            let mut groups: Vec<usize> =
                scans_of(&class_of, class).map(|scan| group_of[scan]).collect();
            if groups.len() < 2 * SCANS_PER_CLASS_MIN {
                return Err(DesignError::TooFew { class: *label, scans: groups.len() });
            }
            groups.dedup();
            if groups.iter().all(|group| *group == groups[0]) {
                return Err(DesignError::OneGroup {
                    class: *label,
                    group: group_labels[groups[0]],
                });
            }
        }
        let group_count = group_labels.len();
        Ok(Self { classes: class_of, class_count, groups: group_of, group_count })
    }

    /// Scans.
    #[must_use]
    pub const fn scans(&self) -> usize {
        self.classes.len()
    }

    /// Classes. They are numbered in the order of their labels.
    #[must_use]
    pub const fn class_count(&self) -> usize {
        self.class_count
    }

    /// The class of a scan.
    pub(super) fn class(&self, scan: usize) -> usize {
        self.classes[scan]
    }

    /// The scans of each group.
    pub(super) fn scans_by_group(&self) -> Vec<Vec<usize>> {
        let mut scans = vec![Vec::new(); self.group_count];
        for (scan, group) in self.groups.iter().enumerate() {
            scans[*group].push(scan);
        }
        scans
    }

    /// How many of some scans are of each class.
    pub(super) fn counts(&self, scans: &[usize]) -> Vec<usize> {
        let mut counts = vec![0; self.class_count];
        for scan in scans {
            counts[self.classes[*scan]] += 1;
        }
        counts
    }
}

fn scans_of(classes: &[usize], class: usize) -> impl Iterator<Item = usize> {
    (0..classes.len()).filter(move |scan| classes[*scan] == class)
}

/// Labels as numbers from 0, in the labels' order, and the label of each number.
fn numbered(labels: &[i64]) -> (Vec<usize>, Vec<i64>) {
    let mut numbers: BTreeMap<i64, usize> = labels.iter().map(|label| (*label, 0)).collect();
    for (number, place) in numbers.values_mut().enumerate() {
        *place = number;
    }
    (labels.iter().map(|label| numbers[label]).collect(), numbers.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbered_in_their_order() {
        let design = Design::new(&[7, -1, 7, -1, 7, -1, 7, -1], None).expect("a design");
        assert_eq!((design.class(0), design.class(1), design.class_count()), (1, 0, 2));
        assert_eq!(design.scans_by_group(), (0..8).map(|scan| vec![scan]).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let new = |classes: &[i64], groups: Option<&[i64]>| Design::new(classes, groups).err();
        assert_eq!(new(&[0; 8], None), Some(DesignError::Classes(1)));
        assert_eq!(new(&[], None), Some(DesignError::Classes(0)));
        let few = DesignError::TooFew { class: 5, scans: 3 };
        assert_eq!(new(&[1, 1, 1, 1, 5, 5, 5], None), Some(few));
        let count = DesignError::Count { classes: 4, groups: 3 };
        assert_eq!(new(&[0, 1, 0, 1], Some(&[0, 0, 1])), Some(count));
        let classes = [0, 0, 0, 0, 1, 1, 1, 1];
        let one = DesignError::OneGroup { class: 1, group: 9 };
        assert_eq!(new(&classes, Some(&[1, 1, 2, 2, 9, 9, 9, 9])), Some(one));
    }
}
