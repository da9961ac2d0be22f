//! What each host is to run next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::{JobId, Time, WorkunitId};

use super::BatchConfig;
use crate::Desk;
use crate::farm::{Farm, Host, HostIx, Job, WorkunitIx};
use crate::limits::{
    BATCH_JOBS_COMPARED, BATCH_MACHINES_LEAST, BATCH_MACHINES_MAX, BATCH_OPEN_LOOKED_AT,
    BATCH_REPLICAS_MAX,
};
use crate::policy::mixed::times::{NEVER, Times};

/// Expected run time where nothing is known, in microseconds: the same everywhere.
const UNKNOWN_US: u64 = 1_000_000;

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

/// A replica that waits.
struct Item<'a> {
    id: WorkunitId,
    job: &'a Job,
    /// Where it was touched.
    open: Option<WorkunitIx>,
}

impl Plan {
    /// Maps what waits of these jobs onto the slots of its connected hosts.
    pub(super) fn new(
        desk: &Desk<'_>,
        config: BatchConfig,
        jobs: &BTreeSet<JobId>,
        ends: &BTreeMap<(WorkunitIx, HostIx), Time>,
    ) -> Self {
        let farm = desk.farm();
        let (mut slots, counts_on_lent) = slots(desk, ends);
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
        keep_first_to_end(farm, &items, &mut slots, machines.min(BATCH_MACHINES_MAX));
        let ready = slots.iter().map(|(_, ready)| *ready).collect();
        let mut times = Vec::with_capacity(items.len() * slots.len());
        for item in &items {
            let mut last: Option<(HostIx, u64)> = None;
            for (host, _) in &slots {
                let time = match last {
                    Some((of, time)) if of == *host => time,
                    _ => item.time_on(farm, *host),
                };
                last = Some((*host, time));
                times.push(time);
            }
        }
        let times = Times::with_ready(ready, times);
        let mapping = config.rule.map(&times, config.effort);
        let mut starts = Vec::with_capacity(items.len());
        for (machine, (host, ready)) in slots.iter().enumerate() {
            let mut start = *ready;
            for item in mapping.queue(machine) {
                starts.push((start, *host, *item));
                start += times.get(*item, machine);
            }
        }
        starts.sort_unstable();
        let is_short = is_cut || starts.len() < items.len();
        let steps = items.len().pow(2) * slots.len();
        let mut plan = Self { is_cut, is_short, steps, counts_on_lent, ..Self::default() };
        for (host, _) in &slots {
            *plan.slots.entry(*host).or_default() += 1;
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

    /// What the host is to run next.
    pub(super) fn first(&self, host: HostIx) -> Option<WorkunitId> {
        self.queues.get(&host)?.front().copied()
    }

    /// Takes the head off a host's queue.
    pub(super) fn pop(&mut self, host: HostIx) {
        let popped = self.queues.get_mut(&host).and_then(VecDeque::pop_front);
        if let Some(id) = popped
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
    fn time_on(&self, farm: &Farm, host: HostIx) -> u64 {
        let may = match self.open {
            Some(workunit) => farm.is_eligible(workunit, host).is_ok(),
            None => farm.has_ability(host, self.job.ability),
        };
        if may { expected_us(self.job, farm.host(host)).unwrap_or(NEVER) } else { NEVER }
    }
}

/// What waits of these jobs in order of submission, at most so many replicas, `of_job` of each job and
/// at least a workunit; and whether more than so many wait.
fn waiting<'a>(
    farm: &'a Farm,
    jobs: &BTreeSet<JobId>,
    most: usize,
    mut of_job: impl FnMut(&Job) -> usize,
) -> (Vec<Item<'a>>, bool) {
    let mut items = Vec::new();
    for job in jobs.iter().filter_map(|job| farm.job(*job)) {
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
fn slots(
    desk: &Desk<'_>,
    ends: &BTreeMap<(WorkunitIx, HostIx), Time>,
) -> (Vec<(HostIx, u64)>, bool) {
    let (now, farm) = (desk.now(), desk.farm());
    let (mut slots, mut idle, mut lent) = (Vec::new(), Vec::new(), Vec::new());
    for (index, host) in farm.hosts().filter(|(_, host)| host.connected) {
        let own = host.leases.iter().filter_map(|lease| {
            let unit = farm.workunit(lease.workunit);
            let end = || match ends.get(&(lease.workunit, index)) {
                Some(end) => end.since(now).as_micros(),
                // It was adopted: since when it runs is not known.
                None => run_time_us(farm, unit.id, index),
            };
            (unit.lane == desk.lane()).then(end)
        });
        let before = slots.len();
        slots.extend(own.map(|ready| (index, ready)));
        let own = slots.len() - before;
        let all = desk.reach(index).whole_cores() as usize;
        let free = (host.free_share().whole_cores() as usize).min(all.saturating_sub(own));
        idle.extend(std::iter::repeat_n((index, 0), free));
        lent.extend(std::iter::repeat_n((index, 0), all.saturating_sub(own + free)));
    }
    let may_hold = usize::try_from(farm.room_of(desk.lane())).unwrap_or(usize::MAX);
    idle.truncate(may_hold);
    lent.truncate(may_hold - idle.len());
    let counts_on_lent = !lent.is_empty();
    // In the order of hosts, as far as they do not depend on others.
    slots.append(&mut idle);
    slots.sort_by_key(|(host, _)| *host);
    slots.append(&mut lent);
    (slots, counts_on_lent)
}

/// How many of these slots are of hosts that can run a job now.
fn able(farm: &Farm, slots: &[(HostIx, u64)], job: &Job) -> usize {
    slots.iter().filter(|(host, _)| farm.has_ability(*host, job.ability)).count()
}

/// Keeps those slots, at most so many, that would end a replica of one of the first jobs first, idle
/// ones before busy ones, in the order in which they are.
fn keep_first_to_end(farm: &Farm, items: &[Item<'_>], slots: &mut Vec<(HostIx, u64)>, most: usize) {
    if slots.len() <= most {
        return;
    }
    let mut jobs: Vec<&Job> = Vec::with_capacity(BATCH_JOBS_COMPARED);
    for item in items {
        if jobs.last().is_none_or(|last| last.id != item.job.id) {
            jobs.push(item.job);
        }
        if jobs.len() == BATCH_JOBS_COMPARED {
            break;
        }
    }
    let shortest = |host: HostIx| {
        let able = jobs.iter().filter(|job| farm.has_ability(host, job.ability));
        able.filter_map(|job| expected_us(job, farm.host(host))).min().unwrap_or(NEVER)
    };
    let end = |&(host, ready): &(HostIx, u64)| match shortest(host) {
        NEVER => (true, NEVER),
        time => (ready > 0, ready.saturating_add(time)),
    };
    let mut order: Vec<_> = slots.iter().map(end).zip(0..).collect();
    order.select_nth_unstable(most);
    order.truncate(most);
    order.sort_unstable_by_key(|(_, at)| *at);
    *slots = order.into_iter().map(|(_, at): (_, usize)| slots[at]).collect();
}

/// Expected run time of a workunit of the job on the host; `None` where it cannot run there.
fn expected_us(job: &Job, host: &Host) -> Option<u64> {
    let known = &job.spec.profile.run_time_us;
    if known.is_empty() {
        return Some(job.spec.profile.cpu_us.unwrap_or(UNKNOWN_US));
    }
    let of_kind = host.info.kind.as_ref().and_then(|kind| known.get(kind).copied());
    of_kind.or(job.spec.profile.cpu_us)
}

/// Expected run time of a workunit on a host, in microseconds; 0 where none is expected.
pub(super) fn run_time_us(farm: &Farm, id: WorkunitId, host: HostIx) -> u64 {
    let job = farm.job(id.job);
    job.and_then(|job| expected_us(job, farm.host(host))).unwrap_or(0)
}

impl Plan {
    /// Whether a host that it was made for may run a waiting replica of it.
    pub(super) fn has_place_for(&self, farm: &Farm, workunit: WorkunitIx) -> bool {
        let job = farm.job(farm.workunit(workunit).id.job);
        self.slots.keys().any(|host| {
            let expected = job.and_then(|job| expected_us(job, farm.host(*host)));
            expected.is_some() && farm.is_eligible(workunit, *host).is_ok()
        })
    }
}

/// The first workunit with a replica that waits, of the first few of each job, that a host may run.
pub(super) fn first_for(farm: &Farm, jobs: &BTreeSet<JobId>, host: HostIx) -> Option<WorkunitId> {
    let jobs = jobs.iter().filter_map(|job| farm.job(*job));
    let mut jobs = jobs.filter(|job| {
        farm.has_ability(host, job.ability) && expected_us(job, farm.host(host)).is_some()
    });
    jobs.find_map(|job| {
        let open = job.open.iter().take(BATCH_OPEN_LOOKED_AT);
        let mut begun = open.filter(|(_, workunit)| farm.is_eligible(**workunit, host).is_ok());
        let index = begun.next().map(|(index, _)| *index).or_else(|| job.next_untouched());
        index.map(|index| WorkunitId { job: job.id, index })
    })
}
