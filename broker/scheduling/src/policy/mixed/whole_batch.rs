//! Heuristics that look at all unplaced jobs for each step: min-min, max-min and sufferage.

use std::cmp::Reverse;

use super::mapping::Mapping;
use super::times::{NEVER, Times};

/// Where a job would be done first, and what it would lose elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wish {
    /// The machine that has done it first.
    machine: usize,
    /// When that is, in microseconds: EFT.
    earliest: u64,
    /// The machine that is second.
    second_machine: usize,
    /// When that has done it: SEFT.
    second: u64,
}

impl Wish {
    /// `None` where no machine can run it.
    fn of(times: &Times, mapping: &Mapping, job: usize) -> Option<Self> {
        let none = usize::MAX;
        let mut wish = Self { machine: none, earliest: NEVER, second_machine: none, second: NEVER };
        for machine in 0..times.machines() {
            let finish = mapping.completion(times, job, machine);
            if finish < wish.earliest {
                (wish.second, wish.second_machine) = (wish.earliest, wish.machine);
                (wish.earliest, wish.machine) = (finish, machine);
            } else if finish < wish.second {
                (wish.second, wish.second_machine) = (finish, machine);
            }
        }
        (wish.earliest != NEVER).then_some(wish)
    }

    fn sufferage(&self) -> u64 {
        self.second - self.earliest
    }

    fn depends_on(&self, machine: usize) -> bool {
        self.machine == machine || self.second_machine == machine
    }
}

/// Min-Min: of the jobs' earliest completion times, the earliest is placed, again and again.
///
/// Source: O. H. Ibarra and C. E. Kim, "Heuristic Algorithms for Scheduling Independent Tasks on
/// Nonidentical Processors", 1977.
pub(super) fn min_min(times: &Times) -> Mapping {
    step_by_step(times, |wish| Reverse(wish.earliest))
}

/// Max-Min: of the jobs' earliest completion times, the latest is placed, again and again.
///
/// Source: as [`min_min`].
pub(super) fn max_min(times: &Times) -> Mapping {
    step_by_step(times, |wish| wish.earliest)
}

/// Sufferage, one job per step: the one that would lose most by its second choice.
///
/// Source: M. Maheswaran et al., "Dynamic Mapping of a Class of Independent Tasks onto
/// Heterogeneous Computing Systems", 1999, in the form of most later implementations, which
/// place one job and then look again.
pub(super) fn sufferage_step(times: &Times) -> Mapping {
    step_by_step(times, Wish::sufferage)
}

/// Places the job with the greatest key, the first of equals, and looks again at those whose
/// wishes depend on its machine. Completion times elsewhere do not change and none gets earlier,
/// so the wishes of the others stand.
fn step_by_step<K: Ord>(times: &Times, key: impl Fn(&Wish) -> K) -> Mapping {
    let mut mapping = Mapping::empty(times);
    let wishes = (0..times.jobs()).map(|job| (job, Wish::of(times, &mapping, job)));
    let mut open: Vec<_> = wishes.filter_map(|(job, wish)| Some((job, wish?))).collect();
    while let Some(at) = first_greatest(&open, |(_, wish)| key(wish)) {
        let (job, Wish { machine, .. }) = open.remove(at);
        mapping.push(times, job, machine);
        for (job, wish) in open.iter_mut().filter(|(_, wish)| wish.depends_on(machine)) {
            *wish = Wish::of(times, &mapping, *job).expect("it had one and times are the same");
        }
    }
    mapping
}

fn first_greatest<T, K: Ord>(list: &[T], key: impl Fn(&T) -> K) -> Option<usize> {
    let mut best: Option<(usize, K)> = None;
    for (at, entry) in list.iter().enumerate() {
        let key = key(entry);
        if best.as_ref().is_none_or(|(_, greatest)| key > *greatest) {
            best = Some((at, key));
        }
    }
    best.map(|(at, _)| at)
}

/// Sufferage as published, line by line: in each pass every machine takes, of the jobs that want
/// it, the one that would lose most by its second choice; the others wait for the next pass.
///
/// A job that only one machine can run loses everything by its second choice.
///
/// Source: R. S. Nakhjavani et al., "Porting a Neuro-Imaging Application to a CPU-GPU Cluster",
/// 2014, Algorithm 1, after Maheswaran et al. 1999.
pub(super) fn sufferage(times: &Times) -> Mapping {
    let mut mapping = Mapping::empty(times);
    let mut unscheduled: Vec<_> = (0..times.jobs()).collect();
    loop {
        let wishes = unscheduled.iter().map(|job| (*job, Wish::of(times, &mapping, *job)));
        let mut pass: Vec<_> = wishes.filter_map(|(job, wish)| Some((job, wish?))).collect();
        if pass.is_empty() {
            return mapping;
        }
        pass.sort_by_key(|(_, wish)| wish.earliest);
        let mut scheduled: Vec<Option<(usize, Wish)>> = vec![None; times.machines()];
        for (job, wish) in pass {
            let current = &mut scheduled[wish.machine];
            if current.is_none_or(|(_, other)| wish.sufferage() > other.sufferage()) {
                *current = Some((job, wish));
            }
        }
        for (job, wish) in scheduled.into_iter().flatten() {
            mapping.push(times, job, wish.machine);
            unscheduled.retain(|other| *other != job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_min_places_the_short_ones_first_and_max_min_the_long_one() {
        let times = Times::new(2, vec![2, 3, 4, 5, 20, 20]);
        assert_eq!(min_min(&times).loads(), [22, 5]);
        assert_eq!(max_min(&times).loads(), [20, 8]);
    }

    /// Both jobs want the first machine; the second one suffers more elsewhere.
    #[test]
    fn who_suffers_more_gets_the_machine() {
        let times = Times::new(2, vec![4, 5, 4, 50]);
        for mapping in [sufferage(&times), sufferage_step(&times)] {
            assert_eq!((mapping.queue(0), mapping.queue(1)), (&[1][..], &[0][..]));
        }
    }

    #[test]
    fn a_pass_places_one_job_per_machine() {
        // Sufferages on the first machine are 3, 2 and 1: one by one, the first two both go
        // there; in a pass only one may, and the next one looks again.
        let times = Times::new(2, vec![1, 4, 1, 3, 2, 3]);
        assert_eq!(sufferage(&times).queue(0)[0], 0);
        let jobs: usize = (0..2).map(|machine| sufferage(&times).queue(machine).len()).sum();
        assert_eq!(jobs, 3);
    }

    #[test]
    fn what_only_one_machine_can_run_comes_first_and_what_none_can_stays() {
        let times = Times::new(2, vec![1, 90, 5, NEVER, NEVER, NEVER]);
        for mapping in [sufferage(&times), sufferage_step(&times)] {
            assert_eq!((mapping.queue(0), mapping.queue(1)), (&[1, 0][..], &[][..]));
            assert_eq!(mapping.machine_of(3)[2], None);
        }
    }
}
