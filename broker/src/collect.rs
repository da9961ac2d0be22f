//! Removes what nobody names any more, while the broker works: outputs and blobs of jobs that were
//! forgotten, and uploads that no job ever named.
//!
//! A round first learns what is named, a page of the core at a time, into a filter of bounded size
//! that may take a digest for named that is not, and never the other way round. Then it goes through
//! the outputs, which name blobs themselves, and through the blobs, a step at a time.
//!
//! # Invariants
//! - What a dataset is made of, what a known job reads, an output that was decided and one that has a vote stay, with all
//!   that they name. Where one of these outputs cannot be read, no blob is removed.
//! - An output that is named while a round goes on is stored anew: rounds remove from the segments of
//!   before alone ([`SmallBlobs::begin_round`]), and the driver forgets at its beginning which outputs
//!   were stored a moment ago.
//! - A blob that was uploaded, or found to be there by who is about to name it, less than
//!   [`UNUSED_BLOB_KEPT`](crate::limits::UNUSED_BLOB_KEPT) ago stays ([`BlobStore::keep`]).
//! - The driver is asked for pages of at most [`COLLECT_PAGE`](crate::limits::COLLECT_PAGE) names, and files are removed in steps
//!   of at most [`COLLECT_STEP_FILES`].
//! - No round goes on while a backup is made.

mod names;
#[cfg(test)]
mod tests;
mod walk;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gleaner_protocol::{Content, Digest, Manifest, boottime, error_chain, stored};
use gleaner_scheduling::Core;
use tokio::sync::{RwLock, oneshot};

use self::names::Names;
use self::walk::{Place, names_from};
use crate::api::is_read;
use crate::blobs::{BlobError, BlobStore, RemovedBlobs};
use crate::datasets::Datasets;
use crate::driver::{Command, DriverGone, DriverHandle};
use crate::limits::{
    COLLECT_COPY_BYTES, COLLECT_INTERVAL, COLLECT_PAUSE, COLLECT_RESTS, COLLECT_STEP_FILES,
    COLLECT_UNASKED_AFTER, OUTPUTS_SEGMENT_BYTES,
};
use crate::store::{Batch, Committer, Segment, SmallBlobs, StoreError};

/// Name of the file, in the data folder, that says how many jobs were forgotten when a round left
/// nothing to be done.
const DONE_FILE: &str = "collected";
/// A segment is written anew where at least one in so many of its bytes is of no use.
const USELESS_PART: u64 = 4;
/// A segment is short that has less than one in so many of the bytes it may have.
const SHORT_PART: u64 = 4;

/// What a round needs.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) driver: DriverHandle,
    pub(crate) committer: Committer,
    pub(crate) small_blobs: SmallBlobs,
    pub(crate) blobs: Arc<dyn BlobStore>,
    pub(crate) datasets: Datasets,
    pub(crate) data_dir: PathBuf,
    /// Held by a round alone, and by those together who need all files to stay.
    pub(crate) files: Arc<RwLock<()>>,
}

/// What a round has removed, and left because it is too young.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Collected {
    outputs: usize,
    blobs: usize,
    blobs_left: usize,
}

/// Why a round ended early.
#[derive(Debug)]
enum Stopped {
    /// The broker ends.
    Gone,
    /// In words.
    Failed(String),
}

impl Collector {
    /// Does a round whenever jobs were forgotten since the last one, and every
    /// [`COLLECT_UNASKED_AFTER`] for what was never named. Ends with the driver.
    pub(crate) async fn run(self) {
        let done_file = self.data_dir.join(DONE_FILE);
        let done = fs::read_to_string(&done_file).ok().and_then(|text| text.trim().parse().ok());
        let (mut done, mut last) = (done.unwrap_or(0_u64), boottime());
        let mut pause = COLLECT_INTERVAL;
        loop {
            tokio::time::sleep(pause.into()).await;
            let Ok(forgotten) = self.driver.query(Core::forgotten_count).await else {
                return;
            };
            pause = COLLECT_INTERVAL;
            if forgotten == done && boottime().since(last) < COLLECT_UNASKED_AFTER {
                continue;
            }
            let begun = boottime();
            match self.round().await {
                Ok(Collected { outputs, blobs, blobs_left }) => {
                    tracing::info!(
                        "{outputs} outputs and {blobs} blobs removed that nobody names; {blobs_left} \
                         blobs are too young"
                    );
                    done = forgotten;
                    let text = if blobs_left == 0 { forgotten } else { 0 };
                    if let Err(error) = fs::write(&done_file, format!("{text}\n")) {
                        tracing::warn!("cannot write {}: {error}", done_file.display());
                    }
                }
                Err(Stopped::Gone) => return,
                Err(Stopped::Failed(why)) => {
                    tracing::warn!("what nobody names stays until the next round: {why}");
                }
            }
            last = boottime();
            // A large store takes a while, and the disk is there for others.
            pause = pause.max(last.since(begun).times(COLLECT_RESTS));
        }
    }

    async fn round(&self) -> Result<Collected, Stopped> {
        let _files = self.files.write().await;
        let segments = self.small_blobs.begin_round();
        let done = self.round_over(segments).await;
        self.small_blobs.end_round();
        done
    }

    async fn round_over(&self, segments: Vec<Arc<Segment>>) -> Result<Collected, Stopped> {
        self.driver.store_anew().await?;
        self.drop_unused_datasets().await?;
        let mut count = self.small_blobs.count();
        for first in 0..=u8::MAX {
            count += self.blobs.beginning_with(first).await?.len();
        }
        let mut names = Names::for_as_many_as(count, boottime());
        let lost = self.datasets.each_name(|digest| names.add(digest));
        lost.map_err(|lost| Stopped::Failed(lost.to_string()))?;
        let mut place = Some(Place::default());
        while let Some(from) = place {
            let (page, next) = self.driver.query(move |core| names_from(core, from)).await?;
            page.iter().for_each(|digest| names.add(digest));
            place = next;
        }
        let mut collected = Collected::default();
        let mut is_sound = true;
        // Each round begins a segment: short ones are put together.
        let short = segments.iter().filter(|segment| is_short(segment)).count();
        for segment in segments {
            let seen = Arc::clone(&segment);
            let (told, found) = on_disk(move || look_through(&seen, names)).await?;
            names = told;
            is_sound &= found.is_sound;
            let is_due = found.is_worth_writing_anew() || (is_short(&segment) && short > 1);
            if found.is_sound && is_due {
                let this = self.clone();
                let (told, done) = on_disk(move || {
                    let done = this.write_anew(&segment, &names);
                    Ok::<_, StoreError>((names, done))
                })
                .await?;
                names = told;
                done?;
                collected.outputs += found.useless;
            }
        }
        if !is_sound {
            let why = "an output that is named cannot be read, and with it what it names";
            return Err(Stopped::Failed(why.into()));
        }
        self.remove_blobs(&names, &mut collected).await?;
        Ok(collected)
    }

    /// Drops what was removed when jobs read it that have ended since.
    async fn drop_unused_datasets(&self) -> Result<(), Stopped> {
        for id in self.datasets.kept_for_jobs() {
            if !self.driver.query(move |core| is_read(core, id)).await? {
                let datasets = self.datasets.clone();
                let removed =
                    on_disk(move || datasets.remove(id, false).map_err(|why| why.to_string()));
                removed.await?;
                self.driver.send(Command::DatasetRemoved(id)).await?;
            }
        }
        Ok(())
    }

    /// Writes the named blobs of a segment behind the others, and removes it.
    fn write_anew(&self, segment: &Segment, names: &Names) -> Result<(), Stopped> {
        let (mut batch, mut bytes, mut failed) = (Vec::new(), 0, None);
        segment.each(|digest, content| {
            if names.may_have(&digest) {
                bytes += content.len();
                batch.push((digest, content.to_vec()));
            }
            if bytes >= COLLECT_COPY_BYTES {
                bytes = 0;
                failed = self.put(std::mem::take(&mut batch)).err();
            }
            failed.is_none()
        })?;
        failed.map_or(Ok(()), Err)?;
        if !batch.is_empty() {
            self.put(batch)?;
        }
        Ok(self.small_blobs.remove(segment)?)
    }

    /// Hands blobs to the store, and waits until they are durable.
    fn put(&self, small_blobs: Vec<(Digest, Vec<u8>)>) -> Result<(), Stopped> {
        let (done, wait) = oneshot::channel();
        let after = Box::new(move |committed: Result<u64, &StoreError>| {
            // Nobody waits where the broker ends.
            let _ = done.send(committed.map(drop).map_err(StoreError::chain));
        });
        let batch = Batch { records: Vec::new(), small_blobs, after, is_awaited: false };
        self.committer.submit_blocking(batch);
        wait.blocking_recv().map_err(|_| Stopped::Gone)?.map_err(Stopped::Failed)
    }

    async fn remove_blobs(&self, names: &Names, sum: &mut Collected) -> Result<(), Stopped> {
        for first in 0..=u8::MAX {
            let mut unnamed = self.blobs.beginning_with(first).await?;
            unnamed.retain(|digest| !names.may_have(digest));
            for step in unnamed.chunks(COLLECT_STEP_FILES) {
                let RemovedBlobs { removed, young } =
                    self.blobs.remove_unused(step.to_vec()).await?;
                sum.blobs += removed;
                sum.blobs_left += young;
                tokio::time::sleep(COLLECT_PAUSE).await;
            }
        }
        Ok(())
    }
}

fn is_short(segment: &Segment) -> bool {
    segment.bytes() < OUTPUTS_SEGMENT_BYTES / SHORT_PART
}

/// What is in a segment.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Whether all named outputs in it can be read.
    is_sound: bool,
    /// Outputs that nobody names.
    useless: usize,
    useless_bytes: u64,
    useful_bytes: u64,
}

impl Found {
    fn is_worth_writing_anew(self) -> bool {
        self.useless_bytes * USELESS_PART >= self.useful_bytes + self.useless_bytes
    }
}

/// Adds what the named outputs of a segment name.
fn look_through(segment: &Segment, mut names: Names) -> Result<(Names, Found), StoreError> {
    let mut found = Found { is_sound: true, useless: 0, useless_bytes: 0, useful_bytes: 0 };
    segment.each(|digest, content| {
        if !names.may_have(&digest) {
            found.useless += 1;
            found.useless_bytes += content.len() as u64;
            return true;
        }
        found.useful_bytes += content.len() as u64;
        let manifest = stored::decode::<Manifest>(content);
        match manifest.ok().filter(|_| Digest::of(content) == digest) {
            Some(manifest) => manifest.files().iter().for_each(|file| {
                if let Content::Stored { digest, .. } = &file.content {
                    names.add(digest);
                }
            }),
            None => found.is_sound = false,
        }
        true
    })?;
    Ok((names, found))
}

/// Does what may wait for a disk where it holds up nobody.
async fn on_disk<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, Stopped>
where
    T: Send + 'static,
    E: Into<Stopped> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Into::into),
        Err(error) => Err(Stopped::Failed(error.to_string())),
    }
}

impl From<DriverGone> for Stopped {
    fn from(_: DriverGone) -> Self {
        Self::Gone
    }
}

impl From<String> for Stopped {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.chain())
    }
}

impl From<BlobError> for Stopped {
    fn from(error: BlobError) -> Self {
        Self::Failed(error_chain(&error))
    }
}
