//! The most jobs that anyone could finish in time.

use gleaner_scheduling::deadline::{Claim, fits};

use super::workload::DeadlineJob;

/// The most jobs that a scheduler can finish in time that knows all arrivals and all times
/// beforehand and moves tasks at no cost; exact.
///
/// Sets of jobs that cannot all be met name jobs of which one has to go; so the search drops one
/// of those at a time, deeper only where that was not enough.
pub(super) fn most_in_time(cores: u32, jobs: &[DeadlineJob]) -> usize {
    let mut kept: Vec<bool> = jobs.iter().map(|job| fits(cores, &[job.claim()]).is_ok()).collect();
    let possible = kept.iter().filter(|kept| **kept).count();
    let mut free = vec![true; jobs.len()];
    let drops = (0..possible).find(|drops| fits_after(cores, jobs, &mut kept, &mut free, *drops));
    possible - drops.unwrap_or(possible)
}

/// Whether the kept jobs can be met once at most `drops` of them are dropped. `free` are those
/// that may be: a job that one branch has dropped in vain stays in the branches beside it.
fn fits_after(
    cores: u32,
    jobs: &[DeadlineJob],
    kept: &mut [bool],
    free: &mut [bool],
    drops: usize,
) -> bool {
    let places: Vec<usize> = (0..jobs.len()).filter(|place| kept[*place]).collect();
    let claims: Vec<Claim> = places.iter().map(|place| jobs[*place].claim()).collect();
    let Err(overload) = fits(cores, &claims) else { return true };
    if drops == 0 {
        return false;
    }
    let mut fixed = Vec::new();
    let mut found = false;
    for claim in overload.claims {
        let place = places[claim];
        if !free[place] {
            continue;
        }
        kept[place] = false;
        found = fits_after(cores, jobs, kept, free, drops - 1);
        kept[place] = true;
        if found {
            break;
        }
        free[place] = false;
        fixed.push(place);
    }
    for place in fixed {
        free[place] = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(most_in_time(2, &jobs), 2);
    }

    #[test]
    fn what_nobody_can_do_does_not_count() {
        assert_eq!(most_in_time(8, &[job(0, 1, 9, 10), job(0, 8, 10, 10)]), 1);
        assert_eq!(most_in_time(8, &[]), 0);
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
            assert_eq!(most_in_time(3, &jobs), best as usize);
        }
    }
}
