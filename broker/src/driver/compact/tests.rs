//! A farm's day in the journal, and what a snapshot makes of it.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::AtomicUsize;

use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{
    Capabilities, Digest, Epoch, HostInfo, HostName, KernelName, LeaseToken, Origin, OwnerName,
    ReplicaId, Span, Time, WorkunitId,
};
use gleaner_scheduling::{Effect, Input, PolicyName, ReportedOutcome, RequestId};

use super::*;
use crate::driver::{Driver, DriverHandle, DriverParts, Recovery, pack};
use crate::store::{
    Admission, Commit, Committer, Compaction, DataFolder, Journal, SledJournal, StoreOptions,
};
use crate::views::FrameBoard;

const HOSTS: usize = 3;

fn config() -> CoreConfig {
    CoreConfig::background(PolicyName::FragmentAware)
}

fn host(number: usize) -> HostName {
    HostName::new(format!("h{number}")).expect("a plain name")
}

struct Day {
    core: Core,
    /// Given out and not reported yet.
    leases: Vec<(HostName, LeaseToken, ReplicaId)>,
    now: Time,
    journal: SledJournal,
    folder: tempfile::TempDir,
}

impl Day {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (journal, _) = open(folder.path(), |_| Ok(()));
        let mut day = Self {
            core: Core::new(&config()),
            leases: Vec::new(),
            now: Time::ZERO,
            journal,
            folder,
        };
        for number in 0..HOSTS {
            let kernels = BTreeSet::from([KernelName::new("x").expect("a plain name")]);
            let info = HostInfo {
                name: host(number),
                origin: Origin::Farm,
                owner: Some(OwnerName::new(format!("o{number}")).expect("a plain name")),
                cores: 4,
                memory_mib: 0,
                capabilities: Capabilities { kernels, ..Capabilities::default() },
                kind: None,
                chunk_cache_mib: 0,
            };
            let fragment = Fragment { epoch: Epoch::default(), cores: 4, ..Fragment::default() };
            day.takes(Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 });
        }
        day
    }

    /// Feeds the core and writes down what it persists.
    fn takes(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.handle(self.now, input, &mut effects);
        let facts = effects.iter().filter_map(|effect| match effect {
            Effect::Persist(fact) => Some(fact.clone()),
            _ => None,
        });
        let records = pack(facts);
        if !records.is_empty() {
            let records = records.iter().map(Vec::as_slice).collect();
            self.journal.append(&Commit { records, small_blobs: vec![] }).expect("healthy");
        }
        for effect in effects {
            if let Effect::Lease { host, token, replica, .. } = effect {
                let host = self.core.farm().host(host).info.name.clone();
                self.leases.push((host, token, replica));
            }
        }
    }

    fn submits(&mut self, workunits: &str, replication: u8) {
        let json = format!(
            r#"{{"task":{{"kernel":"x"}},"workunits":{workunits},"replication":{replication}}}"#
        );
        let spec: JobSpec = serde_json::from_str(&json).expect("a job");
        self.takes(Input::Submit { request: RequestId::new(1), spec: Box::new(spec) });
    }

    fn works(&mut self, rounds: usize) {
        self.works_on(rounds, HOSTS);
    }

    /// Each of the first hosts asks for one replica; every third of them reports another output than the others,
    /// and every seventh fails.
    fn works_on(&mut self, rounds: usize, hosts: usize) {
        for round in 0..rounds {
            for number in 0..hosts {
                // A host that failed is given something again.
                self.now = self.now + Span::from_secs(600);
                self.takes(Input::Request { host: host(number), cores: 1 });
                let is_its = |of: &(HostName, _, _)| of.0 == host(number);
                let (its, others) = std::mem::take(&mut self.leases).into_iter().partition(is_its);
                self.leases = others;
                let its: Vec<(HostName, LeaseToken, ReplicaId)> = its;
                for (host, token, replica) in its {
                    let index = replica.workunit.index.to_le_bytes();
                    let outcome = match (round * HOSTS + number) % 7 {
                        6 => ReportedOutcome::Failed("it failed".into()),
                        2 => ReportedOutcome::Output(Digest::of(b"wrong")),
                        _ => ReportedOutcome::Output(Digest::of(&index)),
                    };
                    self.takes(Input::Report {
                        host,
                        token,
                        replica,
                        outcome,
                        cpu_us: 5,
                        took_us: 5,
                    });
                }
            }
        }
    }

    /// A snapshot of all that was written.
    fn is_compacted(&mut self) {
        let past = self.journal.past().expect("readable");
        let mut writer = self.journal.begin_snapshot().expect("begun");
        compact(&past, &mut *writer, &AtomicBool::new(false), &config()).expect("compacted");
        drop(past);
        let sequence = writer.finish().expect("finished");
        self.journal.adopt_snapshot(sequence).expect("adopted");
        while self.journal.prune(256).expect("pruned") {}
    }

    /// What comes back after a restart, as facts, and how many records and chunks that took.
    fn comes_back(self) -> (tempfile::TempDir, Vec<Fact>, usize) {
        let Self { journal, folder, .. } = self;
        drop(journal);
        let (facts, count) = restored(folder.path());
        (folder, facts, count)
    }
}

fn open(
    folder: &std::path::Path,
    mut visit: impl FnMut(&[u8]) -> Result<(), RecordError>,
) -> (SledJournal, ()) {
    let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
    let folder = DataFolder::open(folder).expect("free");
    let opened = SledJournal::open(folder, options, |replayed| {
        let (Replayed::Chunk(record) | Replayed::Record { record, .. }) = replayed;
        visit(record).map_err(io::Error::other)
    });
    (opened.expect("a sound store").0, ())
}

fn restored(folder: &std::path::Path) -> (Vec<Fact>, usize) {
    let (mut recovery, mut count) = (Recovery::new(Core::new(&config())), 0);
    open(folder, |record| {
        count += 1;
        recovery.take(record)
    });
    let (core, _) = recovery.finish(1, gleaner_scheduling::TokenKey::default());
    (core.facts().collect(), count)
}

#[test]
fn a_snapshot_restores_what_the_records_before_it_restore() {
    let day = |compacts: bool| {
        let mut day = Day::new();
        day.submits(r#"{"count":40}"#, 2);
        day.submits(r#"{"items":["a","b","a long item","d","e"]}"#, 2);
        day.works(15);
        if compacts {
            day.is_compacted();
        }
        day.submits(r#"{"count":3}"#, 1);
        day.works(10);
        let job = JobId::new(2);
        day.takes(Input::Cancel { request: RequestId::new(1), job });
        if compacts {
            day.is_compacted();
        }
        day.submits(r#"{"count":2}"#, 1);
        day.works(40);
        day.takes(Input::Forget { job });
        day.takes(Input::Forget { job: JobId::new(3) });
        if compacts {
            day.is_compacted();
        }
        // Two of three equal ones: these votes are on open workunits.
        day.submits(r#"{"count":100}"#, 5);
        day.works_on(3, 2);
        if compacts {
            day.is_compacted();
        }
        day.works_on(3, 2);
        day.comes_back()
    };
    let (_, as_written, _) = day(false);
    let (_folder, compacted, _) = day(true);
    assert_eq!(compacted, as_written);
    let decided = |fact: &&Fact| matches!(fact, Fact::Decided { .. });
    assert!(as_written.iter().filter(decided).count() > 40, "the day had something in it");
    assert!(as_written.iter().any(|fact| matches!(fact, Fact::Voted { .. })));
}

#[test]
fn what_is_forgotten_is_in_no_snapshot_and_a_broker_that_ends_waits_for_none() {
    let mut day = Day::new();
    day.submits(r#"{"count":200}"#, 1);
    day.works(80);
    let job = JobId::new(1);
    day.takes(Input::Cancel { request: RequestId::new(1), job });
    day.takes(Input::Forget { job });
    let past = day.journal.past().expect("readable");
    let mut writer = day.journal.begin_snapshot().expect("begun");
    let ends = compact(&past, &mut *writer, &AtomicBool::new(true), &config());
    assert!(matches!(ends, Err(StoreError::Closed)));
    drop((past, writer));
    day.is_compacted();
    let (_folder, facts, count) = day.comes_back();
    assert_eq!(count, 1);
    let of_job = |fact: &&Fact| settled_of(fact).is_some();
    assert_eq!(facts.iter().filter(of_job).count(), 0);
    assert!(facts.contains(&Fact::JobForgotten { job }), "its id is not used again");
}

/// Counts the facts that are handed to it together.
struct Counting {
    journal: SledJournal,
    most: Arc<AtomicUsize>,
    snapshots: Arc<AtomicUsize>,
}

impl Journal for Counting {
    fn append(&mut self, commit: &Commit<'_>) -> Result<u64, StoreError> {
        let facts = commit.records.iter();
        let facts = facts.map(|record| stored::decode::<Vec<Fact>>(record).expect("ours").len());
        self.most.fetch_max(facts.sum(), Ordering::SeqCst);
        self.journal.append(commit)
    }

    fn last_sequence(&self) -> u64 {
        self.journal.last_sequence()
    }

    fn tail_bytes(&self) -> u64 {
        self.journal.tail_bytes()
    }

    fn snapshot_bytes(&self) -> u64 {
        // As if each were short: one after the other is due.
        0
    }

    fn past(&mut self) -> Result<Past, StoreError> {
        self.journal.past()
    }

    fn begin_snapshot(&mut self) -> Result<Box<dyn SnapshotWriter>, StoreError> {
        self.journal.begin_snapshot()
    }

    fn adopt_snapshot(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.snapshots.fetch_add(1, Ordering::SeqCst);
        self.journal.adopt_snapshot(sequence)
    }

    fn prune(&mut self, parts_max: usize) -> Result<bool, StoreError> {
        self.journal.prune(parts_max)
    }

    fn admission(&self) -> Admission {
        self.journal.admission()
    }
}

#[tokio::test]
async fn no_turn_packs_more_than_what_its_commands_changed() {
    let mut day = Day::new();
    day.submits(r#"{"count":20000}"#, 1);
    let (job, output) = (JobId::new(1), Digest::of(b"output"));
    let decided = (0..20_000)
        .map(|index| Fact::Decided { workunit: WorkunitId { job, index }, digest: output });
    for record in pack(decided) {
        for fact in stored::decode::<Vec<Fact>>(&record).expect("ours") {
            day.core.restore(fact).expect("sound");
        }
        let commit = Commit { records: vec![&record], small_blobs: vec![] };
        day.journal.append(&commit).expect("healthy");
    }
    let (most, snapshots) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counting = Counting {
        journal: day.journal,
        most: Arc::clone(&most),
        snapshots: Arc::clone(&snapshots),
    };
    let compaction = Compaction {
        after_bytes: 100,
        compact: Box::new(|past, writer, closing| compact(past, writer, closing, &config())),
    };
    let committer = Committer::start(Box::new(counting), Some(compaction)).expect("a thread");
    let (kernel_times, _recorder) =
        crate::kernel_times::start(day.folder.path(), 1 << 20).expect("a thread");
    let (history, _writer) = crate::history::start(day.folder.path(), 1 << 20).expect("a thread");
    let (usage, _accounts) = crate::usage::start(day.folder.path(), 1 << 20).expect("a thread");
    let driver = Driver::new(DriverParts {
        board: FrameBoard::default(),
        core: day.core,
        incarnation: 1,
        committer: committer.clone(),
        events: crate::events::Events::new(),
        metrics: Arc::default(),
        kernel_times,
        history,
        usage,
        retention: None,
        chunks: Default::default(),
        halted: None,
    });
    let (commands, queue) = tokio::sync::mpsc::channel(16);
    crate::broker::start(driver, queue).expect("a thread");
    let driver = DriverHandle::new(commands);
    let mut submitted = 0;
    while snapshots.load(Ordering::SeqCst) < 3 {
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        let spec = serde_json::from_str(json).expect("a job");
        driver.submit(spec).await.expect("it lives").expect("taken");
        submitted += 1;
    }
    assert!(submitted > 0);
    assert_eq!(most.load(Ordering::SeqCst), 1, "a submission is one fact");
}
