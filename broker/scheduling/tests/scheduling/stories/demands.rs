//! What a replica takes of its host: a part of a core, one, or several.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::job::Lane;
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{CoreConfig, LaneLimits, LanePolicy};

use super::story::{Story, with_deadlines};

#[test]
fn what_takes_several_cores_takes_them_from_smaller_ones_of_its_lane_and_from_each_once() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(4).joins().whatever();
        story.job().workunits(4).submits().whatever();
        story.asks("f1", 4).is([
            "lease f1 1/0#1",
            "lease f1 1/1#1",
            "lease f1 1/2#1",
            "lease f1 1/3#1",
        ]);
        story.job().cores_permille(3_000).workunits(2).submits().whatever();
        story.reports("f1", "1/0", "x").whatever();
        // One core is free: two more come from what was begun last.
        story.asks("f1", 1).is(["park f1 1/3#1", "park f1 1/2#1", "lease f1 2/0#1"]);
        story.reports("f1", "2/0", "x").whatever();
        story.asks("f1", 3).is(["resume f1 1/3#1", "resume f1 1/2#1"]);
        // These have stepped aside before: the second large one waits for one of them, and takes the
        // rest from the one that has not.
        story.reports("f1", "1/2", "x").whatever();
        story.asks("f1", 1).is(["park f1 1/1#1", "lease f1 2/1#1"]);
        story.reports("f1", "2/1", "x").whatever();
        story.asks("f1", 3).is(["resume f1 1/1#1"]);
        story.reports("f1", "1/3", "x").whatever();
        story.reports("f1", "1/1", "x").whatever();
        assert_eq!(story.core.farm().totals().aborted, 0, "nothing is lost");
    }
}

#[test]
fn parts_share_a_core_and_no_more_than_fit() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(1).joins().whatever();
        story.job().cores_permille(500).workunits(3).submits().whatever();
        story.asks("f1", 1).is(["lease f1 1/0#1", "lease f1 1/1#1"]);
        // A part is not asked for: what is left of the core is.
        assert_eq!(story.reports("f1", "1/0", "x").leases(), ["f1 1/2#1"]);
    }
}

#[test]
fn a_due_job_of_two_cores_has_background_make_room_for_both_at_once() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().workunits(9).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 4);
    story.job().due(60, 10).cores_permille(2_000).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f1 1/3#1",
        "park f1 1/2#1",
        "lease f1 2/0#1",
    ]);
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 2).is(["resume f1 1/3#1", "resume f1 1/2#1"]);
}

#[test]
fn who_takes_more_cores_than_any_host_has_is_told_the_largest() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).joins().whatever();
    story.asks("f1", 4).nothing();
    story.job().cores_permille(8_000).submits().whatever();
    let reasons = story.why(1);
    assert!(reasons.contains("the kernel sum on 8 cores"), "{reasons}");
    assert!(reasons.contains("the largest that offers it has 4"), "{reasons}");
    story.job().cores_permille(4_000).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "lease f1 2/0#1",
    ]);
    story.job().cores_permille(2_000).submits().whatever();
    let reasons = story.why(3);
    assert!(reasons.contains("it takes 2 cores of one host"), "{reasons}");
}

#[test]
fn what_several_cores_hold_goes_where_the_host_gives_fewer() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().cores_permille(3_000).workunits(2).submits().whatever();
    story.asks("f1", 4).is(["lease f1 1/0#1"]);
    story.gives("f1", 2).whatever();
    assert_eq!(story.core.farm().lease_count(), 0, "it does not fit any more");
}

#[test]
fn nothing_is_parked_for_what_the_floor_of_its_lane_does_not_leave_room_for() {
    let mut config = with_deadlines();
    let background = config.lanes.get_mut(&Lane::Background).expect("a lane");
    background.limits = LaneLimits { min_percent: 25, ..LaneLimits::of(Lane::Background) };
    let mut story = Story::with(config);
    story.host("f1", Farm).slots(4).joins().whatever();
    story.host("f2", Farm).slots(4).joins().whatever();
    story.job().workunits(9).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 4);
    // Two of its four cores are background's floor.
    story.job().due(600, 10).cores_permille(3_000).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
    ]);
    assert_eq!(story.asks("f2", 4).leases(), ["f2 2/0#1", "f2 1/4#1"]);
}

#[test]
fn what_takes_less_goes_on_where_what_was_parked_before_it_has_no_room() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().cores_permille(3_000).submits().whatever();
    story.job().workunits(4).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases(), ["f1 1/0#1", "f1 2/0#1"]);
    story.job().due(600, 10).cores_permille(2_000).workunits(2).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "park f1 2/0#1",
        "park f1 1/0#1",
        "lease f1 3/0#1",
        "lease f1 3/1#1",
    ]);
    // Two cores are free, and the job that takes three of them was parked last.
    story.reports("f1", "3/0", "x").whatever();
    assert_eq!(story.asks("f1", 2).leases(), ["f1 2/1#1"]);
    story.reports("f1", "3/1", "x").whatever();
    // It has smaller ones step aside that have not before.
    story.asks("f1", 2).is(["park f1 2/1#1", "resume f1 1/0#1"]);
}

#[test]
fn a_host_with_odd_shares_is_asked_about_anew_once_a_whole_core_is_free() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(2).joins().whatever();
    story.job().cores_permille(700).workunits(2).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases().len(), 2, "six tenths are left");
    story.job().workunits(2).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
    ]);
    // Where the first job has ended, none takes anything but one core.
    assert_eq!(story.cancels(1).leases(), ["f1 2/0#1", "f1 2/1#1"]);
}

#[test]
fn several_cores_are_offered_again_when_parts_have_taken_what_was_not_asked_for() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(4).joins().whatever();
        story.host("f2", Farm).slots(1).joins().whatever();
        story.job().cores_permille(500).workunits(5).submits().whatever();
        assert_eq!(story.asks("f2", 1).leases().len(), 2);
        assert_eq!(story.asks("f1", 1).leases().len(), 3);
        // Two cores and a half are idle, and one is asked for.
        story.job().cores_permille(2_000).submits().is([
            "persist accepted job-2",
            "accepted job-2",
            "changed job-2",
        ]);
        // Parts are not asked for: two more leave one core and a half, and one is asked for.
        story.is_expelled("f2").is([
            "disconnected f2",
            "lease f1 1/0#2",
            "lease f1 1/1#2",
            "park f1 1/1#2",
            "lease f1 2/0#1",
        ]);
    }
}

#[test]
fn several_cores_are_offered_again_when_another_lane_leaves_less_idle() {
    for policy in PolicyName::ALL {
        let batch = LanePolicy::default_of(Lane::Batch);
        let mut config = CoreConfig::background(policy).with_lane(Lane::Batch, batch);
        let background = config.lanes.get_mut(&Lane::Background).expect("a lane");
        background.limits = LaneLimits { max_percent: 50, min_percent: 0 };
        let mut story = Story::with(config);
        story.host("f1", Farm).slots(4).joins().whatever();
        story.job().submits().whatever();
        assert_eq!(story.asks("f1", 4).leases(), ["f1 1/0#1"]);
        // Three cores are idle, and the lane may hold one more.
        story.job().cores_permille(2_000).submits().is([
            "persist accepted job-2",
            "accepted job-2",
            "changed job-2",
        ]);
        // One core is idle: the smaller one gives way, and its lane holds one core more.
        story.job().lane(Lane::Batch).workunits(2).submits().is([
            "persist accepted job-3",
            "accepted job-3",
            "changed job-3",
            "lease f1 3/0#1",
            "lease f1 3/1#1",
            "park f1 1/0#1",
            "lease f1 2/0#1",
        ]);
    }
}

#[test]
fn what_a_lane_holds_less_of_once_a_larger_one_has_begun_is_offered_at_once() {
    for policy in PolicyName::ALL {
        let mut config = CoreConfig::background(policy);
        let background = config.lanes.get_mut(&Lane::Background).expect("a lane");
        background.limits = LaneLimits { max_percent: 50, min_percent: 0 };
        let mut story = Story::with(config);
        story.host("f1", Farm).slots(3).joins().whatever();
        story.host("f2", Farm).slots(7).kernel("other").joins().whatever();
        story.asks("f1", 3).nothing();
        story.asks("f2", 7).nothing();
        for part in [550, 700, 600, 900] {
            assert_eq!(story.job().cores_permille(part).submits().leases().len(), 1);
        }
        for part in [500, 900] {
            let job = story.job().cores_permille(part).kernel("other");
            assert_eq!(job.submits().leases().len(), 1);
        }
        // The lane may hold 850 thousandths more.
        story.job().kernel("other").submits().is([
            "persist accepted job-7",
            "accepted job-7",
            "changed job-7",
        ]);
        // What gives way to two cores held two and a fifth.
        story.job().cores_permille(2_000).submits().is([
            "persist accepted job-8",
            "accepted job-8",
            "changed job-8",
            "park f1 4/0#1",
            "park f1 3/0#1",
            "park f1 2/0#1",
            "lease f1 8/0#1",
            "lease f2 7/0#1",
        ]);
    }
}
