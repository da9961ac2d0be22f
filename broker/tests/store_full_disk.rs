//! A disk that is really full: a small file system of our own.
//!
//! Needs the right to mount in a namespace of its own; says so on stderr where there is none.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_broker::{
    Commit, DataFolder, Journal, Replayed, SledJournal, StoreError, StoreOptions,
};

const FOLDER: &str = "GLEANER_TEST_FULL_DISK_FOLDER";

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

/// Fills the disk until `leave_bytes` are left.
fn fill(path: &Path, leave_bytes: u64) {
    let mut file = File::options().create(true).append(true).open(path).expect("made");
    loop {
        let stat = rustix::fs::statvfs(path).expect("statvfs");
        let free = stat.f_bavail * stat.f_frsize;
        let more = free.saturating_sub(leave_bytes).min(1 << 20);
        if more == 0 || file.write_all(&vec![1; more as usize]).is_err() {
            return;
        }
    }
}

/// Not a test by itself: runs where the small file system is mounted.
#[test]
fn on_a_small_disk() {
    let Some(mounted) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (folder, filler) = (mounted.join("data"), mounted.join("filler"));
    let (mut journal, _) = open(&folder, 8 << 20).expect("there is space");
    for sequence in 1..=100 {
        assert_eq!(append(&mut journal).expect("there is space"), sequence);
    }

    // Too little left: refused, and taken again when there is space.
    fill(&filler, 6 << 20);
    assert!((journal.admission())().expect_err("too little").is_full());
    assert_eq!(append(&mut journal).expect("what was accepted before"), 101);
    fill(&filler, 3 << 20);
    for _ in 0..3 {
        assert!(append(&mut journal).expect_err("full").is_full());
    }
    fs::remove_file(&filler).expect("removed");
    assert!((journal.admission())().is_ok());
    assert_eq!(append(&mut journal).expect("there is space again"), 102);
    drop(journal);

    // Not a byte left: it opens all the same, with all that is in it, and takes nothing.
    fill(&filler, 0);
    let (mut journal, records) = open(&folder, 64 << 20).expect("thanks to the ballast");
    assert_eq!(records, 102);
    assert!(append(&mut journal).expect_err("full").is_full());
    drop(journal);

    // Somebody else takes the space between the look and the write, until the disk itself refuses:
    // an error, and no panic.
    let (mut journal, _) = open(&folder, 0).expect("opens");
    let done = AtomicBool::new(false);
    let mut acknowledged = 102;
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                fill(&filler, 0);
                let file = File::options().write(true).open(&filler).expect("it is there");
                let bytes = file.metadata().expect("known").len();
                file.set_len(bytes.saturating_sub(64 << 10)).expect("shorter");
            }
        });
        let error = loop {
            match append(&mut journal) {
                Ok(sequence) => acknowledged = sequence,
                Err(error) if error.is_full() => {}
                Err(error) => break error,
            }
        };
        done.store(true, Ordering::SeqCst);
        error
    });
    eprintln!("{acknowledged} acknowledged, then: {}", error.chain());
    fs::remove_file(&filler).expect("removed");
    let error = append(&mut journal).expect_err("failed before");
    assert!(matches!(error, StoreError::Failed { .. }), "{error}");
    drop(journal);
    let (mut journal, records) = open(&folder, 1 << 20).expect("there is space");
    assert!(records >= acknowledged, "{acknowledged} acknowledged, {records} there");
    append(&mut journal).expect("there is space");
}

#[test]
fn a_full_disk_loses_nothing() {
    let mount = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=64m tmpfs \"$0\" || exit 77
        exec \"$1\" --exact on_a_small_disk --nocapture";
    for flags in [&["-m"][..], &["-r", "-m"]] {
        let run = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", script])
            .arg(mount.path())
            .arg(std::env::current_exe().expect("this test"))
            .env(FOLDER, mount.path())
            .status();
        match run.map(|status| status.code()) {
            Ok(Some(0)) => return,
            // `unshare` or `mount` may not.
            Ok(Some(1 | 77)) | Err(_) => {}
            other => panic!("on the small disk: {other:?}"),
        }
    }
    eprintln!("no right to mount a small file system here: not tested");
}
