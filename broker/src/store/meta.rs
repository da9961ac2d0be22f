//! The few facts about the store itself.

use std::path::{Path, PathBuf};

use sled::Tree;

use super::error::StoreError;
use super::sealed;

/// Format of the journal, of its entries and of snapshots.
pub(crate) const FORMAT: u32 = 3;

const FORMAT_KEY: &str = "format";
const FOLDER_ID_KEY: &str = "folder-id";
const TOKEN_KEY: &str = "token-key";
const INCARNATION_KEY: &str = "incarnation";
const SNAPSHOT_KEY: &str = "snapshot";

/// The tree `meta`: sealed single values under plain names.
#[derive(Debug)]
pub(crate) struct Meta {
    tree: Tree,
    folder: PathBuf,
}

/// Why a value could not be had.
pub(crate) enum MetaError {
    /// The engine's.
    Engine(sled::Error),
    /// The value is damaged; how.
    Damaged(String),
}

impl Meta {
    pub(crate) fn new(tree: Tree, folder: &Path) -> Self {
        Self { tree, folder: folder.to_owned() }
    }

    /// Marks a new store as ours.
    pub(crate) fn initialise(&self, folder_id: &[u8; 16]) -> Result<(), StoreError> {
        self.put(FOLDER_ID_KEY, folder_id)?;
        self.put(INCARNATION_KEY, &0_u32.to_le_bytes())?;
        self.put(FORMAT_KEY, &FORMAT.to_le_bytes())
    }

    /// Format of the store; nothing where it is none of ours.
    pub(crate) fn format(&self) -> Result<Option<u32>, MetaError> {
        Ok(self.get(FORMAT_KEY)?.map(u32::from_le_bytes))
    }

    pub(crate) fn folder_id(&self) -> Result<Option<[u8; 16]>, MetaError> {
        self.get(FOLDER_ID_KEY)
    }

    /// The secret that lease tokens are made with; none in a folder of a release without one.
    pub(crate) fn token_key(&self) -> Result<Option<[u8; 16]>, MetaError> {
        self.get(TOKEN_KEY)
    }

    pub(crate) fn set_token_key(&self, key: &[u8; 16]) -> Result<(), StoreError> {
        self.put(TOKEN_KEY, key)
    }

    pub(crate) fn incarnation(&self) -> Result<Option<u32>, MetaError> {
        Ok(self.get(INCARNATION_KEY)?.map(u32::from_le_bytes))
    }

    pub(crate) fn set_incarnation(&self, incarnation: u32) -> Result<(), StoreError> {
        self.put(INCARNATION_KEY, &incarnation.to_le_bytes())
    }

    /// Sequence that names the live snapshot.
    pub(crate) fn snapshot(&self) -> Result<Option<u64>, MetaError> {
        Ok(self.get(SNAPSHOT_KEY)?.map(u64::from_le_bytes))
    }

    pub(crate) fn set_snapshot(&self, sequence: u64) -> Result<(), StoreError> {
        self.put(SNAPSHOT_KEY, &sequence.to_le_bytes())
    }

    fn get<const N: usize>(&self, key: &str) -> Result<Option<[u8; N]>, MetaError> {
        let Some(entry) = self.tree.get(key).map_err(MetaError::Engine)? else {
            return Ok(None);
        };
        let damaged = |what: String| MetaError::Damaged(format!("entry {key:?} of meta: {what}"));
        let records = sealed::open(key.as_bytes(), &entry).map_err(damaged)?;
        match records[..] {
            [value] if value.len() == N => Ok(value.try_into().ok()),
            _ => Err(damaged("it has another length".into())),
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.tree
            .insert(key, sealed::seal(key.as_bytes(), &[value]))
            .map(drop)
            .map_err(StoreError::engine("writing meta", &self.folder))
    }
}
