//! Whether a job can be promised.

use gleaner_protocol::Time;
use gleaner_protocol::job::JobSpec;

use super::book::{self, Book, Margin};
use super::{Claim, fits};
use crate::farm::Farm;
use crate::policy::Decline;

/// Times by which a due time is moved on until a job fits.
const STEPS: u32 = 24;

/// Whether a job with what is promised can be done in time by the hosts that are there, if tasks
/// are moved at will.
///
/// # Errors
/// Not by then; when it could be.
pub(super) fn check(
    book: &Book,
    now: Time,
    farm: &Farm,
    spec: &JobSpec,
    margin: Margin,
) -> Result<(), Decline> {
    if book::longest_us(spec).is_none() {
        return Err(Decline::from(
            "nothing is known of how long its workunits take: say how many seconds of a core each \
             takes, with --cpu-s, or let some of them run without --due first"
                .to_owned(),
        ));
    }
    let (from_us, due_us) = (now.as_micros(), book::due(now, spec).as_micros());
    let work_us = margin.expected_us(spec);
    let cores = book::cores(farm);
    let asked = Claim { from_us, due_us, tasks: spec.workunits.len(), work_us };
    let is_promised = spec.profile.promised.is_some();
    let able = book::cores_for(farm, spec, is_promised);
    let fits_alone = |asked: Claim| fits(able, &[asked]).is_ok();
    if is_promised && fits_alone(asked) {
        // It was found that cores are likely to be there in time, which is more than those of now say.
        return Ok(());
    }
    // What is late already is done when there is room; what has just no time left keeps its cores.
    let mut claims = book.claims(now, |entry| entry.due > now);
    for claim in &mut claims {
        claim.work_us = claim.work_us.min(claim.due_us - claim.from_us);
    }
    let fits_beside = |asked: Claim| {
        let all: Vec<_> = claims.iter().copied().chain([asked]).collect();
        fits(cores, &all).is_ok()
    };
    let beside = if !fits_alone(asked) {
        ""
    } else if fits_beside(asked) {
        return Ok(());
    } else {
        " beside what was promised before"
    };
    let (work_s, due_s) = (work_us / 1_000_000, (due_us - from_us) / 1_000_000);
    let why = format!(
        "{} tasks of {work_s} s each cannot all be done on {able} cores within {due_s} s{beside}",
        asked.tasks,
    );
    let mut later = (due_us - from_us).max(work_us);
    let earliest_due = (able > 0).then(|| {
        (0..STEPS).find_map(|_| {
            let asked = Claim { due_us: from_us.saturating_add(later), ..asked };
            later = later.saturating_add(later / 4).max(later + 1);
            (fits_alone(asked) && fits_beside(asked)).then(|| Time::from_micros(asked.due_us))
        })
    });
    Err(Decline { why, earliest_due: earliest_due.flatten() })
}
