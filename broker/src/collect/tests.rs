//! Rounds over a store with jobs, some of them forgotten.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use gleaner_protocol::api::DatasetRequest;
use gleaner_protocol::control::Fragment;
use gleaner_protocol::job::{CommandTask, InputFile, JobSpec, Task};
use gleaner_protocol::{
    Capabilities, Chunk, DatasetKind, DatasetManifest, DatasetName, Epoch, HostInfo, HostName,
    JobId, Manifest, Origin, OutputFile, OwnerName, Time, WorkunitId,
};
use gleaner_scheduling::{CoreConfig, Effect, Fact, Input, PolicyName, ReportedOutcome, RequestId};
use tokio::sync::mpsc;

use super::*;
use crate::blobs::LocalBlobs;
use crate::broker::start;
use crate::driver::{Driver, DriverParts};
use crate::events::Events;
use crate::history;
use crate::kernel_times;
use crate::limits::COLLECT_PAGE;
use crate::metrics::Metrics;
use crate::store::{DataFolder, SledJournal, StoreOptions};
use crate::usage;
use crate::views::FrameBoard;

/// What a broker knows before it starts.
struct Stage {
    core: Core,
    outputs: Vec<(Digest, Vec<u8>)>,
    blobs: LocalBlobs,
    folder: tempfile::TempDir,
}

fn host() -> HostName {
    HostName::new("h1").expect("a plain name")
}

fn path_of(folder: &tempfile::TempDir, digest: Digest) -> PathBuf {
    let digits = digest.to_string();
    folder.path().join("blobs").join(&digits[..2]).join(&digits[2..])
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let blobs = LocalBlobs::open(&folder.path().join("blobs"), 1 << 20).expect("opened");
        let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
        let info = HostInfo {
            name: host(),
            origin: Origin::Farm,
            owner: None,
            cores: 8,
            memory_mib: 0,
            capabilities: Capabilities {
                commands: BTreeSet::from(["/x".into()]),
                ..Capabilities::default()
            },
            kind: None,
            chunk_cache_mib: 0,
        };
        let fragment = Fragment { epoch: Epoch::default(), cores: 8, ..Fragment::default() };
        let joined = Input::HostJoined { info, fragment, held: Vec::new(), incarnation: 1 };
        core.handle(Time::ZERO, joined, &mut Vec::new());
        Self { core, outputs: Vec::new(), blobs, folder }
    }

    fn blob(&self, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        let blob = self.blobs.take(digest).and_then(|blob| blob.add(content)?.finish());
        blob.expect("stored");
        digest
    }

    /// One that was uploaded long ago.
    fn old_blob(&self, content: &[u8]) -> Digest {
        let digest = self.blob(content);
        let file =
            fs::File::options().write(true).open(path_of(&self.folder, digest)).expect("opened");
        file.set_modified(UNIX_EPOCH).expect("set");
        digest
    }

    /// A job with an input whose one vote names a stored file; its output and its blobs.
    fn job(&mut self, name: &str, replication: u8) -> Named {
        let input = self.old_blob(format!("input of {name}").as_bytes());
        let stored = self.old_blob(format!("output of {name}").as_bytes());
        let json = r#"{"task":{"kernel":"x"},"workunits":{"count":1}}"#;
        let mut spec: JobSpec = serde_json::from_str(json).expect("a job");
        spec.replication = replication;
        spec.task = Task::Command(CommandTask {
            argv: vec!["/x".into()],
            inputs: vec![InputFile { name: "input".into(), digest: input }],
            outputs: Vec::new(),
            memory_mib: None,
        });
        let mut effects = Vec::new();
        let submit = Input::Submit { request: RequestId::new(1), spec: Box::new(spec) };
        self.core.handle(Time::ZERO, submit, &mut effects);
        self.core.handle(Time::ZERO, Input::Request { host: host(), cores: 1 }, &mut effects);
        let lease = effects.iter().find_map(|effect| match effect {
            Effect::Lease { token, replica, .. } => Some((*token, *replica)),
            _ => None,
        });
        let (token, replica) = lease.expect("it is given");
        let content = Content::Stored { digest: stored, bytes: 1 << 20 };
        let manifest = Manifest::new(vec![OutputFile { name: "stdout".into(), content }]);
        let manifest = manifest.expect("a manifest");
        self.outputs.push((manifest.digest(), manifest.encode()));
        let outcome = ReportedOutcome::Output(manifest.digest());
        let report = Input::Report { host: host(), token, replica, outcome, cpu_us: 1, took_us: 1 };
        self.core.handle(Time::ZERO, report, &mut effects);
        Named { output: manifest.digest(), blobs: [input, stored] }
    }

    /// The broker begins.
    async fn begin(self) -> Running {
        let data = DataFolder::open(self.folder.path()).expect("free");
        let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
        let (journal, _) =
            SledJournal::open(data, options, |_| Ok::<(), io::Error>(())).expect("a store");
        let small_blobs = journal.small_blobs();
        let committer = Committer::start(Box::new(journal), None).expect("a thread");
        let (kernel_times, recorder) =
            kernel_times::start(self.folder.path(), 1 << 20).expect("a thread");
        let (history, writer) = history::start(self.folder.path(), 1 << 20).expect("a thread");
        let (usage, accounts) = usage::start(self.folder.path(), 1 << 20).expect("a thread");
        let driver = Driver::new(DriverParts {
            board: FrameBoard::default(),
            core: self.core,
            incarnation: 1,
            committer: committer.clone(),
            events: Events::new(),
            metrics: Arc::new(Metrics::default()),
            kernel_times,
            history,
            usage,
            retention: None,
            chunks: Default::default(),
            halted: None,
        });
        let (commands, queue) = mpsc::channel(16);
        start(driver, queue).expect("a thread");
        let collector = Collector {
            driver: DriverHandle::new(commands),
            committer,
            small_blobs,
            datasets: Datasets::open(self.folder.path(), &self.blobs).await.expect("a new one"),
            blobs: Arc::new(self.blobs),
            data_dir: self.folder.path().to_owned(),
            files: Arc::default(),
        };
        let running = Running {
            collector,
            folder: self.folder,
            _recorder: recorder,
            _writer: writer,
            _accounts: accounts,
        };
        running.store(self.outputs);
        running
    }
}

/// What a job names.
#[derive(Clone, Copy)]
struct Named {
    output: Digest,
    blobs: [Digest; 2],
}

struct Running {
    collector: Collector,
    folder: tempfile::TempDir,
    _recorder: kernel_times::Recorder,
    _writer: history::HistoryWriter,
    _accounts: usage::UsageWriter,
}

impl Running {
    fn store(&self, outputs: Vec<(Digest, Vec<u8>)>) {
        let collector = self.collector.clone();
        let stored = std::thread::spawn(move || collector.put(outputs)).join();
        stored.expect("no panic").expect("a healthy store");
    }

    async fn forget(&self, job: u64) {
        let forgotten = self.collector.driver.forget(JobId::new(job)).await;
        forgotten.expect("the driver lives");
    }

    async fn round(&self) -> Result<Collected, String> {
        self.collector.round().await.map_err(|stopped| format!("{stopped:?}"))
    }

    fn has_blob(&self, digest: Digest) -> bool {
        path_of(&self.folder, digest).exists()
    }

    fn has(&self, named: Named) -> [bool; 3] {
        let output = self.collector.small_blobs.get(&named.output).expect("read").is_some();
        let [input, stored] = named.blobs.map(|digest| self.has_blob(digest));
        [output, input, stored]
    }
}

#[tokio::test]
async fn what_only_forgotten_jobs_named_is_removed_and_nothing_else() {
    let mut stage = Stage::new();
    let (first, second) = (stage.job("first", 1), stage.job("second", 1));
    // One vote of two: it is not decided.
    let third = stage.job("third", 2);
    let young = stage.blob(b"uploaded just now");
    let never = stage.old_blob(b"uploaded long ago and never named");
    let running = stage.begin().await;
    running.round().await.expect("done");
    assert_eq!(running.has(first), [true; 3], "nobody forgot it");
    assert!(!running.has_blob(never));
    running.forget(1).await;
    let collected = running.round().await.expect("done");
    assert_eq!(collected, Collected { outputs: 1, blobs: 2, blobs_left: 1 });
    assert_eq!(running.has(first), [false; 3]);
    assert_eq!((running.has(second), running.has(third)), ([true; 3], [true; 3]));
    assert!(running.has_blob(young), "its job may be on the way");
    running.round().await.expect("done");
    assert_eq!((running.has(second), running.has(third)), ([true; 3], [true; 3]));
}

#[tokio::test]
async fn where_an_output_cannot_be_read_no_blob_is_removed() {
    let mut stage = Stage::new();
    let (first, second) = (stage.job("first", 1), stage.job("second", 1));
    let running = stage.begin().await;
    running.forget(1).await;
    let folder = running.folder.path().join("outputs");
    let segment = fs::read_dir(folder).expect("listed").next().expect("one").expect("listed");
    let mut bytes = fs::read(segment.path()).expect("read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(segment.path(), bytes).expect("written");
    let why = running.round().await.expect_err("it cannot be read");
    assert!(why.contains("cannot be read"), "{why}");
    assert!(first.blobs.iter().chain(&second.blobs).all(|digest| running.has_blob(*digest)));
}

#[tokio::test]
async fn who_is_about_to_name_a_blob_keeps_it() {
    let stage = Stage::new();
    let [named, unnamed] = [b"named soon", b"named now!"].map(|content| stage.old_blob(content));
    let running = stage.begin().await;
    // As a submission does before it is accepted; the round does not know of it yet.
    let length = running.collector.blobs.keep(named).await.expect("looked up");
    assert_eq!(length, Some(10));
    let collected = running.round().await.expect("done");
    assert_eq!((collected.blobs, collected.blobs_left), (1, 1));
    assert!(running.has_blob(named) && !running.has_blob(unnamed));
    assert_eq!(running.collector.blobs.keep(unnamed).await.expect("looked up"), None);
}

#[tokio::test]
async fn what_a_dataset_is_made_of_stays_until_it_is_removed() {
    let stage = Stage::new();
    let content = b"a chunk";
    let chunk = stage.old_blob(content);
    let manifest = DatasetManifest {
        kind: DatasetKind::Ranges { name: "file".into() },
        chunks: vec![Chunk { digest: chunk, bytes: content.len() as u64, bounds: None }],
        copies: 1,
    };
    let digest = stage.old_blob(&manifest.encode());
    let running = stage.begin().await;
    let request = DatasetRequest {
        name: DatasetName::new("jet").expect("a plain name"),
        owner: OwnerName::new("anna").expect("a plain name"),
        manifest: digest,
    };
    let datasets = &running.collector.datasets;
    let id = datasets.add(&request, manifest).expect("added");
    running.round().await.expect("done");
    assert!(running.has_blob(chunk) && running.has_blob(digest));
    // Kept for a job, of which there is none any more.
    datasets.remove(id, true).expect("written");
    let collected = running.round().await.expect("done");
    assert_eq!((collected.blobs, datasets.kept_for_jobs()), (2, vec![]));
    assert!(!running.has_blob(chunk) && !running.has_blob(digest));
}

#[tokio::test]
async fn an_output_that_comes_again_in_a_round_outlives_it() {
    let content = b"put out by two jobs".to_vec();
    let digest = Digest::of(&content);
    let running = Stage::new().begin().await;
    let blobs = running.collector.small_blobs.clone();
    running.store(vec![(digest, content.clone())]);
    // Nobody names it when the round begins; then somebody does.
    let before = blobs.begin_round();
    running.store(vec![(digest, content.clone())]);
    before.iter().for_each(|segment| blobs.remove(segment).expect("removed"));
    blobs.end_round();
    assert_eq!(blobs.get(&digest).expect("read"), Some(content.clone()));
    // Without a round it is stored once.
    let bytes = || blobs.segments().iter().map(|segment| segment.bytes()).sum::<u64>();
    let once = bytes();
    running.store(vec![(digest, content)]);
    assert_eq!(bytes(), once);
}

#[test]
fn no_turn_of_the_driver_tells_more_than_a_page() {
    let mut core = Core::new(&CoreConfig::background(PolicyName::Plain));
    let count = 3 * COLLECT_PAGE as u32 + 7;
    let json = format!(r#"{{"task":{{"kernel":"x"}},"workunits":{{"count":{count}}}}}"#);
    let spec: JobSpec = serde_json::from_str(&json).expect("a job");
    let (job, output) = (JobId::new(1), |index: u32| Digest::of(&index.to_le_bytes()));
    core.restore(Fact::JobAccepted { job, spec: Arc::new(spec), accepted_us: 0 }).expect("sound");
    for index in 0..count {
        let workunit = WorkunitId { job, index };
        core.restore(Fact::Decided { workunit, digest: output(index) }).expect("sound");
    }
    let (mut told, mut place) = (BTreeSet::new(), Some(Place::default()));
    while let Some(from) = place {
        let (page, next) = names_from(&core, from);
        assert!(page.len() <= COLLECT_PAGE, "{} names", page.len());
        told.extend(page);
        place = next;
    }
    assert_eq!(told, (0..count).map(output).collect());
}
