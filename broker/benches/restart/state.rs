//! A store as a broker leaves it that has decided many workunits.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gleaner_broker::{
    Commit, DataFolder, Journal, Replayed, SledJournal, StoreError, StoreOptions, SyncStep,
    compact, pack,
};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{
    Content, Digest, HostName, JobId, LeaseToken, Manifest, Origin, OutputFile, WorkunitId,
};
use gleaner_scheduling::{CoreConfig, Fact, PolicyName};

/// Reports that are committed together.
const TOGETHER: u32 = 512;
/// The journal is shortened when it has grown by so much, or by as much as the last snapshot took.
const SNAPSHOT_AFTER_BYTES: u64 = 64 << 20;

/// The store is written once and read in the same life of the machine.
struct NoSync;

impl SyncStep for NoSync {
    fn sync(&mut self, _: &fs::File) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes it, and says how long its files are.
pub(crate) fn write(folder: &Path, workunits: u32) -> u64 {
    let data = DataFolder::open(folder).expect("free");
    let options = StoreOptions { sync: Box::new(NoSync), ..StoreOptions::default() };
    let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
    let mut journal = SledJournal::open(data, options, nothing).expect("a new store").0;
    let config = CoreConfig::background(PolicyName::FragmentAware);
    let mut commit = |facts: Vec<Fact>, blobs: &[(Digest, Vec<u8>)]| {
        let records = pack(facts);
        let small_blobs = blobs.iter().map(|(digest, blob)| (*digest, &blob[..])).collect();
        let records = records.iter().map(Vec::as_slice).collect();
        journal.append(&Commit { records, small_blobs }).expect("a healthy store");
        if journal.tail_bytes() >= SNAPSHOT_AFTER_BYTES.max(journal.snapshot_bytes()) {
            let past = journal.past().expect("readable");
            let mut snapshot = journal.begin_snapshot().expect("begun");
            let goes_on = AtomicBool::new(false);
            compact(&past, &mut *snapshot, &goes_on, &config).expect("compacted");
            drop(past);
            let sequence = snapshot.finish().expect("finished");
            journal.adopt_snapshot(sequence).expect("adopted");
            while journal.prune(256).expect("pruned") {}
        }
    };
    let small = JobId::new(1);
    commit(accepted(small, 1), &[]);
    let (facts, blob) = decided(small, 0);
    commit(facts, &[blob]);
    let large = JobId::new(2);
    commit(accepted(large, workunits), &[]);
    for begin in (0..workunits).step_by(TOGETHER as usize) {
        let indices = begin..workunits.min(begin + TOGETHER);
        let (facts, blobs): (Vec<_>, Vec<_>) = indices.map(|index| decided(large, index)).unzip();
        commit(facts.concat(), &blobs);
    }
    commit(vec![Fact::JobForgotten { job: small }], &[]);
    drop(journal);
    bytes_of(folder)
}

fn accepted(job: JobId, workunits: u32) -> Vec<Fact> {
    let json = format!(r#"{{"task":{{"kernel":"x"}},"workunits":{{"count":{workunits}}}}}"#);
    let spec: JobSpec = serde_json::from_str(&json).expect("a job");
    vec![Fact::JobAccepted { job, spec: Arc::new(spec), accepted_us: 0 }]
}

/// A vote of one of 1,000 hosts that decides, and its output.
fn decided(job: JobId, index: u32) -> (Vec<Fact>, (Digest, Vec<u8>)) {
    let content = Content::Inline(format!("output {index} of {job}\n").into_bytes());
    let file = OutputFile { name: "stdout".into(), content };
    let manifest = Manifest::new(vec![file]).expect("a manifest");
    let (digest, encoded) = (manifest.digest(), manifest.encode());
    let workunit = WorkunitId { job, index };
    let vote = Fact::Voted {
        workunit,
        side: Origin::Farm,
        host: HostName::new(format!("render{:04}", index % 1_000)).expect("a plain name"),
        owner: None,
        token: LeaseToken::new(u64::from(index) << 8 | job.get()),
        digest,
        cpu_us: 1_000_000,
    };
    (vec![vote, Fact::Decided { workunit, digest }], (digest, encoded))
}

fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("listed");
    let bytes = entries.map(|entry| {
        let entry = entry.expect("listed");
        let about = entry.metadata().expect("looked at");
        if about.is_dir() { bytes_of(&entry.path()) } else { about.len() }
    });
    bytes.sum()
}
