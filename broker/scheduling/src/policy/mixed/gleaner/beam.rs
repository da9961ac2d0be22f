//! Makes a solution of the linear relaxation whole.

use super::partial::Partial;
use crate::policy::mixed::relaxation::{Optimum, Program, Scaled, Share, optimum};

/// A search that keeps the best few partial schedules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beam<'a> {
    pub(super) times: &'a Scaled,
    /// No machine is to be done later.
    pub(super) limit: f64,
    /// How many are kept.
    pub(super) width: usize,
    /// The shares that are looked at, those that most probably are first.
    pub(super) shares: &'a [Share],
    /// By job: how much longer it counts when the longest is chosen.
    pub(super) weights: &'a [f64],
}

/// What a partial schedule is waiting for.
enum Next {
    /// Nothing: all jobs are whole and the limit is kept.
    Done,
    /// The longest job that is not fixed is split.
    Choose(usize),
}

impl Beam<'_> {
    /// The machine of each job in a schedule within the limit, if one is found before `left`
    /// entries of matrices have been looked at.
    pub(super) fn search(&self, start: &Partial, left: &mut u64) -> Option<Vec<Option<usize>>> {
        let mut kept = vec![start.clone()];
        while !kept.is_empty() && *left > 0 {
            let mut next = Vec::new();
            for mut partial in kept {
                match self.fix_whole(&mut partial, left) {
                    None => {}
                    Some(Next::Done) => return Some(partial.machine),
                    Some(Next::Choose(job)) => {
                        let parts = partial.split.iter().filter(|part| part.job == job);
                        for part in parts {
                            if self.fits(&partial, job, part.machine) {
                                let mut child = partial.clone();
                                child.fix(self.times, job, part.machine);
                                next.extend(self.solve(&mut child, left).then_some(child));
                            }
                        }
                    }
                }
            }
            next.sort_by(|a, b| a.makespan.total_cmp(&b.makespan));
            next.truncate(self.width);
            kept = next;
        }
        None
    }

    fn fits(&self, partial: &Partial, job: usize, machine: usize) -> bool {
        partial.ready[machine] + self.times.get(job, machine) <= self.limit
    }

    /// Fixes whole jobs, the longest first, until the longest is a split one; `None` where the
    /// limit cannot be kept.
    fn fix_whole(&self, partial: &mut Partial, left: &mut u64) -> Option<Next> {
        loop {
            let machine = |job: usize| partial.machine[job].expect("open jobs are somewhere");
            let length = |job: usize| self.times.get(job, machine(job)) * self.weights[job];
            let by_length = |a: &usize, b: &usize| length(*a).total_cmp(&length(*b));
            *left = left.saturating_sub(partial.open.len() as u64);
            let Some(job) = partial.open.iter().copied().max_by(by_length) else {
                return Some(Next::Done);
            };
            if partial.is_split(job) {
                return Some(Next::Choose(job));
            }
            let machine = machine(job);
            if self.fits(partial, job, machine) {
                partial.fix(self.times, job, machine);
                let room = self.limit - partial.ready[machine];
                if !partial.exceeds(self.times, machine, room) {
                    continue;
                }
            }
            if !self.solve(partial, left) {
                return None;
            }
        }
    }

    /// Solves the relaxation for the open jobs; `false` where the limit cannot be kept.
    fn solve(&self, partial: &mut Partial, left: &mut u64) -> bool {
        let mut key = vec![0; partial.machine.len()];
        for job in &partial.open {
            let fits = |machine: &usize| self.fits(partial, *job, *machine);
            let by_time = |a: &usize, b: &usize| {
                self.times.get(*job, *a).total_cmp(&self.times.get(*job, *b))
            };
            let fastest = || (0..self.times.machines()).filter(fits).min_by(by_time);
            let Some(machine) = partial.machine[*job].filter(fits).or_else(fastest) else {
                return false;
            };
            key[*job] = machine;
        }
        if partial.open.is_empty() {
            partial.makespan = partial.ready.iter().copied().fold(0.0, f64::max);
            return partial.makespan <= self.limit;
        }
        let Optimum { makespan, parts, effort, .. } = optimum(Program {
            times: self.times,
            jobs: &partial.open,
            key: &key,
            ready: &partial.ready,
            limit: self.limit,
            columns: Some(self.shares),
        });
        *left = left.saturating_sub(effort);
        partial.makespan = makespan;
        partial.take(&parts);
        makespan <= self.limit
    }
}
