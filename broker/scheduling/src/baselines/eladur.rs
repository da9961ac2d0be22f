//! Elastic shares under deadlines, as published.

use std::cmp::Reverse;

use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{JobId, Share, Span, Time, WorkunitId};

use crate::farm::{Farm, HostIx};
use crate::policy::deadline::admission;
use crate::policy::deadline::book::Book;
use crate::policy::deadline::estimate::Margin;
use crate::{Change, Decline, Desk, Policy, Trigger, Violation, WaitReason};

/// How [`Eladur`] is set.
#[derive(Debug, Clone, Copy)]
pub struct EladurConfig {
    /// What is added to predicted times, in thousandths.
    pub margin_permille: u32,
    /// How far apart the steps of its monitor are.
    pub monitor: Span,
}

impl Default for EladurConfig {
    fn default() -> Self {
        Self { margin_permille: 100, monitor: Span::from_secs(60) }
    }
}

/// ElaDUR: deadlines first, then utilization, then response times.
///
/// - `job_arrival`: a job is taken where its predicted tasks fit beside all that was promised.
/// - `assign_resources`: a task needs the least share of a core with which it ends in time; the
///   one with the greatest goes first, each to the host that it fits best.
/// - `monitor`, every minute and at each arrival and completion: the least shares are computed
///   anew from what is left to do. `update_vm_slots`: who has less than its least share gets it,
///   from what is free or by being moved; what remains free on a host goes to the one that has
///   exceeded its prediction, else to all of its tasks alike.
///
/// Open in the source: how schedulability is determined. A flow over all hosts is taken here, for
/// tasks that may be moved; shares that are pinned to a host admit fewer of the published jobs
/// than published. A task that finds no host with its least share free waits for the next step,
/// when it needs more and comes earlier. A host that best fit would leave idle takes a task from
/// one that has several: the source migrates tasks to hosts with more free resources, but does
/// not say which.
///
/// Source: J. Delgado, "Scheduling Medical Application Workloads on Virtualized Computing
/// Systems", 2012, Figure 16 and Sections V.2.2, V.3.
#[derive(Debug)]
pub struct Eladur {
    config: EladurConfig,
    book: Book,
    next: Option<Time>,
}

/// A task with the share that it needs.
#[derive(Debug, Clone, Copy)]
struct Need {
    id: WorkunitId,
    least: u32,
    due: Time,
    on: Option<HostIx>,
    is_overrun: bool,
    is_pinned: bool,
}

/// A host with what it gives.
#[derive(Debug)]
struct Bin {
    host: HostIx,
    free: u32,
    /// Who is to run there, by place in the list of needs, with which share.
    tasks: Vec<(usize, u32)>,
}

impl Eladur {
    /// A fresh one.
    #[must_use]
    pub fn new(config: EladurConfig) -> Self {
        Self { config, book: Book::default(), next: None }
    }

    fn margin(&self) -> Margin {
        Margin { permille: self.config.margin_permille, ends_with_due: false }
    }

    /// Tasks in the order in which they are placed.
    fn needs(&self, now: Time) -> Vec<Need> {
        let mut needs = Vec::new();
        for (job, entry) in self.book.iter() {
            for (index, task) in entry.open().filter(|(_, task)| !task.is_held) {
                let until = entry.due.since(now).as_micros();
                let least = task.left_us(now).saturating_mul(1000).div_ceil(until.max(1)).min(1000);
                needs.push(Need {
                    id: WorkunitId { job, index },
                    least: u32::try_from(least).expect("at most 1000").max(1),
                    due: entry.due,
                    on: task.run.map(|run| run.host),
                    is_overrun: task.is_overrun(now),
                    is_pinned: task.run.is_some() && !entry.is_movable(),
                });
            }
        }
        needs.sort_by_key(|need| {
            (Reverse(need.is_pinned), Reverse(need.least), need.on.is_none(), need.due, need.id)
        });
        needs
    }

    /// Best fit: the host with the least left that is enough; where it runs, if that is one.
    fn place(needs: &[Need], farm: &Farm) -> Vec<Bin> {
        let given = farm.hosts().filter(|(_, host)| host.connected && host.fragment.cores > 0);
        let mut bins: Vec<Bin> = given
            .map(|(host, _)| Bin {
                host,
                free: farm.reach(Lane::Deadline, host).as_permille(),
                tasks: Vec::new(),
            })
            .collect();
        for (place, need) in needs.iter().enumerate() {
            let fits =
                |bin: &&mut Bin| bin.free >= need.least && farm.is_able(bin.host, need.id.job);
            let keeps = |bin: &Bin| need.on == Some(bin.host);
            let best =
                bins.iter_mut().filter(fits).min_by_key(|bin| (!keeps(bin), bin.free, bin.host));
            if let Some(bin) = best {
                bin.free -= need.least;
                bin.tasks.push((place, need.least));
            }
        }
        Self::use_idle(needs, farm, &mut bins);
        bins
    }

    /// Moves to each host that would stand idle the task that needs most of those that share one.
    fn use_idle(needs: &[Need], farm: &Farm, bins: &mut [Bin]) {
        for idle in 0..bins.len() {
            if !bins[idle].tasks.is_empty() {
                continue;
            }
            let to = bins[idle].host;
            let shared = bins.iter().enumerate().filter(|(_, bin)| bin.tasks.len() > 1);
            let tasks = shared.flat_map(|(at, bin)| bin.tasks.iter().map(move |task| (at, task.0)));
            let may_move = |(_, place): &(usize, usize)| {
                !needs[*place].is_pinned && farm.is_able(to, needs[*place].id.job)
            };
            let Some((from, place)) = tasks.filter(may_move).min_by_key(|(_, place)| *place) else {
                continue;
            };
            let least = needs[place].least;
            bins[from].tasks.retain(|task| task.0 != place);
            bins[from].free += least;
            bins[idle].tasks.push((place, least));
            bins[idle].free -= least;
        }
    }

    /// Gives what a host has left to its tasks.
    fn share_out(bin: &mut Bin, needs: &[Need]) {
        let overrun = bin.tasks.iter().any(|(place, _)| needs[*place].is_overrun);
        loop {
            let wants = |(place, share): &(usize, u32)| {
                *share < 1000 && (!overrun || needs[*place].is_overrun)
            };
            let count = bin.tasks.iter().filter(|task| wants(task)).count();
            let each = u32::try_from(count).ok().and_then(|count| bin.free.checked_div(count));
            let Some(each) = each.filter(|each| *each > 0) else { return };
            for task in bin.tasks.iter_mut().filter(|task| wants(task)) {
                let more = each.min(1000 - task.1);
                task.1 += more;
                bin.free -= more;
            }
        }
    }

    fn update_slots(&mut self, desk: &mut Desk<'_>) {
        let needs = self.needs(desk.now());
        let mut bins = Self::place(&needs, desk.farm());
        bins.iter_mut().for_each(|bin| Self::share_out(bin, &needs));
        let mut goals: Vec<Option<(HostIx, u32)>> = vec![None; needs.len()];
        for bin in &bins {
            for (place, share) in &bin.tasks {
                goals[*place] = Some((bin.host, *share));
            }
        }
        for (need, goal) in needs.iter().zip(&goals) {
            if need.on.is_some() && need.on != goal.map(|(host, _)| host) {
                self.book.stop(desk, need.id);
            }
        }
        // Shares shrink before others grow, so that none ever exceed what a host has.
        for is_growth in [false, true] {
            for (need, goal) in needs.iter().zip(&goals) {
                let Some((host, share)) = goal.map(|(host, share)| (host, Share::permille(share)))
                else {
                    continue;
                };
                let run = self
                    .book
                    .get(need.id.job)
                    .and_then(|entry| entry.tasks[need.id.index as usize].run.map(|run| run.share));
                match run {
                    Some(now) if (share > now) == is_growth => {
                        self.book.set_share(desk, need.id, share);
                    }
                    None if is_growth => {
                        self.book.start_with_share(desk, need.id, host, share);
                    }
                    _ => {}
                }
            }
        }
        self.next = (!self.book.is_empty()).then(|| desk.now() + self.config.monitor);
    }
}

impl Policy for Eladur {
    fn name(&self) -> &'static str {
        "eladur"
    }

    fn admit(&mut self, now: Time, farm: &Farm, spec: &JobSpec) -> Result<(), Decline> {
        admission::check(&self.book, now, farm, spec, self.margin())
    }

    fn left_us(&self, now: Time, job: JobId) -> Vec<u64> {
        self.book.all_left_us(now, job)
    }

    fn expected_end(&self, farm: &Farm, job: JobId) -> Option<Time> {
        self.book.expected_end(farm, job)
    }

    fn observe(&mut self, now: Time, farm: &Farm, change: Change) {
        if self.book.observe(now, farm, change, self.margin()) {
            self.next = Some(now);
        }
    }

    fn plan(&mut self, desk: &mut Desk<'_>, trigger: Trigger) {
        if self.book.is_empty() {
            self.next = None;
            return;
        }
        match trigger {
            Trigger::Deadline => self.update_slots(desk),
            Trigger::Host(_) | Trigger::Work => self.next = Some(desk.now()),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    fn explain(&self, _farm: &Farm, _workunit: WorkunitId) -> Vec<WaitReason> {
        let running = self.book.iter().flat_map(|(_, entry)| entry.open());
        let tasks = running.filter(|(_, task)| task.run.is_some()).count();
        vec![WaitReason::MoreUrgent { tasks }]
    }

    fn check_invariants(&self, farm: &Farm, lane: Lane) -> Result<(), Violation> {
        self.book.check(farm, lane)
    }
}
