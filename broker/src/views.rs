//! Views: volumes that people turn in their browsers, drawn by agents in what the farm leaves.
//!
//! ```text
//! browser ◄── frames ── Live ── parts of frames ──► driver ── leases ──► agents
//!         ── states ──►   ▲                                                │
//!                         └────────── FrameBoard ◄── layers, pictures ─────┘
//! ```
//! A view is what lasts: its dataset, its owner and its last state are in a file, so that it goes on
//! after a restart of the broker. Frames are drawn while a client is connected, and nothing of them is
//! written down.
//!
//! # Invariants
//! - One client is connected to a view: a later one takes its place.
//! - A view is there for its owner and for whoever may see all, and for nobody else.
//! - A view whose dataset was removed ends, and says so.

mod board;
mod book;
mod drawings;
mod followers;
mod histogram;
mod live;
mod parts;

pub use board::{FrameBoard, Layer, PartRefusal};
pub(crate) use book::Histogram;
pub use drawings::{Drawings, Outcome, Part, Picture, WaitsFor};
pub use parts::Scene;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::job::RunsOn;
use gleaner_protocol::limits::PACED_US_MAX;
use gleaner_protocol::{
    DatasetId, DatasetKind, DatasetManifest, NewView, OwnerName, ProjectName, Span, ViewState,
    ViewStatus, boottime,
};
use thiserror::Error;
use tokio::sync::{Notify, broadcast};

use crate::datasets::ChunkTable;
use crate::driver::DriverHandle;
use crate::limits::{VIEW_SAVE, VIEWS_MAX, VIEWS_OF_ONE_MAX};
use crate::metrics::Metrics;
use crate::sealed_file::SealedFileError;
use crate::wall_clock::utc_ms;
use book::{Book, Record};
use followers::Followers;

/// Why there is no view.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("{0} is not in bricks: add a volume (NRRD, NIfTI, or raw with a header) to look at it")]
    NoVolume(DatasetId),
    #[error("{owner} has {VIEWS_OF_ONE_MAX} views, as many as may be: close one first")]
    TooManyOfOne { owner: OwnerName },
    #[error("kernel: a part of a paced frame takes {} ms at most for each of loading and drawing", PACED_US_MAX / 1_000)]
    TooSlow,
    #[error("this broker has {VIEWS_MAX} views, as many as it can: close some")]
    TooMany,
    #[error("it cannot be written down: {0}")]
    Disk(#[from] SealedFileError),
}

/// Whose a view is to be.
#[derive(Debug, Clone)]
pub struct ForWhom {
    /// Who turns it.
    pub owner: OwnerName,
    /// For which project, where it is for one.
    pub project: Option<ProjectName>,
}

/// All views. Clones are of the same ones.
#[derive(Clone)]
pub(crate) struct Views {
    inner: Arc<Mutex<Inner>>,
    /// Held while the file is written.
    writing: Arc<Mutex<()>>,
    /// Told when the file is behind.
    behind: Arc<Notify>,
    followers: Followers,
    board: FrameBoard,
    driver: DriverHandle,
    chunks: ChunkTable,
    on: RunsOn,
    metrics: Arc<Metrics>,
    frames: Arc<AtomicU64>,
}

/// A client's place at a view, from its request on until it goes: of several who open one, whoever asked
/// last has it, whenever their connections stand.
pub(crate) struct Seat {
    views: Views,
    name: String,
    scene: Scene,
    /// Told when another client has the place, or the view ends.
    end: Arc<Notify>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.views.disconnect(&self.name, &self.end);
    }
}

struct Inner {
    book: Book,
    /// Ends the client that is connected to each.
    connected: BTreeMap<String, Arc<Notify>>,
    /// Whether the file is behind.
    is_behind: bool,
}

impl Views {
    /// Reads those that a data folder has. Nothing else is lost with a damaged file of them, so the
    /// broker goes on without any then.
    pub(crate) fn open(
        data_folder: &Path,
        board: FrameBoard,
        driver: DriverHandle,
        chunks: ChunkTable,
        on: RunsOn,
        metrics: Arc<Metrics>,
    ) -> Self {
        let path = data_folder.join("views.json");
        let book = Book::open(&path).unwrap_or_else(|error| {
            tracing::error!("{error}: it is begun anew, and whoever had a view opens another one");
            Book::empty(&path)
        });
        let inner = Inner { book, connected: BTreeMap::new(), is_behind: false };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            writing: Arc::default(),
            behind: Arc::default(),
            followers: Followers::default(),
            board,
            driver,
            chunks,
            on,
            metrics,
            frames: Arc::default(),
        }
    }

    /// What is there of frames.
    pub(crate) fn board(&self) -> &FrameBoard {
        &self.board
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file, where it is behind.
    fn save(&self) -> Result<(), SealedFileError> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let book = {
            let mut inner = self.lock();
            if !std::mem::take(&mut inner.is_behind) {
                return Ok(());
            }
            inner.book.clone()
        };
        book.save().inspect_err(|_| {
            self.lock().is_behind = true;
            self.behind.notify_one();
        })
    }

    /// Makes one. Writes a file.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn add(
        &self,
        whom: ForWhom,
        new: &NewView,
        dataset: DatasetId,
    ) -> Result<ViewStatus, Refusal> {
        let manifest = self.chunks.manifest(dataset);
        let is_volume = manifest.as_deref().and_then(Scene::shape).is_some();
        if !is_volume {
            return Err(Refusal::NoVolume(dataset));
        }
        if !new.kernel.is_in_time() {
            return Err(Refusal::TooSlow);
        }
        let ForWhom { owner, project } = whom;
        let name = crate::people::random_text::<8>();
        {
            let mut inner = self.lock();
            inner.book.forget_old(utc_ms());
            if inner.book.views.len() >= VIEWS_MAX {
                return Err(Refusal::TooMany);
            }
            if inner.book.of(&owner).count() >= VIEWS_OF_ONE_MAX {
                return Err(Refusal::TooManyOfOne { owner });
            }
            let record = Record {
                owner,
                project,
                dataset,
                dataset_name: new.dataset.clone(),
                kernel: new.kernel,
                used_ms: utc_ms(),
                state: None,
            };
            inner.book.views.insert(name.clone(), record);
            inner.is_behind = true;
        }
        self.save()?;
        Ok(self.status(&name, None).expect("it was just made"))
    }

    /// Ends one. Writes a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Refusal> {
        {
            let mut inner = self.lock();
            inner.book.views.remove(name);
            inner.is_behind = true;
            if let Some(end) = inner.connected.get(name) {
                end.notify_one();
            }
        }
        self.followers.end(name);
        Ok(self.save()?)
    }

    /// A dataset was removed: clients of views whose dataset is not there any more are told at once.
    pub(crate) fn dataset_removed(&self) {
        let inner = self.lock();
        for (name, end) in &inner.connected {
            let dataset = inner.book.views.get(name).map(|record| record.dataset);
            if dataset.is_none_or(|dataset| self.chunks.manifest(dataset).is_none()) {
                end.notify_one();
            }
        }
        for (name, record) in &inner.book.views {
            if self.chunks.manifest(record.dataset).is_none() {
                self.followers.end(name);
            }
        }
    }

    /// One, where it is there for this owner, or for whoever sees all.
    pub(crate) fn status(&self, name: &str, owner: Option<&OwnerName>) -> Option<ViewStatus> {
        let inner = self.lock();
        let record = inner.book.views.get(name)?;
        let is_theirs = owner.is_none_or(|owner| *owner == record.owner);
        is_theirs.then(|| self.told(name, record, inner.connected.contains_key(name)))
    }

    /// All that are there for an owner, or all.
    pub(crate) fn list(&self, owner: Option<&OwnerName>) -> Vec<ViewStatus> {
        let inner = self.lock();
        let theirs = |of: &Record| owner.is_none_or(|owner| *owner == of.owner);
        let views = inner.book.views.iter().filter(|(_, record)| theirs(record));
        views
            .map(|(name, record)| self.told(name, record, inner.connected.contains_key(name)))
            .collect()
    }

    /// The manifest of what a view shows.
    pub(crate) fn manifest(&self, name: &str) -> Option<Arc<DatasetManifest>> {
        let dataset = self.lock().book.views.get(name)?.dataset;
        self.chunks.manifest(dataset)
    }

    fn told(&self, name: &str, record: &Record, connected: bool) -> ViewStatus {
        let manifest = self.chunks.manifest(record.dataset);
        let volume = manifest.as_deref().map(|manifest| (&manifest.kind, &manifest.chunks));
        let brick_bytes = manifest.as_deref().map_or(0, DatasetManifest::longest);
        let (size, spacing, steps, bricks, range) = match volume {
            Some((DatasetKind::Bricks(volume), chunks)) => {
                let bounds = chunks.iter().filter_map(|chunk| chunk.bounds);
                let all = bounds.reduce(|all, of| [all[0].min(of[0]), all[1].max(of[1])]);
                let bricks = u32::try_from(volume.bricks_of_step()).unwrap_or(u32::MAX);
                (volume.size, volume.spacing, volume.steps, bricks, all.unwrap_or([0.0, 1.0]))
            }
            // It was removed, or is damaged.
            _ => ([0; 3], [1.0; 3], 0, 0, [0.0, 1.0]),
        };
        ViewStatus {
            view: name.to_owned(),
            dataset: record.dataset_name.clone(),
            kernel: record.kernel,
            size,
            spacing,
            steps,
            bricks,
            brick_bytes,
            range,
            connected,
            state: record.state.clone(),
        }
    }

    /// A place at a view for a client that asks for it now; the one before is ended. None where there is
    /// nothing to look at any more.
    pub(crate) fn seat(&self, name: &str) -> Option<Seat> {
        let mut inner = self.lock();
        let record = inner.book.views.get_mut(name)?;
        record.used_ms = utc_ms();
        let record = record.clone();
        let manifest = self.chunks.manifest(record.dataset)?;
        let of = format!("view {name} of {}", record.dataset_name);
        let session = u64::from_str_radix(name, 16).unwrap_or_default();
        let whom = ForWhom { owner: record.owner, project: record.project };
        let shown = (record.kernel, record.dataset);
        let scene = Scene::new(of, session, whom, self.on, shown, &manifest)?;
        let end = Arc::new(Notify::new());
        if let Some(before) = inner.connected.insert(name.to_owned(), Arc::clone(&end)) {
            before.notify_one();
        }
        self.metrics.views(inner.connected.len());
        Some(Seat { views: self.clone(), name: name.to_owned(), scene, end })
    }

    /// A client has gone.
    fn disconnect(&self, name: &str, end: &Arc<Notify>) {
        let mut inner = self.lock();
        if inner.connected.get(name).is_some_and(|of| Arc::ptr_eq(of, end)) {
            inner.connected.remove(name);
        }
        self.metrics.views(inner.connected.len());
        if let Some(record) = inner.book.views.get_mut(name) {
            record.used_ms = utc_ms();
            inner.is_behind = true;
            self.behind.notify_one();
        }
    }

    /// What the client of a view wants to see, from now on, as it says it.
    pub(crate) fn follow(&self, name: &str) -> broadcast::Receiver<Arc<ViewState>> {
        self.followers.follow(name)
    }

    /// What a client wants to see, to be shown to it again.
    fn note_state(&self, name: &str, state: &ViewState) {
        let mut inner = self.lock();
        if let Some(record) = inner.book.views.get_mut(name) {
            record.state = Some(state.clone());
            inner.is_behind = true;
            self.behind.notify_one();
        }
    }

    /// Whether a view is there, and its dataset.
    fn is_there(&self, name: &str) -> bool {
        let dataset = self.lock().book.views.get(name).map(|record| record.dataset);
        dataset.is_some_and(|dataset| self.chunks.manifest(dataset).is_some())
    }

    fn next_frame(&self) -> u64 {
        self.frames.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes states down as they come, and no more often than once in a while, as long as the broker runs.
    pub(crate) async fn run(self) {
        let mut told = boottime();
        loop {
            self.behind.notified().await;
            let views = self.clone();
            let saved = tokio::task::spawn_blocking(move || views.save()).await;
            if let Ok(Err(error)) = saved
                && boottime().since(told) > Span::from_secs(60)
            {
                told = boottime();
                tracing::error!("states of views are not written down: {error}");
            }
            tokio::time::sleep(VIEW_SAVE).await;
        }
    }
}
