//! What the lane runs, since when, and when it is expected to end.

use std::collections::BTreeMap;

use gleaner_protocol::Time;

use crate::farm::{Farm, HostIx, WorkunitIx};
use crate::policy::mixed::run_times::{EntryIx, Question, RunTimes};

/// A replica that takes longer than expected is expected to take this part of what it took once more.
const OVERDUE_PART: u64 = 2;
/// So much later than expected, as a part of what was expected, is not late yet.
const LATE_PART: u64 = 20;

/// A replica that runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// What it is.
    pub(super) question: Question,
    /// What it was planned to take, in microseconds.
    pub(super) planned_us: u64,
    /// Whether it does all of the work: what another one saved is none of its own.
    pub(super) is_whole: bool,
    at: Time,
    /// When it is late.
    late: Time,
}

/// Replicas that the policy has started.
///
/// # Invariants
/// - `first_late` is no later than the first of them is late.
#[derive(Debug, Default)]
pub(super) struct Running {
    begun: BTreeMap<(WorkunitIx, HostIx), Begun>,
    first_late: Option<Time>,
}

impl Running {
    /// A replica was started.
    pub(super) fn begin(
        &mut self,
        now: Time,
        of: (WorkunitIx, HostIx),
        (question, is_whole): (Question, bool),
        planned_us: u64,
    ) {
        let late = after(now, planned_us.saturating_add(planned_us / LATE_PART));
        self.begun.insert(of, Begun { question, planned_us, is_whole, at: now, late });
        self.first_late = Some(self.first_late.map_or(late, |first| first.min(late)));
    }

    /// A replica has ended.
    pub(super) fn end(&mut self, workunit: WorkunitIx, host: HostIx) -> Option<Begun> {
        self.begun.remove(&(workunit, host))
    }

    /// Forgets replicas of a workunit that no host holds any more; all of them where it ends.
    pub(super) fn forget(&mut self, farm: &Farm, workunit: WorkunitIx, ends: bool) {
        let of_it = self.begun.range((workunit, HostIx::FIRST)..);
        let of_it = of_it.map(|(of, _)| *of).take_while(|(of, _)| *of == workunit);
        let gone: Vec<_> = of_it.filter(|of| ends || !is_held(farm, *of)).collect();
        for of in gone {
            self.begun.remove(&of);
        }
    }

    /// Whether anything of an entry runs: what is parked may stand still for long.
    pub(super) fn has(&self, farm: &Farm, entry: EntryIx) -> bool {
        let runs = |(workunit, host): (WorkunitIx, HostIx)| {
            farm.host(host).leases.iter().any(|lease| lease.workunit == workunit)
        };
        let mut of_it = self.begun.iter().filter(|(_, begun)| begun.question.entry() == entry);
        of_it.any(|(of, _)| runs(*of))
    }

    /// A plan was made around them: what is late now is not late again before it has taken a good part
    /// of its time once more.
    pub(super) fn put_off(&mut self, now: Time) {
        for begun in self.begun.values_mut().filter(|begun| begun.late < now) {
            let ran = now.since(begun.at).as_micros();
            begun.late = after(now, (ran / OVERDUE_PART).max(1));
        }
    }

    /// Whether a replica takes longer than was expected when it was planned around last.
    pub(super) fn is_any_late(&mut self, now: Time) -> bool {
        if self.first_late.is_some_and(|late| late < now) {
            self.first_late = self.begun.values().map(|begun| begun.late).min();
        }
        self.first_late.is_some_and(|late| late < now)
    }

    /// In how many microseconds a replica is expected to end, by what is known now; none where it was
    /// not started by the policy.
    pub(super) fn left_us(
        &mut self,
        now: Time,
        times: &RunTimes,
        of: (WorkunitIx, HostIx),
    ) -> Option<u64> {
        let begun = self.begun.get_mut(&of)?;
        let ran = now.since(begun.at).as_micros();
        let expected = times.expected_us(&begun.question).unwrap_or(begun.planned_us);
        let left = expected.checked_sub(ran).unwrap_or(ran / OVERDUE_PART);
        begun.late = begun.late.max(after(now, left.saturating_add(expected / LATE_PART)));
        Some(left)
    }
}

fn after(now: Time, time_us: u64) -> Time {
    Time::from_micros(now.as_micros().saturating_add(time_us))
}

fn is_held(farm: &Farm, (workunit, host): (WorkunitIx, HostIx)) -> bool {
    farm.host(host).all_leases().any(|lease| lease.workunit == workunit)
}
