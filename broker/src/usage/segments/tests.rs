use gleaner_protocol::api::ReplicaOutcome;
use gleaner_protocol::job::Lane;
use gleaner_protocol::{HostName, JobId, OwnerName};
use tempfile::TempDir;

use super::*;
use crate::usage::EndedReplica;

fn record(index: u32) -> UsageRecord {
    UsageRecord::Ended(EndedReplica {
        job: JobId::new(1),
        index,
        owner: OwnerName::new("eve").expect("a plain name"),
        project: None,
        host: HostName::new("render042").expect("a plain name"),
        host_owner: None,
        lane: Lane::Background,
        began_ms: 1_000,
        ended_ms: 2_000,
        slot_us: 1_000_000,
        cpu_us: 900_000,
        peak_memory_mib: None,
        outcome: ReplicaOutcome::Preempted,
        output: None,
    })
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn opened(folder: &TempDir) -> (Segments, Vec<Damaged>) {
    // Five records each.
    let mut line = Vec::new();
    write_line(&record(10), &mut line);
    let bounds = Bounds { segment_bytes: 5 * line.len() as u64, segments_max: 3 };
    Segments::open(folder.path(), bounds, 1_700).expect("the disk works")
}

fn add(segments: &mut Segments, indices: std::ops::Range<u32>) {
    let mut records = indices.map(record).collect();
    segments.append(&mut records).expect("the disk works");
    assert!(records.is_empty(), "all are written");
}

fn indices(segments: &Segments) -> Vec<u32> {
    let mut indices = Vec::new();
    for path in segments.paths() {
        read(&path, |record| match record {
            UsageRecord::Ended(ended) => indices.push(ended.index),
            other => panic!("{other:?} was not written"),
        })
        .expect("it is read");
    }
    indices
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("usage")).expect("listed");
    let names = entries.map(|entry| entry.expect("listed").file_name().into_string());
    let mut names: Vec<String> = names.map(|name| name.expect("plain")).collect();
    names.sort();
    names
}

#[test]
fn what_was_added_is_read_in_its_order_also_by_who_comes_later() {
    let folder = folder();
    let (mut segments, _) = opened(&folder);
    assert!(segments.paths().is_empty());
    add(&mut segments, 10..12);
    assert_eq!(indices(&segments), [10, 11]);
    drop(segments);
    let (mut segments, damaged) = opened(&folder);
    add(&mut segments, 12..17);
    assert_eq!(indices(&segments), (10..17).collect::<Vec<_>>());
    assert_eq!(damaged, []);
    assert_eq!(names(&folder), ["0000000001.jsonl", "0000000002.jsonl"]);
}

#[test]
fn a_kill_in_the_middle_of_a_record_costs_that_record_at_most() {
    let folder = folder();
    let (mut segments, _) = opened(&folder);
    add(&mut segments, 10..13);
    let path = segments.paths().remove(0);
    let whole = fs::read(&path).expect("read");
    let two = whole.len() / 3 * 2;
    for cut in two..whole.len() {
        drop(segments);
        fs::write(&path, &whole[..cut]).expect("written");
        let damaged;
        (segments, damaged) = opened(&folder);
        assert_eq!((damaged, indices(&segments)), (vec![], vec![10, 11]), "{cut}");
        add(&mut segments, 20..21);
        assert_eq!(indices(&segments), [10, 11, 20], "{cut}");
    }
    assert_eq!(names(&folder), ["0000000001.jsonl"]);
}

#[test]
fn of_too_many_segments_the_oldest_go() {
    let folder = folder();
    let (mut segments, _) = opened(&folder);
    add(&mut segments, 10..15);
    add(&mut segments, 15..32);
    assert_eq!(indices(&segments), (20..32).collect::<Vec<_>>());
    assert_eq!(names(&folder), ["0000000003.jsonl", "0000000004.jsonl", "0000000005.jsonl"]);
    // Numbers go on.
    drop(segments);
    let (mut segments, _) = opened(&folder);
    add(&mut segments, 32..36);
    assert_eq!(names(&folder), ["0000000004.jsonl", "0000000005.jsonl", "0000000006.jsonl"]);
    assert_eq!(indices(&segments), (25..36).collect::<Vec<_>>());
}

#[test]
fn a_damaged_segment_is_moved_aside_and_what_can_be_read_of_it_is_kept() {
    for (at, lost) in [(0, 1), (100, 1), (usize::MAX, 2)] {
        let folder = folder();
        let (mut segments, _) = opened(&folder);
        add(&mut segments, 10..17);
        let path = segments.paths().remove(0);
        let mut bytes = fs::read(&path).expect("read");
        let line = bytes.len() / 5;
        // In the first record, or the end of the second one, which makes one line of two.
        let at = if at == usize::MAX { 2 * line - 1 } else { at };
        bytes[at] ^= 0x80;
        fs::write(&path, &bytes).expect("written");
        let (mut segments, damaged) = opened(&folder);
        let aside = folder.path().join("usage/0000000001.damaged-1700.jsonl");
        let [only] = &damaged[..] else { panic!("one is damaged: {damaged:?}") };
        assert_eq!((&only.aside, only.lines), (&aside, 1));
        assert_eq!(fs::read(&aside).expect("it is there"), bytes);
        add(&mut segments, 17..18);
        let kept: Vec<u32> = match lost {
            1 => (11..18).collect(),
            _ => [10, 13, 14, 15, 16, 17].into(),
        };
        assert_eq!(indices(&segments), kept[..], "{at}");
        let (_, damaged) = opened(&folder);
        assert_eq!(damaged, [], "it is said once");
    }
}

#[test]
fn what_a_newer_release_has_written_is_passed_over() {
    let folder = folder();
    let (mut segments, _) = opened(&folder);
    add(&mut segments, 10..11);
    let json = br#"{"gave":{"watts":3}}"#;
    let check: String = gleaner_protocol::Digest::of(json).to_string().chars().take(8).collect();
    let line = format!("{check} {}\n", String::from_utf8_lossy(json));
    let path = segments.paths().remove(0);
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("written");
    let (mut segments, damaged) = opened(&folder);
    add(&mut segments, 11..12);
    assert_eq!((indices(&segments), damaged), (vec![10, 11], vec![]));
}

#[test]
fn what_cannot_be_written_waits() {
    let folder = folder();
    let (mut segments, _) = opened(&folder);
    fs::write(folder.path().join("usage"), "in the way").expect("written");
    let mut records: VecDeque<_> = (10..13).map(record).collect();
    segments.append(&mut records).expect_err("it is no folder");
    assert_eq!(records.len(), 3);
    fs::remove_file(folder.path().join("usage")).expect("removed");
    segments.append(&mut records).expect("it is out of the way");
    assert_eq!(indices(&segments), [10, 11, 12]);
}
