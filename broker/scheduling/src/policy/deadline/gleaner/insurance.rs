//! Insurance: a second replica of a workunit that is likely to end too late.
//!
//! It runs on the host that is most likely to stay open, in a core that no promised task wants, and
//! gives way to all of them. The first of the two that is reported counts, and the other is taken
//! back. All of them together use a small part of the core time of the promised jobs.

use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{Share, Span, Time, WorkunitId};

use super::room::Room;
use crate::farm::{Farm, HostIx};
use crate::policy::deadline::book::{Book, Entry, Task};
use crate::policy::deadline::estimate;
use crate::policy::deadline::survival::Outlook;
use crate::{Desk, JobPhase};

/// Part of the core time of promised jobs that insurance replicas may use together: a tenth.
const PART: u64 = 10;
/// How much longer than named a workunit may take, in thousandths, for one in ten to take longer
/// still: what people name is off by 15 % (standard deviation of the logarithm).
const NAMED_UPPER_PERMILLE: u64 = 1_212;
/// How sure a job is to be where nobody says, in thousandths.
const CONFIDENCE_PERMILLE: u16 = 900;
/// Least time until a task is looked at again that takes too long, in microseconds.
const LOOK_LEAST_US: u64 = 1_000_000;
/// Replicas that a workunit has with its insurance.
const REPLICAS: usize = 2;

/// A task that is likely to end too late as it is.
#[derive(Debug, Clone, Copy)]
struct Danger {
    id: WorkunitId,
    /// How likely its host closes before it ends; above one where it is late in any case.
    risk: f64,
    until_us: u64,
    /// What it still needs where it runs; none where it stands still, or takes too long there.
    left_us: Option<u64>,
    on: Option<HostIx>,
    /// What it has of a host's cores.
    share: Share,
}

/// Insures the tasks in danger, those that are so most first, as far as `room` goes: cores that no
/// promised task wants, by host, the hosts first that are likeliest to stay open. Whether there are
/// tasks in danger that could not be insured.
pub(super) fn insure(
    book: &mut Book,
    desk: &mut Desk<'_>,
    outlook: &Outlook,
    room: &mut Room,
    is_lost: impl Fn(WorkunitId) -> bool,
) -> bool {
    let now = desk.now();
    let mut list = dangers(book, desk.farm(), now, outlook);
    list.retain(|danger| !is_lost(danger.id));
    list.sort_by(|one, other| {
        let by_risk = other.risk.total_cmp(&one.risk);
        by_risk.then(one.until_us.cmp(&other.until_us)).then(one.id.cmp(&other.id))
    });
    if list.is_empty() {
        return false;
    }
    let mut left_us = budget_us(book, now);
    let mut is_all = true;
    for danger in list {
        if !desk.may_hold_more() {
            return true;
        }
        let farm = desk.farm();
        let takes_us = |host| takes_us(book, farm, danger.id, host);
        let is_of_use = |host: HostIx| {
            let takes_us = takes_us(host);
            Some(host) != danger.on
                && takes_us <= danger.until_us
                && (danger.risk <= 1.0 || danger.left_us.is_none_or(|left_us| takes_us < left_us))
        };
        let cores = danger.share.cores_touched();
        let is_open = |(_, host, free): &(usize, HostIx, Share)| {
            *free >= danger.share && desk.room(*host) >= cores && is_of_use(*host)
        };
        let Some((_, host, _)) = room.iter().find(is_open) else {
            is_all = false;
            continue;
        };
        let lasts_us = danger.left_us.unwrap_or(u64::MAX).min(takes_us(host));
        let cost_us = estimate::work_us(danger.share, lasts_us);
        if cost_us <= left_us && book.insure(desk, danger.id, host) {
            left_us -= cost_us;
            room.take(host, danger.share);
        } else {
            is_all = false;
        }
    }
    !is_all
}

/// Takes insurance replicas back that are of no use any more, or that use more than they may.
pub(super) fn trim(book: &mut Book, desk: &mut Desk<'_>, is_lost: impl Fn(WorkunitId) -> bool) {
    let now = desk.now();
    let of = |(job, entry): (_, &Entry)| {
        let due = entry.due;
        let open = entry.open().filter(|(_, task)| task.insurance.is_some() || task.has_spare);
        let of_task = move |(index, task): (u32, &Task)| {
            let began = task.insurance.map(|run| run.since);
            (began, WorkunitId { job, index }, due)
        };
        open.map(of_task).collect::<Vec<_>>()
    };
    let mut list: Vec<_> = book.iter().flat_map(of).collect();
    list.sort_unstable();
    // What ends now was used all the same.
    let is_too_much = !list.is_empty() && used_us(book, now) > most_us(book, now);
    for (began, id, due) in list.into_iter().rev() {
        if began.is_none() {
            book.drop_spare(desk, id);
        } else if due <= now || is_lost(id) || is_too_much {
            book.end_insurance(desk, id);
        }
    }
}

/// When a task that takes too long comes into danger, if it has not ended by then.
pub(super) fn next_danger(book: &Book, now: Time) -> Option<Time> {
    let of = |(_, entry): (_, &Entry)| {
        let (until_us, upper_us) = (entry.due.since(now).as_micros(), upper_us(entry));
        let is_alone = |(_, task): &(u32, &Task)| task.run.is_some() && task.insurance.is_none();
        let after_us = |(_, task)| match (upper_us + 1).saturating_sub(Task::done_us(task, now)) {
            // What it may still take grows as the time shrinks that it has.
            0 => Some(until_us.checked_sub(rest(now, entry, task).upper_us)? / 2 + 1),
            to_upper_us => Some(entry.lasts_us(to_upper_us)),
        };
        let first_us = entry.open().filter(is_alone).filter_map(after_us).min();
        first_us.filter(|after_us| *after_us < until_us)
    };
    let first_us = book.iter().filter_map(of).min()?;
    Some(now + Span::from_micros(first_us.max(LOOK_LEAST_US)))
}

fn most_us(book: &Book, now: Time) -> u64 {
    let used = book.iter().map(|(_, entry)| entry.used_us(now));
    used.fold(0, u64::saturating_add) / PART
}

fn used_us(book: &Book, now: Time) -> u64 {
    let used = book.iter().map(|(_, entry)| entry.insured_us(now));
    used.fold(0, u64::saturating_add)
}

/// Core time that further insurance may use: what it may, less what it had and what that which runs
/// still needs.
fn budget_us(book: &Book, now: Time) -> u64 {
    let open = book.iter().flat_map(|(_, entry)| entry.open());
    let runs = open.filter(|(_, task)| task.insurance.is_some());
    let needs_us = runs.map(|(_, task)| task.left_us(now)).fold(0, u64::saturating_add);
    most_us(book, now).saturating_sub(used_us(book, now).saturating_add(needs_us))
}

/// Tasks that are not insured and are likely to end too late.
fn dangers(book: &Book, farm: &Farm, now: Time, outlook: &Outlook) -> Vec<Danger> {
    let mut list = Vec::new();
    for (job, entry) in book.iter() {
        let until_us = entry.due.since(now).as_micros();
        let known = farm.job(job).filter(|job| job.phase == JobPhase::Active);
        let Some(spec) = known.map(|job| &job.spec).filter(|_| until_us > 0) else { continue };
        if usize::from(spec.max_replicas()) < REPLICAS {
            continue;
        }
        let sure = spec.profile.confidence_permille.unwrap_or(CONFIDENCE_PERMILLE);
        let unsure = 1.0 - f64::from(sure) / 1_000.0;
        // A task that stands still does so at most for this long.
        let still_us = match spec.on_release {
            OnRelease::Keep { for_s } => for_s.min(spec.lease_s),
            OnRelease::Kill | OnRelease::Checkpoint { .. } => spec.lease_s,
        };
        let still_us = still_us.saturating_mul(1_000_000);
        for (index, task) in entry.open().filter(|(_, task)| task.insurance.is_none()) {
            let id = WorkunitId { job, index };
            let pending = farm.find(id).map_or(0, |unit| farm.workunit(unit).pending.len());
            if pending == 0 || pending >= REPLICAS {
                continue;
            }
            let whole_us = entry.lasts_us(entry.usual_us());
            let danger = |risk, left_us| {
                let on = task.run.map(|run| run.host);
                Danger { id, risk, until_us, left_us, on, share: entry.share }
            };
            let Some(run) = task.run else {
                if task.is_held && still_us.saturating_add(whole_us) > until_us {
                    list.push(danger(f64::INFINITY, None));
                }
                continue;
            };
            let Rest { left_us, upper_us, is_beyond } = rest(now, entry, task);
            let risk = outlook.closings(run.host, left_us);
            if upper_us > until_us {
                list.push(danger(f64::INFINITY, (!is_beyond).then_some(left_us)));
            } else if !entry.is_movable()
                && risk > unsure
                && left_us.saturating_add(whole_us) > until_us
            {
                list.push(danger(risk.min(1.0), Some(left_us)));
            }
        }
    }
    list
}

/// For how long a task still runs.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// As far as can be expected, in microseconds.
    left_us: u64,
    /// Nine times of ten no longer than this.
    upper_us: u64,
    /// Whether it has taken longer than nine of ten do.
    is_beyond: bool,
}

fn rest(now: Time, entry: &Entry, task: &Task) -> Rest {
    let (done_us, usual_us, upper_us) = (task.done_us(now), entry.usual_us(), upper_us(entry));
    let left_us = estimate::safely_left_us(usual_us, usual_us, done_us);
    let upper_left_us = estimate::safely_left_us(upper_us, usual_us, done_us).max(left_us);
    Rest {
        left_us: entry.lasts_us(left_us),
        upper_us: entry.lasts_us(upper_left_us),
        is_beyond: done_us > upper_us,
    }
}

/// What a task takes at most, nine times of ten.
fn upper_us(entry: &Entry) -> u64 {
    match entry.is_predicted {
        true => entry.usual_us(),
        false => entry.usual_us().saturating_mul(NAMED_UPPER_PERMILLE) / 1_000,
    }
}

/// For how long a task usually runs on a host: longer or shorter than on its job's slowest kind of host
/// by as much as its kind is known to be.
fn takes_us(book: &Book, farm: &Farm, id: WorkunitId, host: HostIx) -> u64 {
    let Some((entry, job)) = book.get(id.job).zip(farm.job(id.job)) else { return u64::MAX };
    let slowest_us = estimate::longest_us(&job.spec).unwrap_or(1).max(1);
    let here_us = estimate::time_on_us(&job.spec, &farm.host(host).info);
    let part = |us: u64| u128::from(us) * u128::from(here_us) / u128::from(slowest_us);
    entry.lasts_us(u64::try_from(part(entry.usual_us())).unwrap_or(u64::MAX))
}
