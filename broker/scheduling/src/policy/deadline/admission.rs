//! Whether a job can be promised.

use gleaner_protocol::Time;
use gleaner_protocol::job::JobSpec;

use super::book::{self, Book, Margin};
use super::{Claim, fits};
use crate::farm::Farm;

/// Why a job cannot be promised, in words for its submitter.
pub(super) struct Shortage(pub(super) String);

/// Whether a job with what is promised can be done in time by the hosts that are there, if tasks
/// are moved at will.
pub(super) fn check(
    book: &Book,
    now: Time,
    farm: &Farm,
    spec: &JobSpec,
    margin: Margin,
) -> Result<(), Shortage> {
    let (from_us, due_us) = (now.as_micros(), book::due(now, spec).as_micros());
    let work_us = margin.expected_us(spec);
    let cores = book::cores(farm);
    let asked = Claim { from_us, due_us, tasks: spec.workunits.len(), work_us };
    let short = |beside: &str| {
        let (work_s, due_s) = (work_us / 1_000_000, (due_us - from_us) / 1_000_000);
        Shortage(format!(
            "{} tasks of {work_s} s each cannot all be done on {cores} cores within {due_s} s{beside}",
            asked.tasks,
        ))
    };
    fits(cores, &[asked]).map_err(|_| short(""))?;
    // What is late already is done when there is room; what has just no time left keeps its cores.
    let mut claims = book.claims(now, |entry| entry.due > now);
    for claim in &mut claims {
        claim.work_us = claim.work_us.min(claim.due_us - claim.from_us);
    }
    claims.push(asked);
    fits(cores, &claims).map_err(|_| short(" beside what was promised before"))
}
