//! Removes what nobody refers to any more: outputs and blobs of jobs that were forgotten.
//!
//! This is done when the broker starts, before anyone can speak to it, if a job was forgotten since
//! it was done last. So nothing comes in between, and a kill leaves the rest to the next start.
//!
//! # Invariants
//! - What a known job reads, an output that was decided and one that has a vote stay, with all
//!   that they name. Where one of these outputs cannot be read, no blob is removed.
//! - A blob that was uploaded less than [`UNUSED_BLOB_KEPT`] ago stays: its job, or
//!   the report that names it, may be on the way.

use std::fs;
use std::path::Path;

use gleaner_protocol::{Content, Digest, error_chain};
use gleaner_scheduling::Core;
use rustc_hash::FxHashSet;

use crate::api::manifest;
use crate::blobs::LocalBlobs;
use crate::limits::UNUSED_BLOB_KEPT;
use crate::store::SmallBlobs;

/// Name of the file, in the data folder, that says how many jobs were forgotten when this was
/// done last.
const DONE_FILE: &str = "collected";

/// Does it where it is due. That something could not be removed keeps no broker from starting: it
/// is logged, and tried again at the next start.
pub(crate) fn at_start(core: &Core, data_dir: &Path, small_blobs: &SmallBlobs, blobs: &LocalBlobs) {
    let done_file = data_dir.join(DONE_FILE);
    let forgotten = core.forgotten_count();
    let done: Option<u64> =
        fs::read_to_string(&done_file).ok().and_then(|text| text.trim().parse().ok());
    if done.unwrap_or(0) == forgotten {
        return;
    }
    match collect(core, small_blobs, blobs) {
        Ok(Collected { outputs, blobs, blobs_left }) => {
            tracing::info!("{outputs} outputs and {blobs} blobs of forgotten jobs removed");
            if blobs_left > 0 {
                tracing::info!("{blobs_left} are too young, and looked at again at the next start");
                return;
            }
            if let Err(error) = fs::write(&done_file, format!("{forgotten}\n")) {
                tracing::warn!("cannot write {}: {error}", done_file.display());
            }
        }
        Err(why) => tracing::warn!("blobs of forgotten jobs stay until the next start: {why}"),
    }
}

/// What was removed, and what was left because it is too young.
struct Collected {
    outputs: usize,
    blobs: usize,
    blobs_left: usize,
}

fn collect(core: &Core, small_blobs: &SmallBlobs, blobs: &LocalBlobs) -> Result<Collected, String> {
    let outputs = outputs_of(core);
    let mut files = inputs_of(core);
    for digest in &outputs {
        let stored = manifest(small_blobs, *digest)?;
        files.extend(stored.files().iter().filter_map(|file| match &file.content {
            Content::Stored { digest, .. } => Some(*digest),
            Content::Inline(_) => None,
        }));
    }
    // The blobs first: without their outputs nobody would know of them.
    let (blobs, blobs_left) = blobs
        .remove_unused(UNUSED_BLOB_KEPT, |digest| files.contains(&digest))
        .map_err(|error| error_chain(&error))?;
    let outputs = small_blobs
        .remove_unused(|digest| outputs.contains(&digest))
        .map_err(|error| error.chain())?;
    Ok(Collected { outputs, blobs, blobs_left })
}

/// The outputs that were decided, or have a vote.
fn outputs_of(core: &Core) -> FxHashSet<Digest> {
    let farm = core.farm();
    let decided = farm.jobs().flat_map(|job| job.ended.digests().map(|(_, digest)| digest));
    let voted = farm.workunits().flat_map(|(_, unit)| &unit.votes).filter_map(|vote| vote.digest);
    decided.chain(voted).collect()
}

fn inputs_of(core: &Core) -> FxHashSet<Digest> {
    let tasks = core.farm().jobs().map(|job| &job.spec.task);
    tasks.flat_map(|task| task.contents().map(|(_, digest)| digest)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::time::UNIX_EPOCH;

    use gleaner_protocol::control::Fragment;
    use gleaner_protocol::job::{CommandTask, InputFile, JobSpec, Task};
    use gleaner_protocol::{
        Capabilities, Epoch, HostInfo, HostName, JobId, Manifest, Origin, OutputFile, Time,
    };
    use gleaner_scheduling::{CoreConfig, Effect, Input, PolicyName, ReportedOutcome, RequestId};

    use super::*;
    use crate::store::{Commit, DataFolder, Journal, SledJournal, StoreOptions};

    struct Stage {
        core: Core,
        journal: SledJournal,
        folder: tempfile::TempDir,
    }

    fn host() -> HostName {
        HostName::new("h1").expect("a plain name")
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let data = DataFolder::open(folder.path()).expect("free");
            let options = StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() };
            let (journal, _) =
                SledJournal::open(data, options, |_| Ok::<(), io::Error>(())).expect("a new store");
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
            let fragment = Fragment { epoch: Epoch::default(), slots: 8 };
            let joined = Input::HostJoined { info, fragment, held: Vec::new() };
            core.handle(Time::ZERO, joined, &mut Vec::new());
            Self { core, journal, folder }
        }

        fn blob(&self, content: &[u8], is_old: bool) -> Digest {
            let digest = Digest::of(content);
            let path = self.path_of(digest);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(&path, content).expect("written");
            if is_old {
                let file = fs::File::options().write(true).open(&path).expect("opened");
                file.set_modified(UNIX_EPOCH).expect("set");
            }
            digest
        }

        fn path_of(&self, digest: Digest) -> std::path::PathBuf {
            let digits = digest.to_string();
            self.folder.path().join("blobs").join(&digits[..2]).join(&digits[2..])
        }

        /// A job with an input whose one vote names a stored file; its output and its blobs.
        fn job(&mut self, name: &str, replication: u8) -> (Digest, [Digest; 2]) {
            let input = self.blob(format!("input of {name}").as_bytes(), true);
            let stored = self.blob(format!("output of {name}").as_bytes(), true);
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
            let submit = Input::Submit { request: RequestId::new(1), spec };
            self.core.handle(Time::ZERO, submit, &mut effects);
            let asks = Input::Request { host: host(), slots: 1 };
            self.core.handle(Time::ZERO, asks, &mut effects);
            let lease = effects.iter().find_map(|effect| match effect {
                Effect::Lease { token, replica, .. } => Some((*token, *replica)),
                _ => None,
            });
            let (token, replica) = lease.expect("it is given");
            let content = Content::Stored { digest: stored, bytes: 1 << 20 };
            let manifest = Manifest::new(vec![OutputFile { name: "stdout".into(), content }]);
            let manifest = manifest.expect("a manifest");
            let (digest, encoded) = (manifest.digest(), manifest.encode());
            let commit = Commit { records: vec![], small_blobs: vec![(digest, &encoded[..])] };
            self.journal.append(&commit).expect("a healthy store");
            let outcome = ReportedOutcome::Output(digest);
            let report = Input::Report { host: host(), token, replica, outcome, cpu_us: 1 };
            self.core.handle(Time::ZERO, report, &mut effects);
            (digest, [input, stored])
        }

        fn forget(&mut self, job: u64) {
            let input = Input::Forget { job: JobId::new(job) };
            self.core.handle(Time::ZERO, input, &mut Vec::new());
            assert!(self.core.farm().job(JobId::new(job)).is_none());
        }

        fn starts(&self) {
            let data = self.folder.path();
            let blobs = LocalBlobs::open(&data.join("blobs"), 1 << 20).expect("opened");
            at_start(&self.core, data, &self.journal.small_blobs(), &blobs);
        }

        fn has(&self, (output, blobs): (Digest, [Digest; 2])) -> [bool; 3] {
            let output = self.journal.small_blobs().get(&output).expect("read").is_some();
            let [input, stored] = blobs.map(|digest| self.path_of(digest).exists());
            [output, input, stored]
        }
    }

    #[test]
    fn what_only_forgotten_jobs_named_is_removed_and_nothing_else() {
        let mut stage = Stage::new();
        let (first, second) = (stage.job("first", 1), stage.job("second", 1));
        // One vote of two: it is not decided.
        let third = stage.job("third", 2);
        let unnamed = stage.blob(b"uploaded just now", false);
        stage.starts();
        assert_eq!(stage.has(first), [true; 3], "nobody forgot it");
        stage.forget(1);
        stage.starts();
        assert_eq!(stage.has(first), [false; 3]);
        assert_eq!((stage.has(second), stage.has(third)), ([true; 3], [true; 3]));
        assert!(stage.path_of(unnamed).exists(), "its job may be on the way");
        // Once it is old, the next start removes it.
        stage.blob(b"uploaded just now", true);
        stage.starts();
        assert!(!stage.path_of(unnamed).exists());
        assert_eq!((stage.has(second), stage.has(third)), ([true; 3], [true; 3]));
        // Now there is nothing left to do.
        let late = stage.blob(b"nobody's", true);
        stage.starts();
        assert!(stage.path_of(late).exists(), "nothing was forgotten since");
    }

    #[test]
    fn where_an_output_cannot_be_read_no_blob_is_removed() {
        let mut stage = Stage::new();
        let (first, second) = (stage.job("first", 1), stage.job("second", 1));
        stage.forget(1);
        let small_blobs = stage.journal.small_blobs();
        let lost = |digest| digest != second.0;
        assert_eq!(small_blobs.remove_unused(lost).expect("removed"), 1, "the disk lost one");
        stage.starts();
        assert_eq!(stage.has(first), [true; 3]);
    }
}
