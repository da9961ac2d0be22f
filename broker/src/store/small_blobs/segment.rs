//! A file of small blobs, and where each of them is in it.
//!
//! ```text
//!  version u8 │ length u32 │ digest 32 bytes │ check 4 bytes │ content
//! ```
//! Numbers are little-endian. The check is the beginning of BLAKE3 over what stands before it; the
//! content is checked by the digest.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_protocol::Digest;
use smallvec::SmallVec;

use crate::limits::SMALL_BLOB_BYTES_MAX;
use crate::store::error::StoreError;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 1 + 4 + 32 + CHECK_BYTES;
const CHECK_BYTES: usize = 4;
/// What is read at once: most blobs are shorter.
const READ_BYTES: usize = 1 << 10;

/// The header of a blob.
pub(super) fn header_of(digest: &Digest, bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = VERSION;
    header[1..5].copy_from_slice(&u32::try_from(bytes).expect("a small blob").to_le_bytes());
    header[5..37].copy_from_slice(digest.as_bytes());
    let check = check_of(&header);
    header[37..].copy_from_slice(&check);
    header
}

fn check_of(header: &[u8; HEADER_BYTES]) -> [u8; CHECK_BYTES] {
    let hash = blake3::hash(&header[..HEADER_BYTES - CHECK_BYTES]);
    *hash.as_bytes().first_chunk().expect("a hash has more bytes")
}

/// What a header says, if it is one.
fn parse(header: &[u8; HEADER_BYTES]) -> Option<(Digest, usize)> {
    let bytes = u32::from_le_bytes(*header[1..].first_chunk()?) as usize;
    let digest = Digest::from_bytes(*header[5..].first_chunk()?);
    let is_one =
        header[0] == VERSION && bytes <= SMALL_BLOB_BYTES_MAX && header[37..] == check_of(header);
    is_one.then_some((digest, bytes))
}

/// What blobs are found by: the beginning of their digest.
pub(super) fn prefix_of(digest: &Digest) -> u64 {
    u64::from_le_bytes(*digest.as_bytes().first_chunk().expect("a digest has more bytes"))
}

/// Places by prefixes, in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    prefixes: Vec<u64>,
    places: Vec<u32>,
}

impl Index {
    pub(super) fn of(mut places: Vec<(u64, u32)>) -> Self {
        places.sort_unstable();
        let (prefixes, places) = places.into_iter().unzip();
        Self { prefixes, places }
    }

    fn places(&self, prefix: u64) -> SmallVec<[u32; 1]> {
        let begin = self.prefixes.partition_point(|of| *of < prefix);
        let same = self.prefixes[begin..].iter().take_while(|of| **of == prefix);
        same.zip(&self.places[begin..]).map(|(_, place)| *place).collect()
    }
}

/// A segment that grows no more.
#[derive(Debug)]
pub(crate) struct Segment {
    number: u64,
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
    index: Index,
}

impl Segment {
    pub(super) fn new(
        number: u64,
        file: Arc<File>,
        path: PathBuf,
        bytes: u64,
        index: Index,
    ) -> Self {
        Self { number, file, path, bytes, index }
    }

    /// Reads where its blobs are.
    pub(super) fn read(number: u64, path: &Path) -> Result<Self, StoreError> {
        let file = File::open(path).map_err(StoreError::file("open", path))?;
        let bytes = file.metadata().map_err(StoreError::file("look at", path))?.len();
        let mut places = Vec::new();
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let skipped = walk(&mut reader, bytes, |at, digest, length, reader| {
            places.push((prefix_of(&digest), at));
            reader.seek_relative(length as i64)
        })
        .map_err(StoreError::file("read", path))?;
        if skipped > 0 {
            tracing::warn!(
                "{skipped} bytes of {} are no output: what a kill cut off, or damage, which the check \
                 of the results names",
                path.display()
            );
        }
        Ok(Self::new(number, Arc::new(file), path.to_owned(), bytes, Index::of(places)))
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.index.places.len()
    }

    pub(super) fn places(&self, prefix: u64) -> SmallVec<[u32; 1]> {
        self.index.places(prefix)
    }

    pub(super) fn content_at(
        &self,
        place: u32,
        digest: &Digest,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        content_at(&self.file, &self.path, place, digest)
    }

    /// Passes each blob to `visit` with its digest, in the order in which they lie, until it returns
    /// `false`. Their contents are as the disk has them.
    pub(crate) fn each(
        &self,
        mut visit: impl FnMut(Digest, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        // A handle of its own: the position is nobody else's.
        let file = File::open(&self.path).map_err(StoreError::file("open", &self.path))?;
        let mut reader = BufReader::with_capacity(1 << 18, file);
        let (mut content, mut goes_on) = (Vec::new(), true);
        let walked = walk(&mut reader, self.bytes, |_, digest, length, reader| {
            content.resize(length, 0);
            reader.read_exact(&mut content)?;
            goes_on = visit(digest, &content);
            if goes_on { Ok(()) } else { Err(ErrorKind::Interrupted.into()) }
        });
        match walked {
            Err(_) if !goes_on => Ok(()),
            walked => walked.map(drop).map_err(StoreError::file("read", &self.path)),
        }
    }
}

/// Goes from header to header. What is none is passed over byte by byte, so that a damaged one costs
/// its own blob; returns how many bytes that were. `take` leaves the reader behind the content.
fn walk<R: Read + Seek>(
    reader: &mut BufReader<R>,
    bytes: u64,
    mut take: impl FnMut(u32, Digest, usize, &mut BufReader<R>) -> std::io::Result<()>,
) -> std::io::Result<u64> {
    let (mut at, mut skipped) = (0, 0);
    let mut header = [0; HEADER_BYTES];
    while at + HEADER_BYTES as u64 <= bytes {
        reader.read_exact(&mut header)?;
        let found =
            parse(&header).filter(|(_, length)| at + (HEADER_BYTES + length) as u64 <= bytes);
        match found {
            Some((digest, length)) => {
                let place = u32::try_from(at).map_err(|_| ErrorKind::FileTooLarge)?;
                take(place, digest, length, reader)?;
                at += (HEADER_BYTES + length) as u64;
            }
            None => {
                at += 1;
                skipped += 1;
                reader.seek_relative(1 - HEADER_BYTES as i64)?;
            }
        }
    }
    Ok(skipped + bytes - at)
}

/// What lies at a place, if it is under this digest there.
pub(super) fn content_at(
    file: &File,
    path: &Path,
    place: u32,
    digest: &Digest,
) -> Result<Option<Vec<u8>>, StoreError> {
    let mut begin = [0; READ_BYTES];
    let mut read = || -> std::io::Result<Option<Vec<u8>>> {
        let filled = fill(file, &mut begin, place.into())?;
        let Some(header) = begin[..filled].first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let Some((found, bytes)) = parse(header) else { return Ok(None) };
        if found != *digest {
            return Ok(None);
        }
        let here = &begin[HEADER_BYTES..filled];
        let mut content = here[..here.len().min(bytes)].to_vec();
        let from = content.len();
        content.resize(bytes, 0);
        let behind = u64::from(place) + (HEADER_BYTES + from) as u64;
        let rest = fill(file, &mut content[from..], behind)?;
        content.truncate(from + rest);
        Ok(Some(content))
    };
    read().map_err(StoreError::file("read", path))
}

/// Reads as much as is there.
fn fill(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
