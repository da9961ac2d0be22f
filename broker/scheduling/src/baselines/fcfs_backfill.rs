//! First come, first served, with reservations and backfilling.

use std::collections::BTreeMap;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Span, Time, WorkunitId};

use crate::farm::{Farm, HostIx};
use crate::policy::deadline::book::{self, Book};
use crate::policy::deadline::cores;
use crate::policy::deadline::estimate::{self, Margin};
use crate::{Change, Decline, Desk, Policy, Trigger, Violation, WaitReason};

/// How [`FcfsBackfill`] is set.
#[derive(Debug, Clone, Copy)]
pub struct FcfsBackfillConfig {
    /// What is added to predicted times, in thousandths.
    pub margin_permille: u32,
}

impl Default for FcfsBackfillConfig {
    fn default() -> Self {
        Self { margin_permille: 100 }
    }
}

/// Jobs in order of arrival, every task on a core of its own, all tasks of a job at once.
///
/// A job that needs more cores than are free reserves them for later; one that arrives later may
/// run before it where no reservation is delayed. A job that would end late is declined. What
/// ends before its predicted time lets reservations begin earlier, in their order.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Section V.4.2.
#[derive(Debug)]
pub struct FcfsBackfill {
    config: FcfsBackfillConfig,
    book: Book,
    bookings: BTreeMap<JobId, Booking>,
    next: Option<Time>,
}

/// Cores for a job.
#[derive(Debug, Clone, Copy)]
struct Booking {
    from: Time,
    length: Span,
    cores: u32,
    /// Whether its tasks have begun.
    has_begun: bool,
}

impl Booking {
    fn until(&self) -> Time {
        self.from + self.length
    }
}

impl FcfsBackfill {
    /// A fresh one.
    #[must_use]
    pub fn new(config: FcfsBackfillConfig) -> Self {
        let (book, bookings) = (Book::default(), BTreeMap::new());
        Self { config, book, bookings, next: None }
    }

    fn margin(&self) -> Margin {
        Margin { permille: self.config.margin_permille, ends_with_due: false }
    }

    fn wanted(&self, now: Time, spec: &JobSpec) -> Booking {
        let share = spec.cores_permille;
        let length = estimate::lasts_us(share, self.margin().expected_us(spec));
        let cores = spec.workunits.len().saturating_mul(share.cores_touched());
        Booking { from: now, length: Span::from_micros(length), cores, has_begun: false }
    }

    /// The earliest time from `now` at which `cores` are free for `length` beside `others`.
    /// `None` where there are never as many.
    fn earliest(now: Time, all: u32, wanted: &Booking, others: &[Booking]) -> Option<Time> {
        if wanted.cores > all {
            return None;
        }
        let ends = others.iter().map(Booking::until).filter(|end| *end > now);
        let mut starts: Vec<Time> = ends.chain([now]).collect();
        starts.sort_unstable();
        starts.into_iter().find(|from| {
            let until = *from + wanted.length;
            let meets = |at: Time| {
                let there = others.iter().filter(|other| other.from <= at && at < other.until());
                there.map(|other| other.cores).fold(wanted.cores, u32::saturating_add) <= all
            };
            let begins = others.iter().map(|other| other.from);
            meets(*from) && begins.filter(|at| from < at && *at < until).all(meets)
        })
    }

    /// Runs that go on. Those beyond their prediction are thought to need as much again as the
    /// book thinks.
    fn running(&self, now: Time) -> Vec<Booking> {
        let begun = self.bookings.iter().filter(|(_, booking)| booking.has_begun);
        begun
            .filter_map(|(job, booking)| {
                let entry = self.book.get(*job)?;
                let open = u32::try_from(entry.open().count()).expect("WORKUNITS_MAX fits u32");
                let cores = open.saturating_mul(entry.share.cores_touched());
                let beyond_us = estimate::overrun_us(booking.length.as_micros());
                let beyond = now + Span::from_micros(beyond_us);
                let length = booking.until().max(beyond).since(booking.from);
                Some(Booking { cores, length, ..*booking })
            })
            .collect()
    }

    /// Reservations anew, in order of arrival; those that can begin now do.
    fn reserve(&mut self, now: Time, farm: &Farm) {
        let all = cores::given(farm);
        let mut others = self.running(now);
        for booking in self.bookings.values_mut().filter(|booking| !booking.has_begun) {
            if let Some(from) = Self::earliest(now, all, booking, &others) {
                booking.from = from;
                booking.has_begun = from == now;
                others.push(*booking);
            }
        }
    }

    fn start_begun(&mut self, desk: &mut Desk<'_>) {
        let mut waiting = Vec::new();
        for (job, _) in self.bookings.iter().filter(|(_, booking)| booking.has_begun) {
            let tasks = self.book.get(*job).into_iter().flat_map(book::Entry::open);
            let idle = tasks.filter(|(_, task)| task.run.is_none() && !task.is_held);
            waiting.extend(idle.map(|(index, _)| WorkunitId { job: *job, index }));
        }
        for id in waiting {
            let free = |host: &HostIx| desk.room(*host) > 0;
            let hosts: Vec<_> = desk.farm().hosts().map(|(host, _)| host).filter(free).collect();
            hosts.into_iter().any(|host| self.book.start(desk, id, host));
        }
    }
}

impl Policy for FcfsBackfill {
    fn name(&self) -> &'static str {
        "fcfs-backfill"
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        let (all, wanted) = (cores::given(farm), self.wanted(now, spec));
        let mut others = self.running(now);
        others.extend(self.bookings.values().filter(|booking| !booking.has_begun));
        let Some(from) = Self::earliest(now, all, &wanted, &others) else {
            let why = format!("{} tasks at once need more than the {all} cores", wanted.cores);
            return Err(why.into());
        };
        let (until, due) = (from + wanted.length, estimate::due(now, spec));
        if until <= due {
            return Ok(());
        }
        let late_s = until.since(due).as_micros().div_ceil(1_000_000);
        let why = format!("the first {} cores that come free end it {late_s} s late", wanted.cores);
        Err(Decline { why, earliest_due: Some(until) })
    }

    fn left_us(&self, now: Time, job: JobId) -> Vec<u64> {
        self.book.all_left_us(now, job)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if let Change::JobAdded(job) = change
            && let Some(entry) = farm.job(job)
        {
            self.bookings.insert(job, self.wanted(now, &entry.spec));
        }
        if let Change::JobEnded(job) = change {
            self.bookings.remove(&job);
        }
        if self.book.observe(now, farm, change, self.margin()) {
            self.next = Some(now);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        if self.book.is_empty() {
            self.next = None;
            return;
        }
        if trigger != Trigger::Deadline {
            self.next = Some(desk.now());
            return;
        }
        let now = desk.now();
        self.reserve(now, desk.farm());
        self.start_begun(desk);
        let reserved = self.bookings.values().filter(|booking| !booking.has_begun);
        self.next = reserved.map(|booking| booking.from).filter(|from| *from > now).min();
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn explain(&self, _farm: &Farm, workunit: WorkunitId) -> Vec<WaitReason> {
        let ahead = self.bookings.range(..workunit.job);
        let tasks_queued = ahead.map(|(_, booking)| booking.cores as usize).sum();
        vec![WaitReason::FirstComeFirstServed { tasks_queued }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        if !self.bookings.keys().eq(self.book.iter().map(|(job, _)| job).collect::<Vec<_>>().iter())
        {
            let detail = format!("cores are booked for {:?}", self.bookings.keys());
            return Err(Violation::new("deadline-bookings", detail));
        }
        self.book.check(farm, lane)
    }
}
