//! What each host is to run next.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gleaner_protocol::{JobId, Time, WorkunitId};

use super::BatchConfig;
use crate::farm::{Farm, Host, HostIx, Job, WorkunitIx};
use crate::limits::{BATCH_MACHINES_MAX, BATCH_REPLICAS_MAX};
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
        now: Time,
        farm: &Farm,
        config: BatchConfig,
        jobs: &BTreeSet<JobId>,
        ends: &BTreeMap<(WorkunitIx, HostIx), Time>,
    ) -> Self {
        let (items, is_cut) = waiting(farm, jobs);
        let slots = slots(now, farm, ends);
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
        let mut plan = Self { is_cut, ..Self::default() };
        for (_, host, item) in starts {
            let id = items[item].id;
            plan.queues.entry(host).or_default().push_back(id);
            *plan.counts.entry(id).or_default() += 1;
        }
        plan
    }

    /// Whether more waits than was mapped.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
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
            None => farm.is_able(host, self.id.job),
        };
        if may { expected_us(self.job, farm.host(host)).unwrap_or(NEVER) } else { NEVER }
    }
}

/// What waits of these jobs in order of submission, and whether that is not all.
fn waiting<'a>(farm: &'a Farm, jobs: &BTreeSet<JobId>) -> (Vec<Item<'a>>, bool) {
    let mut items = Vec::new();
    for job in jobs.iter().filter_map(|job| farm.job(*job)) {
        let first = job.open.keys().next().copied().unwrap_or(job.next).min(job.next);
        let end = if job.has_untouched() { job.workunit_count() } else { job.next };
        let end = end.max(job.open.keys().next_back().map_or(0, |last| last + 1));
        for index in first..end {
            let open = job.open.get(&index).copied();
            let replicas = match open {
                Some(workunit) => farm.workunit(workunit).waiting,
                None if job.has_untouched() && job.is_untouched(index) => {
                    u16::from(job.spec.replication)
                }
                None => 0,
            };
            if items.len() + usize::from(replicas) > BATCH_REPLICAS_MAX {
                return (items, true);
            }
            let id = WorkunitId { job: job.id, index };
            items.extend((0..replicas).map(|_| Item { id, job, open }));
        }
    }
    (items, false)
}

/// The slots of connected hosts, and when each is free, in microseconds from now.
fn slots(
    now: Time,
    farm: &Farm,
    ends: &BTreeMap<(WorkunitIx, HostIx), Time>,
) -> Vec<(HostIx, u64)> {
    let mut slots = Vec::new();
    for (index, host) in farm.hosts().filter(|(_, host)| host.connected) {
        let mut busy: Vec<u64> = host
            .leases
            .iter()
            .map(|lease| {
                ends.get(&(lease.workunit, index)).map_or(0, |end| end.since(now).as_micros())
            })
            .collect();
        busy.resize(host.fragment.slots as usize, 0);
        slots.extend(busy.into_iter().map(|ready| (index, ready)));
        if slots.len() >= BATCH_MACHINES_MAX {
            slots.truncate(BATCH_MACHINES_MAX);
            break;
        }
    }
    slots
}

/// Expected run time of a workunit of the job on the host; `None` where it cannot run there.
fn expected_us(job: &Job, host: &Host) -> Option<u64> {
    let known = &job.spec.profile.run_time_us;
    if known.is_empty() {
        return Some(UNKNOWN_US);
    }
    known.get(host.info.kind.as_ref()?).copied()
}

/// Expected run time of a workunit on a host, in microseconds; 0 where none is expected.
pub(super) fn run_time_us(farm: &Farm, id: WorkunitId, host: HostIx) -> u64 {
    let job = farm.job(id.job);
    job.and_then(|job| expected_us(job, farm.host(host))).unwrap_or(0)
}

/// Whether a connected host that gives anything may run a waiting replica of it.
pub(super) fn is_wanted_anywhere(farm: &Farm, workunit: WorkunitIx) -> bool {
    let id = farm.workunit(workunit).id;
    let giving = farm.hosts().filter(|(_, host)| host.connected && host.fragment.slots > 0);
    let job = farm.job(id.job);
    giving.take(BATCH_MACHINES_MAX).any(|(index, host)| {
        let expected = job.and_then(|job| expected_us(job, host));
        expected.is_some() && farm.is_eligible(workunit, index).is_ok()
    })
}
