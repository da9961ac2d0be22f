//! Which chunk copies the published policy moves, where, and for how long it tries.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{ChunkId, Span, Time};

use super::co_scheduling::key_s;
use crate::farm::{Farm, HostIx};
use crate::policy::replication::config::{GIVEN_UP_FOR, ReplicationConfig};
use crate::policy::replication::pace::Pace;
use crate::policy::replication::tasks::Tasks;
use crate::{Desk, Patience, Violation};

/// Moves on their way, and those that were given up.
///
/// A host whose work W in the HPQ is less than its share S of it, in proportion to its speed,
/// gets a copy of the first workunit's chunk whose holders have together more work than their
/// shares, if the move and the computing fit into the least time in which a holder would be done
/// with all its work. What is marked for a move is not assigned until the move has ended. A host
/// takes part in one move at a time, to either side.
///
/// Deviations: the share is printed as `S × t / Σ t`, which would give the slowest host the
/// most; `S × (1/t) / Σ (1/t)` is what the text describes and what is used. A move that was
/// given up once is not tried again, of which nothing is said: nothing would keep it from being
/// tried at every step. Hosts are looked at in their order.
///
/// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation and
/// Replication", 2006, Section IV C.
///
/// # Invariants
/// - A host takes part in one move at a time.
#[derive(Debug, Default)]
pub(crate) struct CopyMoves {
    marked: BTreeMap<ChunkId, HostIx>,
    /// Since when.
    given_up: BTreeMap<(ChunkId, HostIx), Time>,
}

/// Work in the HPQ by host, in workunits.
struct Shares {
    work: Vec<f64>,
    share: Vec<f64>,
}

impl CopyMoves {
    /// Whether a chunk is on its way.
    pub(crate) fn is_marked(&self, chunk: ChunkId) -> bool {
        self.marked.contains_key(&chunk)
    }

    /// A copy came, or could not be moved.
    pub(crate) fn arrived(&mut self, now: Time, host: HostIx, chunk: ChunkId, held: bool) {
        if self.marked.get(&chunk) == Some(&host) {
            self.marked.remove(&chunk);
            if !held {
                self.given_up.insert((chunk, host), now);
            }
        }
    }

    /// A host is gone: no copy comes to it any more. `true` where one was to come, whose workunit may
    /// be assigned now.
    pub(crate) fn forget_host(&mut self, host: HostIx) -> bool {
        let before = self.marked.len();
        self.marked.retain(|_, to| *to != host);
        self.marked.len() < before
    }

    /// There are no jobs any more.
    pub(crate) fn forget_all(&mut self) {
        *self = Self::default();
    }

    /// Starts the moves that are worth it now.
    pub(crate) fn consider(
        &mut self,
        desk: &mut Desk<'_>,
        tasks: &Tasks,
        pace: &Pace,
        config: &ReplicationConfig,
    ) {
        let now = desk.now();
        self.given_up.retain(|_, since| now.since(*since) < GIVEN_UP_FOR);
        let mut queue: Vec<(f64, u32)> = tasks
            .ready(config.window)
            .filter(|index| !self.is_marked(tasks.chunk(*index)))
            .map(|index| (key_s(tasks, pace, index), index))
            .collect();
        queue.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut shares = Shares::new(desk.farm(), tasks, pace, &queue);
        let mut engaged = self.engaged(tasks);
        let hosts: Vec<HostIx> = desk.farm().hosts().map(|(host, _)| host).collect();
        for host in hosts {
            let of = desk.farm().host(host);
            let keeps = of.connected && of.info.chunk_cache_mib > 0;
            let may = keeps && desk.farm().is_able(host, tasks.job);
            if !may || engaged.contains(&host) || !shares.lacks_work(host) {
                continue;
            }
            let found = queue.iter().enumerate().find_map(|(at, (_, index))| {
                let is_free = !tasks.holders(*index).iter().any(|from| engaged.contains(from));
                let deadline_s =
                    is_free.then(|| self.deadline_s(tasks, pace, &shares, *index, host));
                deadline_s.flatten().map(|deadline_s| (at, deadline_s))
            });
            let Some((at, deadline_s)) = found else { continue };
            let (_, index) = queue.remove(at);
            if self.start(desk, tasks, index, host, deadline_s, config) {
                let holders = tasks.holders(index);
                shares.leave_out(holders);
                engaged.insert(host);
                engaged.extend(holders);
            }
        }
    }

    /// The hosts that take part in a move, to either side.
    fn engaged(&self, tasks: &Tasks) -> BTreeSet<HostIx> {
        let mut engaged: BTreeSet<HostIx> = self.marked.values().copied().collect();
        let indices = self.marked.keys().filter_map(|chunk| tasks.reader_of(*chunk));
        engaged.extend(indices.flat_map(|index| tasks.holders(index)));
        engaged
    }

    /// How long a move of this workunit's chunk to this host may take, in seconds, if it is one
    /// to be made: the deadline `min F − T_c`.
    fn deadline_s(
        &self,
        tasks: &Tasks,
        pace: &Pace,
        shares: &Shares,
        index: u32,
        to: HostIx,
    ) -> Option<f64> {
        let holders = tasks.holders(index);
        if holders.contains(&to)
            || self.given_up.contains_key(&(tasks.chunk(index), to))
            || !shares.have_more_than_their_share(holders)
        {
            return None;
        }
        let finish_s = holders.iter().map(|host| shares.work[host.get()] * pace.unit_s(*host));
        let deadline_s = finish_s.fold(f64::INFINITY, f64::min) - pace.unit_s(to);
        (deadline_s > 0.0 && deadline_s.is_finite()).then_some(deadline_s)
    }

    fn start(
        &mut self,
        desk: &mut Desk<'_>,
        tasks: &Tasks,
        index: u32,
        to: HostIx,
        deadline_s: f64,
        config: &ReplicationConfig,
    ) -> bool {
        let chunk = tasks.chunk(index);
        let mut holders = tasks.holders(index).iter().copied();
        let Some(from) = holders.find(|host| desk.farm().host(*host).connected) else {
            return false;
        };
        let within = Span::from_micros((deadline_s * 1e6) as u64);
        let patience = Patience { within, first_permille: config.first_permille };
        let moves = desk.move_copy_within(chunk, from, to, Some(patience)).is_ok();
        if moves {
            self.marked.insert(chunk, to);
        }
        moves
    }

    /// `queue-members`: what is marked is on its way.
    pub(crate) fn check(&self, farm: &Farm) -> Result<(), Violation> {
        let lost = self.marked.iter().find(|(chunk, host)| !farm.is_moving(**chunk, **host));
        lost.map_or(Ok(()), |(chunk, _)| {
            let detail = format!("chunk {} is marked and not on its way", chunk.index);
            Err(Violation::new("queue-members", detail))
        })
    }
}

impl Shares {
    fn new(farm: &Farm, tasks: &Tasks, pace: &Pace, queue: &[(f64, u32)]) -> Self {
        let mut rates = vec![0.0; farm.host_numbers()];
        for (host, entry) in farm.hosts() {
            if entry.connected && farm.is_able(host, tasks.job) {
                rates[host.get()] = pace.rate(host);
            }
        }
        let all: f64 = rates.iter().sum();
        let total = queue.len() as f64;
        let mut work = vec![0.0; rates.len()];
        for (_, index) in queue {
            for host in tasks.holders(*index) {
                work[host.get()] += 1.0;
            }
        }
        for rate in &mut rates {
            *rate = if all > 0.0 { total * *rate / all } else { 0.0 };
        }
        Self { work, share: rates }
    }

    /// W < S.
    fn lacks_work(&self, host: HostIx) -> bool {
        self.work[host.get()] < self.share[host.get()]
    }

    fn have_more_than_their_share(&self, hosts: &[HostIx]) -> bool {
        let sum = |of: &[f64]| hosts.iter().map(|host| of[host.get()]).sum::<f64>();
        sum(&self.work) > sum(&self.share)
    }

    /// A workunit is marked: its holders do not count on it.
    fn leave_out(&mut self, holders: &[HostIx]) {
        for host in holders {
            self.work[host.get()] -= 1.0;
        }
    }
}
