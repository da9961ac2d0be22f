//! The chance that a job is done by its due time, beside what is promised already.
//!
//! Cores go to jobs in the order of their due times. On each future the claims that are due before
//! the job take their cores first, as a flow; then the job's tasks run one by one on what is left;
//! then the claims that are due later. A promise that is made already must stay likelier than it was
//! promised at, halfway to certain, and where it is not, it must not become less likely.

use std::sync::LazyLock;

use crate::calibration::Calibration;
use crate::chances::{Chances, deviates, quantile};
use crate::claim::{Claim, Work};
use crate::futures::Futures;
use crate::limits::{GROUPS_MAX, SPOIL_MAX, TASKS_MAX, TRIED_FUTURES, TRIES_MAX};
use crate::list::List;
use crate::scale::Scale;

static DEVIATE: LazyLock<Vec<f32>> = LazyLock::new(deviates);

/// Purpose of the random numbers that say how long tasks take.
const TIMES: u64 = 21;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The job.
    pub work: Work,
    /// When it is due, in seconds from now.
    pub due_s: f64,
    /// How sure its submitter wants to be.
    pub confidence: f64,
    /// What is promised already.
    pub claims: &'a [Claim],
    /// What may come; they should reach beyond the due time.
    pub futures: &'a Futures,
    /// What became of earlier forecasts.
    pub calibration: &'a Calibration,
    /// What became of earlier promises.
    pub scale: &'a Scale,
    /// Where chance comes from.
    pub seed: u64,
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// How likely the job is done by its due time.
    pub chance: f64,
    /// When it is done in half of the futures, in seconds from now; `None` where that is beyond
    /// all that was sampled.
    pub expected_end_s: Option<f64>,
    /// Whether it can be promised.
    pub is_accepted: bool,
    /// Whether it would break another promise.
    pub breaks_another: bool,
    /// The earliest due time that can be promised; `None` where that is beyond all that was
    /// sampled. Where the job is accepted, it is that at its place in the order of due times.
    pub earliest: Option<Offer>,
}

/// A due time that can be promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// In seconds from now.
    pub due_s: f64,
    /// How likely the job is done by then.
    pub chance: f64,
}

/// Whether a job can be promised, and if not, by when it can.
#[must_use]
pub fn ask(asked: &Ask<'_>) -> Answer {
    let mut runs = Runs::new(asked, 1);
    let first = runs.at(asked.due_s);
    let chance = first.chance(asked.due_s, asked.scale);
    let is_accepted = chance >= asked.confidence && !first.breaks;
    let share = asked.scale.share(asked.confidence);
    let offer = |ends: &Ends, due_s| Offer { due_s, chance: ends.chance(due_s, asked.scale) };
    let earliest = first.end(share).map(|due_s| offer(&first, due_s));
    let mut answer = Answer {
        chance,
        expected_end_s: first.end(0.5),
        is_accepted,
        breaks_another: first.breaks,
        earliest,
    };
    if is_accepted {
        return answer;
    }
    answer.earliest = None;
    // With a later due time more claims go before it: it is tried until that changes nothing.
    let mut due_s = earliest.map_or(f64::INFINITY, |offer| offer.due_s).max(asked.due_s);
    runs.stride = asked.futures.count().div_ceil(TRIED_FUTURES).max(1);
    for _ in 0..TRIES_MAX {
        if due_s >= asked.futures.horizon_s() {
            return answer;
        }
        let next = runs.at(due_s);
        let end = next.end(share).unwrap_or(f64::INFINITY);
        if end <= due_s && !next.breaks {
            answer.earliest = Some(offer(&next, due_s));
            return answer;
        }
        // Behind the claim that it would break, if it would.
        let behind = if next.breaks { runs.next_due(due_s) } else { due_s };
        due_s = end.max(behind).max(due_s) + 60.0;
    }
    answer
}

/// The most tasks of such a job that can be promised by its due time; fewer futures are looked at.
#[must_use]
pub fn largest(asked: &Ask<'_>) -> u32 {
    let fits = |tasks: u32| {
        let asked = Ask { work: Work { tasks, ..asked.work }, ..*asked };
        let ends = Runs::new(&asked, 4).at(asked.due_s);
        ends.chance(asked.due_s, asked.scale) >= asked.confidence && !ends.breaks
    };
    let (mut fit, mut too_many) = (0, asked.work.tasks.saturating_add(1));
    while too_many - fit > 1 + fit / 32 {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle) {
            fit = middle;
        } else {
            too_many = middle;
        }
    }
    fit
}

/// Claims whose due times lie beside each other.
#[derive(Debug, Clone, Copy)]
struct Group {
    due_s: f64,
    confidence: f64,
    cores: f64,
    mean_s: f64,
    /// Standard deviation of the logarithm of its work.
    sigma: f64,
}

/// When the job ends, on each path.
struct Ends {
    /// In order of time, with how much the path weighs.
    ends: Vec<(f64, f64)>,
    sum: f64,
    breaks: bool,
}

impl Ends {
    fn chance(&self, due_s: f64, scale: &Scale) -> f64 {
        let in_time = self.ends.iter().take_while(|(end, _)| *end <= due_s);
        scale.said(in_time.map(|(_, weight)| weight).sum::<f64>() / self.sum)
    }

    /// When it is done on this share of the paths.
    fn end(&self, share: f64) -> Option<f64> {
        let mut sum = 0.0;
        let reached = self.ends.iter().find(|(_, weight)| {
            sum += weight;
            sum >= share * self.sum
        });
        reached.map(|(end, _)| *end).filter(|end| end.is_finite())
    }
}

/// A job that is run on each path, at different places in the order of due times.
struct Runs<'a> {
    asked: &'a Ask<'a>,
    claims: Vec<Claim>,
    /// Each so many-th path is run.
    stride: usize,
    /// Factors of a task's time, and of the job's as a whole.
    own: Vec<f32>,
    shared: Vec<f32>,
}

impl<'a> Runs<'a> {
    fn new(asked: &'a Ask<'a>, stride: usize) -> Self {
        let mut claims: Vec<Claim> =
            asked.claims.iter().filter(|claim| claim.mean_s > 0.0).copied().collect();
        claims.sort_by(|a, b| a.due_s.total_cmp(&b.due_s));
        let factors = |sigma: f64| {
            DEVIATE.iter().map(|deviate| libm::expf(sigma as f32 * *deviate)).collect()
        };
        let (own, shared) = (factors(asked.work.sigma), factors(asked.work.shared_sigma));
        Self { asked, claims, stride, own, shared }
    }

    /// The due time of the next claim behind this one, or the same.
    fn next_due(&self, due_s: f64) -> f64 {
        let behind = self.claims.iter().map(|claim| claim.due_s).find(|due| *due > due_s);
        behind.unwrap_or(due_s)
    }

    /// Runs it as one that is due then.
    fn at(&mut self, due_s: f64) -> Ends {
        let futures = self.asked.futures;
        let weights = self.asked.calibration.weights(futures, due_s);
        let split = self.claims.partition_point(|claim| claim.due_s <= due_s);
        let before = groups(&self.claims[..split]);
        let after = groups(&self.claims[split..]);
        let tasks = self.asked.work.tasks.max(1);
        let bundle = tasks.div_ceil(TASKS_MAX);
        let mut path = Path {
            chances: Chances::new(self.asked.seed, TIMES),
            before: vec![0.0; before.len()],
            after: vec![0.0; after.len()],
            times: vec![0.0; tasks.div_ceil(bundle) as usize],
            list: List::default(),
            kept: vec![false; after.len()],
        };
        let mut ends = Vec::with_capacity(futures.count() / self.stride + 1);
        let mut sum = 0.0;
        // Of each later group: how much of the paths keeps it with the job, and without it.
        let mut kept = vec![(0.0, 0.0); after.len()];
        for index in (0..futures.count()).step_by(self.stride) {
            let weight = weights[index];
            path.throw(self, &before, &after);
            let works = (path.before.clone(), path.after.clone());
            let end = path.run(self, index, &before, &after, Some(bundle));
            ends.push((end, weight));
            sum += weight;
            if after.is_empty() {
                continue;
            }
            for (place, kept) in kept.iter_mut().enumerate() {
                kept.0 += if path.kept[place] { weight } else { 0.0 };
            }
            (path.before, path.after) = works;
            path.run(self, index, &before, &after, None);
            for (place, kept) in kept.iter_mut().enumerate() {
                kept.1 += if path.kept[place] { weight } else { 0.0 };
            }
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let scale = self.asked.scale;
        let breaks = kept.iter().zip(&after).any(|((with, without), group)| {
            let (with, without) = (scale.said(with / sum), scale.said(without / sum));
            // Were it cut down to its confidence whenever it is above, and not brought back when it
            // is below, it would be kept less often than that in the end.
            let floor = f64::midpoint(1.0, group.confidence);
            with < floor.min(without) - SPOIL_MAX
        });
        Ends { ends, sum, breaks }
    }
}

/// What one path needs.
struct Path {
    chances: Chances,
    /// Core-seconds that are left.
    before: Vec<f64>,
    after: Vec<f64>,
    times: Vec<f32>,
    list: List,
    /// Which later groups end by their due times.
    kept: Vec<bool>,
}

impl Path {
    /// Throws how long all takes.
    fn throw(&mut self, runs: &Runs<'_>, before: &[Group], after: &[Group]) {
        let chances = &mut self.chances;
        let mut work = |group: &Group| {
            let deviate = f64::from(DEVIATE[chances.place()]);
            let sigma = group.sigma;
            group.mean_s * libm::exp(sigma * deviate - sigma * sigma / 2.0)
        };
        // In one order for all, so that a job later in it is compared on the same chances.
        self.before.iter_mut().zip(before).for_each(|(left, group)| *left = work(group));
        self.after.iter_mut().zip(after).for_each(|(left, group)| *left = work(group));
        let median = runs.asked.work.median_s as f32 * runs.shared[chances.place()];
        for time in &mut self.times {
            *time = median * runs.own[self.chances.place()];
        }
        let tasks = runs.asked.work.tasks;
        if tasks as usize > self.times.len() {
            // The longest of all of them is longer than that of the few that stand for them.
            let share = libm::pow(self.chances.unit(), 1.0 / f64::from(tasks));
            let longest = libm::exp(runs.asked.work.sigma * quantile(share)) as f32;
            let place = self.chances.place() % self.times.len();
            self.times[place] = median * longest;
        }
    }

    /// Runs all of it; says when the job ends, whose tasks stand for `bundle` each.
    fn run(
        &mut self,
        runs: &Runs<'_>,
        index: usize,
        before: &[Group],
        after: &[Group],
        bundle: Option<u32>,
    ) -> f64 {
        let futures = runs.asked.futures;
        let mut end = f64::INFINITY;
        let mut is_running = bundle.is_some();
        let bundle = f64::from(bundle.unwrap_or(1));
        let (mut at, mut part) = (0.0, 0.0);
        let (mut first_before, mut first_after) = (0, 0);
        self.list.clear();
        self.kept.fill(false);
        for (cores, cell) in futures.path(index).iter().zip(&futures.cells) {
            if !is_running && first_after == after.len() {
                break;
            }
            let span = f64::from(cell.length_s());
            let mut room = f64::from(*cores) * span;
            flow(&mut self.before, before, &mut first_before, &mut room, span);
            if is_running {
                // Parts of cores add up to whole ones over time.
                let units = (room / span).max(0.0) / bundle + part;
                let whole = libm::floor(units).min(self.times.len() as f64);
                part = (units - whole).clamp(0.0, 0.999);
                let ran = self.list.run(whole as usize, span, &self.times);
                room = (room - ran.used_s * bundle).max(0.0);
                if let Some(ended) = ran.ended_s {
                    end = at + ended;
                    is_running = false;
                }
            }
            let ended = flow(&mut self.after, after, &mut first_after, &mut room, span);
            at += span;
            if ended {
                for ((left, group), kept) in self.after.iter().zip(after).zip(&mut self.kept) {
                    *kept |= *left <= 0.0 && at - 0.5 * span <= group.due_s;
                }
            }
        }
        end
    }
}

/// Gives groups their cores in their order; says whether one of them ended.
fn flow(left: &mut [f64], groups: &[Group], first: &mut usize, room: &mut f64, span: f64) -> bool {
    let mut ended = false;
    for place in *first..groups.len() {
        if left[place] > 0.0 {
            let used = left[place].min(groups[place].cores * span).min(*room);
            left[place] -= used;
            *room -= used;
            ended |= left[place] <= 0.0;
        }
        if *first == place && left[place] <= 0.0 {
            *first += 1;
        }
        if *room <= 0.0 {
            break;
        }
    }
    ended
}

/// Claims in the order of their due times, in few groups of about as much work each.
fn groups(claims: &[Claim]) -> Vec<Group> {
    let size = claims.len().div_ceil(GROUPS_MAX).max(1);
    let group = |claims: &[Claim]| {
        let sum = |of: fn(&Claim) -> f64| claims.iter().map(of).sum::<f64>();
        let mean_s = sum(|claim| claim.mean_s);
        let variance = sum(|claim| claim.deviation_s * claim.deviation_s);
        let sigma = libm::sqrt(libm::log(1.0 + variance / (mean_s * mean_s)));
        Group {
            due_s: claims[claims.len() - 1].due_s,
            confidence: sum(|claim| claim.confidence) / claims.len() as f64,
            cores: sum(|claim| f64::from(claim.cores)),
            mean_s,
            sigma,
        }
    };
    claims.chunks(size).map(group).collect()
}

#[cfg(test)]
mod tests;
