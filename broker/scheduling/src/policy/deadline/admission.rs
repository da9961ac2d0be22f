//! Whether a job can be promised.

use gleaner_protocol::Time;
use gleaner_protocol::job::JobSpec;

use super::book::{self, Book};
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
    margin_permille: u32,
) -> Result<(), Shortage> {
    let (from_us, due_us) = (now.as_micros(), book::due(now, spec).as_micros());
    let work_us = book::expected_us(spec, margin_permille);
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
    // What is late already is late whatever else is promised: it is done when there is room.
    let mut claims = book.claims(now);
    claims.retain(|claim| claim.due_us.saturating_sub(claim.from_us) >= claim.work_us);
    claims.push(asked);
    fits(cores, &claims).map_err(|_| short(" beside what was promised before"))
}
