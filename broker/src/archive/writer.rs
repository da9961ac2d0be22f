//! Writing it, while commits go on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_protocol::{Digest, stored};
use gleaner_scheduling::Fact;

use super::{ArchiveError, DATASETS, FILES, FIRST_LINE, Folder, Moved, hexadecimal};
use crate::blobs::LocalBlobs;
use crate::driver::RecordError;
use crate::store::{Past, Replayed, Segment};
use crate::usage;

/// All that is written. None of it is removed meanwhile.
pub(crate) struct Kept {
    pub(crate) past: Past,
    /// Listed after the past was had: all outputs that its facts name are in them.
    pub(crate) outputs: Vec<Arc<Segment>>,
    /// None where they are in a bucket, which keeps them.
    pub(crate) blobs: Option<LocalBlobs>,
    /// Where its files are.
    pub(crate) data_dir: PathBuf,
}

/// Writes it to the end. What is damaged on disk ends it with an error and no last line.
pub(crate) fn write(kept: &Kept, out: impl Write) -> Result<Moved, ArchiveError> {
    let mut out = Hashing { out, hasher: blake3::Hasher::new(), bytes: 0 };
    let mut moved = Moved::default();
    let identity = &kept.past.identity;
    let folder = Folder {
        release: env!("CARGO_PKG_VERSION").into(),
        folder_id: hexadecimal(&identity.folder_id),
        token_key: hexadecimal(&identity.token_key),
        incarnation: identity.incarnation,
    };
    let folder = serde_json::to_string(&folder).expect("our own types serialise");
    writeln!(out, "{FIRST_LINE}\nS {folder}").map_err(cannot_write)?;
    // Nothing is removed meanwhile: whatever is named now is among the blobs.
    write_file(&kept.data_dir, DATASETS, &mut out).map_err(cannot_write)?;
    let mut failed = None;
    kept.past.replay(|replayed| {
        let (Replayed::Chunk(record) | Replayed::Record { record, .. }) = replayed;
        let facts: Vec<Fact> = stored::decode(record).map_err(RecordError::from)?;
        moved.facts += facts.len() as u64;
        let facts = serde_json::to_vec(&facts).expect("our own types serialise");
        if failed.is_none() {
            failed = out.frame(&format!("F {}", facts.len()), &facts).err();
        }
        Ok::<(), RecordError>(())
    })?;
    failed.map_or(Ok(()), |error| Err(cannot_write(error)))?;
    for segment in &kept.outputs {
        let mut failed = None;
        segment.each(|digest, content| {
            // A damaged one is the check of the results' to name; whoever has the copy has no less.
            if Digest::of(content) == digest {
                moved.outputs += 1;
                failed = out.frame(&format!("O {digest} {}", content.len()), content).err();
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(()), |error| Err(cannot_write(error)))?;
    }
    for digest in kept.blobs.as_ref().map_or_else(|| Ok(Vec::new()), LocalBlobs::all)? {
        let opened = kept.blobs.as_ref().map(|blobs| blobs.open_file(digest)).transpose()?;
        let Some((mut content, bytes)) = opened.flatten() else { continue };
        moved.blobs += 1;
        let copied = writeln!(out, "B {digest} {bytes}")
            .and_then(|()| io::copy(&mut content, &mut out))
            .map_err(cannot_write)?;
        if copied != bytes {
            let why = format!("blob {digest} has {copied} bytes of {bytes}");
            return Err(ArchiveError::Broken(why));
        }
        out.write_all(b"\n").map_err(cannot_write)?;
    }
    let segments = usage::segment_names(&kept.data_dir).map_err(cannot_write)?;
    for name in FILES.into_iter().chain(segments.iter().map(String::as_str)) {
        write_file(&kept.data_dir, name, &mut out).map_err(cannot_write)?;
    }
    let hash = out.hasher.finalize().to_hex();
    writeln!(out, "E {hash}").and_then(|()| out.flush()).map_err(cannot_write)?;
    moved.bytes = out.bytes;
    Ok(moved)
}

/// Writes a file as far as it has come, where there is one. It is added to meanwhile, or written anew
/// under its name.
fn write_file(data_dir: &Path, name: &str, out: &mut impl Write) -> io::Result<()> {
    let path = data_dir.join(name);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let bytes = file.metadata()?.len();
    writeln!(out, "N {name} {bytes}")?;
    if io::copy(&mut file.take(bytes), out)? != bytes {
        return Err(io::Error::other(format!("{} was cut short meanwhile", path.display())));
    }
    out.write_all(b"\n")
}

fn cannot_write(error: io::Error) -> ArchiveError {
    ArchiveError::Stream("written", error)
}

/// Hashes and counts what goes through it.
struct Hashing<W> {
    out: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    fn frame(&mut self, line: &str, content: &[u8]) -> io::Result<()> {
        writeln!(self, "{line}")?;
        self.write_all(content)?;
        self.write_all(b"\n")
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
