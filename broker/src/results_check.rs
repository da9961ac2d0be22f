//! Whether the disk still has what was decided.
//!
//! The journal notices what the disk has lost of it as it is read. Outputs are read when somebody
//! asks for them, which may be months later: so they are all read once after each start, while
//! the broker works, and what is missing or damaged is said at once.

use std::sync::Arc;

use gleaner_protocol::{Digest, JobId, WorkunitId};
use gleaner_scheduling::Core;

use crate::api::manifest;
use crate::driver::DriverHandle;
use crate::metrics::Metrics;
use crate::store::SmallBlobs;

/// Outputs that are read, and jobs that are looked at, between two questions to the driver.
const PAGE: usize = 4_096;
/// Damaged outputs that are named one by one; the rest is counted.
const NAMED_MAX: u64 = 100;

/// Where the check has come to.
#[derive(Clone, Copy)]
struct Place {
    job: JobId,
    index: u32,
}

/// Reads every canonical output once. Ends early where the driver does.
pub(crate) async fn run(driver: DriverHandle, small_blobs: SmallBlobs, metrics: Arc<Metrics>) {
    let mut place = Place { job: JobId::new(0), index: 0 };
    let (mut checked, mut damaged) = (0_u64, 0_u64);
    while let Ok((page, next)) = driver.query(move |core| page_from(core, place)).await {
        let blobs = small_blobs.clone();
        checked += page.len() as u64;
        let found = tokio::task::spawn_blocking(move || {
            let check = |(id, digest)| manifest(&blobs, digest).err().map(|error| (id, error));
            page.into_iter().filter_map(check).collect::<Vec<(WorkunitId, String)>>()
        });
        for (id, error) in found.await.unwrap_or_default() {
            damaged += 1;
            metrics.result_damaged();
            if damaged <= NAMED_MAX {
                tracing::error!("the result of {id} is damaged: {error}");
            }
        }
        match next {
            Some(next) => place = next,
            None => break,
        }
    }
    if damaged > 0 {
        tracing::error!(
            "{damaged} of {checked} results are damaged; submit their work once more to mend them"
        );
    } else {
        tracing::debug!("all {checked} results are sound");
    }
}

/// The decided workunits from a place on, and where the next page begins.
fn page_from(core: &Core, place: Place) -> (Vec<(WorkunitId, Digest)>, Option<Place>) {
    let mut page = Vec::new();
    for (looked_at, job) in core.farm().jobs_from(place.job).enumerate() {
        let from = if job.id == place.job { place.index } else { 0 };
        if looked_at == PAGE {
            return (page, Some(Place { job: job.id, index: from }));
        }
        for (index, digest) in job.ended.digests_from(from) {
            if page.len() == PAGE {
                return (page, Some(Place { job: job.id, index }));
            }
            page.push((WorkunitId { job: job.id, index }, digest));
        }
    }
    (page, None)
}
