//! Which jobs can still be done in time.
//!
//! A job is measured by the cores that it was promised on. One that was promised on a forecast counts
//! on all cores of the hosts that are there, as its promise did: that they give less now is no news.
//! Any other job counts on the cores that are given.

use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Span, Time};

use crate::farm::{Farm, Host};
use crate::policy::deadline::book::{Book, Entry};
use crate::policy::deadline::feasible::{self, Rest};

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

/// The jobs that can no longer be done in time on these cores, those aside that are `spared`.
pub(super) fn out_of_reach(
    book: &Book,
    now: Time,
    cores: Cores,
    spared: impl Fn(JobId) -> bool,
) -> Vec<JobId> {
    let mut going = going(book, now, |job, entry| !entry.is_forecast && !spared(job));
    let mut lost = drop_late(cores.given, &mut going);
    let forecast = self::going(book, now, |job, entry| entry.is_forecast && !spared(job));
    if !forecast.jobs.is_empty() {
        going.extend(forecast);
        lost.extend(drop_late(cores.all, &mut going));
    }
    lost
}

/// Jobs with what is certainly left of them, in the order in which they are due.
#[derive(Debug, Default)]
struct Going {
    jobs: Vec<JobId>,
    rests: Vec<Rest>,
}

impl Going {
    fn extend(&mut self, other: Self) {
        let mut all: Vec<(JobId, Rest)> = self.jobs.drain(..).zip(self.rests.drain(..)).collect();
        all.extend(other.jobs.into_iter().zip(other.rests));
        all.sort_by_key(|(job, rest)| (rest.until_us, *job));
        (self.jobs, self.rests) = all.into_iter().unzip();
    }
}

/// Some jobs that are not late.
fn going(book: &Book, now: Time, of: impl Fn(JobId, &Entry) -> bool) -> Going {
    let goes_on = |entry: &Entry| entry.due > now && entry.open().next().is_some();
    let jobs = book.iter().filter(|(job, entry)| goes_on(entry) && of(*job, entry));
    let mut jobs: Vec<(JobId, &Entry)> = jobs.collect();
    jobs.sort_by_key(|(job, entry)| (entry.due, *job));
    let rest = |entry| Rest::of(entry, now, |task| entry.least_left_us(now, task));
    let rests = jobs.iter().map(|(_, entry)| rest(entry)).collect();
    Going { jobs: jobs.into_iter().map(|(job, _)| job).collect(), rests }
}

/// Takes out those that can no longer be done in time on so many cores: as few as possible. Where
/// jobs are too many together, the one goes that asks most of the cores: without it most others can
/// be done.
///
/// Source: J. M. Moore, "An n Job, One Machine Sequencing Algorithm for Minimizing the Number of
/// Late Jobs", 1968 (on one machine).
fn drop_late(cores: u32, going: &mut Going) -> Vec<JobId> {
    let mut lost = Vec::new();
    while let Err(at) = feasible::fit(cores, &going.rests) {
        let is_alone = feasible::fit(cores, std::slice::from_ref(&going.rests[at])).is_err();
        let first = if is_alone { at } else { 0 };
        let asks = |at: &usize| (going.rests[*at].work_us(), going.jobs[*at]);
        let most = (first..=at).max_by_key(asks).unwrap_or(at);
        going.rests.remove(most);
        lost.push(going.jobs.remove(most));
    }
    lost
}
