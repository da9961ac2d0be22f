//! What is expected of a job's hosts, and who should do what of it.

use std::collections::BTreeMap;

use gleaner_protocol::ChunkId;

use super::pace::Pace;
use super::plan::{Forecast, assign, quotas};
use super::tasks::{Stage, Tasks};
use crate::Desk;
use crate::farm::{Farm, HostIx};

/// A host that was not measured yet is expected to take as long again as it has taken.
const UNKNOWN_FACTOR: f64 = 2.0;
/// One that takes longer than it did is expected to take this much longer than it has.
const LATE_FACTOR: f64 = 1.25;
/// A duplicate is worth it where it ends in less than this part of what the other still takes.
const DUPLICATE_GAIN: f64 = 0.9;
/// Workunits that wait and are planned for at once, the first ones. Of what is behind them each host may
/// begin what it has: the end is far.
const PLANNED_MAX: usize = 1_024;
/// Of these, so many that the flow left over are looked at, each on all hosts.
const SETTLED_MAX: usize = 128;
/// Longest time that a move is given, in seconds.
const WITHIN_S_MAX: f64 = 86_400.0;

/// The expectations of one moment.
#[derive(Debug)]
pub(super) struct Outlook {
    window: u32,
    /// The last workunit that was planned for, where there are more.
    horizon: Option<u32>,
    hosts: Vec<HostIx>,
    forecasts: Vec<Option<Forecast>>,
    /// Workunits that wait and whom they are given to.
    given: BTreeMap<u32, Option<usize>>,
    /// Expected ends of what runs, latest first, in seconds from now.
    late: Vec<(f64, u32)>,
    /// How many waiting workunits each host was given, those included whose chunks it is to get.
    counts: Vec<u32>,
    wanted: Vec<Wanted>,
}

/// A copy that should be moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    /// Of what this workunit reads.
    pub(super) index: u32,
    pub(super) to: HostIx,
    /// How long that may take, in seconds.
    pub(super) within_s: f64,
}

/// What is known of moves.
pub(super) trait Roads {
    /// How long a move is expected to take, in seconds.
    fn copy_s(&self) -> f64;
    /// Who is getting the chunk that a workunit reads.
    fn coming(&self, chunk: ChunkId) -> Option<HostIx>;
    /// Whether a move may be tried.
    fn may_try(&self, chunk: ChunkId, to: HostIx) -> bool;
}

impl Outlook {
    /// What is expected now. A host is planned for as if it had one slot; one that has more gets
    /// what it is given sooner.
    pub(super) fn new(
        desk: &Desk<'_>,
        tasks: &Tasks,
        pace: &Pace,
        roads: &impl Roads,
        window: u32,
    ) -> Self {
        let farm = desk.farm();
        let hosts: Vec<HostIx> = farm.hosts().map(|(host, _)| host).collect();
        let forecasts = forecasts(desk, tasks, pace);
        let ready: Vec<u32> = tasks.ready(window).take(PLANNED_MAX).collect();
        let horizon = ready.last().copied().filter(|_| ready.len() == PLANNED_MAX);
        let (quotas, _) = quotas(&forecasts, ready.len());
        let choices: Vec<Vec<usize>> = ready
            .iter()
            .map(|index| {
                let coming = roads.coming(tasks.chunk(*index));
                let may = |host: &&HostIx| tasks.may_run(farm, *index, **host);
                let holders = tasks.holders(*index).iter().filter(may);
                let mut all: Vec<usize> = holders.copied().chain(coming).map(HostIx::get).collect();
                // The fastest first: the cheap round of the flow takes the first with room.
                all.sort_by(|a, b| unit_of(&forecasts, *a).total_cmp(&unit_of(&forecasts, *b)));
                all
            })
            .collect();
        let given = assign(&choices, &quotas);
        let mut counts = vec![0; forecasts.len()];
        for host in given.iter().flatten() {
            counts[*host] += 1;
        }
        let given = ready.into_iter().zip(given).collect();
        let late = late(tasks, &forecasts);
        let wanted = Vec::new();
        let mut outlook = Self { window, horizon, hosts, forecasts, given, late, counts, wanted };
        outlook.settle(farm, tasks, roads);
        outlook
    }

    /// When a host would end one more workunit, in seconds from now, where the chunk is there
    /// after so long.
    fn end_of_one_more(&self, host: usize, there_s: f64) -> f64 {
        let Some(Forecast { unit_s, free_in_s }) = self.forecasts[host] else {
            return f64::INFINITY;
        };
        (free_in_s + f64::from(self.counts[host]) * unit_s).max(there_s) + unit_s
    }

    /// What the flow left over goes to whoever ends it first: one who has the chunk, beyond its
    /// number, or one who has to get it.
    fn settle(&mut self, farm: &Farm, tasks: &Tasks, roads: &impl Roads) {
        let left = self.given.iter().filter(|(_, host)| host.is_none()).map(|(index, _)| *index);
        let left: Vec<u32> = left.take(SETTLED_MAX).collect();
        // By the hosts' numbers, of which some may be free.
        let mut coming = vec![0.0; self.forecasts.len()];
        for index in left {
            let chunk = tasks.chunk(index);
            let may = |host: &&HostIx| tasks.may_run(farm, index, **host);
            let holders = tasks.holders(index).iter().filter(may);
            let holders = holders.map(|host| (self.end_of_one_more(host.get(), 0.0), host.get()));
            let here = holders.reduce(|best, next| if next.0 < best.0 { next } else { best });
            let (here_s, _) = here.unwrap_or((f64::INFINITY, 0));
            let others = self.hosts.iter().filter(|host| {
                self.forecasts[host.get()].is_some()
                    && keeps(farm, **host)
                    && tasks.holders(index).binary_search(host).is_err()
                    && roads.may_try(chunk, **host)
            });
            let others = others.map(|host| {
                let there_s = (coming[host.get()] + 1.0) * roads.copy_s();
                (self.end_of_one_more(host.get(), there_s), host.get())
            });
            let there = others.reduce(|best, next| if next.0 < best.0 { next } else { best });
            match (here, there) {
                (_, Some((there_s, to))) if there_s < here_s => {
                    let unit_s = unit_of(&self.forecasts, to);
                    let within_s = (here_s - unit_s).min(WITHIN_S_MAX);
                    self.wanted.push(Wanted { index, to: HostIx::from_index(to), within_s });
                    self.counts[to] += 1;
                    coming[to] += 1.0;
                }
                (Some((_, host)), _) => {
                    self.given.insert(index, Some(host));
                    self.counts[host] += 1;
                }
                _ => {}
            }
        }
        if self.given.is_empty() {
            self.settle_late(farm, tasks, roads, &mut coming);
        }
    }

    /// Nothing waits: copies of what will end late go to those who could do it sooner.
    fn settle_late(&mut self, farm: &Farm, tasks: &Tasks, roads: &impl Roads, coming: &mut [f64]) {
        for &(end_s, index) in &self.late {
            let chunk = tasks.chunk(index);
            let idle = self.hosts.iter().filter(|host| {
                let forecast = self.forecasts[host.get()];
                forecast.is_some_and(|forecast| forecast.free_in_s <= 0.0)
                    && coming[host.get()] == 0.0
                    && keeps(farm, **host)
                    && tasks.holders(index).binary_search(host).is_err()
                    && roads.may_try(chunk, **host)
            });
            let ends = idle.map(|host| (unit_of(&self.forecasts, host.get()), host.get()));
            let best = ends.reduce(|best, next| if next.0 < best.0 { next } else { best });
            let Some((unit_s, to)) = best else { break };
            let within_s = end_s * DUPLICATE_GAIN - unit_s;
            if within_s > roads.copy_s() {
                self.wanted.push(Wanted { index, to: HostIx::from_index(to), within_s });
                coming[to] += 1.0;
            }
        }
    }

    /// The mean time of one workunit, in seconds; not a number without hosts.
    pub(super) fn mean_unit_s(&self) -> f64 {
        let (mut rate, mut count) = (0.0, 0.0);
        for forecast in self.forecasts.iter().flatten() {
            rate += 1.0 / forecast.unit_s;
            count += 1.0;
        }
        count / rate
    }

    /// What a host should start now, if anything.
    pub(super) fn next_for(&self, farm: &Farm, tasks: &Tasks, host: HostIx) -> Option<u32> {
        let own = self.forecasts.get(host.get()).copied().flatten()?;
        let horizon = self.horizon.unwrap_or(u32::MAX);
        let held = tasks.of_host(host, self.window).take_while(|index| *index <= horizon);
        let given = held.filter(|index| {
            self.given.get(index) == Some(&Some(host.get()))
                && tasks.stage(*index) == Stage::Ready
                && tasks.may_run(farm, *index, host)
        });
        let keyed = given.map(|index| {
            let others = tasks.holders(index).iter().filter(|other| **other != host);
            let units = others.map(|other| unit_of(&self.forecasts, other.get()));
            (units.fold(f64::INFINITY, f64::min), index)
        });
        let best = keyed.reduce(|best, next| if next.0 > best.0 { next } else { best });
        if let Some((_, index)) = best {
            return Some(index);
        }
        if let Some(horizon) = self.horizon {
            let mut behind = tasks.of_host_behind(host, horizon, self.window);
            return behind.find(|index| {
                tasks.stage(*index) == Stage::Ready && tasks.may_run(farm, *index, host)
            });
        }
        let worth = own.unit_s / DUPLICATE_GAIN;
        let mut late = self.late.iter().take_while(|(end_s, _)| *end_s > worth);
        let may = |index: u32| {
            tasks.stage(index) == Stage::Running
                && tasks.may_run(farm, index, host)
                && tasks.may_duplicate(farm, index)
                && tasks.runs(index).len() < 2
        };
        late.find(|(_, index)| may(*index)).map(|(_, index)| *index)
    }

    /// A host has started a workunit.
    pub(super) fn started(&mut self, index: u32) {
        self.given.remove(&index);
    }

    /// The copies that should be moved, the most useful first.
    pub(super) fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }
}

/// What is expected of each host; nothing of those that may not run the job.
fn forecasts(desk: &Desk<'_>, tasks: &Tasks, pace: &Pace) -> Vec<Option<Forecast>> {
    let (farm, now) = (desk.farm(), desk.now());
    let mut elapsed_s: BTreeMap<HostIx, f64> = BTreeMap::new();
    for run in tasks.all_runs().flat_map(|(_, runs)| runs) {
        elapsed_s.insert(run.host, now.since(run.since).as_secs_f64());
    }
    let mut all = vec![None; farm.host_numbers()];
    for (host, entry) in farm.hosts() {
        let has_reach = entry.connected && desk.reach(host).whole_cores() > 0;
        if has_reach && farm.is_able(host, tasks.job) {
            all[host.get()] = Some(forecast(pace, host, elapsed_s.get(&host).copied()));
        }
    }
    all
}

/// What is expected of a host that has run its workunit for so long, or is free.
fn forecast(pace: &Pace, host: HostIx, elapsed_s: Option<f64>) -> Forecast {
    let usual_s = pace.unit_s(host);
    let Some(elapsed_s) = elapsed_s else {
        return Forecast { unit_s: usual_s, free_in_s: 0.0 };
    };
    let is_known = pace.measured(host).is_some();
    let factor = if is_known { LATE_FACTOR } else { UNKNOWN_FACTOR };
    let unit_s =
        if is_known && elapsed_s < usual_s { usual_s } else { usual_s.max(elapsed_s * factor) };
    Forecast { unit_s, free_in_s: unit_s - elapsed_s }
}

/// Whether a host keeps copies.
fn keeps(farm: &Farm, host: HostIx) -> bool {
    farm.host(host).info.chunk_cache_mib > 0
}

fn unit_of(forecasts: &[Option<Forecast>], host: usize) -> f64 {
    forecasts[host].map_or(f64::INFINITY, |forecast| forecast.unit_s)
}

/// The expected ends of what runs, the latest first.
fn late(tasks: &Tasks, forecasts: &[Option<Forecast>]) -> Vec<(f64, u32)> {
    let ends = tasks.all_runs().map(|(index, runs)| {
        let ends = runs.iter().map(|run| {
            forecasts[run.host.get()].map_or(f64::INFINITY, |forecast| forecast.free_in_s)
        });
        (ends.fold(f64::INFINITY, f64::min), index)
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    ends
}
