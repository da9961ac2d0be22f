//! Farms that book whole cores, of which a host's system counts the threads.

use crate::farm::{Farm, cores};

#[test]
fn a_hook_and_a_farm_that_books_whole_cores_may_count_threads_or_cores() {
    for (hook, poll, threads, agree) in [
        (4, 4, 1, true),
        (4, 8, 1, false),
        // One thread on each core, or all of them.
        (4, 8, 2, true),
        (8, 8, 2, true),
        (8, 4, 2, false),
        (3, 8, 2, false),
    ] {
        let case = format!("{hook} by its hook, {poll} by the farm, {threads} threads");
        let mut farm = Farm::with_open_host();
        farm.begins("a", "r1", cores(hook));
        farm.polls_of_threads(threads, &[("a", &[("r1", poll)])]);
        assert_eq!(farm.contradictions("a").is_empty(), agree, "{case}");
        assert_eq!(farm.view("a").bookings[0].cores, Some(hook.max(poll)), "{case}");
        // Whoever tells of it later.
        farm.begins("a", "r2", cores(hook));
        farm.polls_of_threads(threads, &[("a", &[("r1", poll), ("r2", poll)])]);
        assert_eq!(farm.contradictions("a").is_empty(), agree, "{case}");
    }
}
