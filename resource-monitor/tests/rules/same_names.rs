//! What has ended and comes again by the same name.

use crate::farm::{Farm, WHOLE};
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
    polls(&mut farm, drained);
    assert!(farm.contradictions("a")[0].contains("ended before"));
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
