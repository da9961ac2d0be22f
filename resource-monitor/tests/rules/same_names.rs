//! What has ended and comes again by the same name.

use crate::farm::{END_LAG_S, Farm, QUIET_S, WHOLE, cores};
use gleaner_protocol::farm::{HookEvent, HookKind};

#[test]
fn what_the_farm_alone_names_may_come_again() {
    let mut farm = Farm::with_open_host();
    let polls = |farm: &mut Farm, bookings: &[(&str, u32)]| {
        farm.advance(1);
        farm.polls(&[("a", bookings)]);
    };
    let drained = &[("htcondor:Drained-slot1@a", 12)];
    polls(&mut farm, drained);
    polls(&mut farm, &[]);
    polls(&mut farm, drained);
    assert_eq!(farm.view("a").bookings.len(), 1);
    assert_eq!(farm.contradictions("a"), [""; 0]);
    // One that a hook has ended is another matter, though no hook began it.
    farm.ends("a", "htcondor:Drained-slot1@a");
    farm.advance(END_LAG_S);
    polls(&mut farm, drained);
    farm.advance(END_LAG_S);
    polls(&mut farm, drained);
    assert!(farm.contradictions("a")[0].contains("ended before"));
}

#[test]
fn a_farm_hears_of_an_end_later_than_its_host_and_contradicts_it_if_it_never_does() {
    const SAID: &str = "the farm lists r1, ended before";
    let mut farm = Farm::with_open_host();
    let run = |farm: &mut Farm, has_hook: bool| {
        farm.begins("a", "r1", WHOLE);
        farm.polls(&[("a", &[("r1", 12)])]);
        farm.advance(10);
        match has_hook {
            true => farm.ends("a", "r1"),
            // Only its run folder says so.
            false => drop(farm.postflight("a", "r1")),
        }
        farm.samples("a");
    };
    let lists = |farm: &mut Farm, seconds: u64| {
        farm.advance(seconds);
        farm.polls(&[("a", &[("r1", 12)])]);
    };
    for has_hook in [true, false] {
        run(&mut farm, has_hook);
        lists(&mut farm, 1);
        assert_eq!(farm.view("a").bookings[0].seen_by, ["poll"], "its cores stay the farm's");
        lists(&mut farm, END_LAG_S - 2);
        farm.advance(1);
        farm.polls(&[("a", &[])]);
        assert_eq!(farm.view("a").bookings, []);
        assert_eq!(farm.contradictions("a"), [""; 0], "{has_hook}");
        farm.advance(QUIET_S);
    }
    for (times, has_hook) in [(1, true), (2, false)] {
        run(&mut farm, has_hook);
        for _ in 0..3 {
            lists(&mut farm, END_LAG_S);
        }
        let known = farm.view("a").contradictions;
        assert_eq!(known.iter().map(|one| &*one.text).collect::<Vec<_>>(), [SAID]);
        assert_eq!(known[0].times, times, "once for each");
    }
    // It lets go of it and lists it again: nobody else has told of another one.
    farm.advance(1);
    farm.polls(&[("a", &[])]);
    lists(&mut farm, 1);
    lists(&mut farm, END_LAG_S);
    assert_eq!(farm.view("a").contradictions[0].times, 3);
}

#[test]
fn an_end_that_is_told_of_twice_begins_no_quiet_period_anew() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", cores(4));
    farm.ends("a", "r1");
    farm.begins("a", "r2", cores(4));
    farm.ends("a", "r2");
    farm.tells(["open a 8 at 1", "open a 8 at 2"]);
    farm.advance(QUIET_S - 1);
    // The watcher of a process that takes long to end.
    farm.ends("a", "r1");
    farm.advance(1);
    farm.tells(["open a 12 at 2"]);
    // One that begins anew by that name ends anew.
    farm.begins("a", "r1", cores(4));
    farm.tells(["open a 8 at 3"]);
    farm.ends("a", "r1");
    farm.advance(QUIET_S - 1);
    farm.tells([]);
    farm.advance(1);
    farm.tells(["open a 12 at 3"]);
}

#[test]
fn an_end_that_is_told_of_twice_ends_nothing_that_the_farm_lists_still() {
    let mut farm = Farm::polled_and_open();
    farm.begins("a", "r1", WHOLE);
    farm.ends("a", "r1");
    farm.advance(1);
    farm.polls(&[("a", &[("r1", 12)])]);
    farm.ends("a", "r1");
    assert_eq!(farm.view("a").bookings[0].seen_by, ["poll"]);
    farm.advance(1);
    farm.polls(&[("a", &[])]);
    assert_eq!(farm.view("a").bookings, []);
    assert_eq!(farm.contradictions("a"), [""; 0]);
}

#[test]
fn a_job_that_was_put_back_runs_again_under_its_name() {
    let mut farm = Farm::with_open_host();
    farm.begins("a", "r1", WHOLE);
    farm.ends("a", "r1");
    farm.advance(10);
    // Its sample is heard before its hook.
    let preflight = farm.preflight("a", "r1", WHOLE);
    farm.samples("a");
    assert_eq!(farm.contradictions("a"), [""; 0]);
    farm.hears(&preflight);
    assert_eq!(farm.view("a").bookings[0].seen_by, ["hook", "sample"]);
    // A folder that has it still, and no preflight since, is another matter.
    farm.hears(&HookEvent { kind: HookKind::Postflight, ..preflight });
    farm.advance(10);
    farm.samples("a");
    assert!(farm.contradictions("a")[0].contains("r1 has ended, but its run folder has it"));
}

#[test]
fn another_jobs_preflight_explains_no_booking_that_was_left_behind() {
    let mut farm = Farm::with_open_host();
    let first = farm.preflight("a", "r1", WHOLE);
    farm.hears(&first);
    // Its folder keeps it.
    farm.hears(&HookEvent { kind: HookKind::Postflight, ..first });
    farm.advance(10);
    farm.begins("a", "r2", WHOLE);
    farm.samples("a");
    assert!(farm.contradictions("a")[0].contains("r1 has ended, but its run folder has it"));
}
