//! Blobs that are too small for a file of their own.

use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;
use sled::Tree;

use super::engine::guarded;
use super::error::StoreError;
use super::parts;

/// Parts that are removed in one step.
const REMOVED_TOGETHER: usize = 256;

/// Reads the blobs that were committed with the journal; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct SmallBlobs {
    tree: Tree,
    folder: PathBuf,
}

impl SmallBlobs {
    pub(crate) fn new(tree: Tree, folder: &Path) -> Self {
        Self { tree, folder: folder.to_owned() }
    }

    /// The content with this digest, if it is here.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where what is stored does not have the digest any more.
    pub fn get(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let found = guarded(&self.folder, "reading a small blob", || {
            parts::get(&self.tree, digest.as_bytes())
                .map_err(StoreError::engine("reading a small blob", &self.folder))
        })?;
        match found {
            Some(content) if Digest::of(&content) != *digest => Err(StoreError::Damaged {
                folder: self.folder.clone(),
                what: format!("small blob {digest}: its content has another digest"),
                kept: None,
            }),
            found => Ok(found),
        }
    }

    /// Removes the blobs that are not used, and returns how many those were. Only while nothing is
    /// committed. A kill leaves some of them, or an end of one, to the next time.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn remove_unused(
        &self,
        is_used: impl Fn(Digest) -> bool,
    ) -> Result<usize, StoreError> {
        const DOING: &str = "removing small blobs";
        guarded(&self.folder, DOING, || {
            let removed = || -> sled::Result<usize> {
                let (mut begin, mut removed) = (Some(Vec::new()), 0);
                while let Some(from) = begin.take() {
                    let mut unused = Vec::new();
                    for key in self.tree.range(from..).keys() {
                        let key = key?;
                        if unused.len() == REMOVED_TOGETHER {
                            begin = Some(key.to_vec());
                            break;
                        }
                        let Some((name, part)) = parts::split_part_key(&key) else { continue };
                        let Ok(digest) = name.try_into().map(Digest::from_bytes) else { continue };
                        if !is_used(digest) {
                            removed += usize::from(part == 0);
                            unused.push(key);
                        }
                    }
                    parts::remove(&self.tree, unused)?;
                }
                Ok(removed)
            };
            removed().map_err(StoreError::engine(DOING, &self.folder))
        })
    }

    /// Writes a blob where it is not there yet.
    pub(crate) fn put(&self, digest: &Digest, content: &[u8]) -> sled::Result<()> {
        // Compared with what is there, not only looked up: a damaged one is mended.
        if parts::get(&self.tree, digest.as_bytes())?.as_deref() == Some(content) {
            return Ok(());
        }
        parts::put(&self.tree, digest.as_bytes(), content)
    }
}
