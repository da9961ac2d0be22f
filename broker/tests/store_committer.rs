//! The committer: what is told to whom, and when.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use gleaner_broker::limits::COMMIT_RECORDS_MAX;
use gleaner_broker::{
    Admission, Batch, Commit, Committer, Compaction, DataFolder, DataSync, Journal, Past,
    Recovered, Replayed, SledJournal, SnapshotWriter, StoreError, StoreOptions, StoreState,
    SyncStep,
};

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// A sync that is noted down, waits for leave, and can fail.
struct Probe {
    log: Log,
    leave: Option<Receiver<io::Result<()>>>,
}

impl SyncStep for Probe {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        if let Some(leave) = &self.leave {
            // Without one who gives leave the test is over.
            leave.recv().unwrap_or(Ok(()))?;
        }
        DataSync.sync(file)?;
        self.log.lock().expect("not poisoned").push("synced".into());
        Ok(())
    }
}

fn open(folder: &Path, sync: impl SyncStep + 'static) -> (SledJournal, Recovered, Vec<String>) {
    let options = StoreOptions { min_free_bytes: 1 << 20, sync: Box::new(sync) };
    let mut seen = Vec::new();
    let folder = DataFolder::open(folder).expect("free");
    let (journal, recovered) = SledJournal::open(folder, options, |replayed: Replayed<'_>| {
        seen.push(match replayed {
            Replayed::Chunk(chunk) => format!("chunk {}", String::from_utf8_lossy(chunk)),
            Replayed::Record { record, .. } => String::from_utf8_lossy(record).into_owned(),
        });
        Ok::<(), StoreError>(())
    })
    .expect("a sound store");
    (journal, recovered, seen)
}

/// A committer, and the way to give leave to its syncs.
fn probed(folder: &Path) -> (Committer, Log, Sender<io::Result<()>>) {
    let log = Log::default();
    let (give, leave) = channel();
    let (journal, ..) = open(folder, Probe { log: log.clone(), leave: Some(leave) });
    (Committer::start(Box::new(journal), None).expect("a thread"), log, give)
}

/// A batch that notes down what it was told, and says so.
fn batch(name: &str, records: usize, log: &Log, told: &Sender<()>) -> Batch {
    let (name, log, told) = (name.to_owned(), log.clone(), told.clone());
    let records = (0..records).map(|number| format!("{name}{number}").into_bytes()).collect();
    let after = Box::new(move |result: Result<u64, &StoreError>| {
        let line = match result {
            Ok(_) => format!("{name} told"),
            Err(error) => format!("{name} refused: {}", error.chain()),
        };
        log.lock().expect("not poisoned").push(line);
        let _ = told.send(());
    });
    Batch { records, small_blobs: vec![], after, is_awaited: true }
}

fn lines(log: &Log) -> Vec<String> {
    log.lock().expect("not poisoned").clone()
}

#[test]
fn nobody_is_told_before_the_file_is_synced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, give) = probed(folder.path());
    let (told, wait) = channel();
    for name in ["a", "b", "c"] {
        committer.submit_blocking(batch(name, 1, &log, &told));
        // The commit is written, and waits for its sync: nobody may know of it.
        assert!(wait.try_recv().is_err());
        assert!(!lines(&log).contains(&format!("{name} told")));
        give.send(Ok(())).expect("the probe waits");
        wait.recv().expect("told");
    }
    assert_eq!(lines(&log), ["synced", "a told", "synced", "b told", "synced", "c told"]);
    committer.close();
}

#[test]
fn many_callers_share_one_sync_and_are_told_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, give) = probed(folder.path());
    let (told, wait) = channel();
    committer.submit_blocking(batch("first", 1, &log, &told));
    // While the first waits for its sync the others gather; some have nothing to be written.
    for number in 0..100 {
        committer.submit_blocking(batch(&format!("{number}-"), number % 3, &log, &told));
    }
    give.send(Ok(())).expect("the probe waits");
    wait.recv().expect("told");
    give.send(Ok(())).expect("the probe waits");
    drop(give);
    for _ in 0..100 {
        wait.recv().expect("told");
    }
    let lines = lines(&log);
    let told: Vec<_> = lines.iter().filter(|line| *line != "synced").cloned().collect();
    let expected: Vec<_> = (0..100).map(|number| format!("{number}- told")).collect();
    assert_eq!(told[1..], expected);
    let syncs = lines.len() - told.len();
    // The queue may have been taken in more than one go, but not one by one.
    assert!(syncs <= 4, "{syncs} syncs for 101 batches");
    committer.close();
    let (_, _, seen) = open(folder.path(), DataSync);
    let written: Vec<_> = (0..100)
        .flat_map(|number| (0..number % 3).map(move |record| format!("{number}-{record}")))
        .collect();
    assert_eq!(seen[1..], written);
}

#[test]
fn what_nobody_waits_for_is_committed_before_what_comes_later_and_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, give) = probed(folder.path());
    drop(give);
    let (told, wait) = channel();
    let patient = |name| Batch { is_awaited: false, ..batch(name, 1, &log, &told) };
    committer.submit_blocking(patient("a"));
    committer.submit_blocking(batch("b", 1, &log, &told));
    committer.submit_blocking(patient("c"));
    for _ in 0..3 {
        wait.recv().expect("told");
    }
    let lines = lines(&log);
    let told: Vec<&str> = lines.iter().map(String::as_str).filter(|l| *l != "synced").collect();
    assert_eq!(told, ["a told", "b told", "c told"]);
    assert_eq!(lines[0], "synced", "{lines:?}");
    committer.close();
}

#[test]
fn a_batch_without_records_needs_no_sync() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, _give) = probed(folder.path());
    let (told, wait) = channel();
    committer.submit_blocking(batch("empty", 0, &log, &told));
    wait.recv().expect("told without leave to sync");
    assert_eq!(lines(&log), ["empty told"]);
    drop(_give);
    committer.close();
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_until_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, give) = probed(folder.path());
    let (told, wait) = channel();
    committer.submit_blocking(batch("good", 1, &log, &told));
    give.send(Ok(())).expect("the probe waits");
    wait.recv().expect("told");
    assert!(committer.admit().is_ok());

    give.send(Err(io::Error::other("the disk is on fire"))).expect("the probe waits");
    for (name, records) in [("bad", 1), ("worse", 1), ("empty", 0)] {
        // A later sync that would succeed vouches for nothing.
        committer.submit_blocking(batch(name, records, &log, &told));
        give.send(Ok(())).expect("the probe is there");
        wait.recv().expect("told");
    }
    let lines = lines(&log);
    assert_eq!(lines[..2], ["synced", "good told"]);
    assert_eq!(lines.len(), 5, "no sync was tried again: {lines:?}");
    for (line, name) in lines[2..].iter().zip(["bad", "worse", "empty"]) {
        assert!(line.starts_with(&format!("{name} refused")), "{line}");
        assert!(line.contains("the disk is on fire"), "{line}");
    }
    let error = committer.admit().expect_err("failed");
    assert!(error.chain().contains("the disk is on fire"), "{}", error.chain());
    assert!(matches!(*committer.state().borrow(), StoreState::Failed(_)));
    committer.close();
    let (_, _, seen) = open(folder.path(), DataSync);
    assert_eq!(seen[0], "good0");
}

#[test]
fn a_closed_committer_refuses_and_what_came_before_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let (committer, log, give) = probed(folder.path());
    drop(give);
    let (told, wait) = channel();
    let late = committer.clone();
    for number in 0..50 {
        committer.submit_blocking(batch(&format!("{number}-"), 1, &log, &told));
    }
    committer.close();
    late.submit_blocking(batch("late", 1, &log, &told));
    assert!(late.try_submit(batch("later", 1, &log, &told)).is_ok());
    assert_eq!(wait.try_iter().count(), 52);
    let lines = lines(&log);
    assert!(lines.contains(&"49- told".to_owned()));
    assert!(lines.iter().any(|line| line.starts_with("late refused")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("later refused")), "{lines:?}");
    drop(late);
    assert_eq!(open(folder.path(), DataSync).2.len(), 50);
}

#[test]
fn a_snapshot_takes_the_place_of_what_came_before_while_commits_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (journal, ..) = open(folder.path(), DataSync);
    let (next_chunk, chunks) = channel::<Vec<u8>>();
    let chunks = Mutex::new(chunks);
    let (begun, begins) = channel();
    let compact = move |past: &Past, writer: &mut dyn SnapshotWriter, _: &AtomicBool| {
        let mut records = 0;
        past.replay(|_| {
            records += 1;
            Ok::<(), StoreError>(())
        })?;
        begun.send((past.last_sequence(), records)).expect("waiting");
        let chunks = chunks.lock().expect("not poisoned");
        chunks.iter().try_for_each(|chunk| writer.write(&chunk))
    };
    let compaction = Compaction { after_bytes: 20_000, compact: Box::new(compact) };
    let committer = Committer::start(Box::new(journal), Some(compaction)).expect("a thread");
    let log = Log::default();
    let (told, wait) = channel();
    let mut before = 0;
    let (sequence, records) = loop {
        committer.submit_blocking(batch(&format!("before {before}."), 1, &log, &told));
        wait.recv().expect("told");
        before += 1;
        if let Ok(begun) = begins.try_recv() {
            break begun;
        }
        assert!(before < 10_000, "none begins");
    };
    assert_eq!(sequence, records, "all that was committed is read, one record each");
    // It is under way as long as the chunks do not end.
    next_chunk.send(b"one".to_vec()).expect("taken");
    for number in 0..1_000 {
        committer.submit_blocking(batch(&format!("after {number}."), 1, &log, &told));
        wait.recv().expect("told while the snapshot is under way");
    }
    assert!(begins.try_recv().is_err(), "one at a time");
    next_chunk.send(b"two".to_vec()).expect("taken");
    drop(next_chunk);
    committer.close();

    let (journal, recovered, seen) = open(folder.path(), DataSync);
    let last = before + 1_000;
    assert_eq!(recovered.last_sequence, last);
    // The broker may have ended before it was in use.
    match recovered.snapshot_sequence {
        Some(of) => {
            assert_eq!(of, sequence);
            assert_eq!(seen[..2], ["chunk one", "chunk two"]);
            assert_eq!(seen.len() as u64, 2 + last - sequence);
        }
        None => assert_eq!(seen.len() as u64, last),
    }
    drop(journal);
}

/// A journal with little room.
struct Tight {
    /// Most records of one commit.
    room: Arc<AtomicUsize>,
    appended: Arc<AtomicU64>,
    tried: Sender<()>,
}

impl Tight {
    fn check(room: &AtomicUsize, records: usize) -> Result<(), StoreError> {
        if records > room.load(Ordering::SeqCst) {
            let folder = "/data".into();
            return Err(StoreError::Full { folder, free_bytes: 1, needed_bytes: 2 });
        }
        Ok(())
    }
}

impl Journal for Tight {
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, StoreError> {
        let _ = self.tried.send(());
        Self::check(&self.room, commit.records.len())?;
        let records = commit.records.len() as u64;
        Ok(self.appended.fetch_add(records, Ordering::SeqCst) + records)
    }

    fn last_sequence(&self) -> u64 {
        self.appended.load(Ordering::SeqCst)
    }

    fn tail_bytes(&self) -> u64 {
        0
    }

    fn admission(&self) -> Admission {
        let room = self.room.clone();
        Arc::new(move || Self::check(&room, 1))
    }

    fn snapshot_bytes(&self) -> u64 {
        0
    }

    fn past(&mut self) -> Result<Past, StoreError> {
        Err(StoreError::Closed)
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        Err(StoreError::Closed)
    }

    fn adopt_snapshot(&mut self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    fn prune(&mut self, _: usize) -> Result<bool, StoreError> {
        Ok(false)
    }
}

#[test]
fn a_full_disk_holds_commits_until_there_is_space() {
    let room = Arc::new(AtomicUsize::new(0));
    let (tried, tries) = channel();
    let journal = Tight { room: room.clone(), appended: Arc::default(), tried };
    let committer = Committer::start(Box::new(journal), None).expect("a thread");
    let log = Log::default();
    let (told, wait) = channel();
    for name in ["a", "b"] {
        committer.submit_blocking(batch(name, 1, &log, &told));
    }
    // Twice in vain: it is waiting.
    tries.recv().expect("tried");
    tries.recv().expect("tried");
    assert!(committer.admit().expect_err("full").is_full());
    assert!(matches!(*committer.state().borrow(), StoreState::Full(_)));
    assert!(lines(&log).is_empty());
    room.store(usize::MAX, Ordering::SeqCst);
    wait.recv().expect("told");
    wait.recv().expect("told");
    assert_eq!(lines(&log), ["a told", "b told"]);
    assert!(committer.admit().is_ok());

    // Nobody waits for space when the broker is to stop; and what would fit, but came later than
    // what does not, may follow from that.
    room.store(1, Ordering::SeqCst);
    committer.submit_blocking(batch("c", COMMIT_RECORDS_MAX, &log, &told));
    committer.submit_blocking(batch("d", 1, &log, &told));
    committer.close();
    let lines = lines(&log);
    for (line, name) in lines[2..].iter().zip(["c", "d"]) {
        assert!(line.starts_with(&format!("{name} refused: the disk of /data is full")), "{line}");
    }
    assert_eq!(lines.len(), 4);
}
