//! The most jobs that anyone could finish in time.

use gleaner_scheduling::deadline::{Claim, fits};

use super::workload::DeadlineJob;

/// How many jobs anyone could finish in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Most {
    /// Nobody finishes more.
    pub(super) jobs: usize,
    /// Whether somebody could finish as many. Where not, the search gave up: it is an upper bound
    /// still, and perhaps too high a one.
    pub(super) is_proven: bool,
}

/// The most jobs that a scheduler can finish in time that knows all arrivals and all times
/// beforehand and moves tasks at no cost; exact unless that takes more than `sets_max` sets of
/// jobs to find out.
///
/// Sets of jobs that cannot all be met name jobs of which one has to go; so the search drops one
/// of those at a time, deeper only where that was not enough. It drops only one of equal jobs.
pub(super) fn most_in_time(cores: u32, jobs: &[DeadlineJob], sets_max: usize) -> Most {
    most_in_time_beside(cores, &[], jobs, sets_max)
}

/// The same where some of the cores are `taken` at times, which is known beforehand too.
pub(super) fn most_in_time_beside(
    cores: u32,
    taken: &[Claim],
    jobs: &[DeadlineJob],
    sets_max: usize,
) -> Most {
    let alone = |job: &DeadlineJob| {
        let claims: Vec<Claim> = taken.iter().copied().chain([job.claim()]).collect();
        fits(cores, &claims).is_ok()
    };
    let kept: Vec<bool> = jobs.iter().map(alone).collect();
    let possible = kept.iter().filter(|kept| **kept).count();
    let mut search =
        Search { cores, taken, jobs, kept, free: vec![true; jobs.len()], sets: sets_max };
    for drops in 0..possible {
        match search.fits_after(drops) {
            Ok(true) => return Most { jobs: possible - drops, is_proven: true },
            Ok(false) => {}
            // Fewer drops were shown to be too few.
            Err(GivenUp) => return Most { jobs: possible - drops, is_proven: false },
        }
    }
    Most { jobs: 0, is_proven: true }
}

/// The search looked at as many sets as it may.
struct GivenUp;

struct Search<'a> {
    cores: u32,
    taken: &'a [Claim],
    jobs: &'a [DeadlineJob],
    kept: Vec<bool>,
    /// Those that may be dropped: a job that one branch has dropped in vain stays in the branches
    /// beside it.
    free: Vec<bool>,
    /// Sets that may still be looked at.
    sets: usize,
}

impl Search<'_> {
    /// Whether the kept jobs can be met once at most `drops` of them are dropped.
    fn fits_after(&mut self, drops: usize) -> Result<bool, GivenUp> {
        self.sets = self.sets.checked_sub(1).ok_or(GivenUp)?;
        let places: Vec<usize> = (0..self.jobs.len()).filter(|place| self.kept[*place]).collect();
        let wanted = places.iter().map(|place| self.jobs[*place].claim());
        let claims: Vec<Claim> = self.taken.iter().copied().chain(wanted).collect();
        let Err(overload) = fits(self.cores, &claims) else { return Ok(true) };
        if drops == 0 {
            return Ok(false);
        }
        let mut fixed: Vec<usize> = Vec::new();
        let mut found = Ok(false);
        for claim in overload.claims {
            // What is taken is not to be dropped.
            let Some(of_job) = claim.checked_sub(self.taken.len()) else { continue };
            let place = places[of_job];
            if !self.free[place] {
                continue;
            }
            // Where one went in vain, its equal goes in vain.
            if !fixed.iter().any(|of| self.jobs[*of].claim() == claims[claim]) {
                self.kept[place] = false;
                found = self.fits_after(drops - 1);
                self.kept[place] = true;
                if !matches!(found, Ok(false)) {
                    break;
                }
            }
            self.free[place] = false;
            fixed.push(place);
        }
        for place in fixed {
            self.free[place] = true;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::limits::{DEADLINE_BOUND_SETS_MAX, DEADLINE_JOBS_MAX};
    use crate::dice::Dice;
    use gleaner_protocol::{Span, Time};

    fn job(arrival_s: u64, tasks: u32, due_s: u64, takes_s: u64) -> DeadlineJob {
        let arrival = Time::ZERO + Span::from_secs(arrival_s);
        let takes = Span::from_secs(takes_s);
        DeadlineJob {
            arrival,
            tasks,
            due: arrival + Span::from_secs(due_s),
            takes,
            predicted: takes,
        }
    }

    #[test]
    fn one_large_job_makes_way_for_two_small_ones() {
        let jobs = [job(0, 2, 10, 10), job(0, 1, 12, 10), job(1, 1, 11, 10)];
        assert_eq!(most(2, &jobs), 2);
    }

    #[test]
    fn what_nobody_can_do_does_not_count() {
        assert_eq!(most(8, &[job(0, 1, 9, 10), job(0, 8, 10, 10)]), 1);
        assert_eq!(most(8, &[]), 0);
    }

    #[test]
    fn the_search_finds_what_trying_every_set_finds() {
        let mut dice = Dice::new(7, 0);
        for _ in 0..40 {
            let mut draw = |from, to| dice.millis(from, to).as_millis();
            let jobs: Vec<_> = (0..7)
                .map(|_| {
                    let takes_s = draw(5, 20);
                    job(
                        draw(0, 40),
                        u32::try_from(draw(1, 4)).expect("small"),
                        takes_s + draw(0, 15),
                        takes_s,
                    )
                })
                .collect();
            let every = (0..1_u32 << 7).filter(|set| {
                let claims: Vec<_> =
                    (0..7).filter(|at| set & (1 << at) != 0).map(|at| jobs[at].claim()).collect();
                fits(3, &claims).is_ok()
            });
            let best = every.map(u32::count_ones).max().expect("the empty set fits");
            assert_eq!(most(3, &jobs), best as usize);
        }
    }

    #[test]
    fn as_many_equal_jobs_as_there_may_be_are_counted_soon() {
        // Each has all cores to itself or is late.
        let jobs = vec![job(0, 8, 10, 10); DEADLINE_JOBS_MAX];
        assert_eq!(most(8, &jobs), 1);
        let jobs = vec![job(0, 3, 40, 10); DEADLINE_JOBS_MAX];
        assert_eq!(most(8, &jobs), 10);
    }

    #[test]
    fn a_search_that_takes_too_long_says_that_its_bound_is_none_that_was_reached() {
        let mut dice = Dice::new(3, 0);
        let mut draw = |from, to| dice.millis(from, to).as_millis();
        let jobs: Vec<_> = (0..DEADLINE_JOBS_MAX)
            .map(|_| job(draw(0, 9), 4, 20 + draw(0, 50), 10 + draw(0, 10)))
            .collect();
        let few = most_in_time(8, &jobs, 200);
        assert!(!few.is_proven && few.jobs > 0, "{few:?}");
        // Fewer sets tell less, and nothing that is wrong.
        let more = most_in_time(8, &jobs, 400);
        assert!(more.jobs <= few.jobs, "{more:?} {few:?}");
    }

    fn most(cores: u32, jobs: &[DeadlineJob]) -> usize {
        let most = most_in_time(cores, jobs, DEADLINE_BOUND_SETS_MAX);
        assert!(most.is_proven);
        most.jobs
    }
}
