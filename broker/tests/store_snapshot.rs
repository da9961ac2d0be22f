//! Switching to a snapshot, cut off after each of its steps.

#[path = "engine/at_rest.rs"]
mod at_rest;

use std::fs;
use std::path::Path;

use gleaner_broker::{
    Commit, DataFolder, Journal, Recovered, Replayed, SledJournal, StoreError, StoreOptions,
};

/// The records 1 to `last`, a sum of them for the snapshot, and what is expected of a replay.
struct Farm {
    folder: tempfile::TempDir,
    last: u64,
}

fn try_open(folder: &Path) -> Result<(SledJournal, Recovered, u64), StoreError> {
    let mut sum = 0;
    let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
    let visit = |replayed: Replayed<'_>| {
        let (Replayed::Chunk(bytes) | Replayed::Record { record: bytes, .. }) = replayed;
        sum += u64::from_le_bytes(bytes.try_into().expect("a number"));
        Ok::<(), StoreError>(())
    };
    let (journal, recovered) = SledJournal::open(DataFolder::open(folder)?, options, visit)?;
    Ok((journal, recovered, sum))
}

impl Farm {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), last: 0 }
    }

    /// Opens it, finds everything, and returns the sequence of the snapshot it began with.
    fn open(&self) -> (SledJournal, Option<u64>) {
        let (journal, recovered, sum) = try_open(self.folder.path()).expect("a sound store");
        assert_eq!(sum, self.sum(), "each record counts once");
        assert_eq!(recovered.last_sequence, self.last);
        (journal, recovered.snapshot_sequence)
    }

    fn sum(&self) -> u64 {
        (1..=self.last).sum()
    }

    fn append(&mut self, journal: &mut SledJournal, records: u64) {
        for _ in 0..records {
            self.last += 1;
            let record = self.last.to_le_bytes();
            let commit = Commit { records: vec![&record], small_blobs: vec![] };
            assert_eq!(journal.append(&commit).expect("durable"), self.last);
        }
    }

    /// A finished snapshot of all there is, not adopted yet.
    fn write_snapshot(&self, journal: &mut SledJournal) -> u64 {
        let mut writer = journal.begin_snapshot().expect("begun");
        writer.write(&(self.sum() - 1).to_le_bytes()).expect("written");
        writer.write(&1_u64.to_le_bytes()).expect("written");
        writer.finish().expect("finished")
    }

    fn snapshots(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.folder.path().join("snapshots"))
            .expect("listed")
            .map(|entry| entry.expect("listed").file_name().into_string().expect("plain"))
            .collect();
        names.sort();
        names
    }

    /// Sequences of the entries that the engine has, once the journal is closed.
    fn entries(&self) -> Vec<u64> {
        let db = at_rest::open_engine(self.folder.path());
        let keys = db.open_tree("journal").expect("a tree").iter().keys();
        keys.map(|key| {
            let key = key.expect("sound");
            u64::from_be_bytes(key[..8].try_into().expect("eight bytes"))
        })
        .collect()
    }

    fn name(sequence: u64) -> String {
        format!("{sequence:020}")
    }
}

#[test]
fn cut_off_while_it_is_written() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 10);
    let mut writer = journal.begin_snapshot().expect("begun");
    writer.write(&7_u64.to_le_bytes()).expect("written");
    // As a kill leaves it: no destructor cleans up.
    std::mem::forget(writer);
    drop(journal);
    assert_eq!(farm.snapshots().len(), 1);
    let (_, snapshot) = farm.open();
    assert_eq!(snapshot, None);
    assert!(farm.snapshots().is_empty());
}

#[test]
fn cut_off_before_it_is_adopted() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 10);
    let first = farm.write_snapshot(&mut journal);
    journal.adopt_snapshot(first).expect("adopted");
    farm.append(&mut journal, 10);
    let second = farm.write_snapshot(&mut journal);
    assert_eq!((first, second), (10, 20));
    drop(journal);
    let (_, snapshot) = farm.open();
    assert_eq!(snapshot, Some(10));
    assert_eq!(farm.snapshots(), [Farm::name(10)]);
}

#[test]
fn cut_off_before_the_old_one_is_removed_and_within_pruning() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 300);
    let first = farm.write_snapshot(&mut journal);
    journal.adopt_snapshot(first).expect("adopted");
    farm.append(&mut journal, 300);
    let old = farm.folder.path().join("snapshots").join(Farm::name(300));
    let old_content = fs::read(&old).expect("read");
    let second = farm.write_snapshot(&mut journal);
    journal.adopt_snapshot(second).expect("adopted");
    // The old one is back, as if its removal had not come to pass.
    fs::write(&old, old_content).expect("written");
    let mut steps = 0;
    loop {
        drop(journal);
        let (reopened, snapshot) = farm.open();
        journal = reopened;
        assert_eq!(snapshot, Some(600));
        assert_eq!(farm.snapshots(), [Farm::name(600)]);
        farm.append(&mut journal, 1);
        steps += 1;
        if !journal.prune(100).expect("pruned") {
            break;
        }
    }
    assert_eq!(steps, 7, "600 entries in steps of 100, and one look more");
    drop(journal);
    farm.open();
    assert_eq!(farm.entries(), (601..=607).collect::<Vec<_>>());
}

#[test]
fn while_it_is_read_nothing_of_the_past_is_removed() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 10);
    let past = journal.past().expect("readable");
    farm.append(&mut journal, 10);
    let sequence = farm.write_snapshot(&mut journal);
    journal.adopt_snapshot(sequence).expect("adopted");
    assert!(!journal.prune(10).expect("pruned"));
    let mut seen = 0;
    past.replay(|_| {
        seen += 1;
        Ok::<(), StoreError>(())
    })
    .expect("all of it is there");
    assert_eq!((seen, past.last_sequence()), (10, 10));
    drop(past);
    farm.append(&mut journal, 1);
    while journal.prune(7).expect("pruned") {}
    drop(journal);
    assert_eq!(farm.entries(), [21]);
}

#[test]
fn what_is_behind_a_snapshot_is_counted_while_it_is_written_and_after_a_restart() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 10);
    let ten = journal.tail_bytes();
    assert!(ten > 0);
    let mut writer = journal.begin_snapshot().expect("begun");
    farm.append(&mut journal, 10);
    assert_eq!(journal.tail_bytes(), 2 * ten);
    writer.write(&(1..=10).sum::<u64>().to_le_bytes()).expect("written");
    let sequence = writer.finish().expect("finished");
    journal.adopt_snapshot(sequence).expect("adopted");
    assert_eq!(journal.tail_bytes(), ten);
    drop(journal);
    // What is not removed yet does not count.
    assert_eq!(farm.open().0.tail_bytes(), ten);
}

#[test]
fn the_live_one_gone_or_damaged_is_an_error_that_names_it() {
    let mut farm = Farm::new();
    let (mut journal, _) = farm.open();
    farm.append(&mut journal, 10);
    let sequence = farm.write_snapshot(&mut journal);
    journal.adopt_snapshot(sequence).expect("adopted");
    while journal.prune(100).expect("pruned") {}
    drop(journal);
    let path = farm.folder.path().join("snapshots").join(Farm::name(10));
    let sound = fs::read(&path).expect("read");
    let refused = || match try_open(farm.folder.path()) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    let mut flipped = sound.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(&path, flipped).expect("written");
    let says = refused();
    assert!(says.contains(&path.display().to_string()) && says.contains("chunk 1"), "{says}");
    fs::remove_file(&path).expect("removed");
    let says = refused();
    assert!(says.contains(&path.display().to_string()), "{says}");
    fs::write(&path, sound).expect("written");
    assert_eq!(farm.open().1, Some(10));
}
