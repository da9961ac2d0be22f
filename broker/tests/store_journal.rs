//! The journal in a folder: what comes back after a restart, and what is noticed when it was
//! tampered with in between.

#[path = "engine/at_rest.rs"]
mod at_rest;

use std::fs;
use std::io;
use std::path::Path;

use gleaner_broker::{
    Commit, DataFolder, Journal, Recovered, Replayed, SledJournal, StoreError, StoreOptions,
};
use gleaner_protocol::Digest;

/// What a replay yielded: chunks, and records with their sequences.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    chunks: Vec<Vec<u8>>,
    records: Vec<(u64, Vec<u8>)>,
}

fn try_open(folder: &Path) -> Result<(SledJournal, Recovered, Seen), StoreError> {
    let mut seen = Seen::default();
    let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
    let (journal, recovered) =
        SledJournal::open(DataFolder::open(folder)?, options, |replayed: Replayed<'_>| {
            match replayed {
                Replayed::Chunk(chunk) => seen.chunks.push(chunk.to_vec()),
                Replayed::Record { sequence, record } => {
                    seen.records.push((sequence, record.to_vec()));
                }
            }
            Ok::<(), StoreError>(())
        })?;
    Ok((journal, recovered, seen))
}

fn open(folder: &Path) -> (SledJournal, Recovered, Seen) {
    try_open(folder).expect("a sound store")
}

/// The error of an opening that must not succeed.
fn refused(folder: &Path) -> StoreError {
    match try_open(folder) {
        Err(error) => error,
        Ok((_, recovered, _)) => panic!("it was opened: {recovered:?}"),
    }
}

fn append(journal: &mut SledJournal, records: &[&[u8]]) -> u64 {
    journal
        .append(&Commit { records: records.to_vec(), small_blobs: vec![] })
        .expect("a healthy store")
}

/// A store with commits 1 to `commits`, one record each, the last one long.
fn store_with(commits: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut journal, _, _) = open(folder.path());
    for number in 1..commits {
        assert_eq!(append(&mut journal, &[format!("record {number}").as_bytes()]), number);
    }
    assert_eq!(append(&mut journal, &[&[7; 5_000]]), commits);
    folder
}

/// Changes the engine's own content behind the journal's back.
fn tamper(folder: &Path, change: impl FnOnce(&sled::Tree)) {
    tamper_tree(folder, "journal", change);
}

fn tamper_tree(folder: &Path, name: &str, change: impl FnOnce(&sled::Tree)) {
    let db = at_rest::open_engine(folder);
    let tree = db.open_tree(name).expect("a tree");
    change(&tree);
    db.flush().expect("flushed");
}

fn key(sequence: u64, part: u32) -> Vec<u8> {
    [&sequence.to_be_bytes()[..], &part.to_be_bytes()].concat()
}

#[test]
fn records_come_back_in_order_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = vec![9; 300_000];
    let (mut journal, first, seen) = open(folder.path());
    assert_eq!((first.incarnation, first.last_sequence, first.snapshot_sequence), (1, 0, None));
    assert_eq!(seen, Seen::default());
    assert_eq!(append(&mut journal, &[b"one", b"two", b""]), 1);
    assert_eq!(append(&mut journal, &[&long]), 2);
    drop(journal);

    let (mut journal, second, seen) = open(folder.path());
    assert_eq!((second.incarnation, second.last_sequence), (2, 2));
    assert_eq!(second.token_key, first.token_key, "its tokens are known again");
    let other = tempfile::tempdir().expect("a folder");
    assert_ne!(open(other.path()).1.token_key, first.token_key, "nobody else's");
    assert_eq!(second.folder_id, first.folder_id);
    let records = vec![(1, b"one".to_vec()), (1, b"two".to_vec()), (1, vec![]), (2, long.clone())];
    assert_eq!(seen.records, records);
    assert_eq!(append(&mut journal, &[b"three"]), 3);
    drop(journal);

    let (_, third, seen) = open(folder.path());
    assert_eq!((third.incarnation, third.last_sequence), (3, 3));
    assert_eq!(seen.records.last(), Some(&(3, b"three".to_vec())));
}

#[test]
fn a_folder_in_use_is_refused_with_its_holder() {
    let folder = tempfile::tempdir().expect("a folder");
    let _held = open(folder.path());
    let error = refused(folder.path());
    assert!(
        matches!(error, StoreError::Locked { holder: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
}

#[test]
fn a_flipped_bit_in_any_part_of_an_entry_names_its_sequence() {
    for (sequence, part) in [(1, 0), (2, 0), (3, 0), (3, 2)] {
        let folder = store_with(3);
        tamper(folder.path(), |journal| {
            let mut value = journal.get(key(sequence, part)).expect("read").expect("it is there");
            let middle = value.len() / 2;
            value[middle] ^= 4;
            journal.insert(key(sequence, part), value).expect("written");
        });
        let says = refused(folder.path()).to_string();
        assert!(says.contains(&format!("sequence {sequence}: ")), "{says}");
        assert!(says.contains("checksum") && says.contains("backup"), "{says}");
        assert!(says.contains(&folder.path().display().to_string()), "{says}");
    }
}

#[test]
fn a_gap_names_what_is_missing() {
    let folder = store_with(4);
    tamper(folder.path(), |journal| {
        journal.remove(key(2, 0)).expect("removed");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sequence 2: it is missing"), "{says}");
}

#[test]
fn a_missing_beginning_is_noticed() {
    let folder = store_with(4);
    tamper(folder.path(), |journal| {
        journal.remove(key(1, 0)).expect("removed");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sequence 1: it is missing"), "{says}");
}

#[test]
fn a_short_value_and_a_missing_part_are_noticed() {
    let folder = store_with(2);
    tamper(folder.path(), |journal| {
        journal.insert(key(1, 0), &b"\x01\x01"[..]).expect("written");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sequence 1: it is cut off"), "{says}");

    let folder = store_with(2);
    tamper(folder.path(), |journal| {
        journal.remove(key(2, 1)).expect("removed");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sequence 2: a part of it is missing"), "{says}");
}

#[test]
fn an_entry_of_another_version_says_so() {
    let folder = store_with(2);
    tamper(folder.path(), |journal| {
        let mut value = journal.get(key(1, 0)).expect("read").expect("it is there");
        value[0] = 9;
        journal.insert(key(1, 0), value).expect("written");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sequence 1: it has version 9"), "{says}");
}

#[test]
fn an_end_before_what_was_acknowledged_is_noticed_for_ever() {
    let folder = store_with(3);
    tamper(folder.path(), |journal| {
        for part in 0..6 {
            journal.remove(key(3, part)).expect("removed");
        }
    });
    for _ in 0..2 {
        let says = refused(folder.path()).to_string();
        assert!(says.contains("up to sequence 3 was acknowledged"), "{says}");
        assert!(says.contains("sled.kept"), "{says}");
    }
}

#[test]
fn the_whole_engine_gone_is_noticed() {
    let folder = store_with(3);
    at_rest::wait_until_at_rest(folder.path());
    fs::remove_dir_all(folder.path().join("sled")).expect("removed");
    let says = refused(folder.path()).to_string();
    assert!(says.contains("up to sequence 3 was acknowledged"), "{says}");
}

#[test]
fn a_commit_cut_off_before_its_acknowledgement_is_removed() {
    let folder = store_with(3);
    // As a kill in the middle of commit 4 leaves it: its first part, and the mark still at 3.
    tamper(folder.path(), |journal| {
        let first = journal.get(key(3, 0)).expect("read").expect("it is there");
        journal.insert(key(4, 0), first).expect("written");
    });
    let (mut journal, recovered, seen) = open(folder.path());
    assert_eq!((recovered.last_sequence, seen.records.len()), (3, 3));
    assert_eq!(append(&mut journal, &[b"the real fourth"]), 4);
    drop(journal);
    let (_, _, seen) = open(folder.path());
    assert_eq!(seen.records.last(), Some(&(4, b"the real fourth".to_vec())));
}

#[test]
fn an_acknowledged_commit_that_is_cut_off_is_damage() {
    let folder = store_with(3);
    tamper(folder.path(), |journal| {
        journal.remove(key(3, 5)).expect("removed");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("up to sequence 3 was acknowledged"), "{says}");
}

#[test]
fn a_folder_restored_without_its_mark_opens() {
    let folder = store_with(3);
    fs::remove_file(folder.path().join("mark")).expect("removed");
    assert_eq!(open(folder.path()).1.last_sequence, 3);
}

#[test]
fn a_store_of_another_format_or_none_of_ours_is_refused() {
    let folder = store_with(1);
    tamper_tree(folder.path(), "meta", |meta| {
        meta.remove("format").expect("removed");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("is missing"), "{says}");

    let folder = store_with(1);
    tamper_tree(folder.path(), "meta", |meta| {
        let mut entry = meta.get("incarnation").expect("read").expect("it is there");
        let last = entry.len() - 1;
        entry[last] ^= 1;
        meta.insert("incarnation", entry).expect("written");
    });
    let says = refused(folder.path()).to_string();
    assert!(says.contains("incarnation"), "{says}");
}

#[test]
fn a_record_that_its_reader_refuses_is_named() {
    let folder = store_with(3);
    let visit = |replayed: Replayed<'_>| match replayed {
        Replayed::Record { sequence: 2, .. } => Err(io::Error::other("no such job")),
        _ => Ok(()),
    };
    let held = DataFolder::open(folder.path()).expect("free");
    let Err(error) = SledJournal::open(held, StoreOptions::default(), visit) else {
        panic!("it was opened");
    };
    assert!(error.chain().contains("sequence 2"), "{}", error.chain());
    assert!(error.chain().contains("no such job"), "{}", error.chain());
    drop(error);
    assert_eq!(open(folder.path()).1.last_sequence, 3);
}

#[test]
fn garbage_in_the_engines_file_is_an_error_and_no_panic() {
    let folder = store_with(40);
    at_rest::wait_until_at_rest(folder.path());
    let db = folder.path().join("sled/db");
    let sound = fs::read(&db).expect("read");
    let mark = fs::read(folder.path().join("mark")).expect("read");
    let end = sound.iter().rposition(|&byte| byte != 0).expect("not empty");
    let mut noticed = 0;
    for step in 0..40 {
        let damaged = tempfile::tempdir().expect("a folder");
        let store = damaged.path().join("sled");
        fs::create_dir(&store).expect("made");
        for entry in fs::read_dir(folder.path().join("sled")).expect("listed") {
            let entry = entry.expect("listed");
            if entry.file_type().expect("known").is_file() {
                fs::copy(entry.path(), store.join(entry.file_name())).expect("copied");
            }
        }
        let mut bytes = sound.clone();
        bytes[end * step / 40] ^= 1 << (step % 8);
        fs::write(store.join("db"), &bytes).expect("written");
        fs::write(damaged.path().join("mark"), &mark).expect("written");
        match try_open(damaged.path()) {
            // The bit may lie where nothing is in use any more.
            Ok((_, recovered, seen)) => {
                assert_eq!((recovered.last_sequence, seen.records.len()), (40, 40), "step {step}");
            }
            Err(error) => {
                noticed += 1;
                assert!(matches!(error, StoreError::Damaged { .. }), "step {step}: {error}");
                let kept = fs::read(damaged.path().join("sled.kept/db")).expect("a copy");
                assert!(kept == bytes, "step {step}: the copy is as the file was");
            }
        }
    }
    assert!(noticed > 10, "only {noticed} of 40 flipped bits mattered");
}

#[test]
fn small_blobs_come_back_and_damaged_ones_are_noticed_and_mended() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = [vec![], vec![1; 10], vec![2; 1_000], vec![3; 1_001], vec![4; 200_000]];
    let (mut journal, _, _) = open(folder.path());
    let blobs = || contents.iter().map(|blob| (Digest::of(blob), &blob[..])).collect();
    let commit = Commit { records: vec![b"decided"], small_blobs: blobs() };
    journal.append(&commit).expect("durable");
    journal.append(&commit).expect("twice is fine");
    drop(journal);

    let damaged = Digest::of(&contents[3]);
    tamper_tree(folder.path(), "blobs", |tree| {
        let key = [&damaged.as_bytes()[..], &1_u32.to_be_bytes()].concat();
        tree.insert(key, &b"x"[..]).expect("written");
    });
    let (mut journal, _, _) = open(folder.path());
    let reader = journal.small_blobs();
    for content in &contents {
        let digest = Digest::of(content);
        if digest == damaged {
            let says = reader.get(&digest).expect_err("damaged").to_string();
            assert!(says.contains(&digest.to_string()), "{says}");
        } else {
            assert_eq!(reader.get(&digest).expect("sound").as_ref(), Some(content));
        }
    }
    assert_eq!(reader.get(&Digest::of(b"another")).expect("sound"), None);
    journal.append(&commit).expect("durable");
    assert_eq!(reader.get(&damaged).expect("mended").as_ref(), Some(&contents[3]));
}

#[test]
fn too_long_a_record_is_refused_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut journal, _, _) = open(folder.path());
    let long = vec![0; gleaner_broker::limits::RECORD_BYTES_MAX + 1];
    let error = journal
        .append(&Commit { records: vec![&long], small_blobs: vec![] })
        .expect_err("over the limit");
    assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    assert_eq!(append(&mut journal, &[b"the next one"]), 1);
}

#[test]
fn too_little_space_refuses_until_there_is_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = StoreOptions { min_free_bytes: u64::MAX, ..StoreOptions::default() };
    let held = DataFolder::open(folder.path()).expect("free");
    let (mut journal, _) =
        SledJournal::open(held, options, |_| Ok::<(), StoreError>(())).expect("opens all the same");
    for _ in 0..2 {
        let commit = Commit { records: vec![b"record"], small_blobs: vec![] };
        let error = journal.append(&commit).expect_err("full");
        assert!(error.is_full(), "{error}");
    }
    assert!((journal.admission())().is_err());
    drop(journal);
    let (mut journal, recovered, _) = open(folder.path());
    assert_eq!(recovered.last_sequence, 0);
    assert_eq!(append(&mut journal, &[b"record"]), 1);
}
