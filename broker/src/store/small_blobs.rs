//! Blobs that are too small for a file of their own: what replicas put out, under its digest.
//!
//! They lie one behind the other in segments, and in memory is where: twelve bytes each. One thread
//! adds to the last segment; segments before it are read only, until one of them has so much that
//! nobody names that the rest is written anew and the segment goes as a whole.
//!
//! # Invariants
//! - A blob is on disk before a record that names it.
//! - Where a digest is in more than one segment, the latest counts: a damaged blob is mended by
//!   adding it again.
//! - What is removed is in a segment before [`SmallBlobs::begin_round`], and what is added since lies
//!   behind it, whether it was there before or not.

mod segment;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gleaner_protocol::Digest;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub(crate) use self::segment::Segment;
use self::segment::{Index, header_of, prefix_of};
use super::error::StoreError;
use super::folder::{list_numbered, sync_folder};
use super::sync_step::SyncStep;
use crate::limits::OUTPUTS_SEGMENT_BYTES;

/// Reads the blobs that were committed with the journal; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct SmallBlobs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The data folder, for messages.
    data: PathBuf,
    folder: PathBuf,
    listed: RwLock<Listed>,
    /// Blobs in segments before this one are added again.
    round: AtomicU64,
}

#[derive(Debug, Default)]
struct Listed {
    /// In the order of their numbers.
    full: Vec<Arc<Segment>>,
    open: Option<Open>,
    /// Of the segment that comes next.
    next: u64,
}

/// The segment that grows.
#[derive(Debug)]
struct Open {
    number: u64,
    file: Arc<File>,
    bytes: u64,
    places: FxHashMap<u64, SmallVec<[u32; 1]>>,
}

impl SmallBlobs {
    /// Lists what is in a folder, or makes it.
    pub(crate) fn open(data: &Path, folder: &Path) -> Result<SmallBlobWriter, StoreError> {
        fs::create_dir_all(folder).map_err(StoreError::file("make", folder))?;
        let mut listed = Listed::default();
        for (number, _) in list_numbered(folder)? {
            listed.full.push(Arc::new(Segment::read(number, &path(folder, number))?));
            listed.next = number + 1;
        }
        let (data, folder) = (data.to_owned(), folder.to_owned());
        let shared = Shared { data, folder, listed: RwLock::new(listed), round: AtomicU64::new(0) };
        Ok(SmallBlobWriter { shared: Arc::new(shared) })
    }

    /// The content with this digest, if it is here.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where what is stored does not have the digest any more.
    pub fn get(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.shared.find(digest, 0)?;
        let Some(content) = found else { return Ok(None) };
        if Digest::of(&content) == *digest {
            return Ok(Some(content));
        }
        let what = format!("small blob {digest}: its content has another digest");
        Err(StoreError::damaged(&self.shared.data, what))
    }

    /// How many blobs are here, those counted twice that are here twice.
    pub(crate) fn count(&self) -> usize {
        let listed = self.shared.read();
        let full: usize = listed.full.iter().map(|segment| segment.len()).sum();
        full + listed.open.as_ref().map_or(0, |open| open.places.len())
    }

    /// Begins a round in which unused blobs are removed: what is added from now on is added again
    /// even where it is here. Returns the segments of before, which it is about.
    pub(crate) fn begin_round(&self) -> Vec<Arc<Segment>> {
        let mut listed = self.shared.write();
        if let Some(open) = listed.open.take() {
            listed.full.push(Arc::new(open.close(&self.shared.folder)));
        }
        self.shared.round.store(listed.next, Ordering::SeqCst);
        listed.full.clone()
    }

    /// Ends the round.
    pub(crate) fn end_round(&self) {
        self.shared.round.store(0, Ordering::SeqCst);
    }

    /// All segments, to be read one after the other; one that is added to meanwhile up to here.
    pub(crate) fn segments(&self) -> Vec<Arc<Segment>> {
        let listed = self.shared.read();
        let open = listed.open.as_ref().map(|open| Arc::new(open.as_of_now(&self.shared.folder)));
        listed.full.iter().cloned().chain(open).collect()
    }

    /// Removes a segment: all that somebody names is in later ones.
    pub(crate) fn remove(&self, segment: &Segment) -> Result<(), StoreError> {
        self.shared.write().full.retain(|of| of.number() != segment.number());
        let path = path(&self.shared.folder, segment.number());
        fs::remove_file(&path).map_err(StoreError::file("remove", &path))
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Listed> {
        self.listed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Listed> {
        self.listed.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored under a digest, in this segment or a later one; the latest.
    fn find(&self, digest: &Digest, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let prefix = prefix_of(digest);
        let (open, full) = {
            let listed = self.read();
            let open = listed.open.as_ref().and_then(|open| {
                let places = open.places.get(&prefix)?.clone();
                Some((Arc::clone(&open.file), path(&self.folder, open.number), places))
            });
            let full: Vec<_> = listed
                .full
                .iter()
                .rev()
                .take_while(|segment| segment.number() >= first)
                .filter_map(|segment| {
                    let places = segment.places(prefix);
                    (!places.is_empty()).then(|| (Arc::clone(segment), places))
                })
                .collect();
            (open, full)
        };
        if let Some((file, path, places)) = open {
            for place in places.iter().rev() {
                if let Some(content) = segment::content_at(&file, &path, *place, digest)? {
                    return Ok(Some(content));
                }
            }
        }
        for (segment, places) in full {
            for place in places.iter().rev() {
                if let Some(content) = segment.content_at(*place, digest)? {
                    return Ok(Some(content));
                }
            }
        }
        Ok(None)
    }
}

/// Why something was not added.
pub(crate) enum Append {
    /// The disk is full; nothing is left behind.
    Full,
    /// Anything else.
    Failed(StoreError),
}

impl Append {
    fn of(doing: &'static str, path: &Path, error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Failed(StoreError::file(doing, path)(error)),
        }
    }
}

impl From<StoreError> for Append {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Adds to them; there is one.
#[derive(Debug)]
pub(crate) struct SmallBlobWriter {
    shared: Arc<Shared>,
}

impl SmallBlobWriter {
    pub(crate) fn reader(&self) -> SmallBlobs {
        SmallBlobs { shared: Arc::clone(&self.shared) }
    }

    /// Adds those that are not here yet, and makes them durable. A disk that is full leaves nothing
    /// of them.
    pub(crate) fn put_all(
        &mut self,
        blobs: &[(Digest, &[u8])],
        sync: &mut dyn SyncStep,
    ) -> Result<(), Append> {
        let first = self.shared.round.load(Ordering::SeqCst);
        let (mut bytes, mut added) = (Vec::new(), FxHashMap::default());
        for (digest, content) in blobs {
            // Compared with what is there, not only looked up: a damaged one is mended.
            let is_here = added.contains_key(digest)
                || self.shared.find(digest, first)?.is_some_and(|found| found == *content);
            if !is_here {
                added.insert(*digest, bytes.len());
                bytes.extend_from_slice(&header_of(digest, content.len()));
                bytes.extend_from_slice(content);
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let (file, begin, path) = self.open_segment()?;
        if let Err(error) = (&*file).write_all(&bytes) {
            let refused = Append::of("write", &path, error);
            file.set_len(begin).map_err(StoreError::file("shorten", &path))?;
            return Err(refused);
        }
        sync.sync(&file).map_err(StoreError::file("sync", &path))?;
        let mut listed = self.shared.write();
        // A round that has begun since has closed it, and will not know of these: it was told of
        // before the first of them was named.
        let Some(open) = listed.open.as_mut() else {
            drop(listed);
            return self.put_all(blobs, sync);
        };
        open.bytes += bytes.len() as u64;
        for (digest, at) in added {
            let place = u32::try_from(begin + at as u64).expect("segments are short");
            open.places.entry(prefix_of(&digest)).or_default().push(place);
        }
        Ok(())
    }

    /// The segment that grows, how long it is, and where.
    fn open_segment(&mut self) -> Result<(Arc<File>, u64, PathBuf), Append> {
        let folder = &self.shared.folder;
        let mut listed = self.shared.write();
        if listed.open.as_ref().is_some_and(|open| open.bytes >= OUTPUTS_SEGMENT_BYTES) {
            let open = listed.open.take().expect("it is there");
            listed.full.push(Arc::new(open.close(folder)));
        }
        if listed.open.is_none() {
            let number = listed.next;
            let path = path(folder, number);
            let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
            let file = file.map_err(|error| Append::of("make", &path, error))?;
            sync_folder(folder)?;
            listed.next += 1;
            let places = FxHashMap::default();
            listed.open = Some(Open { number, file: Arc::new(file), bytes: 0, places });
        }
        let open = listed.open.as_ref().expect("one is open");
        Ok((Arc::clone(&open.file), open.bytes, path(folder, open.number)))
    }
}

impl Open {
    fn as_of_now(&self, folder: &Path) -> Segment {
        let places = self.places.iter();
        let places = places.flat_map(|(prefix, of)| of.iter().map(|place| (*prefix, *place)));
        let index = Index::of(places.collect());
        let path = path(folder, self.number);
        Segment::new(self.number, Arc::clone(&self.file), path, self.bytes, index)
    }

    fn close(self, folder: &Path) -> Segment {
        self.as_of_now(folder)
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}"))
}
