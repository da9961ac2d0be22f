//! Heuristics that place one job after the other: olb, met, mct, torque, fcfs, sjf and ljf.

use std::cmp::Reverse;

use crate::policy::mixed::mapping::Mapping;
use crate::policy::mixed::times::{NEVER, Times};

/// Opportunistic load balancing: each job goes to the machine that is ready first, however long
/// it takes there.
///
/// Source: T. D. Braun et al., "A Comparison of Eleven Static Heuristics for Mapping a Class of
/// Independent Tasks onto Heterogeneous Distributed Computing Systems", 2001.
pub(crate) fn olb(times: &Times) -> Mapping {
    place(times, 0..times.jobs(), |mapping, _, machine| mapping.loads()[machine])
}

/// Minimum execution time: each job goes to the machine that runs it fastest.
///
/// Source: as [`olb`].
pub(crate) fn met(times: &Times) -> Mapping {
    place(times, 0..times.jobs(), |_, job, machine| times.get(job, machine))
}

/// Minimum completion time: each job goes to the machine that has done it first.
///
/// Source: as [`olb`].
pub(crate) fn mct(times: &Times) -> Mapping {
    place(times, 0..times.jobs(), |mapping, job, machine| mapping.completion(times, job, machine))
}

/// Each job goes to the fastest kind of machine for it, and to no other: to the one of these
/// that is ready first.
///
/// Source: R. S. Nakhjavani et al., "Porting a Neuro-Imaging Application to a CPU-GPU Cluster",
/// 2014, Section V, which says of Torque only that users ask for the fastest resource.
pub(crate) fn torque(times: &Times) -> Mapping {
    place(times, 0..times.jobs(), |mapping, job, machine| {
        (times.get(job, machine), mapping.loads()[machine])
    })
}

/// First come, first served: each job waits until any machine is free and goes to the one that
/// runs it fastest among those.
///
/// Source: as [`torque`], Section IV; "the fastest available node" is the free one that is the
/// fastest for the job.
pub(crate) fn fcfs(times: &Times) -> Mapping {
    place(times, 0..times.jobs(), |mapping, job, machine| {
        (mapping.loads()[machine], times.get(job, machine))
    })
}

/// Shortest job first, by the time on the machine that is fastest for it (the GPU, in the
/// source); otherwise like [`fcfs`].
///
/// Source: as [`torque`], Section IV.
pub(crate) fn sjf(times: &Times) -> Mapping {
    sorted(times, |job| times.shortest(job))
}

/// Longest job first, otherwise like [`sjf`].
pub(crate) fn ljf(times: &Times) -> Mapping {
    sorted(times, |job| Reverse(times.shortest(job)))
}

fn sorted<K: Ord>(times: &Times, key: impl Fn(usize) -> K) -> Mapping {
    let mut jobs: Vec<_> = (0..times.jobs()).collect();
    jobs.sort_by_key(|job| key(*job));
    place(times, jobs, |mapping, job, machine| (mapping.loads()[machine], times.get(job, machine)))
}

/// Places the jobs in this order, each on the able machine with the least rank; the first of
/// equals.
fn place<R: Ord>(
    times: &Times,
    jobs: impl IntoIterator<Item = usize>,
    rank: impl Fn(&Mapping, usize, usize) -> R,
) -> Mapping {
    let mut mapping = Mapping::empty(times);
    for job in jobs {
        let able = (0..times.machines()).filter(|machine| times.get(job, *machine) != NEVER);
        if let Some(machine) = able.min_by_key(|machine| rank(&mapping, job, *machine)) {
            mapping.push(times, job, machine);
        }
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three jobs: the second machine is the faster one but for the last job, which only the
    /// first can run.
    fn times() -> Times {
        Times::new(2, vec![4, 2, 6, 3, 5, NEVER])
    }

    #[test]
    fn olb_looks_at_readiness_alone() {
        let mapping = olb(&times());
        assert_eq!((mapping.queue(0), mapping.queue(1)), (&[0, 2][..], &[1][..]));
    }

    #[test]
    fn met_and_torque_look_at_speed_first() {
        for mapping in [met(&times()), torque(&times())] {
            assert_eq!((mapping.queue(0), mapping.queue(1)), (&[2][..], &[0, 1][..]));
        }
    }

    #[test]
    fn torque_fills_all_machines_of_the_fastest_kind_and_met_the_first_of_them() {
        let times = Times::new(3, vec![9, 2, 2, 9, 2, 2]);
        assert_eq!(torque(&times).loads(), [0, 2, 2]);
        assert_eq!(met(&times).loads(), [0, 4, 0]);
    }

    #[test]
    fn mct_looks_at_the_end() {
        let mapping = mct(&times());
        assert_eq!((mapping.loads(), mapping.queue(1)), (&[5, 5][..], &[0, 1][..]));
    }

    #[test]
    fn fcfs_takes_a_free_slow_machine_rather_than_wait_for_a_fast_one() {
        let mapping = fcfs(&Times::new(2, vec![9, 1, 90, 10]));
        assert_eq!(mapping.loads(), [90, 1]);
    }

    #[test]
    fn short_or_long_ones_come_first() {
        let times = Times::new(1, vec![2, 3, 1]);
        assert_eq!(sjf(&times).queue(0), [2, 0, 1]);
        assert_eq!(ljf(&times).queue(0), [1, 0, 2]);
    }
}
