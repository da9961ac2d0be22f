//! Chains of moves that relieve the machine that is done last.

use crate::policy::mixed::relaxation::{Relaxation, Scaled};

/// Longest chain.
const LENGTH_MAX: usize = 5;
/// By which part of its gap to the bound a chain lessens the makespan, at least.
const STEP: f64 = 0.002;
/// What one move counts for, in entries of matrices looked at.
const MOVE_ENTRIES: u64 = 20;

/// A schedule that is changed by chains: a job leaves the machine that is done last, another
/// leaves the machine where it went, and so on, until none of those is done too late.
///
/// In a schedule the reduced costs of the jobs' places sum up to no more than its gap to the
/// bound. So a chain ends where it costs more than the gap leaves, and what remains is little
/// enough to be looked through.
///
/// # Invariants
/// - `loads` and `jobs` are what `machine` says, but for rounding errors of the sums.
pub(super) struct Chains<'a> {
    times: &'a Scaled,
    prices: &'a [f64],
    bound: f64,
    machine: Vec<Option<usize>>,
    /// When each machine is done.
    loads: Vec<f64>,
    /// The jobs of each machine.
    jobs: Vec<Vec<usize>>,
    /// By job: the machines where it may be and its priced time there, cheapest first.
    places: Vec<Vec<(f64, usize)>>,
    /// The moves of the chain in hand: job, from, to.
    moves: Vec<(usize, usize, usize)>,
}

/// What a chain may still do.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// No machine of it is to be done later.
    goal: f64,
    /// What its moves may cost together.
    slack: f64,
    /// How many they may be.
    length: usize,
}

impl<'a> Chains<'a> {
    pub(super) fn new(
        times: &'a Scaled,
        relaxation: &'a Relaxation,
        machine: Vec<Option<usize>>,
    ) -> Self {
        let prices = relaxation.prices();
        let bound = relaxation.bound() / times.unit();
        let mut loads = times.ready().to_vec();
        let mut jobs = vec![Vec::new(); times.machines()];
        for (job, at) in machine.iter().enumerate() {
            if let Some(at) = *at {
                loads[at] += times.get(job, at);
                jobs[at].push(job);
            }
        }
        let gap = loads.iter().copied().fold(0.0, f64::max) - bound;
        let places = (0..machine.len()).map(|job| {
            let able = times.of(job).iter().enumerate().filter(|(_, time)| time.is_finite());
            let mut places: Vec<_> = able.map(|(at, time)| (time * prices[at], at)).collect();
            places.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            let least = places.first().map_or(0.0, |(cost, _)| *cost);
            places.retain(|(cost, _)| cost - least <= gap);
            places
        });
        let places = places.collect();
        Self { times, prices, bound, machine, loads, jobs, places, moves: Vec::new() }
    }

    /// The machine of each job when no chain up to the longest helps any more, or `left` entries
    /// of matrices have been looked at.
    pub(super) fn improve(mut self, left: &mut u64) -> Vec<Option<usize>> {
        let mut length = 2;
        while *left > 0 && length <= LENGTH_MAX {
            let by_load = |a: &usize, b: &usize| self.loads[*a].total_cmp(&self.loads[*b]);
            let Some(last) = (0..self.loads.len()).max_by(by_load) else { break };
            let makespan = self.loads[last];
            let priced = self.loads.iter().zip(self.prices).map(|(load, price)| load * price);
            let slack = makespan - priced.sum::<f64>();
            let goal = makespan - STEP * (makespan - self.bound);
            self.moves.clear();
            let helps = self.relieve(last, Rest { goal, slack, length }, left);
            length = if helps { 2 } else { length + 1 };
        }
        self.machine
    }

    /// Moves a job off `from`, which is done too late, and goes on from there.
    fn relieve(&mut self, from: usize, rest: Rest, left: &mut u64) -> bool {
        for at in 0..self.jobs[from].len() {
            let job = self.jobs[from][at];
            if self.moves.iter().any(|(moved, ..)| *moved == job) {
                continue;
            }
            let time = self.times.get(job, from);
            let here = time * self.prices[from];
            for place in 0..self.places[job].len() {
                let (there, to) = self.places[job][place];
                let slack = rest.slack - (there - here);
                if slack < 0.0 {
                    break;
                }
                *left = left.saturating_sub(MOVE_ENTRIES);
                if *left == 0 {
                    return false;
                }
                let is_late_here = self.loads[from] - time > rest.goal;
                let is_late_there = self.loads[to] + self.times.get(job, to) > rest.goal;
                let needed = 1 + usize::from(is_late_here) + usize::from(is_late_there);
                if to == from || rest.length < needed {
                    continue;
                }
                self.apply(at, from, to);
                let rest = Rest { slack, length: rest.length - 1, ..rest };
                if self.go_on(rest, left) {
                    return true;
                }
                self.undo(at);
            }
        }
        false
    }

    /// Relieves the machine of the chain that is done last, if it is done too late.
    fn go_on(&mut self, rest: Rest, left: &mut u64) -> bool {
        let touched = self.moves.iter().flat_map(|(_, from, to)| [*from, *to]);
        let late = touched.filter(|machine| self.loads[*machine] > rest.goal);
        match late.max_by(|a, b| self.loads[*a].total_cmp(&self.loads[*b])) {
            None => true,
            Some(last) => rest.length > 0 && self.relieve(last, rest, left),
        }
    }

    /// Moves the job at this place of a machine's list.
    fn apply(&mut self, at: usize, from: usize, to: usize) {
        let job = self.jobs[from].swap_remove(at);
        self.jobs[to].push(job);
        self.loads[from] -= self.times.get(job, from);
        self.loads[to] += self.times.get(job, to);
        self.machine[job] = Some(to);
        self.moves.push((job, from, to));
    }

    /// Takes the last move back: the lists are again as they were before it.
    fn undo(&mut self, at: usize) {
        let (job, from, to) = self.moves.pop().expect("it was applied");
        let moved = self.jobs[to].pop();
        debug_assert_eq!(moved, Some(job), "later moves were taken back before");
        self.jobs[from].push(job);
        let end = self.jobs[from].len() - 1;
        self.jobs[from].swap(at, end);
        self.loads[from] += self.times.get(job, from);
        self.loads[to] -= self.times.get(job, to);
        self.machine[job] = Some(from);
    }
}
