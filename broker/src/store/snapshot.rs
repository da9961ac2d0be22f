//! Snapshot files.
//!
//! Written once, read at each start, by another thread, without a word to the journal until it is
//! whole and on disk.
//!
//! The file is a row of sealed entries, one per chunk, and a last one that counts them.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::folder::{list_numbered, sync_folder};
use super::journal::SnapshotWriter;
use super::sealed;
use crate::limits::SNAPSHOT_CHUNK_BYTES_MAX;

const CHUNK: &[u8] = b"chunk";
const END: &[u8] = b"end";

/// Where the snapshot of `sequence` lies.
pub(crate) fn path(folder: &Path, sequence: u64) -> PathBuf {
    folder.join(format!("{sequence:020}"))
}

/// Makes the folder of the snapshots and removes all but the live one from it.
pub(crate) fn clear_all_but(folder: &Path, live: Option<u64>) -> Result<(), StoreError> {
    fs::create_dir_all(folder).map_err(StoreError::file("make", folder))?;
    let keep = live.map(|sequence| path(folder, sequence));
    for entry in fs::read_dir(folder).map_err(StoreError::file("list", folder))? {
        let file = entry.map_err(StoreError::file("list", folder))?.path();
        if Some(&file) != keep.as_ref() {
            fs::remove_file(&file).map_err(StoreError::file("remove", &file))?;
        }
    }
    Ok(())
}

/// How long the snapshot of `sequence` is; 0 where it cannot be said.
pub(crate) fn bytes_of(folder: &Path, sequence: u64) -> u64 {
    fs::metadata(path(folder, sequence)).map_or(0, |file| file.len())
}

/// Removes the snapshots before the live one.
pub(crate) fn remove_before(folder: &Path, live: u64) -> Result<(), StoreError> {
    for (sequence, _) in list_numbered(folder)?.into_iter().filter(|(of, _)| *of < live) {
        let old = path(folder, sequence);
        fs::remove_file(&old).map_err(StoreError::file("remove", &old))?;
    }
    Ok(())
}

/// Reads a snapshot, each chunk checked before `visit` sees it. The inner error is the damage.
pub(crate) fn read(
    folder: &Path,
    sequence: u64,
    mut visit: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<Result<(), String>, StoreError> {
    let path = path(folder, sequence);
    let mut file = match File::open(&path) {
        Ok(file) => BufReader::with_capacity(1 << 16, file),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Err(format!("snapshot {} is missing", path.display())));
        }
        Err(error) => return Err(StoreError::file("open", &path)(error)),
    };
    for index in 0.. {
        let damaged =
            |what: String| Ok(Err(format!("snapshot {}, chunk {index}: {what}", path.display())));
        let mut entry = vec![0; sealed::HEAD_BYTES];
        if !is_filled(&mut file, &mut entry).map_err(StoreError::file("read", &path))? {
            return damaged("it is cut off".into());
        }
        let bytes = match sealed::entry_bytes(&entry) {
            Ok(bytes) if bytes <= SNAPSHOT_CHUNK_BYTES_MAX + 64 => bytes,
            Ok(bytes) => return damaged(format!("it claims {bytes} bytes")),
            Err(what) => return damaged(what),
        };
        entry.resize(bytes, 0);
        let body = &mut entry[sealed::HEAD_BYTES..];
        if !is_filled(&mut file, body).map_err(StoreError::file("read", &path))? {
            return damaged("it is cut off".into());
        }
        let records = match sealed::open(&key(sequence, index), &entry) {
            Ok(records) => records,
            Err(what) => return damaged(what),
        };
        match records[..] {
            [CHUNK, chunk] => visit(chunk)?,
            [END, count] if count == index.to_le_bytes() => break,
            _ => return damaged("it is no chunk".into()),
        }
    }
    Ok(Ok(()))
}

/// Whether the file has as much as this.
fn is_filled(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    folder: PathBuf,
    draft: PathBuf,
    file: BufWriter<File>,
    sequence: u64,
    chunks: u64,
    finished: bool,
}

impl SnapshotFile {
    pub(crate) fn create(folder: &Path, sequence: u64) -> Result<Self, StoreError> {
        let draft = path(folder, sequence).with_extension("draft");
        let file = File::create(&draft).map_err(StoreError::file("make", &draft))?;
        Ok(Self {
            folder: folder.to_owned(),
            draft,
            file: BufWriter::with_capacity(1 << 16, file),
            sequence,
            chunks: 0,
            finished: false,
        })
    }

    fn add(&mut self, kind: &[u8], content: &[u8]) -> Result<(), StoreError> {
        let entry = sealed::seal(&key(self.sequence, self.chunks), &[kind, content]);
        self.file.write_all(&entry).map_err(StoreError::file("write", &self.draft))
    }
}

impl SnapshotWriter for SnapshotFile {
    fn write(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        if chunk.len() > SNAPSHOT_CHUNK_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "snapshot chunk",
                bytes: chunk.len(),
                max: SNAPSHOT_CHUNK_BYTES_MAX,
            });
        }
        self.add(CHUNK, chunk)?;
        self.chunks += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<u64, StoreError> {
        let chunks = self.chunks;
        self.add(END, &chunks.to_le_bytes())?;
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(StoreError::file("write", &self.draft))?;
        let path = path(&self.folder, self.sequence);
        fs::rename(&self.draft, &path).map_err(StoreError::file("rename", &self.draft))?;
        self.finished = true;
        sync_folder(&self.folder)?;
        Ok(self.sequence)
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed at the next start.
            let _ = fs::remove_file(&self.draft);
        }
    }
}

fn key(sequence: u64, index: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&sequence.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, chunks: &[&[u8]]) {
        let mut file = Box::new(SnapshotFile::create(folder, 7).expect("created"));
        for chunk in chunks {
            file.write(chunk).expect("written");
        }
        assert_eq!(file.finish().expect("finished"), 7);
    }

    fn read_all(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
        let mut chunks = Vec::new();
        read(folder, 7, |chunk| {
            chunks.push(chunk.to_vec());
            Ok(())
        })
        .expect("no visitor's error")?;
        Ok(chunks)
    }

    #[test]
    fn chunks_come_back_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &[b"one", b"", b"three"]);
        assert_eq!(read_all(folder.path()).expect("sound"), [&b"one"[..], b"", b"three"]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &[b"one", b"two"]);
        let path = path(folder.path(), 7);
        let sound = fs::read(&path).expect("read");
        for bit in 0..sound.len() * 8 {
            let mut flipped = sound.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).expect("written");
            assert!(read_all(folder.path()).is_err(), "bit {bit}");
        }
        for bytes in 0..sound.len() {
            fs::write(&path, &sound[..bytes]).expect("written");
            assert!(read_all(folder.path()).is_err(), "{bytes} bytes");
        }
    }

    #[test]
    fn a_dropped_one_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = SnapshotFile::create(folder.path(), 7).expect("created");
        file.write(b"chunk").expect("written");
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
    }
}
