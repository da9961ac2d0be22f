//! Ours: the linear relaxation says where nearly everything belongs, and a search from there
//! makes the rest whole.
//!
//! A basic solution of the relaxation splits fewer jobs than there are machines. The search
//! fixes the longest jobs first and solves the relaxation of the rest again after each choice:
//! so the short ones, which come last, even out what the long ones have left. It is done again
//! and again under a limit between the bound and the best schedule so far, each time with
//! another order of jobs of about the same length; chains of moves then improve what was found.

mod beam;
mod chains;
mod partial;

use super::mapping::Mapping;
use super::relaxation::{Relaxation, Scaled, Share};
use super::times::Times;
use super::whole_batch;
use beam::Beam;
use chains::Chains;
use partial::Partial;

use crate::limits::RELAXED_MACHINES_MAX;

/// Partial schedules that are followed at once, try by try.
const WIDTHS: [usize; 5] = [1, 2, 1, 2, 4];
/// Where the limit of each try is between the bound (0) and the best schedule (1): beyond 1, what
/// is found may be worse and become better by chains of moves.
const LIMITS: [f64; 3] = [1.2, 2.0, 3.0];
/// Where it is until the first failure.
const BOLD: f64 = 0.5;
/// How much longer than it is a job may count in the order, at most, in parts of it.
const NOISE: f64 = 1.0;
/// Which part of the whole search the chains of moves of one try may take.
const CHAINS_PART: u64 = 50;
/// Nearer than this to the bound, relative to it, no schedule is looked for.
const NEAR_ENOUGH: f64 = 1e-6;

/// How much is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Most entries of matrices that are looked at, about. The same number gives the same
    /// schedule on any machine.
    pub entries: u64,
    /// Most machines for which the linear relaxation is solved; with more, whom it would serve gets
    /// the best of the simple rules.
    pub relaxed_machines: usize,
}

impl Default for Effort {
    /// Under a second on one core of a processor of 2020.
    fn default() -> Self {
        Self { entries: 1_000_000_000, relaxed_machines: RELAXED_MACHINES_MAX }
    }
}

/// Maps a batch.
///
/// Source: of the start, J. K. Lenstra, D. B. Shmoys and É. Tardos, "Approximation Algorithms
/// for Scheduling Unrelated Parallel Machines", 1990.
pub(super) fn gleaner(times: &Times, effort: Effort) -> Mapping {
    let plain = [whole_batch::min_min(times), whole_batch::sufferage(times)];
    let mut best = plain.into_iter().min_by_key(Mapping::makespan).expect("there are two");
    if times.machines() > effort.relaxed_machines {
        return best;
    }
    let relaxation = Relaxation::solve(times, &best);
    if relaxation.bound() < 1.0 || relaxation.parts().is_empty() {
        return best;
    }
    let scaled = Scaled::new(times, best.makespan());
    let bound = relaxation.bound() / scaled.unit();
    let start = Partial::of(&relaxation, &scaled, times.jobs());
    let shares = shares_by_cost(&relaxation, &scaled, &start.open);
    let mut weights = vec![1.0; times.jobs()];
    let (mut noise, mut tries) = (Noise::new(), 0);
    let mut left = effort.entries;
    while left > 0 {
        let gap = best.makespan() as f64 / scaled.unit() - bound;
        if gap < NEAR_ENOUGH * bound {
            break;
        }
        let at = if tries == 0 { BOLD } else { LIMITS[tries % LIMITS.len()] };
        let width = if tries == 0 { 1 } else { WIDTHS[tries % WIDTHS.len()] };
        let limit = bound + gap * at;
        // A schedule within the limit has no share that costs more than the limit allows.
        let near = shares.iter().take_while(|(cost, _)| *cost <= limit - bound);
        let shares: Vec<_> = near.map(|(_, share)| *share).collect();
        let beam = Beam { times: &scaled, limit, width, weights: &weights, shares: &shares };
        let mut found = beam.search(&start, &mut left);
        if tries > 0 {
            let most = left.min(effort.entries / CHAINS_PART);
            let mut chains_left = most;
            found = found.map(|machine_of| {
                Chains::new(&scaled, &relaxation, machine_of).improve(&mut chains_left)
            });
            left -= most - chains_left;
        }
        let found = found.map(|machine_of| Mapping::longest_first(times, &machine_of));
        match found {
            Some(mapping) if mapping.makespan() < best.makespan() => best = mapping,
            _ if tries == 0 => tries = 1,
            _ => {}
        }
        if tries > 0 {
            tries += 1;
            weights.iter_mut().for_each(|weight| *weight = 1.0 + NOISE * noise.unit());
        }
    }
    best
}

/// All shares that jobs may have, with what each costs more than the best one of its job,
/// cheapest first.
fn shares_by_cost(relaxation: &Relaxation, times: &Scaled, jobs: &[usize]) -> Vec<(f64, Share)> {
    let number = |of: usize| u32::try_from(of).expect("a batch has fewer");
    let mut shares = Vec::with_capacity(jobs.len() * times.machines());
    for job in jobs {
        let priced = times.of(*job).iter().zip(relaxation.prices());
        let costs = priced.map(|(time, price)| if time.is_finite() { time * price } else { *time });
        let least = costs.clone().fold(f64::INFINITY, f64::min);
        let able = costs.enumerate().filter(|(_, cost)| cost.is_finite());
        shares.extend(able.map(|(machine, cost)| {
            let time = times.get(*job, machine);
            (cost - least, Share { job: number(*job), machine: number(machine), time })
        }));
    }
    let place = |share: &Share| (share.job, share.machine);
    shares.sort_by(|(a, of), (b, other)| a.total_cmp(b).then(place(of).cmp(&place(other))));
    shares
}

/// A fixed sequence of numbers without a pattern.
///
/// Source: G. Marsaglia, "Xorshift RNGs", 2003.
struct Noise(u64);

impl Noise {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// A number of `0..1`.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::mixed::times::NEVER;

    const LITTLE: Effort = Effort { entries: 1_000_000, relaxed_machines: RELAXED_MACHINES_MAX };

    #[test]
    fn it_finds_what_the_greedy_ones_miss() {
        // Min-Min puts 2 and 2 on different machines, so that the 3 and 3 follow them unevenly.
        let times = Times::new(2, vec![3, 3, 3, 3, 2, 2, 2, 2, 2, 2]);
        assert_eq!(gleaner(&times, LITTLE).makespan(), 6);
    }

    #[test]
    fn it_comes_near_to_the_bound_where_jobs_are_many() {
        let mut noise = Noise::new();
        let times = (0..200 * 4).map(|_| 1_000 + (99_000.0 * noise.unit()) as u64).collect();
        let times = Times::new(4, times);
        let mapping = gleaner(&times, Effort { entries: 20_000_000, ..Effort::default() });
        let bound = Relaxation::solve(&times, &mapping).bound();
        assert!(mapping.makespan() as f64 <= 1.005 * bound, "{} {bound}", mapping.makespan());
        assert_eq!(
            mapping,
            gleaner(&times, Effort { entries: 20_000_000, ..Effort::default() }),
            "the same again"
        );
    }

    #[test]
    fn odd_batches_are_mapped_too() {
        for (machines, times) in [
            (0, vec![]),
            (3, vec![]),
            (2, vec![0, 0, 0, 0]),
            (2, vec![NEVER, NEVER, 7, NEVER]),
            (3, vec![5, 5, 5]),
            (1, vec![1, 2, 3]),
        ] {
            let times = Times::new(machines, times);
            let mapping = gleaner(&times, LITTLE);
            let placed = mapping.machine_of(times.jobs());
            for (job, machine) in placed.into_iter().enumerate() {
                assert_eq!(machine.is_some(), times.shortest(job) != NEVER, "{times:?}");
            }
        }
    }
}
