//! Which jobs can still be done in time.
//!
//! A job is measured by the cores that it was promised on. One that was promised on a forecast counts
//! on all cores of the hosts that are there, as its promise did: that they give less now is no news.
//! Any other job counts on the cores that are given.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Span, Time};

use crate::farm::{Farm, Host};
use crate::policy::deadline::book::{Book, Entry};
use crate::policy::deadline::list::{self, Piece};

/// Hosts whose links broke have so long to come back, and so have all hosts after the broker began
/// anew: as long as a broker keeps their leases where nobody says otherwise.
pub(super) const RETURN: Span = Span::from_secs(120);

/// The cores that jobs count on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cores {
    /// Those that are given, and those that hosts gave whose links broke just now.
    given: u32,
    /// All that these hosts have.
    all: u32,
    /// When the first host whose link broke is no longer thought to come back.
    pub(super) until: Option<Time>,
}

impl Cores {
    /// Those that a lane can count on.
    pub(super) fn of(farm: &Farm, now: Time, lane: Lane) -> Self {
        let mut cores = Self::default();
        for (host, entry) in farm.hosts() {
            let back_by = entry.left_at + RETURN;
            let given = if entry.connected {
                farm.reach(lane, host).whole_cores()
            } else if now < back_by {
                cores.until = Some(cores.until.map_or(back_by, |until| until.min(back_by)));
                gave(farm, entry, lane)
            } else {
                continue;
            };
            cores.given = cores.given.saturating_add(given);
            cores.all = cores.all.saturating_add(entry.info.cores.max(given));
        }
        cores
    }
}

/// What a host gave the lane before its link broke.
fn gave(farm: &Farm, entry: &Host, lane: Lane) -> u32 {
    let before = entry.leases.iter().filter(|lease| farm.workunit(lease.workunit).lane < lane);
    before.fold(entry.capacity(), |left, lease| left.minus(lease.share)).whole_cores()
}

/// A job with what is certainly left of it.
#[derive(Debug)]
struct Rest {
    job: JobId,
    /// Until it is due, in microseconds.
    until_us: u64,
    tasks: Vec<Piece>,
    /// Whether its tasks can be interrupted at no cost.
    is_movable: bool,
}

/// The jobs that can no longer be done in time on these cores, those aside that are `spared`.
pub(super) fn out_of_reach(
    book: &Book,
    now: Time,
    cores: Cores,
    spared: impl Fn(JobId) -> bool,
) -> Vec<JobId> {
    let mut rests = rests(book, now, |job, entry| !entry.is_forecast && !spared(job));
    let mut lost = drop_late(cores.given, &mut rests);
    let forecast = self::rests(book, now, |job, entry| entry.is_forecast && !spared(job));
    if !forecast.is_empty() {
        rests.extend(forecast);
        rests.sort_by_key(|rest| (rest.until_us, rest.job));
        lost.extend(drop_late(cores.all, &mut rests));
    }
    lost
}

/// What is left of some jobs that are not late, in the order in which they are due.
fn rests(book: &Book, now: Time, of: impl Fn(JobId, &Entry) -> bool) -> Vec<Rest> {
    let goes_on = |entry: &Entry| entry.due > now && entry.open().next().is_some();
    let rest = |(job, entry): (JobId, &Entry)| Rest {
        job,
        until_us: entry.due.since(now).as_micros(),
        tasks: list::pieces(0, entry, now, |task| entry.least_left_us(now, task)).collect(),
        is_movable: entry.is_movable(),
    };
    let going_on = book.iter().filter(|(job, entry)| goes_on(entry) && of(*job, entry));
    let mut rests: Vec<Rest> = going_on.map(rest).collect();
    rests.sort_by_key(|rest| (rest.until_us, rest.job));
    rests
}

/// Takes out those that can no longer be done in time on so many cores: as few as possible. Where
/// jobs are too many together, the one goes that asks most of the cores: without it most others can
/// be done.
///
/// Source: J. M. Moore, "An n Job, One Machine Sequencing Algorithm for Minimizing the Number of
/// Late Jobs", 1968 (on one machine).
fn drop_late(cores: u32, rests: &mut Vec<Rest>) -> Vec<JobId> {
    let mut lost = Vec::new();
    while let Err(at) = fit(cores, rests) {
        let work_us = |rest: &Rest| {
            let left = rest.tasks.iter().map(|task| task.left_us);
            left.fold(0, u64::saturating_add)
        };
        let is_alone = fit(cores, std::slice::from_ref(&rests[at])).is_err();
        let first = if is_alone { at } else { 0 };
        let most = (first..=at).max_by_key(|at| (work_us(&rests[*at]), rests[*at].job));
        lost.push(rests.remove(most.unwrap_or(at)).job);
    }
    lost
}

/// Whether so many equal cores can do all of it in time, from now on; the rests in the order in
/// which they are due. Exact where all tasks can be moved; where some cannot, what the policy does if
/// nothing changes has to do it.
///
/// # Errors
/// The place of the first job that is late.
fn fit(cores: u32, rests: &[Rest]) -> Result<(), usize> {
    fit_moved(cores, rests)?;
    if rests.iter().all(|rest| rest.is_movable) {
        return Ok(());
    }
    let numbered = rests
        .iter()
        .enumerate()
        .flat_map(|(job, rest)| rest.tasks.iter().map(move |task| Piece { job, ..*task }));
    list::late(cores, numbered).first().map_or(Ok(()), |at| Err(*at))
}

/// The same if tasks are moved at will. Exact.
///
/// # Errors
/// The place of the first job that cannot be done beside those that are due before it.
///
/// Source: S. Sahni, "Preemptive Scheduling with Due Dates", 1979.
fn fit_moved(cores: u32, rests: &[Rest]) -> Result<(), usize> {
    // How far each core is taken, the least first. A task goes on one core, or on the end of one and
    // then, earlier, on the beginning of what another has left: never on two at a time.
    let mut taken_us = vec![0_u64; cores as usize];
    for (at, rest) in rests.iter().enumerate() {
        let due_us = rest.until_us;
        for Piece { left_us: work_us, .. } in &rest.tasks {
            let latest_us = due_us.checked_sub(*work_us).ok_or(at)?;
            // The last core on which it still fits, and the one behind it, on which it does not.
            let fits = taken_us.partition_point(|taken_us| *taken_us <= latest_us);
            let place = fits.checked_sub(1).ok_or(at)?;
            let behind = taken_us.get(fits).copied().filter(|behind_us| *behind_us < due_us);
            let more_us = match behind.filter(|_| taken_us[place] < latest_us) {
                Some(behind_us) => {
                    taken_us[fits..].rotate_left(1);
                    taken_us[cores as usize - 1] = due_us;
                    work_us - (due_us - behind_us)
                }
                None => *work_us,
            };
            let now_us = taken_us[place] + more_us;
            let shorter = taken_us[place + 1..].partition_point(|taken_us| *taken_us < now_us);
            taken_us[place..=place + shorter].rotate_left(1);
            taken_us[place + shorter] = now_us;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::deadline::{Claim, fits};

    fn task(until_us: u64, left_us: u64) -> Piece {
        Piece { job: 0, left_us, until_us, is_pinned: false }
    }

    fn rests(jobs: &[(u64, u32, u64)]) -> Vec<Rest> {
        let rest = |(number, (until_us, tasks, work_us)): (u64, &(u64, u32, u64))| Rest {
            job: JobId::new(number),
            until_us: *until_us,
            tasks: vec![task(*until_us, *work_us); *tasks as usize],
            is_movable: true,
        };
        let mut rests: Vec<_> = (1..).zip(jobs).map(rest).collect();
        rests.sort_by_key(|rest| rest.until_us);
        rests
    }

    proptest! {
        #[test]
        fn it_fits_exactly_where_the_flow_says_so(
            cores in 1_u32..5,
            jobs in prop::collection::vec((1_u64..40, 1_u32..5, 1_u64..20), 1..7),
        ) {
            let claim = |(due_us, tasks, work_us): &(u64, u32, u64)| Claim {
                from_us: 0,
                due_us: *due_us,
                tasks: *tasks,
                work_us: *work_us,
            };
            let claims: Vec<Claim> = jobs.iter().map(claim).collect();
            prop_assert_eq!(fit(cores, &rests(&jobs)).is_ok(), fits(cores, &claims).is_ok());
        }
    }
}
