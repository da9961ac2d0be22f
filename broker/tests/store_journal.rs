//! The journal in a folder: what comes back after a restart, and what is noticed when it was
//! tampered with in between.

#[path = "engine/at_rest.rs"]
mod at_rest;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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

/// The one segment of the outputs.
fn segment(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder.join("outputs")).expect("listed");
    let file = files.next().expect("one").expect("listed").path();
    assert!(files.next().is_none(), "one segment");
    file
}

/// Changes the engine's own content behind the journal's back.
fn tamper(folder: &Path, change: impl FnOnce(&sled::Tree)) {
    let db = at_rest::open_engine(folder);
    let tree = db.open_tree("journal").expect("a tree");
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
        for _ in 0..2 {
            let says = refused(folder.path()).to_string();
            assert!(says.contains(&format!("sequence {sequence}: ")), "{says}");
            assert!(says.contains("checksum") && says.contains("backup"), "{says}");
            assert!(says.contains(&folder.path().display().to_string()), "{says}");
        }
    }
}

#[test]
fn an_entry_that_is_missing_is_noticed() {
    for sequence in 1..=3 {
        let folder = store_with(4);
        tamper(folder.path(), |journal| {
            journal.remove(key(sequence, 0)).expect("removed");
        });
        let says = refused(folder.path()).to_string();
        assert!(says.contains(&format!("sequence {sequence}: it is missing")), "{says}");
    }
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
    // All parts of the last commit, and only the last one of them.
    for first in [0, 5] {
        let folder = store_with(3);
        tamper(folder.path(), |journal| {
            for part in first..6 {
                assert!(journal.remove(key(3, part)).expect("removed").is_some());
            }
        });
        for _ in 0..2 {
            let says = refused(folder.path()).to_string();
            assert!(says.contains("up to sequence 3 was acknowledged"), "{says}");
        }
    }
}

#[test]
fn the_whole_journal_gone_is_noticed() {
    let folder = store_with(3);
    at_rest::wait_until_at_rest(folder.path());
    fs::remove_dir_all(folder.path().join("sled")).expect("removed");
    for _ in 0..2 {
        let says = refused(folder.path()).to_string();
        assert!(says.contains("up to sequence 3 was acknowledged"), "{says}");
    }
    // Nor is another one made where nothing else tells that there was one.
    fs::remove_file(folder.path().join("mark")).expect("removed");
    let says = refused(folder.path()).to_string();
    assert!(says.contains("sled is missing"), "{says}");
}

#[test]
fn a_commit_cut_off_before_its_acknowledgement_is_removed() {
    // As a kill in the middle of commit 4 leaves it, and the mark still at 3.
    for parts in 1..6 {
        let folder = store_with(3);
        tamper(folder.path(), |journal| {
            for part in 0..parts {
                let of = journal.get(key(3, part)).expect("read").expect("it is there");
                journal.insert(key(4, part), of).expect("written");
            }
        });
        let (mut journal, recovered, seen) = open(folder.path());
        assert_eq!((recovered.last_sequence, seen.records.len()), (3, 3));
        assert_eq!(append(&mut journal, &[b"the real fourth"]), 4);
        drop(journal);
        let (_, _, seen) = open(folder.path());
        assert_eq!(seen.records.last(), Some(&(4, b"the real fourth".to_vec())));
    }
}

#[test]
fn a_kill_while_the_store_is_made_leaves_what_the_next_start_goes_on_with() {
    // A draft of the engine's files, and nothing that anybody was told of.
    let made = tempfile::tempdir().expect("a folder");
    fs::create_dir(made.path().join("sled.new")).expect("made");
    fs::write(made.path().join("sled.new/db"), "half").expect("written");
    let (mut journal, recovered, _) = open(made.path());
    assert_eq!((recovered.incarnation, recovered.last_sequence), (1, 0));
    assert_eq!(append(&mut journal, &[b"one"]), 1);
    assert!(!made.path().join("sled.new").exists());
}

/// All that opening reads, with another content of the engine's file.
fn copy_with(folder: &Path, db: &[u8]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for part in ["sled", "outputs", "snapshots"] {
        fs::create_dir(copy.path().join(part)).expect("made");
        for entry in fs::read_dir(folder.join(part)).expect("listed") {
            let entry = entry.expect("listed");
            if entry.file_type().expect("known").is_file() {
                let to = copy.path().join(part).join(entry.file_name());
                fs::copy(entry.path(), to).expect("copied");
            }
        }
    }
    for file in ["meta", "mark"] {
        fs::copy(folder.join(file), copy.path().join(file)).expect("copied");
    }
    fs::write(copy.path().join("sled/db"), db).expect("written");
    copy
}

#[test]
fn garbage_in_the_engines_file_is_an_error_and_no_panic_and_stays_one() {
    let folder = store_with(40);
    at_rest::wait_until_at_rest(folder.path());
    let sound = fs::read(folder.path().join("sled/db")).expect("read");
    let end = sound.iter().rposition(|&byte| byte != 0).expect("not empty");
    let mut noticed = 0;
    for step in 0..40 {
        let mut bytes = sound.clone();
        bytes[end * step / 40] ^= 1 << (step % 8);
        let damaged = copy_with(folder.path(), &bytes);
        let mut was_refused = false;
        // The engine mends its files as it opens them: what it overwrites does not come back.
        for start in 0..2 {
            match try_open(damaged.path()) {
                // The bit may lie where nothing is in use any more.
                Ok((_, recovered, seen)) => {
                    let found = (recovered.last_sequence, seen.records.len());
                    assert_eq!(found, (40, 40), "step {step}, start {start}");
                }
                Err(error) => {
                    was_refused = true;
                    let is_damage = matches!(error, StoreError::Damaged { .. });
                    assert!(is_damage, "step {step}, start {start}: {error}");
                    assert!(error.to_string().contains("gleaner broker backup"), "{error}");
                }
            }
        }
        noticed += u32::from(was_refused);
    }
    assert!(noticed > 10, "only {noticed} of 40 flipped bits mattered");
}

#[test]
fn the_past_is_read_while_commits_go_on() {
    let folder = store_with(50);
    let (mut journal, ..) = open(folder.path());
    let past = journal.past().expect("readable");
    let reads = std::thread::spawn(move || {
        for _ in 0..20 {
            let mut last = 0;
            past.replay(|replayed| {
                let Replayed::Record { sequence, .. } = replayed else { panic!("no snapshot") };
                assert_eq!(sequence, last + 1);
                last = sequence;
                Ok::<(), StoreError>(())
            })
            .expect("all of it is there");
            assert_eq!(last, 50);
        }
    });
    let mut sequence = 50;
    while !reads.is_finished() {
        sequence += 1;
        assert_eq!(append(&mut journal, &[&[8; 3_000]]), sequence);
    }
    reads.join().expect("no panic");
    assert!(sequence > 50);
}

#[test]
fn a_folder_restored_without_its_mark_opens() {
    let folder = store_with(3);
    fs::remove_file(folder.path().join("mark")).expect("removed");
    assert_eq!(open(folder.path()).1.last_sequence, 3);
}

#[test]
fn a_store_of_another_format_says_which_commands_of_which_release_help() {
    let folder = store_with(1);
    let meta = folder.path().join("meta");
    let sound = fs::read(&meta).expect("read");
    let line = sound.iter().position(|byte| *byte == b'\n').expect("a line");
    let other = [&b"gleaner store, format 77, release 9.8.7"[..], &sound[line..]].concat();
    fs::write(&meta, other).expect("written");
    let says = refused(folder.path()).to_string();
    for words in
        ["format 77", "`gleaner broker export", "of release 9.8.7", "`gleaner broker import"]
    {
        assert!(says.contains(words), "{words}: {says}");
    }
    fs::write(&meta, &sound[line..]).expect("written");
    assert!(refused(folder.path()).to_string().contains("meta"));
    fs::remove_file(&meta).expect("removed");
    assert!(refused(folder.path()).to_string().contains("meta is missing"));

    // What releases before the first format with a line of its own have left.
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("sled")).expect("made");
    let says = refused(folder.path()).to_string();
    assert!(says.contains("format 3") && says.contains("the release that wrote it"), "{says}");
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
    let path = segment(folder.path());
    let mut bytes = fs::read(&path).expect("read");
    let at = bytes.windows(1_001).position(|of| of == contents[3]).expect("it is there");
    bytes[at + 500] ^= 1;
    // The header of another, and the beginning of one that a kill has cut off.
    let lost = Digest::of(&contents[1]);
    let at = bytes.windows(32).position(|of| of == lost.as_bytes()).expect("it is there");
    bytes[at] ^= 1;
    bytes.extend_from_slice(&[1, 7, 0]);
    fs::write(&path, bytes).expect("written");
    let (mut journal, _, _) = open(folder.path());
    let reader = journal.small_blobs();
    for content in &contents {
        let digest = Digest::of(content);
        if digest == lost {
            assert_eq!(reader.get(&digest).expect("read"), None);
        } else if digest == damaged {
            let says = reader.get(&digest).expect_err("damaged").to_string();
            assert!(says.contains(&digest.to_string()), "{says}");
        } else {
            assert_eq!(reader.get(&digest).expect("sound").as_ref(), Some(content));
        }
    }
    assert_eq!(reader.get(&Digest::of(b"another")).expect("sound"), None);
    journal.append(&commit).expect("durable");
    drop(journal);
    let (journal, _, _) = open(folder.path());
    for content in &contents {
        let found = journal.small_blobs().get(&Digest::of(content));
        assert_eq!(found.expect("mended").as_ref(), Some(content));
    }
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
