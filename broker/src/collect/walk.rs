//! What the core names, a page at a time.

use gleaner_protocol::{Digest, JobId};
use gleaner_scheduling::Core;

use crate::limits::COLLECT_PAGE;

/// Where the walk has come to. Votes come before outputs: what is decided in between is among these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    job: JobId,
    part: Part,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The inputs, then the votes on open workunits from an index on.
    Votes(u32),
    /// The canonical outputs from an index on.
    Outputs(u32),
}

impl Default for Place {
    fn default() -> Self {
        Self { job: JobId::new(0), part: Part::Votes(0) }
    }
}

/// About [`COLLECT_PAGE`] names from a place on, after at most as many jobs and workunits were looked
/// at, and where the next page begins.
pub(super) fn names_from(core: &Core, place: Place) -> (Vec<Digest>, Option<Place>) {
    let (mut names, mut looked_at) = (Vec::new(), 0);
    for job in core.farm().jobs_from(place.job) {
        let part = if job.id == place.job { place.part } else { Part::Votes(0) };
        let at = |part| Some(Place { job: job.id, part });
        if looked_at >= COLLECT_PAGE {
            return (names, at(part));
        }
        looked_at += 1;
        if part == Part::Votes(0) {
            names.extend(job.spec.task.contents().map(|(_, digest)| digest));
            looked_at += names.len();
        }
        if let Part::Votes(from) = part {
            for (index, open) in job.open.range(from..) {
                if looked_at >= COLLECT_PAGE {
                    return (names, at(Part::Votes(*index)));
                }
                let votes = &core.farm().workunit(*open).votes;
                names.extend(votes.iter().filter_map(|vote| vote.digest));
                looked_at += 1 + votes.len();
            }
        }
        let from = if let Part::Outputs(from) = part { from } else { 0 };
        for (index, digest) in job.ended.digests_from(from) {
            if looked_at >= COLLECT_PAGE {
                return (names, at(Part::Outputs(index)));
            }
            names.push(digest);
            looked_at += 1;
        }
    }
    (names, None)
}
