//! The broker's disk: the journal's entries, its mark and its snapshot, as a death leaves them.
//!
//! # Invariants
//! - Only the last entry can be there in part, and only while it is unacknowledged.

use gleaner_broker::{open_sealed, seal};

use super::Breach;
use crate::dice::Dice;

/// How an entry lies on the disk: whole pieces of it are there or not.
const PIECE_BYTES: usize = 64;

/// How far the writing of a commit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Nothing is written.
    Begun,
    /// Written, not synced.
    Written,
    /// Synced, not acknowledged.
    Synced,
    /// Acknowledged, told to nobody.
    Marked,
}

impl Step {
    pub(super) const ALL: [Self; 4] = [Self::Begun, Self::Written, Self::Synced, Self::Marked];
}

/// What became of the commit that was under way in a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    Torn,
    Lost,
}

/// What survives the broker.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Entries after the snapshot, sealed, by sequence.
    entries: Vec<(u64, Vec<u8>)>,
    /// Up to which sequence was acknowledged, as far as the mark on the disk knows.
    mark: u64,
    last: u64,
    snapshot: Vec<Vec<u8>>,
    snapshot_at: u64,
    incarnation: u32,
    tail_bytes: u64,
    pub(super) is_full: bool,
}

/// What a start finds.
pub(super) struct Found<'a> {
    pub(super) incarnation: u32,
    pub(super) records: Vec<&'a [u8]>,
}

impl Disk {
    pub(super) fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Writes a commit up to a step; a death after it is [`Disk::dies_after`].
    pub(super) fn append(&mut self, records: &[Vec<u8>]) {
        self.last += 1;
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let entry = seal(&self.last.to_be_bytes(), &records);
        self.tail_bytes += entry.len() as u64;
        self.entries.push((self.last, entry));
        self.mark = self.last;
    }

    /// As [`Disk::append`], but the broker dies after this step of it. Says what is left.
    pub(super) fn dies_after(
        &mut self,
        step: Step,
        records: &[Vec<u8>],
        power_is_lost: bool,
        dice: &mut Dice,
    ) -> Fate {
        if step == Step::Begun {
            return Fate::Lost;
        }
        self.append(records);
        if step == Step::Marked {
            return Fate::Whole;
        }
        self.mark = self.last - 1;
        if step == Step::Synced {
            return Fate::Whole;
        }
        // What was not synced may be there or not, or in part; of a process that dies alone it is
        // there as far as it was written.
        let (_, entry) = self.entries.last_mut().expect("it was just put there");
        let pieces = entry.len().div_ceil(PIECE_BYTES);
        let kept = match power_is_lost {
            true => dice.below(pieces + 1),
            false if dice.chance(500) => pieces,
            false => dice.below(pieces + 1),
        };
        if kept == pieces {
            return Fate::Whole;
        }
        if kept > 0 {
            entry.truncate(kept * PIECE_BYTES);
            return Fate::Torn;
        }
        self.entries.pop();
        self.last -= 1;
        Fate::Lost
    }

    /// Loses commits that were told to be durable and are not: only a planted bug does.
    pub(super) fn loses_the_last(&mut self, count: usize) {
        let keep = self.entries.len().saturating_sub(count);
        self.entries.truncate(keep);
        self.last = self.entries.last().map_or(self.snapshot_at, |(sequence, _)| *sequence);
        self.mark = self.last;
    }

    /// A snapshot takes the place of everything up to now.
    pub(super) fn adopt_snapshot(&mut self, chunks: Vec<Vec<u8>>) {
        self.snapshot = chunks.into_iter().map(|chunk| seal(b"chunk", &[&chunk])).collect();
        self.snapshot_at = self.last;
        self.entries.clear();
        self.tail_bytes = 0;
    }

    /// What a start reads: a commit that was cut off is removed, anything else that is not as it
    /// was written is damage. The incarnation is on the disk before anyone is told.
    pub(super) fn open(&mut self) -> Result<Found<'_>, Breach> {
        self.incarnation += 1;
        let is_torn = self.entries.last().is_some_and(|(sequence, entry)| {
            *sequence > self.mark && open_sealed(&sequence.to_be_bytes(), entry).is_err()
        });
        if is_torn {
            self.entries.pop();
            self.last -= 1;
        }
        self.mark = self.mark.max(self.last);
        let mut records = Vec::new();
        let damaged = |sequence: u64| {
            move |what: String| Breach::Damaged(format!("sequence {sequence}: {what}"))
        };
        for chunk in &self.snapshot {
            records.extend(open_sealed(b"chunk", chunk).map_err(damaged(self.snapshot_at))?);
        }
        let mut expected = self.snapshot_at;
        for (sequence, entry) in &self.entries {
            expected += 1;
            if *sequence != expected {
                return Err(Breach::Damaged(format!("sequence {expected} is missing")));
            }
            let key = sequence.to_be_bytes();
            records.extend(open_sealed(&key, entry).map_err(damaged(*sequence))?);
        }
        if expected < self.mark {
            return Err(Breach::Damaged(format!("it ends before {}", self.mark)));
        }
        Ok(Found { incarnation: self.incarnation, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(disk: &mut Disk) -> Vec<Vec<u8>> {
        let found = disk.open().expect("sound");
        found.records.into_iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_death_leaves_each_commit_whole_or_not_at_all() {
        let (one, two) = (vec![vec![1; 900]], vec![vec![2; 900]]);
        let mut fates = Vec::new();
        for seed in 0..40 {
            for step in Step::ALL {
                let mut dice = Dice::new(seed, 0);
                let mut disk = Disk::default();
                disk.append(&one);
                let fate = disk.dies_after(step, &two, seed % 2 == 0, &mut dice);
                let kept = if fate == Fate::Whole { 2 } else { 1 };
                assert_eq!(records(&mut disk).len(), kept, "{step:?} {fate:?}");
                assert!(step < Step::Synced || fate == Fate::Whole, "{step:?} is durable");
                disk.append(&one);
                assert_eq!(records(&mut disk).len(), kept + 1, "it goes on");
                fates.push(fate);
            }
        }
        for fate in [Fate::Whole, Fate::Torn, Fate::Lost] {
            assert!(fates.contains(&fate), "no {fate:?}");
        }
    }

    #[test]
    fn damage_is_seen() {
        let mut disk = Disk::default();
        disk.append(&[vec![1; 100]]);
        disk.append(&[vec![2; 100]]);
        disk.entries[0].1[60] ^= 1;
        assert!(matches!(disk.open(), Err(Breach::Damaged(_))));
        disk.entries[0].1[60] ^= 1;
        disk.entries.remove(0);
        assert!(matches!(disk.open(), Err(Breach::Damaged(_))));
        disk.entries.clear();
        assert!(matches!(disk.open(), Err(Breach::Damaged(_))));
    }

    #[test]
    fn a_snapshot_stands_for_what_was_before_it() {
        let mut disk = Disk::default();
        disk.append(&[vec![1]]);
        disk.adopt_snapshot(vec![vec![7], vec![8]]);
        disk.append(&[vec![2]]);
        assert_eq!(records(&mut disk), [vec![7], vec![8], vec![2]]);
    }
}
