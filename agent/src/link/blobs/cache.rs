//! The cache of inputs: files named by their content.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::Digest;
use gleaner_protocol::control::ChunkCopy;
use rustix::fs::{Advice, fadvise};
use tokio::sync::mpsc::UnboundedSender;

use super::copies::ChunkNews;

/// The cache.
pub(super) struct Cache {
    folder: PathBuf,
    bytes_max: u64,
    inner: Mutex<Inner>,
    /// Who hears of what comes and goes.
    tell: Option<UnboundedSender<ChunkNews>>,
}

/// Contents of so many bytes do not stay in the page cache.
const LEFT_BYTES_MIN: u64 = 1 << 20;

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Digest, Entry>,
    bytes: u64,
    /// Counts uses, to tell which was longest ago.
    uses: u64,
    turns: BTreeMap<Digest, Arc<tokio::sync::Mutex<()>>>,
}

struct Entry {
    bytes: u64,
    used: u64,
    pins: u32,
}

/// A content that stays in the cache as long as this lives.
pub(crate) struct CachedBlob {
    cache: Arc<Cache>,
    digest: Digest,
    bytes: u64,
    path: PathBuf,
}

/// What becomes of contents that were not fetched to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unfinished {
    Removed,
    Kept,
}

impl Cache {
    /// Opens the folder. Files of an earlier agent are used again; they are checked when they
    /// are. What it had not fetched to the end is removed.
    pub(super) fn open(folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        Self::open_with(folder, bytes_max, Unfinished::Removed)
    }

    /// The same, where fetching goes on later as far as there is room: each piece that is there is checked
    /// then.
    pub(super) fn open_to_go_on(folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        Self::open_with(folder, bytes_max, Unfinished::Kept)
    }

    fn open_with(folder: PathBuf, bytes_max: u64, unfinished: Unfinished) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut inner = Inner::default();
        let mut parts = Vec::new();
        for file in fs::read_dir(&folder)? {
            let file = file?;
            let name = file.file_name();
            match name.to_str().and_then(|name| name.parse().ok()) {
                Some(digest) if file.file_type()?.is_file() => {
                    inner.insert(digest, file.metadata()?.len());
                }
                _ if unfinished == Unfinished::Kept && is_part(&name) => {
                    let of = file.metadata()?;
                    parts.push((of.modified()?, of.len(), file.path()));
                }
                _ => fs::remove_file(file.path())?,
            }
        }
        // The newest are likeliest to be wanted again.
        parts.sort_unstable();
        let mut room = bytes_max.saturating_sub(inner.bytes);
        for (_, bytes, path) in parts.into_iter().rev() {
            match room.checked_sub(bytes) {
                Some(rest) => room = rest,
                None => fs::remove_file(path)?,
            }
        }
        let cache = Self { folder, bytes_max, inner: Mutex::new(inner), tell: None };
        cache.shrink();
        Ok(cache)
    }

    /// With somebody who hears of what comes and goes.
    pub(super) fn telling(self, tell: UnboundedSender<ChunkNews>) -> Self {
        Self { tell: Some(tell), ..self }
    }

    /// Tells whoever hears of such things.
    pub(super) fn tell(&self, news: ChunkNews) {
        if let Some(tell) = &self.tell {
            // Nobody listens only when the agent ends.
            let _ = tell.send(news);
        }
    }

    /// Whether somebody hears of what comes and goes.
    pub(super) const fn is_told(&self) -> bool {
        self.tell.is_some()
    }

    /// Most bytes that it holds.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// All that is in it, in order.
    pub(super) fn list(&self) -> Vec<ChunkCopy> {
        let inner = self.lock();
        let all = inner.entries.iter();
        all.map(|(digest, entry)| ChunkCopy { digest: *digest, bytes: entry.bytes }).collect()
    }

    /// Removes a content that nobody uses, and what was fetched of it. One that is used goes first later.
    pub(super) fn drop_unused(&self, digest: Digest) {
        // Mostly there is none.
        let _ = fs::remove_file(self.unfinished(digest));
        let mut inner = self.lock();
        match inner.entries.get_mut(&digest) {
            Some(entry) if entry.pins > 0 => entry.used = 0,
            Some(_) => self.forget(&mut inner, digest),
            None => {}
        }
    }

    /// The content, if it is there.
    pub(super) fn pin(cache: &Arc<Self>, digest: Digest) -> Option<CachedBlob> {
        let mut inner = cache.lock();
        inner.uses += 1;
        let uses = inner.uses;
        let entry = inner.entries.get_mut(&digest)?;
        entry.used = uses;
        entry.pins += 1;
        let bytes = entry.bytes;
        drop(inner);
        let path = cache.folder.join(digest.to_string());
        Some(CachedBlob { cache: Arc::clone(cache), digest, bytes, path })
    }

    /// A lock for fetching this content.
    pub(super) fn turn(&self, digest: Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut inner = self.lock();
        inner.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(inner.turns.entry(digest).or_default())
    }

    /// Where a content that is being fetched is written.
    pub(super) fn unfinished(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.part"))
    }

    /// Takes in what was fetched; None where it is something else.
    pub(super) fn enter(
        cache: &Arc<Self>,
        digest: Digest,
        bytes: u64,
    ) -> io::Result<Option<CachedBlob>> {
        let part = cache.unfinished(digest);
        let file = File::open(&part)?;
        if Digest::of_reader(&file)? != digest {
            fs::remove_file(&part)?;
            return Ok(None);
        }
        if bytes >= LEFT_BYTES_MIN {
            // The page cache is the renders'. A replica that reads it does so on its own account.
            let _ = file.sync_data();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
        fs::rename(&part, cache.folder.join(digest.to_string()))?;
        cache.lock().insert(digest, bytes);
        cache.tell(ChunkNews::Gained { digest, bytes });
        let blob = Self::pin(cache, digest);
        cache.shrink();
        Ok(blob)
    }

    /// Removes what was used longest ago until the rest fits.
    fn shrink(&self) {
        let mut inner = self.lock();
        while inner.bytes > self.bytes_max {
            let unused = inner.entries.iter().filter(|(_, entry)| entry.pins == 0);
            let Some(digest) = unused.min_by_key(|(_, e)| e.used).map(|(digest, _)| *digest) else {
                return;
            };
            self.forget(&mut inner, digest);
        }
    }

    fn forget(&self, inner: &mut Inner, digest: Digest) {
        inner.remove(digest);
        self.tell(ChunkNews::Lost { digest });
        // One that is gone already needs no removing.
        let _ = fs::remove_file(self.folder.join(digest.to_string()));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a file has this name that is being fetched.
fn is_part(name: &OsStr) -> bool {
    let stem = name.to_str().and_then(|name| name.strip_suffix(".part"));
    stem.is_some_and(|stem| stem.parse::<Digest>().is_ok())
}

impl Inner {
    fn insert(&mut self, digest: Digest, bytes: u64) {
        self.remove(digest);
        self.uses += 1;
        self.entries.insert(digest, Entry { bytes, used: self.uses, pins: 0 });
        self.bytes += bytes;
    }

    fn remove(&mut self, digest: Digest) {
        if let Some(entry) = self.entries.remove(&digest) {
            self.bytes -= entry.bytes;
        }
    }
}

impl CachedBlob {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its address.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes it from the cache: it may be damaged.
    pub(crate) fn distrust(&self) {
        let mut inner = self.cache.lock();
        self.cache.forget(&mut inner, self.digest);
    }
}

impl Drop for CachedBlob {
    fn drop(&mut self) {
        if let Some(entry) = self.cache.lock().entries.get_mut(&self.digest) {
            entry.pins = entry.pins.saturating_sub(1);
        }
        self.cache.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Arc<Cache>, content: &[u8]) -> Option<CachedBlob> {
        let digest = Digest::of(content);
        fs::write(cache.unfinished(digest), content).expect("written");
        Cache::enter(cache, digest, content.len() as u64).expect("readable")
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Arc::new(Cache::open(folder.path().to_owned(), 25).expect("opens"));
        let (a, b, c) = (&[b'a'; 10][..], &[b'b'; 10][..], &[b'c'; 10][..]);
        let held = put(&cache, a).expect("right");
        drop(put(&cache, b));
        drop(put(&cache, c));
        assert!(held.path().exists(), "in use");
        assert!(Cache::pin(&cache, Digest::of(b)).is_none());
        assert!(Cache::pin(&cache, Digest::of(c)).is_some());
        drop(held);
        drop(put(&cache, b));
        assert!(Cache::pin(&cache, Digest::of(a)).is_none());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2);
    }

    #[test]
    fn what_an_earlier_agent_had_begun_is_kept_as_far_as_there_is_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || {
            let cache = Cache::open_to_go_on(folder.path().to_owned(), 25).expect("opens");
            Arc::new(cache)
        };
        let cache = open();
        drop(put(&cache, &[b'a'; 10]));
        let [old, new] = [&b"old"[..], b"new"].map(Digest::of);
        for digest in [old, new] {
            fs::write(cache.unfinished(digest), [1; 10]).expect("written");
        }
        let at = fs::metadata(cache.unfinished(new)).and_then(|of| of.modified()).expect("there");
        let file = File::options().write(true).open(cache.unfinished(old)).expect("there");
        file.set_modified(at - std::time::Duration::from_secs(9)).expect("ours");
        fs::write(folder.path().join("x.part"), "half").expect("written");
        let cache = open();
        let there = |digest: Digest| cache.unfinished(digest).exists();
        assert_eq!((there(old), there(new)), (false, true));
        assert!(!folder.path().join("x.part").exists(), "it is of nothing");
        cache.drop_unused(new);
        assert!(!there(new), "nobody wants it any more");
    }

    #[test]
    fn a_content_under_a_wrong_address_is_not_taken_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Arc::new(Cache::open(folder.path().to_owned(), 100).expect("opens"));
        let digest = Digest::of(b"right");
        fs::write(cache.unfinished(digest), b"wrong").expect("written");
        assert!(Cache::enter(&cache, digest, 5).expect("readable").is_none());
        assert!(Cache::pin(&cache, digest).is_none());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
    }

    #[test]
    fn an_earlier_agents_files_are_found_and_its_litter_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Arc::new(Cache::open(folder.path().to_owned(), 100).expect("opens"));
        drop(put(&cache, b"kept"));
        fs::write(folder.path().join("x.part"), "half").expect("written");
        let cache = Arc::new(Cache::open(folder.path().to_owned(), 100).expect("opens"));
        assert!(Cache::pin(&cache, Digest::of(b"kept")).is_some());
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
