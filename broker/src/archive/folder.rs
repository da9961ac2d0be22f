//! From a data folder, and into a new one.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;
use gleaner_scheduling::{Core, CoreConfig, Fact, PolicyName};

use super::reader::{Part, Reader, broken};
use super::writer::{Kept, write};
use super::{ArchiveError, Folder, Moved, file_of, from_hexadecimal};
use crate::blobs::{BucketBlobs, LocalBlobs};
use crate::driver::{RecordError, pack};
use crate::limits::{BLOB_PIECE_BYTES, COLLECT_COPY_BYTES, RECORD_FACTS_MAX};
use crate::store::{
    Commit, DataFolder, Identity, Journal, Replayed, SledJournal, StoreError, StoreOptions,
    remove_folder, sync_folder,
};

/// Writes all that a stopped broker's folder holds.
///
/// # Errors
/// A broker runs on it; it is of another format or damaged; `out` cannot be written.
pub fn export(data_dir: &Path, out: impl Write) -> Result<Moved, ArchiveError> {
    if !data_dir.join("meta").exists() && !data_dir.join("sled").exists() {
        return Err(ArchiveError::NoStore(data_dir.to_owned()));
    }
    let folder = DataFolder::open(data_dir).map_err(|error| match error {
        StoreError::Locked { holder, .. } => ArchiveError::Running { holder },
        error => error.into(),
    })?;
    let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
    let (mut journal, _) = SledJournal::open(folder, StoreOptions::default(), nothing)?;
    let blobs = Some(LocalBlobs::open(&data_dir.join("blobs"), 0)?);
    let past = journal.past()?;
    let outputs = journal.small_blobs().segments();
    let data_dir = data_dir.to_owned();
    write(&Kept { past, outputs, blobs, data_dir }, out)
}

/// Makes a data folder of an export. It gets its name when it is whole.
///
/// # Errors
/// Something is there already; the export is not whole, or of another version; the disk.
pub fn import(input: impl BufRead, data_dir: &Path) -> Result<Moved, ArchiveError> {
    let is_free = match fs::read_dir(data_dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if !is_free {
        return Err(ArchiveError::Exists(data_dir.to_owned()));
    }
    let draft = draft_of(data_dir);
    // What a kill has left.
    remove_folder(&draft)?;
    let made = fill(input, &draft).and_then(|moved| {
        fs::rename(&draft, data_dir).map_err(StoreError::file("rename", &draft))?;
        let parent = data_dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
        Ok(moved)
    });
    if made.is_err() {
        // The error that is told is the first one.
        let _ = remove_folder(&draft);
    }
    made
}

/// Beside the folder, under another name.
fn draft_of(data_dir: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(data_dir.file_name().unwrap_or("gleaner-data".as_ref()));
    name.push(".partial");
    data_dir.with_file_name(name)
}

fn fill(input: impl BufRead, draft: &Path) -> Result<Moved, ArchiveError> {
    let (mut reader, folder) = Reader::begin(input)?;
    let identity = identity_of(&folder).ok_or_else(|| broken("its folder has no identity"))?;
    let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
    let options = StoreOptions::default();
    let (mut journal, _) = SledJournal::open(DataFolder::open(draft)?, options, nothing)?;
    let blobs = LocalBlobs::open(&draft.join("blobs"), 0)?;
    // Facts that contradict each other are noticed now, and not when a broker starts on them.
    let config = CoreConfig::background(PolicyName::FragmentAware);
    let mut core = Core::new(&config).without_outputs();
    let mut moved = Moved::default();
    let mut waiting = Waiting::default();
    loop {
        match reader.next()? {
            Part::Facts(facts) => {
                moved.facts += facts.len() as u64;
                for fact in &facts {
                    core.restore(fact.clone()).map_err(RecordError::from)?;
                }
                waiting.facts.extend(facts);
            }
            Part::Output(digest, content) => {
                moved.outputs += 1;
                waiting.bytes += content.len();
                waiting.outputs.push((digest, content));
            }
            Part::Blob(digest, bytes) => {
                moved.blobs += 1;
                let (mut blob, mut rest) = (blobs.take(digest)?, bytes);
                let mut piece = vec![0; BLOB_PIECE_BYTES];
                while rest > 0 {
                    let read = reader.content(&mut piece, rest)?;
                    blob = blob.add(&piece[..read])?;
                    rest -= read as u64;
                }
                blob.finish()?;
                reader.after_content()?;
            }
            Part::File(name, bytes) => {
                let path = file_of(draft, &name);
                let path =
                    path.ok_or_else(|| broken(format!("{name:?} is no file of a broker's")))?;
                take_file(&mut reader, &path, bytes)?;
            }
            Part::End => break,
        }
        if waiting.facts.len() >= RECORD_FACTS_MAX || waiting.bytes >= COLLECT_COPY_BYTES {
            waiting.commit(&mut journal)?;
        }
    }
    BucketBlobs::disown(draft).map_err(|error| broken(error.to_string()))?;
    waiting.commit(&mut journal)?;
    journal.take_identity(identity)?;
    moved.bytes = reader.bytes;
    Ok(moved)
}

/// Takes a file as it is. A broker that starts on it looks at what it is.
fn take_file<R: BufRead>(
    reader: &mut Reader<R>,
    path: &Path,
    bytes: u64,
) -> Result<(), ArchiveError> {
    let failed = |error| ArchiveError::from(StoreError::file("write", path)(error));
    // Those of usage are in a folder of their own.
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).map_err(failed)?;
    let (mut rest, mut piece) = (bytes, vec![0; BLOB_PIECE_BYTES]);
    while rest > 0 {
        let read = reader.content(&mut piece, rest)?;
        file.write_all(&piece[..read]).map_err(failed)?;
        rest -= read as u64;
    }
    file.sync_all().map_err(failed)?;
    sync_folder(folder)?;
    reader.after_content()
}

fn identity_of(folder: &Folder) -> Option<Identity> {
    Some(Identity {
        folder_id: from_hexadecimal(&folder.folder_id)?,
        token_key: from_hexadecimal(&folder.token_key)?,
        incarnation: folder.incarnation,
    })
}

/// What is committed together.
#[derive(Default)]
struct Waiting {
    facts: Vec<Fact>,
    outputs: Vec<(Digest, Vec<u8>)>,
    bytes: usize,
}

impl Waiting {
    fn commit(&mut self, journal: &mut SledJournal) -> Result<(), StoreError> {
        let Self { facts, outputs, .. } = std::mem::take(self);
        if facts.is_empty() && outputs.is_empty() {
            return Ok(());
        }
        let records = pack(facts);
        let commit = Commit {
            records: records.iter().map(Vec::as_slice).collect(),
            small_blobs: outputs.iter().map(|(digest, output)| (*digest, &output[..])).collect(),
        };
        journal.append(&commit).map(drop)
    }
}
