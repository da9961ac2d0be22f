//! The file of views.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gleaner_protocol::{DatasetId, OwnerName, ProjectName, ViewKernel, ViewState};
use serde::{Deserialize, Serialize};

pub(crate) use super::histogram::Histogram;
use crate::limits::VIEW_KEPT_MS;
use crate::sealed_file::{self, SealedFileError};

/// All views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Book {
    #[serde(skip)]
    path: PathBuf,
    pub(super) views: BTreeMap<String, Record>,
}

/// One view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) owner: OwnerName,
    pub(super) project: Option<ProjectName>,
    pub(super) dataset: DatasetId,
    pub(super) dataset_name: String,
    pub(super) kernel: ViewKernel,
    /// When a client was connected last, in milliseconds of UTC.
    pub(super) used_ms: u64,
    /// What it wanted to see last.
    pub(super) state: Option<ViewState>,
}

impl Book {
    pub(super) fn empty(path: &Path) -> Self {
        Self { path: path.into(), views: BTreeMap::new() }
    }

    pub(super) fn open(path: &Path) -> Result<Self, SealedFileError> {
        let book = sealed_file::read::<Self>(path)?;
        Ok(book.map_or_else(|| Self::empty(path), |book| Self { path: path.into(), ..book }))
    }

    pub(super) fn save(&self) -> Result<(), SealedFileError> {
        sealed_file::replace(&self.path, self)
    }

    pub(super) fn of(&self, owner: &OwnerName) -> impl Iterator<Item = &Record> {
        self.views.values().filter(move |record| record.owner == *owner)
    }

    /// Forgets those that nobody has used for long.
    pub(super) fn forget_old(&mut self, now_ms: u64) {
        self.views.retain(|_, record| record.used_ms + VIEW_KEPT_MS > now_ms);
    }
}
