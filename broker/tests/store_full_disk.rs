//! A disk that is really full: a small file system of our own.
//!
//! Needs the right to mount in a namespace of its own; says so on stderr where there is none.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_broker::{
    Commit, DataFolder, Journal, Replayed, SledJournal, StoreError, StoreOptions,
};
use gleaner_small_disk::{fill_but, run_with_one};

fn open(folder: &Path, min_free_bytes: u64) -> Result<(SledJournal, u64), StoreError> {
    let mut records = 0;
    let options = StoreOptions { min_free_bytes, ..StoreOptions::default() };
    let visit = |_: Replayed<'_>| {
        records += 1;
        Ok::<(), StoreError>(())
    };
    let (journal, _) = SledJournal::open(DataFolder::open(folder)?, options, visit)?;
    Ok((journal, records))
}

fn append(journal: &mut SledJournal) -> Result<u64, StoreError> {
    journal.append(&Commit { records: vec![&[7; 4_000]], small_blobs: vec![] })
}

/// Not a test by itself: runs where the small file system is mounted.
#[test]
fn on_a_small_disk() {
    let Some(mounted) = gleaner_small_disk::folder() else { return };
    let (folder, filler) = (mounted.join("data"), mounted.join("filler"));
    let (mut journal, _) = open(&folder, 8 << 20).expect("there is space");
    for sequence in 1..=100 {
        assert_eq!(append(&mut journal).expect("there is space"), sequence);
    }

    // Too little left: refused, and taken again when there is space.
    fill_but(&filler, 6 << 20);
    assert!((journal.admission())().expect_err("too little").is_full());
    assert_eq!(append(&mut journal).expect("what was accepted before"), 101);
    fill_but(&filler, 3 << 20);
    for _ in 0..3 {
        assert!(append(&mut journal).expect_err("full").is_full());
    }
    fs::remove_file(&filler).expect("removed");
    assert!((journal.admission())().is_ok());
    assert_eq!(append(&mut journal).expect("there is space again"), 102);
    drop(journal);

    // Not a byte left: it opens all the same, with all that is in it, and takes nothing.
    fill_but(&filler, 0);
    let (mut journal, records) = open(&folder, 64 << 20).expect("thanks to the ballast");
    assert_eq!(records, 102);
    assert!(append(&mut journal).expect_err("full").is_full());
    drop(journal);

    // Somebody else takes the space between the look and the write, until the disk itself refuses:
    // nothing is left of what it refused, and when there is space the journal goes on.
    let (mut journal, _) = open(&folder, 0).expect("opens");
    let done = AtomicBool::new(false);
    let mut acknowledged = 102;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                fill_but(&filler, 0);
                let file = File::options().write(true).open(&filler).expect("it is there");
                let bytes = file.metadata().expect("known").len();
                file.set_len(bytes.saturating_sub(64 << 10)).expect("shorter");
            }
        });
        let mut refused = 0;
        while refused < 1_000 {
            match append(&mut journal) {
                Ok(sequence) => acknowledged = sequence,
                Err(error) => {
                    refused += 1;
                    if !error.is_full() {
                        break;
                    }
                }
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    fs::remove_file(&filler).expect("removed");
    match append(&mut journal) {
        Ok(sequence) => {
            assert_eq!(sequence, acknowledged + 1);
            acknowledged = sequence;
        }
        // The disk refused where nobody can tell what came of it: a sync.
        Err(error) => assert!(matches!(error, StoreError::Failed { .. }), "{error}"),
    }
    drop(journal);
    let (mut journal, records) = open(&folder, 1 << 20).expect("there is space");
    assert!(records >= acknowledged, "{acknowledged} acknowledged, {records} there");
    append(&mut journal).expect("there is space");
}

#[test]
fn a_full_disk_loses_nothing() {
    let _ = run_with_one(64 << 10, "on_a_small_disk");
}
