//! What fits, and what does not.

use proptest::prelude::*;

use super::*;
use crate::policy::deadline::{Claim, fits};

fn piece(share: u32, left_us: u64, is_pinned: bool) -> Piece {
    Piece { share: Share::permille(share), left_us, is_pinned }
}

fn rest(until_us: u64, tasks: Vec<Piece>) -> Rest {
    let is_movable = tasks.iter().all(|task| !task.is_pinned);
    Rest { until_us, tasks, is_movable }
}

#[test]
fn what_runs_is_in_the_way_of_what_cannot_wait() {
    let runs = rest(100, vec![piece(1_000, 8, true); 2]);
    let presses = rest(10, vec![piece(1_000, 5, false)]);
    assert_eq!(late(2, [&runs, &presses]), BTreeSet::from([1]));
    assert_eq!(late(3, [&runs, &presses]), BTreeSet::new());
    let waits = rest(100, vec![piece(1_000, 8, false); 2]);
    assert_eq!(late(2, [&waits, &presses]), BTreeSet::new());
}

#[test]
fn without_cores_all_are_late() {
    assert_eq!(late(0, [&rest(9, vec![piece(1_000, 1, false)])]), BTreeSet::from([0]));
    assert_eq!(late(0, [&rest(9, vec![piece(250, 1, false)])]), BTreeSet::from([0]));
}

#[test]
fn tasks_of_several_cores_wait_until_as_many_are_free() {
    let two = |count, until_us| rest(until_us, vec![piece(2_000, 10, false); count]);
    assert_eq!(late(4, [&two(4, 20)]), BTreeSet::new());
    assert_eq!(late(3, [&two(4, 20)]), BTreeSet::from([0]), "one core stands idle");
    assert_eq!(late(1, [&two(1, 99)]), BTreeSet::from([0]));
    assert_eq!(fit(4, &[two(4, 20)]), Ok(()));
    assert_eq!(fit(4, &[two(4, 19)]), Err(0));
    assert_eq!(fit(4, &[two(4, 20), two(1, 29)]), Err(1));
}

#[test]
fn tasks_on_parts_of_a_core_share_it() {
    let quarters = |count, until_us| rest(until_us, vec![piece(250, 10, false); count]);
    assert_eq!(fit(1, &[quarters(4, 10)]), Ok(()));
    assert_eq!(fit(1, &[quarters(5, 10)]), Err(0));
    assert_eq!(late(1, [&quarters(4, 10)]), BTreeSet::new());
    assert_eq!(late(1, [&quarters(5, 19)]), BTreeSet::from([0]));
    let uneven = rest(20, vec![piece(1_500, 10, false); 3]);
    assert_eq!(uneven.on_whole_cores().collect::<Vec<_>>(), [10, 10, 10, 10, 5]);
}

proptest! {
    #[test]
    fn it_fits_exactly_where_the_flow_says_so(
        cores in 1_u32..5,
        jobs in prop::collection::vec((1_u64..40, 1_u32..5, 1_u64..20), 1..7),
    ) {
        let claim = |(due_us, tasks, work_us): &(u64, u32, u64)| Claim {
            from_us: 0,
            due_us: *due_us,
            tasks: *tasks,
            work_us: *work_us,
        };
        let claims: Vec<Claim> = jobs.iter().map(claim).collect();
        let of = |(due_us, tasks, work_us): &(u64, u32, u64)| {
            rest(*due_us, vec![piece(1_000, *work_us, false); *tasks as usize])
        };
        let mut rests: Vec<Rest> = jobs.iter().map(of).collect();
        rests.sort_by_key(|rest| rest.until_us);
        prop_assert_eq!(fit(cores, &rests).is_ok(), fits(cores, &claims).is_ok());
    }

    #[test]
    fn no_work_is_lost_on_whole_cores(
        tasks in prop::collection::vec((1_u32..4_000, 1_u64..1_000_000), 0..20),
    ) {
        let tasks = tasks.iter().map(|(share, left_us)| piece(*share, *left_us, false));
        let rest = rest(1, tasks.collect());
        let whole: u64 = rest.on_whole_cores().sum();
        // Each part is rounded up to a microsecond.
        prop_assert!(whole.abs_diff(rest.work_us()) <= 5 * rest.tasks.len() as u64);
    }
}
