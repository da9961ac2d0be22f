//! Figures of the store on this machine. They are printed; `tests/run --timing` holds them against
//! bounds that only a broken design would miss.

use std::sync::mpsc;

use gleaner_broker::{
    Batch, Commit, Committer, DataFolder, Journal, Replayed, SledJournal, StoreError, StoreOptions,
};
use gleaner_protocol::{Digest, Span, boottime};

fn open(folder: &std::path::Path) -> SledJournal {
    let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
    let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
    let folder = DataFolder::open(folder).expect("free");
    SledJournal::open(folder, options, nothing).expect("a sound store").0
}

fn percentile(sorted: &[Span], permille: usize) -> Span {
    sorted[(sorted.len() - 1) * permille / 1000]
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn one_durable_put_after_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path());
    let record = [7; 100];
    let mut spans: Vec<Span> = (0..1_000)
        .map(|_| {
            let begin = boottime();
            let commit = Commit { records: vec![&record], small_blobs: vec![] };
            journal.append(&commit).expect("durable");
            boottime() - begin
        })
        .collect();
    spans.sort();
    let (p50, p99) = (percentile(&spans, 500), percentile(&spans, 990));
    eprintln!("one durable put of 100 B: p50 {} us, p99 {} us", p50.as_micros(), p99.as_micros());
    gleaner_calm::assert_within("a durable put", p50, Span::from_millis(100));
}

#[test]
fn batches_of_a_thousand_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = open(folder.path());
    let record = [7; 100];
    let commit = Commit { records: vec![&record; 1_000], small_blobs: vec![] };
    let begin = boottime();
    for _ in 0..200 {
        journal.append(&commit).expect("durable");
    }
    let seconds = (boottime() - begin).as_secs_f64();
    eprintln!("commits of 1,000 records of 100 B: {:.0} records/s", 200_000.0 / seconds);
    eprintln!("resident after 200,000 records: {} KiB", resident_kib());
    let begin = boottime();
    drop(journal);
    let closed = boottime();
    drop(open(folder.path()));
    eprintln!("closed in {}, replayed 200,000 records in {}", closed - begin, boottime() - closed);
    // Values that outgrow the engine's pages would land here, in files that nobody syncs.
    let stray = std::fs::read_dir(folder.path().join("sled/blobs")).expect("a folder").count();
    assert_eq!(stray, 0);
}

#[test]
fn sixty_four_callers_share_the_syncs() {
    for blobs in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let committer = Committer::start(Box::new(open(folder.path())), None).expect("a thread");
        let begin = boottime();
        let per_caller = 500;
        std::thread::scope(|scope| {
            for caller in 0..64_u32 {
                let committer = &committer;
                scope.spawn(move || {
                    let (done, wait) = mpsc::channel();
                    for number in 0..per_caller {
                        let done = done.clone();
                        let content = [caller.to_le_bytes(), number_bytes(number)].concat();
                        let small_blobs =
                            if blobs { vec![(Digest::of(&content), content)] } else { vec![] };
                        let after = Box::new(move |result: Result<u64, &StoreError>| {
                            done.send(result.is_ok()).expect("waiting");
                        });
                        committer.submit_blocking(Batch {
                            records: vec![vec![7; 100]],
                            small_blobs,
                            after,
                            is_awaited: true,
                        });
                        assert!(wait.recv().expect("told"));
                    }
                });
            }
        });
        let seconds = (boottime() - begin).as_secs_f64();
        eprintln!(
            "64 callers, 100 B each{}: {:.0} durable commits/s",
            if blobs { " with a small blob" } else { "" },
            f64::from(64 * per_caller) / seconds
        );
        committer.close();
    }
}

fn number_bytes(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}
