//! Whether a job can be promised.

use gleaner_protocol::Time;
use gleaner_protocol::job::JobSpec;

use super::book::{self, Book, Margin, Task};
use super::list::{self, Piece};
use super::{Claim, fits};
use crate::farm::Farm;
use crate::policy::Decline;

/// Times by which a due time is moved on until a job fits.
const STEPS: u32 = 24;

/// Whether a job with what is promised can be done in time by the hosts that are there: if tasks
/// are moved at will, and, where some cannot be moved, also if none is and nobody else is late for it.
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
    let is_movable = spec.profile.checkpoint_ms.is_some();
    let pieces = || {
        let open = book.iter().map(|(_, entry)| entry).filter(|entry| entry.due > now).enumerate();
        let left_us = |task: &Task| task.left_us(now);
        open.flat_map(move |(job, entry)| {
            let until_us = entry.due.since(now).as_micros();
            list::pieces(job, entry, now, move |task| left_us(task).min(until_us))
        })
    };
    let all_move = is_movable && book.iter().all(|(_, entry)| entry.is_movable());
    let late = (!all_move).then(|| list::late(cores, pieces()));
    let fits_unmoved = |asked: Claim| {
        let Some(late) = &late else { return true };
        let until_us = asked.due_us - asked.from_us;
        let piece = Piece { job: usize::MAX, left_us: work_us, until_us, is_pinned: false };
        let asked = (0..asked.tasks).map(|_| piece);
        list::late(cores, pieces().chain(asked)).is_subset(late)
    };
    let fits_beside = |asked: Claim| {
        let all: Vec<_> = claims.iter().copied().chain([asked]).collect();
        fits(cores, &all).is_ok() && fits_unmoved(asked)
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
