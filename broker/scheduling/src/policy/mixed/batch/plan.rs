//! What each host is to run next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::job::Lane;
use gleaner_protocol::{HostKind, JobId, Kept, Time, WorkunitId};

use super::BatchConfig;
use super::running::Running;
use crate::Desk;
use crate::farm::{Farm, HostIx, Job, WorkunitIx};
use crate::features::workunits_differ;
use crate::limits::{
    BATCH_JOBS_COMPARED, BATCH_MACHINES_LEAST, BATCH_MACHINES_MAX, BATCH_OPEN_LOOKED_AT,
    BATCH_REPLICAS_MAX,
};
use crate::policy::mixed::rule::Rule;
use crate::policy::mixed::run_times::{EntryIx, KindIx, Question, RunTimes, Said, Work};
use crate::policy::mixed::times::{NEVER, Times};

/// Queues of replicas, one for each host.
///
/// # Invariants
/// - `counts` says how often each workunit is in the queues.
#[derive(Debug, Default)]
pub(super) struct Plan {
    queues: BTreeMap<HostIx, VecDeque<WorkunitId>>,
    counts: BTreeMap<WorkunitId, u32>,
    is_cut: bool,
    /// Whether something waits that it has no place for.
    is_short: bool,
    steps: usize,
    /// Whether some of the slots that it was made for were held by lanes behind.
    counts_on_lent: bool,
    /// Slots of each host that it was made for.
    slots: BTreeMap<HostIx, u32>,
}

/// A core of a host that the lane may use.
#[derive(Debug, Clone, Copy)]
struct Slot {
    host: HostIx,
    /// When it is free, in microseconds from now.
    ready_us: u64,
    /// What the replica that is on it has of the host beside it.
    kept: Kept,
}

/// A replica that waits.
struct Item<'a> {
    id: WorkunitId,
    job: &'a Job,
    /// Where it was touched.
    open: Option<WorkunitIx>,
}

impl Plan {
    /// Maps what waits of these jobs, each with the time when it came, onto the slots of its connected
    /// hosts.
    pub(super) fn new(
        desk: &Desk<'_>,
        config: BatchConfig,
        jobs: &BTreeMap<JobId, Time>,
        run_times: &mut RunTimes,
        running: &mut Running,
    ) -> Self {
        run_times.refit();
        let farm = desk.farm();
        let (mut slots, counts_on_lent) = slots(desk, run_times, running);
        let machines = slots.len().clamp(1, BATCH_MACHINES_LEAST);
        let most = (config.steps_max / machines).isqrt().clamp(1, BATCH_REPLICAS_MAX);
        let (mut items, is_cut) = waiting(farm, jobs, most, |_| usize::MAX);
        if is_cut {
            // No more of a job than slots could begin at once: those behind it have their chance.
            let mut able_slots = BTreeMap::new();
            items = waiting(farm, jobs, most, |job| {
                *able_slots.entry(job.ability).or_insert_with(|| able(farm, &slots, job))
            })
            .0;
        }
        let machines = (config.steps_max / items.len().pow(2).max(1)).max(machines);
        let table = Table::of(farm, jobs, &items, &slots, run_times);
        keep_first_to_end(farm, &items, &table, &mut slots, machines.min(BATCH_MACHINES_MAX));
        let ready = slots.iter().map(|slot| slot.ready_us).collect();
        let mut places = Places::of(farm, desk.lane(), &slots);
        let mut times = Vec::with_capacity(items.len() * slots.len());
        for (place, item) in items.iter().enumerate() {
            let mut last: Option<(HostIx, u64)> = None;
            let has_place = places.of_job(item.job);
            for (at, Slot { host, .. }) in slots.iter().enumerate() {
                let time = match last {
                    Some((of, time)) if of == *host => time,
                    _ if item.may_run_on(farm, *host) => table.time_us(place, *host),
                    _ => NEVER,
                };
                last = Some((*host, time));
                times.push(if has_place.is_none_or(|has| has[at]) { time } else { NEVER });
            }
        }
        let times = Times::with_ready(ready, times);
        let counts_on_lent = counts_on_lent || places.counts_on_lent;
        let mapping = config.rule.map(&times, config.effort);
        let mut starts = Vec::with_capacity(items.len());
        let mut tries = Tries::of(&table, config.rule == Rule::Gleaner);
        for (machine, Slot { host, ready_us, .. }) in slots.iter().enumerate() {
            let mut start = *ready_us;
            for item in tries.order(mapping.queue(machine), *host, |item| times.get(item, machine))
            {
                starts.push((start, *host, item));
                start += times.get(item, machine);
            }
        }
        starts.sort_unstable();
        let is_short = is_cut || starts.len() < items.len();
        let steps = items.len().pow(2) * slots.len();
        let mut plan = Self { is_cut, is_short, steps, counts_on_lent, ..Self::default() };
        for slot in &slots {
            *plan.slots.entry(slot.host).or_default() += 1;
        }
        for (_, host, item) in starts {
            let id = items[item].id;
            plan.queues.entry(host).or_default().push_back(id);
            *plan.counts.entry(id).or_default() += 1;
        }
        plan
    }

    /// How many steps it took, at most.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Whether more waits than was mapped.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether something waits that it has no place for, and a host has more slots now than it was
    /// made for.
    pub(super) fn is_outgrown(&self, host: HostIx, slots: u32) -> bool {
        self.is_short && slots > self.slots.get(&host).copied().unwrap_or(0)
    }

    /// Whether something is queued on the word that lanes behind would give way, who may no longer have
    /// to.
    pub(super) fn may_be_stuck(&self) -> bool {
        self.counts_on_lent && !self.counts.is_empty()
    }

    /// What is queued for the host, what it is to run first before the rest.
    pub(super) fn queue(&self, host: HostIx) -> impl Iterator<Item = WorkunitId> {
        self.queues.get(&host).into_iter().flatten().copied()
    }

    /// Takes something off a host's queue.
    pub(super) fn take(&mut self, host: HostIx, id: WorkunitId) {
        let queue = self.queues.get_mut(&host);
        let taken =
            queue.and_then(|queue| queue.remove(queue.iter().position(|queued| *queued == id)?));
        if let Some(id) = taken
            && let Some(count) = self.counts.get_mut(&id)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&id);
            }
        }
    }

    /// How often a workunit is queued.
    pub(super) fn count(&self, id: WorkunitId) -> u32 {
        self.counts.get(&id).copied().unwrap_or(0)
    }

    /// The host that a workunit is queued for, and behind how many others.
    pub(super) fn place_of(&self, id: WorkunitId) -> Option<(HostIx, usize)> {
        let places = self.queues.iter().filter_map(|(host, queue)| {
            let ahead = queue.iter().position(|queued| *queued == id)?;
            Some((*host, ahead))
        });
        places.min_by_key(|(_, ahead)| *ahead)
    }
}

impl Item<'_> {
    fn may_run_on(&self, farm: &Farm, host: HostIx) -> bool {
        match self.open {
            Some(workunit) => farm.is_eligible(workunit, host).is_ok(),
            None => farm.has_ability(host, self.job.ability),
        }
    }
}

/// On which slots replicas have a place that have something of their hosts beside cores: on as many of
/// a host as it has that for at a time.
struct Places<'a> {
    farm: &'a Farm,
    lane: Lane,
    slots: &'a [Slot],
    known: BTreeMap<Kept, Vec<bool>>,
    /// Whether lanes behind have some of what those take which have a place.
    counts_on_lent: bool,
}

impl<'a> Places<'a> {
    fn of(farm: &'a Farm, lane: Lane, slots: &'a [Slot]) -> Self {
        Self { farm, lane, slots, known: BTreeMap::new(), counts_on_lent: false }
    }

    /// Whether a replica of a job has a place on each slot; none where it has one on all.
    fn of_job(&mut self, job: &Job) -> Option<&[bool]> {
        let kept = job.spec.kept();
        if kept == Kept::NONE {
            return None;
        }
        let (farm, lane, slots) = (self.farm, self.lane, self.slots);
        let counts_on_lent = &mut self.counts_on_lent;
        Some(self.known.entry(kept).or_insert_with(|| {
            let (are, is_lent) = places_for(farm, lane, slots, kept);
            *counts_on_lent |= is_lent;
            are
        }))
    }
}

/// Whether each slot is a place for what has so much beside it. Those are that become free with as much,
/// and of the others the first to be free, as many as there is enough left for. Where that is none, and the
/// host gives enough, it is the first one at whose end enough has come back. And whether lanes behind have some
/// of what is left.
fn places_for(farm: &Farm, lane: Lane, slots: &[Slot], kept: Kept) -> (Vec<bool>, bool) {
    let mut of_hosts: BTreeMap<HostIx, Vec<usize>> = BTreeMap::new();
    for (at, slot) in slots.iter().enumerate() {
        of_hosts.entry(slot.host).or_default().push(at);
    }
    let (mut are, mut is_lent) = (vec![false; slots.len()], false);
    for (host, mut of_host) in of_hosts {
        let most = kept.times_in(farm.host(host).fragment.kept());
        let reach = farm.kept_reach(lane, host, kept);
        is_lent |= kept.times_in(reach) > kept.times_in(farm.host(host).kept_left());
        let has_it = |at: &usize| kept.fits(slots[*at].kept);
        let holding = of_host.iter().filter(|at| has_it(at)).count();
        let places =
            kept.times_in(reach).saturating_add(u32::try_from(holding).unwrap_or(u32::MAX));
        of_host.sort_by_key(|at| (!has_it(at), slots[*at].ready_us));
        of_host.iter().zip(0..places.min(most)).for_each(|(at, _)| are[*at] = true);
        if places == 0 && most > 0 {
            let mut left = reach;
            let is_enough = |at: &&usize| {
                left = left.plus(slots[**at].kept);
                kept.fits(left)
            };
            // What lanes before this one have comes back some time.
            let place = of_host.iter().find(is_enough).or(of_host.last());
            place.into_iter().for_each(|at| are[*at] = true);
        }
    }
    (are, is_lent)
}

/// The times that are planned with, of items on kinds of hosts, in microseconds.
struct Table {
    /// The place of each kind in the rows, by host.
    kinds: BTreeMap<HostIx, usize>,
    rows: Vec<Vec<u64>>,
    /// Likewise, the entries of which too little is known.
    unsure: Vec<Vec<Option<EntryIx>>>,
    /// The row of each item: those that are alike have one.
    row_of: Vec<usize>,
}

impl Table {
    fn of(
        farm: &Farm,
        jobs: &BTreeMap<JobId, Time>,
        items: &[Item<'_>],
        slots: &[Slot],
        run_times: &mut RunTimes,
    ) -> Self {
        let mut table = Self {
            kinds: BTreeMap::new(),
            rows: Vec::new(),
            unsure: Vec::new(),
            row_of: Vec::new(),
        };
        let mut columns: Vec<(KindIx, Option<&HostKind>)> = Vec::new();
        for Slot { host, .. } in slots {
            table.kinds.entry(*host).or_insert_with(|| {
                let kind = farm.host(*host).info.kind.as_ref();
                let place = columns.iter().position(|(_, known)| *known == kind);
                place.unwrap_or_else(|| {
                    columns.push((run_times.kind(kind), kind));
                    columns.len() - 1
                })
            });
        }
        let mut last: Option<&Item<'_>> = None;
        for item in items {
            let is_alike = last.is_some_and(|last| {
                last.id == item.id
                    || last.id.job == item.id.job && !workunits_differ(&item.job.spec)
            });
            last = Some(item);
            if !is_alike {
                let came = jobs.get(&item.id.job).copied().unwrap_or(Time::ZERO);
                let work = run_times.work(item.job, item.id.index, came);
                let on = |(index, kind): &(KindIx, Option<&HostKind>)| {
                    question(work, *index, item.job, *kind)
                };
                let questions: Vec<Question> = columns.iter().map(on).collect();
                let time_us = |of: &Question| run_times.planned_us(of).unwrap_or(NEVER);
                table.rows.push(questions.iter().map(time_us).collect());
                let unsure = |of: &Question| run_times.is_unsure(of).then(|| of.entry());
                table.unsure.push(questions.iter().map(unsure).collect());
            }
            table.row_of.push(table.rows.len() - 1);
        }
        table
    }

    fn time_us(&self, item: usize, host: HostIx) -> u64 {
        self.kinds.get(&host).map_or(NEVER, |kind| self.rows[self.row_of[item]][*kind])
    }

    fn unsure(&self, item: usize, host: HostIx) -> Option<EntryIx> {
        self.unsure[self.row_of[item]][*self.kinds.get(&host)?]
    }
}

/// In which order a host runs what is planned for it while some times are not known well. When it has
/// run all of it does not depend on that, but what is learned first does, and so does what is left to
/// make up for mistakes with.
struct Tries<'a> {
    table: &'a Table,
    /// Entries that come first somewhere.
    tried: BTreeSet<EntryIx>,
    are_wanted: bool,
}

impl<'a> Tries<'a> {
    fn of(table: &'a Table, are_wanted: bool) -> Self {
        let is_any = || table.unsure.iter().flatten().any(Option::is_some);
        Self { table, tried: BTreeSet::new(), are_wanted: are_wanted && is_any() }
    }

    /// One of each entry that is to be tried comes first, and then what takes longest: the short ones
    /// are placed last, and better.
    fn order(
        &mut self,
        queue: &[usize],
        host: HostIx,
        time_us: impl Fn(usize) -> u64,
    ) -> Vec<usize> {
        if !self.are_wanted {
            return queue.to_vec();
        }
        let (mut order, mut rest): (Vec<usize>, Vec<usize>) =
            queue.iter().copied().partition(|item| {
                let entry = self.table.unsure(*item, host);
                entry.is_some_and(|entry| self.tried.insert(entry))
            });
        rest.sort_by_key(|item| Reverse(time_us(*item)));
        order.append(&mut rest);
        order
    }
}

fn question(work: Work, index: KindIx, job: &Job, kind: Option<&HostKind>) -> Question {
    RunTimes::question(work, index, Said::of(&job.spec.profile, kind))
}

/// A workunit of a job that came at `came`, on a host.
pub(super) fn question_of(
    farm: &Farm,
    run_times: &mut RunTimes,
    id: WorkunitId,
    host: HostIx,
    came: Time,
) -> Option<Question> {
    let (job, kind) = (farm.job(id.job)?, farm.host(host).info.kind.as_ref());
    let work = run_times.work(job, id.index, came);
    Some(question(work, run_times.kind(kind), job, kind))
}

/// What waits of these jobs in order of submission, at most so many replicas, `of_job` of each job and
/// at least a workunit; and whether more than so many wait.
fn waiting<'a>(
    farm: &'a Farm,
    jobs: &BTreeMap<JobId, Time>,
    most: usize,
    mut of_job: impl FnMut(&Job) -> usize,
) -> (Vec<Item<'a>>, bool) {
    let mut items = Vec::new();
    for job in jobs.keys().filter_map(|job| farm.job(*job)) {
        let (first, most_of_it) = (items.len(), of_job(job));
        let end = if job.has_untouched() { job.workunit_count() } else { job.next };
        let begun = job.open.range(..job.next).map(|(index, _)| *index);
        for index in begun.chain(job.next..end) {
            let open = job.open.get(&index).copied();
            let replicas = match open {
                Some(workunit) => farm.workunit(workunit).waiting,
                None if job.has_untouched() && job.is_untouched(index) => {
                    u16::from(job.spec.replication)
                }
                None => 0,
            };
            if !items.is_empty() && items.len() + usize::from(replicas) > most {
                return (items, true);
            }
            if items.len() - first >= most_of_it {
                break;
            }
            let id = WorkunitId { job: job.id, index };
            items.extend((0..replicas).map(|_| Item { id, job, open }));
        }
    }
    (items, false)
}

/// The slots of connected hosts that are the lane's to use, and when each is free, in microseconds
/// from now; and whether lanes behind hold some of them. Those are last: what is idle is preferred to
/// them. Beside what the lane holds there are no more than it may hold.
fn slots(desk: &Desk<'_>, run_times: &mut RunTimes, running: &mut Running) -> (Vec<Slot>, bool) {
    let (now, farm) = (desk.now(), desk.farm());
    let (mut slots, mut idle, mut lent) = (Vec::new(), Vec::new(), Vec::new());
    for (index, host) in farm.hosts().filter(|(_, host)| host.connected) {
        let before = slots.len();
        for lease in &host.leases {
            let unit = farm.workunit(lease.workunit);
            if unit.lane == desk.lane() {
                let left = running.left_us(now, run_times, (lease.workunit, index));
                // Of one that was adopted it is not known since when it runs.
                let whole = || {
                    let question = question_of(farm, run_times, unit.id, index, Time::ZERO)?;
                    run_times.expected_us(&question)
                };
                let ready_us = left.or_else(whole).unwrap_or(0);
                slots.push(Slot { host: index, ready_us, kept: lease.kept() });
            }
        }
        let own = slots.len() - before;
        let all = desk.reach(index).whole_cores() as usize;
        let free = (host.free_share().whole_cores() as usize).min(all.saturating_sub(own));
        let empty = Slot { host: index, ready_us: 0, kept: Kept::NONE };
        idle.extend(std::iter::repeat_n(empty, free));
        lent.extend(std::iter::repeat_n(empty, all.saturating_sub(own + free)));
    }
    let may_hold = usize::try_from(farm.room_of(desk.lane())).unwrap_or(usize::MAX);
    idle.truncate(may_hold);
    lent.truncate(may_hold - idle.len());
    let counts_on_lent = !lent.is_empty();
    // In the order of hosts, as far as they do not depend on others.
    slots.append(&mut idle);
    slots.sort_by_key(|slot| slot.host);
    slots.append(&mut lent);
    (slots, counts_on_lent)
}

/// How many of these slots are of hosts that can run a job now.
fn able(farm: &Farm, slots: &[Slot], job: &Job) -> usize {
    slots.iter().filter(|slot| farm.has_ability(slot.host, job.ability)).count()
}

/// Keeps those slots, at most so many, that would end a replica of one of the first jobs first, idle
/// ones before busy ones, in the order in which they are.
fn keep_first_to_end(
    farm: &Farm,
    items: &[Item<'_>],
    table: &Table,
    slots: &mut Vec<Slot>,
    most: usize,
) {
    if slots.len() <= most {
        return;
    }
    let mut first: Vec<usize> = Vec::with_capacity(BATCH_JOBS_COMPARED);
    for (place, item) in items.iter().enumerate() {
        if first.last().is_none_or(|last| items[*last].id.job != item.id.job) {
            first.push(place);
        }
        if first.len() == BATCH_JOBS_COMPARED {
            break;
        }
    }
    let shortest = |host: HostIx| {
        let able = first.iter().filter(|item| farm.has_ability(host, items[**item].job.ability));
        able.map(|item| table.time_us(*item, host)).min().unwrap_or(NEVER)
    };
    let end = |slot: &Slot| match shortest(slot.host) {
        NEVER => (true, NEVER),
        time => (slot.ready_us > 0, slot.ready_us.saturating_add(time)),
    };
    let mut order: Vec<_> = slots.iter().map(end).zip(0..).collect();
    order.select_nth_unstable(most);
    order.truncate(most);
    order.sort_unstable_by_key(|(_, at)| *at);
    *slots = order.into_iter().map(|(_, at): (_, usize)| slots[at]).collect();
}

/// Whether a job says that it can run on a kind of host.
fn names(job: &Job, kind: Option<&HostKind>) -> bool {
    Said::of(&job.spec.profile, kind) != Said::Never
}

impl Plan {
    /// Whether a host that it was made for may run a waiting replica of it.
    pub(super) fn has_place_for(&self, farm: &Farm, workunit: WorkunitIx) -> bool {
        let job = farm.job(farm.workunit(workunit).id.job);
        self.slots.keys().any(|host| {
            let kind = farm.host(*host).info.kind.as_ref();
            job.is_some_and(|job| names(job, kind)) && farm.is_eligible(workunit, *host).is_ok()
        })
    }
}

/// The first workunit with a replica that waits, of the first few of each job, that a host may run.
pub(super) fn first_for(
    farm: &Farm,
    jobs: &BTreeMap<JobId, Time>,
    host: HostIx,
) -> Option<WorkunitId> {
    let jobs = jobs.keys().filter_map(|job| farm.job(*job));
    let kind = farm.host(host).info.kind.as_ref();
    let mut jobs = jobs.filter(|job| {
        farm.has_ability(host, job.ability)
            && names(job, kind)
            && farm.has_left(job.spec.lane, host, job.ability)
    });
    jobs.find_map(|job| {
        let open = job.open.iter().take(BATCH_OPEN_LOOKED_AT);
        let mut begun = open.filter(|(_, workunit)| farm.is_eligible(**workunit, host).is_ok());
        let index = begun.next().map(|(index, _)| *index).or_else(|| job.next_untouched());
        index.map(|index| WorkunitId { job: job.id, index })
    })
}
