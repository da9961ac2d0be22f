//! A data folder with known content: jobs in every state, votes that wait for others, a snapshot
//! and a journal after it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::api::NoAnswer;
use crate::broker::Launch;
use crate::crew::{Crew, Load};
use crate::draw::Draw;
use crate::ledger::Ledger;
use crate::plan::Mix;
use crate::recount::{Depth, recount};
use crate::stage::Stage;

/// See the module's page.
pub(crate) struct Content {
    folder: TempDir,
    /// What was acknowledged.
    pub(crate) ledger: Ledger,
}

impl Content {
    /// Lets a broker work for a while, then kills it.
    pub(crate) async fn make(seed: u64) -> Self {
        let folder = scratch();
        let data = folder.path().join("data");
        let launch = Launch::on(&data, &folder.path().join("log")).with(&[
            "--snapshot-after-mib",
            "1",
            "--min-free-mib",
            "1",
        ]);
        let stage = Stage::new(Ledger::default());
        let mix = Mix { item_bytes: 16_000, large_one_in: 3 };
        let crew = Crew::hire(&stage, Load { seed, submitters: 3, cores: 4, work_ms_max: 8, mix });
        let (broker, url) = launch.start().await;
        let api = stage.enter(url, 1);
        let enough = |ledger: &Ledger| {
            let ended = ledger.jobs().filter(|(_, known)| known.has_ended()).count();
            ended >= 40 && ledger.acknowledged >= 2_000
        };
        stage.until(enough).await;
        crew.dismiss().await;
        recount(&stage, &api, Depth::All).await.expect("an answer");
        stage.leave();
        broker.kill().await;
        let ledger = stage.ledger().clone();
        assert!(ledger.faults.is_empty(), "{:?}", ledger.faults);
        Self { folder, ledger }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The files that matter, by their names below the folder; of the blobs only some.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list(&self.data(), Path::new(""), &mut files);
        let mut blobs = 0;
        files.retain(|file| {
            blobs += u32::from(file.starts_with("blobs"));
            (!file.starts_with("blobs") || blobs <= 3) && !is_idle(file)
        });
        assert!(files.len() >= 6, "store, mark, snapshot and blobs: {files:?}");
        files
    }

    pub(crate) fn bytes(&self, file: &Path) -> Vec<u8> {
        fs::read(self.data().join(file)).expect("it is there")
    }

    /// Another folder with the same content.
    pub(crate) fn copy(&self) -> Copy {
        let folder = scratch();
        let data = folder.path().join("data");
        let mut files = Vec::new();
        list(&self.data(), Path::new(""), &mut files);
        for file in files.iter().filter(|file| !is_idle(file)) {
            let to = data.join(file);
            fs::create_dir_all(to.parent().expect("it is below the folder")).expect("made");
            fs::copy(self.data().join(file), to).expect("copied");
        }
        Copy {
            launch: Launch::on(&data, &folder.path().join("log")).with(&["--min-free-mib", "1"]),
            data,
            _folder: folder,
        }
    }
}

/// A copy of a [`Content`].
pub(crate) struct Copy {
    pub(crate) data: PathBuf,
    pub(crate) launch: Launch,
    _folder: TempDir,
}

/// What a broker made of a folder.
#[derive(Debug)]
pub(crate) enum Found {
    /// It did not start, and said why.
    Refused(String),
    /// It started; what it says of its jobs was compared with the ledger.
    Intact,
    /// It started, and refused to give out some result with this code.
    Withheld(String),
}

impl Copy {
    /// Starts a broker on it and recounts. What is not as it was is a panic of this test.
    pub(crate) async fn look(&self, ledger: &Ledger, what: &str) -> Found {
        let before = self.launch.said().len();
        let said = || self.launch.said().split_off(before);
        let mut broker = self.launch.spawn();
        let found = match broker.ready().await {
            Err(status) => {
                assert_eq!(status.code(), Some(1), "{what}: {status}: {}", said());
                let said = said();
                let error = said.lines().find(|line| line.starts_with("error: "));
                let error = error.unwrap_or_else(|| panic!("{what}: no error: {said}")).to_owned();
                let folder = self.data.display().to_string();
                assert!(error.contains(&folder), "{what}: names no folder: {error}");
                Found::Refused(error)
            }
            Ok(url) => {
                let stage = Stage::new(ledger.clone());
                let api = stage.enter(url, 1);
                let counted = recount(&stage, &api, Depth::All).await;
                let faults = std::mem::take(&mut stage.ledger().faults);
                assert!(faults.is_empty(), "{what}: silently lost: {faults:?}");
                assert!(broker.is_running(), "{what}: {}", said());
                broker.kill().await;
                match counted {
                    Ok(()) => Found::Intact,
                    Err(NoAnswer::Refused(status, error)) if status.as_u16() == 500 => {
                        Found::Withheld(error.code)
                    }
                    Err(other) => panic!("{what}: {other}: {}", said()),
                }
            }
        };
        let said = said();
        assert!(!said.contains("panicked"), "{what}: a panic: {said}");
        found
    }
}

/// A folder below the target folder: on a disk, not in memory.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Whether nothing that was acknowledged is in it.
fn is_idle(file: &Path) -> bool {
    [Path::new("ballast"), Path::new("lock")].contains(&file)
}

fn list(root: &Path, below: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(root.join(below)).expect("a folder").collect();
    entries.sort_by_key(|entry| entry.as_ref().map(fs::DirEntry::file_name).ok());
    for entry in entries {
        let entry = entry.expect("listed");
        let path = below.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            list(root, &path, files);
        } else {
            files.push(path);
        }
    }
}

/// A random bit of a file, three times out of four in a byte that is not zero.
pub(crate) fn draw_bit(draw: &mut Draw, bytes: &[u8]) -> usize {
    let start = draw.from(0..bytes.len() as u64) as usize;
    let byte = if draw.one_in(4) {
        start
    } else {
        let later = bytes[start..].iter().position(|byte| *byte != 0);
        later.map_or(start, |later| start + later)
    };
    byte * 8 + draw.from(0..8) as usize
}
