//! The linear relaxation: the least makespan where jobs may be split over machines.
//!
//! min T so that Σₘ xⱼₘ = 1 for each job j and rₘ + Σⱼ xⱼₘ pⱼₘ ≤ T for each machine m, x ≥ 0.
//! No schedule of whole jobs is shorter. Its dual prices one unit of time on each machine: for
//! any prices λ ≥ 0 with Σ λ = 1, Σⱼ minₘ λₘ pⱼₘ + Σₘ λₘ rₘ is at most T, so the bound is valid
//! whatever happened on the way to the prices.

mod basis;
mod program;
mod simplex;

use super::mapping::Mapping;
use super::times::{NEVER, Times};
pub(super) use program::{Optimum, Program, Scaled, Share};
use simplex::Simplex;

/// The optimum of the linear relaxation.
#[derive(Debug, Clone, PartialEq)]
pub struct Relaxation {
    bound: f64,
    prices: Vec<f64>,
    parts: Vec<Part>,
}

/// A part of a job on a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// Which job.
    pub job: usize,
    /// Where.
    pub machine: usize,
    /// How much of it, of 1.
    pub share: f64,
}

impl Relaxation {
    /// Solves it for the jobs that any machine can run, beginning from a mapping of them.
    ///
    /// The solution is a basic one: at most one job fewer is split than there are machines.
    #[must_use]
    pub fn solve(times: &Times, from: &Mapping) -> Self {
        let unit = from.makespan();
        let placed = from.machine_of(times.jobs());
        let jobs: Vec<_> = (0..placed.len()).filter(|job| placed[*job].is_some()).collect();
        if unit == 0 || jobs.is_empty() {
            let prices = vec![0.0; times.machines()];
            return Self { bound: unit as f64, prices, parts: Vec::new() };
        }
        let key: Vec<_> = placed.into_iter().map(|machine| machine.unwrap_or(0)).collect();
        let times_scaled = Scaled::new(times, unit);
        let ready = times_scaled.ready();
        let limit = f64::INFINITY;
        let program =
            Program { times: &times_scaled, jobs: &jobs, key: &key, ready, limit, columns: None };
        let Optimum { prices, parts, .. } = optimum(program);
        Self { bound: dual_value(times, &prices), prices, parts }
    }

    /// What no schedule is shorter than, in microseconds.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// What one unit of time on each machine adds to the makespan; they sum up to 1.
    #[must_use]
    pub fn prices(&self) -> &[f64] {
        &self.prices
    }

    /// The shares of jobs on machines that are not 0, job by job.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Solves a linear program over a batch.
pub(super) fn optimum(program: Program<'_>) -> Optimum {
    Simplex::new(program).solve()
}

/// The value of the dual at these prices, which are not negative and sum up to 1.
fn dual_value(times: &Times, prices: &[f64]) -> f64 {
    let cheapest = (0..times.jobs()).filter_map(|job| {
        let able = times.of(job).iter().zip(prices).filter(|(time, _)| **time != NEVER);
        able.map(|(time, price)| *time as f64 * price).min_by(f64::total_cmp)
    });
    let ready = times.ready().iter().zip(prices).map(|(ready, price)| *ready as f64 * price);
    // Rounding errors of the sums stay below the last part in 10¹².
    (cheapest.sum::<f64>() + ready.sum::<f64>()) * (1.0 - 1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baselines::one_by_one::mct;

    fn solve(times: &Times) -> Relaxation {
        Relaxation::solve(times, &mct(times))
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value} {expected}");
    }

    #[test]
    fn one_job_on_two_like_machines_is_halved() {
        let relaxation = solve(&Times::new(2, vec![10, 10]));
        assert_near(relaxation.bound(), 5.0);
        assert_eq!(relaxation.parts().len(), 2);
        assert_near(relaxation.parts()[0].share, 0.5);
    }

    #[test]
    fn machines_that_are_ready_late_take_less() {
        let relaxation = solve(&Times::with_ready(vec![0, 4], vec![10, 10]));
        assert_near(relaxation.bound(), 7.0);
        let late = solve(&Times::with_ready(vec![0, 100], vec![10, 10]));
        assert_near(late.bound(), 100.0);
    }

    #[test]
    fn each_kind_takes_what_it_is_good_at() {
        let relaxation = solve(&Times::new(2, vec![2, 100, 100, 2, 2, 100, 100, 2]));
        assert_near(relaxation.bound(), 4.0);
        assert!(relaxation.parts().iter().all(|part| part.share > 0.999));
    }

    #[test]
    fn what_cannot_run_somewhere_is_not_put_there() {
        let relaxation = solve(&Times::new(2, vec![6, NEVER, 6, NEVER, 8, 4, NEVER, NEVER]));
        assert_near(relaxation.bound(), 12.0);
        assert_eq!(relaxation.parts().len(), 3, "{relaxation:?}");
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert_near(solve(&Times::new(3, Vec::new())).bound(), 0.0);
        assert_near(solve(&Times::new(2, vec![0, 0, 0, 0])).bound(), 0.0);
        assert_near(solve(&Times::new(0, Vec::new())).bound(), 0.0);
        assert_near(solve(&Times::with_ready(vec![5], Vec::new())).bound(), 5.0);
    }
}
