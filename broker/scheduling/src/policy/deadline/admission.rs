//! Whether a job can be promised.

use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{Share, Time};

use super::book::{Book, Entry};
use super::cores;
use super::estimate::{self, Margin};
use super::feasible::{self, Piece, Rest};
use crate::farm::Farm;
use crate::policy::Decline;

/// Times by which a due time is moved on until a job fits.
const STEPS: u32 = 24;

/// Whether a job with what is promised can be done in time by the hosts that are there: if tasks
/// are moved at will, and, where some cannot be moved, also if none is and nobody else is late for it.
///
/// # Errors
/// Not by then; when it could be.
pub(crate) fn check(
    book: &Book,
    now: Time,
    farm: &Farm,
    spec: &JobSpec,
    margin: Margin,
) -> Result<(), Decline> {
    if estimate::longest_us(spec).is_none() {
        return Err(Decline::from(
            "nothing is known of how long its workunits take: say how many seconds of a core each \
             takes, with --cpu-s, or let some of them run without --due first"
                .to_owned(),
        ));
    }
    let (from_us, due_us) = (now.as_micros(), estimate::due(now, spec).as_micros());
    let share = spec.cores_permille;
    let lasts_us = estimate::lasts_us(share, margin.expected_us(spec));
    let is_movable = spec.profile.checkpoint_ms.is_some();
    let asked_by = |due_us: u64, share: Share| {
        let piece = Piece { share, left_us: lasts_us, is_pinned: false };
        let tasks = vec![piece; spec.workunits.len() as usize];
        Rest { until_us: due_us - from_us, tasks, is_movable }
    };
    let is_promised = spec.profile.promised.is_some();
    let places = cores::places_for(farm, spec, is_promised);
    let fits_alone = |due_us| {
        let alone = asked_by(due_us, Share::WHOLE);
        feasible::fit_moved(places, std::slice::from_ref(&alone)).is_ok()
    };
    if is_promised && fits_alone(due_us) {
        // It was found that cores are likely to be there in time, which is more than those of now say.
        return Ok(());
    }
    let cores = cores::given(farm);
    // What is late already is done when there is room; what has just no time left keeps its cores.
    let open = book.iter().map(|(_, entry)| entry).filter(|entry| entry.due > now);
    let rest = |entry: &Entry| Rest::of(entry, now, |task| task.left_us(now)).in_time();
    let mut rests: Vec<Rest> = open.map(rest).collect();
    rests.sort_by_key(|rest| rest.until_us);
    let all_move = is_movable && book.iter().all(|(_, entry)| entry.is_movable());
    let late = (!all_move).then(|| feasible::late(cores, &rests));
    let mut fits_beside = |due_us| {
        let asked = asked_by(due_us, share);
        let is_in_nobodys_way = late
            .as_ref()
            .is_none_or(|late| feasible::late(cores, rests.iter().chain([&asked])).is_subset(late));
        let at = rests.partition_point(|rest| rest.until_us <= asked.until_us);
        is_in_nobodys_way && {
            rests.insert(at, asked);
            let fits = feasible::fit_moved(cores, &rests).is_ok();
            rests.remove(at);
            fits
        }
    };
    let beside = if !fits_alone(due_us) {
        ""
    } else if fits_beside(due_us) {
        return Ok(());
    } else {
        " beside what was promised before"
    };
    let (lasts_s, due_s) = (lasts_us / 1_000_000, (due_us - from_us) / 1_000_000);
    let (tasks, where_) = (spec.workunits.len(), on(share, places));
    let why = format!(
        "{tasks} tasks of {lasts_s} s each cannot all be done {where_} within {due_s} s{beside}"
    );
    let mut later = (due_us - from_us).max(lasts_us);
    let earliest_due = (places > 0).then(|| {
        (0..STEPS).find_map(|_| {
            let due_us = from_us.saturating_add(later);
            later = later.saturating_add(later / 4).max(later + 1);
            (fits_alone(due_us) && fits_beside(due_us)).then(|| Time::from_micros(due_us))
        })
    });
    Err(Decline { why, earliest_due: earliest_due.flatten() })
}

/// Where tasks on this share run, where there is room for so many.
fn on(share: Share, places: u32) -> String {
    match share {
        Share::WHOLE => format!("on {places} cores"),
        _ => format!("{places} at a time, on {} cores each,", share.as_cores()),
    }
}
