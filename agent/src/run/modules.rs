//! Compiled modules: which content of the cache is the compiled form of which module.
//!
//! The code itself lies in the cache of inputs, under its own hash, and goes like any other when
//! it was not used for long; here is kept under which hash it is found.
//!
//! # Invariants
//! - Only what a runner of this agent compiled is found here. The folder, like the cache, is one
//!   that nobody else can write in.
//! - What another processor, or another release, compiled has another name.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::{Digest, codec};

use crate::limits::COMPILED_MAX;
use crate::link::blobs::{Blobs, CachedBlob};
use crate::replace_file::{PRIVATE, replace_file};

/// The names.
pub(crate) struct Modules {
    folder: PathBuf,
    blobs: Arc<Blobs>,
    /// Compiled forms by their names.
    known: Arc<Mutex<BTreeMap<Digest, Digest>>>,
    /// This release and this processor.
    here: Digest,
}

impl Modules {
    /// Reads what an earlier agent of this host left, as far as the code is still there.
    pub(crate) fn open(folder: PathBuf, blobs: Arc<Blobs>) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut known = BTreeMap::new();
        for file in fs::read_dir(&folder)? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.parse().ok());
            let digest = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
            match (name, digest) {
                (Some(name), Some(digest))
                    if known.len() < COMPILED_MAX && blobs.cached(digest).is_some() =>
                {
                    known.insert(name, digest);
                }
                _ => fs::remove_file(&path)?,
            }
        }
        Ok(Self { folder, blobs, known: Arc::new(Mutex::new(known)), here: this_host() })
    }

    /// The name of a module's compiled form, with or without counted instructions.
    pub(crate) fn name(&self, module: Digest, counts: bool) -> Digest {
        Digest::of(&codec::encode(&(self.here, module, counts)))
    }

    /// The compiled form, if it is there.
    pub(crate) fn find(&self, name: Digest) -> Option<CachedBlob> {
        let digest = *lock(&self.known).get(&name)?;
        let found = self.blobs.cached(digest);
        if found.is_none() {
            // The cache needed the room.
            lock(&self.known).remove(&name);
            let _ = fs::remove_file(self.folder.join(name.to_string()));
        }
        found
    }

    /// Takes in what a runner compiled and left at `path`.
    ///
    /// # Errors
    /// The disk failed, or the file holds something else.
    pub(crate) async fn keep(
        &self,
        name: Digest,
        path: PathBuf,
        digest: Digest,
        bytes: u64,
    ) -> io::Result<()> {
        let (blobs, known) = (Arc::clone(&self.blobs), Arc::clone(&self.known));
        let note = self.folder.join(name.to_string());
        let kept = tokio::task::spawn_blocking(move || {
            let blob = blobs.adopt(&path, digest, bytes)?;
            let blob = blob.ok_or_else(|| io::Error::other("the file holds something else"))?;
            // It stays in the cache until its name is known.
            let mut known = lock(&known);
            if known.len() < COMPILED_MAX {
                replace_file(&note, digest.to_string().as_bytes(), PRIVATE)?;
                known.insert(name, blob.digest());
            }
            Ok(())
        });
        kept.await.map_err(io::Error::other)?
    }
}

fn lock(known: &Mutex<BTreeMap<Digest, Digest>>) -> MutexGuard<'_, BTreeMap<Digest, Digest>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What compiled code depends on beside its module. The runtime checks the same once more when it
/// loads the code, and its own version; this keeps several of them apart.
fn this_host() -> Digest {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    Digest::of(&codec::encode(&(env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, flags)))
}
