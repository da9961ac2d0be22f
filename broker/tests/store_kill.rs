//! A process that commits under load is killed again and again; each time its store is counted.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;

use gleaner_broker::{
    Batch, Committer, Compaction, DataFolder, Past, Recovered, Replayed, SledJournal,
    SnapshotWriter, StoreError, StoreOptions,
};
use gleaner_protocol::Digest;

const FOLDER: &str = "GLEANER_TEST_KILL_FOLDER";
const CALLERS: usize = 8;
const KILLS: u64 = 60;

/// How many records of each caller there are: all from 0 up to this.
type Counts = [u64; CALLERS];

/// Record `number` of a caller: some of them long, so that kills fall into the middle.
fn record(caller: usize, number: u64) -> Vec<u8> {
    let mut record = vec![caller as u8];
    record.extend_from_slice(&number.to_le_bytes());
    let padding = if number % 16 == 3 { 20_000 } else { (number % 300) as usize };
    record.resize(record.len() + padding, 7);
    record
}

fn open(folder: &Path) -> Result<(SledJournal, Recovered, Counts), StoreError> {
    let mut counts = Counts::default();
    let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
    let (journal, recovered) =
        SledJournal::open(DataFolder::open(folder)?, options, |replayed: Replayed<'_>| {
            match replayed {
                Replayed::Chunk(chunk) => {
                    let (caller, count) = (chunk[0] as usize, chunk[1..].try_into());
                    counts[caller] = u64::from_le_bytes(count.expect("eight bytes"));
                }
                Replayed::Record { record: found, .. } => {
                    let caller = found[0] as usize;
                    assert_eq!(
                        found,
                        record(caller, counts[caller]),
                        "in order, whole, none twice"
                    );
                    counts[caller] += 1;
                }
            }
            Ok::<(), StoreError>(())
        })?;
    Ok((journal, recovered, counts))
}

/// Not a test: the process that is killed. Commits without end, and says what was acknowledged.
#[test]
fn commits_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (journal, recovered, mut counts) = open(&PathBuf::from(folder)).expect("a sound store");
    say(&format!("incarnation {}", recovered.incarnation));
    let committer = Committer::start(Box::new(journal), Some(counting())).expect("a thread");
    let (told, wait) = channel();
    let mut under_way = 0;
    for turn in 0_usize.. {
        let caller = turn % CALLERS;
        let number = counts[caller];
        let content = record(caller, number);
        let told = told.clone();
        committer.submit_blocking(Batch {
            small_blobs: vec![(Digest::of(&content), content.clone())],
            records: vec![content],
            after: Box::new(move |result| {
                result.expect("the store works");
                say(&format!("acknowledged {caller} {number}"));
                let _ = told.send(());
            }),
            // Of every kind.
            is_awaited: turn % 3 > 0,
        });
        counts[caller] += 1;
        under_way += 1;
        if under_way == 32 {
            wait.recv().expect("told");
            under_way -= 1;
        }
    }
}

/// Snapshots that count the records of each caller.
fn counting() -> Compaction {
    let compact = |past: &Past, writer: &mut dyn SnapshotWriter, _: &AtomicBool| {
        let mut counts = Counts::default();
        past.replay(|replayed| {
            match replayed {
                Replayed::Chunk(chunk) => {
                    let count = chunk[1..].try_into().expect("eight bytes");
                    counts[chunk[0] as usize] = u64::from_le_bytes(count);
                }
                Replayed::Record { record, .. } => counts[record[0] as usize] += 1,
            }
            Ok::<(), StoreError>(())
        })?;
        for (caller, count) in counts.iter().enumerate() {
            writer.write(&[&[caller as u8][..], &count.to_le_bytes()].concat())?;
        }
        say("snapshot");
        Ok(())
    };
    Compaction { after_bytes: 50_000, compact: Box::new(compact) }
}

/// One line in one write: a kill cannot tear it.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).expect("the parent reads");
    out.flush().expect("the parent reads");
}

#[test]
fn kills_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = Counts::default();
    let (mut total, mut snapshots) = (0_u64, 0_u64);
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "commits_until_it_is_killed", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // The moment differs from kill to kill; what decides is where the process is just then.
        let mut until_the_kill = 1 + (kill * 37) % 400;
        let mut last: VecDeque<(usize, u64)> = VecDeque::new();
        while let Some(Ok(line)) = lines.next() {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["incarnation", incarnation] => {
                    // One is taken by each counting below.
                    assert_eq!(incarnation.parse(), Ok(kill * 2 + 1));
                }
                ["acknowledged", caller, number] => {
                    let caller: usize = caller.parse().expect("a number");
                    let number: u64 = number.parse().expect("a number");
                    acknowledged[caller] = acknowledged[caller].max(number + 1);
                    last.push_back((caller, number));
                    last.truncate(32);
                    total += 1;
                    until_the_kill = until_the_kill.saturating_sub(1);
                    if until_the_kill == 0 {
                        let _ = child.kill();
                    }
                }
                ["snapshot"] => snapshots += 1,
                _ => {}
            }
        }
        let status = child.wait().expect("ended");
        assert!(!status.success(), "it was killed and did not end by itself");

        let (journal, _, counts) = open(folder.path()).expect("a sound store");
        for caller in 0..CALLERS {
            let (there, told) = (counts[caller], acknowledged[caller]);
            assert!(there >= told, "kill {kill}, caller {caller}: {told} told, {there} there");
        }
        for (caller, number) in last {
            let content = record(caller, number);
            let blob = journal.small_blobs().get(&Digest::of(&content)).expect("sound");
            assert_eq!(blob, Some(content));
        }
        acknowledged = counts;
    }
    eprintln!("{KILLS} kills, {total} acknowledged, {snapshots} snapshots, 0 lost");
    assert!(snapshots > 0);
}
