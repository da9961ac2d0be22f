//! Several lanes on one farm.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::Span;
use gleaner_protocol::control::HeldState;
use gleaner_protocol::job::Lane;
use gleaner_scheduling::PolicyName::{FragmentAware, Plain};
use gleaner_scheduling::replication::ReplicationConfig;
use gleaner_scheduling::visualization::TestRun;
use gleaner_scheduling::{CoreConfig, LaneLimits, LanePolicy, Policy, replication, visualization};

use super::story::{Policies, Story, held_of};

/// All lanes that run on a farm.
fn farm_of_lanes() -> CoreConfig {
    CoreConfig::background(FragmentAware)
        .with_lane(Lane::Deadline, LanePolicy::default_of(Lane::Deadline))
        .with_lane(Lane::Batch, LanePolicy::default_of(Lane::Batch))
}

/// The same with the lanes that run on farms of a studio.
fn studio() -> Story {
    Story::with_more(farm_of_lanes(), || {
        let run = TestRun { render: Span::from_millis(10), load_per_mib: Span::from_millis(4) };
        let dataset = replication::Gleaner::new(ReplicationConfig::default());
        Policies::from([
            (Lane::Rendering, Box::new(visualization::Gleaner::new(run)) as Box<dyn Policy>),
            (Lane::Dataset, Box::new(dataset)),
        ])
    })
}

fn limit(config: &mut CoreConfig, lane: Lane, max_percent: u32, min_percent: u32) {
    let limits = LaneLimits { max_percent, min_percent };
    config.lanes.get_mut(&lane).expect("a lane").limits = limits;
}

#[test]
fn a_deadline_job_gets_cores_of_a_farm_full_of_background_work_at_once() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("f2", 1).is(["lease f2 1/1#1"]);
    story.job().due(60, 10).workunits(2).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f1 1/0#1",
        "lease f1 2/0#1",
        "park f2 1/1#1",
        "lease f2 2/1#1",
    ]);
    // What was parked goes on before anything new is begun, and is the same replica.
    story.advance(Span::from_secs(10)).nothing();
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 1).is(["resume f1 1/0#1"]);
    story.reports("f1", "1/0", "y").whatever();
    story.asks("f1", 1).is(["lease f1 1/2#1"]);
}

#[test]
fn the_first_lane_that_wants_a_core_gets_it_within_the_turn() {
    let mut story = Story::with(farm_of_lanes());
    story.job().workunits(9).submits().whatever();
    story
        .job()
        .due(60, 10)
        .submits()
        .is(["refused: the job is not accepted: 1 tasks of 10 s each \
        cannot all be done on 0 cores within 60 s"]);
    story.host("f1", Farm).slots(2).joins().whatever();
    story.job().due(60, 10).workunits(1).submits().whatever();
    story.asks("f1", 2).is(["lease f1 2/0#1", "lease f1 1/0#1"]);
}

#[test]
fn what_is_displaced_where_nothing_more_can_be_parked_waits_again_and_has_not_failed() {
    let mut story = Story::with(farm_of_lanes());
    story.host("f1", Farm).slots(1).joins().whatever();
    story.known_as("f1", |info| info.cores = 1);
    story.returns("f1", &[]).whatever();
    story.job().workunits(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.job().lane(Lane::Batch).submits().whatever();
    // One is parked for the batch. When the deadline comes there is no place beside that, and what is
    // of the lane behind goes.
    story.job().due(60, 10).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f1 1/0#1 Preempted",
        "park f1 2/0#1",
        "lease f1 3/0#1",
    ]);
    story.reports("f1", "3/0", "x").whatever();
    story.asks("f1", 1).is(["resume f1 2/0#1"]);
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 1).is(["lease f1 1/0#2"]);
    let counts = story.core.farm().totals();
    assert_eq!((counts.failed, counts.expired, counts.aborted), (0, 0, 1));
}

#[test]
fn of_one_lane_what_runs_is_taken_back_where_nothing_more_can_be_parked() {
    let mut story = Story::with(farm_of_lanes());
    story.host("f1", Farm).slots(2).joins().whatever();
    story.known_as("f1", |info| info.cores = 1);
    story.returns("f1", &[]).whatever();
    story.job().workunits(2).submits().whatever();
    story.asks("f1", 2).whatever();
    story.asks("f1", 2).whatever();
    story.job().due(60, 10).workunits(2).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f1 1/1#1",
        "lease f1 2/0#1",
        "abort f1 1/0#1 Preempted",
        "lease f1 2/1#1",
    ]);
}

#[test]
fn a_frame_gets_a_core_of_a_farm_full_of_background_work_at_once() {
    let mut story = studio();
    story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.job().frame_of(7, 1).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f1 1/0#1",
        "lease f1 2/0#1",
    ]);
    story.gains("f1", 7, [0]).nothing();
    // The next frame waits for the core that the lane has, and nobody else is asked for one.
    story.job().frame_of(7, 1).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
    ]);
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 1).is(["lease f1 3/0#1"]);
    story.reports("f1", "3/0", "x").whatever();
    story.asks("f1", 1).is(["resume f1 1/0#1"]);
}

#[test]
fn a_frame_that_is_cancelled_leaves_its_core_to_the_next() {
    let mut story = studio();
    story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
    story.gains("f1", 7, [0]).nothing();
    story.asks("f1", 1).nothing();
    assert_eq!(story.job().frame_of(7, 1).submits().leases(), ["f1 1/0#1"]);
    story.job().frame_of(7, 1).submits().whatever();
    story.cancels(1).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 2/0#1"]);
}

#[test]
fn a_dataset_is_worked_through_where_its_chunks_lie_in_the_place_of_background_work() {
    let mut story = studio();
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().workunits(9).submits().whatever();
    for host in ["f1", "f2", "f3"] {
        story.asks(host, 1).whatever();
    }
    story.gains("f2", 5, [0]).nothing();
    story.job().reads(5).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f2 1/1#1",
        "lease f2 2/0#1",
    ]);
    story.reports("f2", "2/0", "x").whatever();
    story.asks("f2", 1).is(["resume f2 1/1#1"]);
}

#[test]
fn a_copy_that_comes_is_computed_at_once_in_the_place_of_background_work() {
    let mut story = studio();
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    story.job().reads(5).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
    ]);
    story.gains("f2", 5, [0]).is(["park f2 1/1#1", "lease f2 2/0#1"]);
}

#[test]
fn all_lanes_want_a_core_and_get_them_in_their_order() {
    let mut story = studio();
    story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
    story.job().workunits(9).submits().whatever();
    story.job().lane(Lane::Batch).submits().whatever();
    story.gains("f1", 5, [0]).nothing();
    story.job().reads(5).submits().whatever();
    story.job().due(60, 10).submits().whatever();
    story.job().frame_of(7, 1).submits().whatever();
    story.asks("f1", 1).is(["lease f1 5/0#1"]);
    for (done, next) in [("5/0", "4/0"), ("4/0", "3/0"), ("3/0", "2/0"), ("2/0", "1/0")] {
        story.reports("f1", done, "x").whatever();
        assert_eq!(story.asks("f1", 1).leases(), [format!("f1 {next}#1")]);
    }
}

#[test]
fn nobody_gives_way_for_a_core_that_is_idle_and_not_asked_for_yet() {
    let mut story = studio();
    story.host("f1", Farm).slots(2).chunk_cache_mib(8).joins().whatever();
    story.gains("f1", 7, [0]).nothing();
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 2).whatever();
    story.reports("f1", "1/0", "x").whatever();
    story.job().frame_of(7, 1).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
    ]);
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
}

#[test]
fn tasks_that_are_due_give_way_to_frames_in_turn() {
    let mut story = studio();
    story.host("f1", Farm).slots(2).chunk_cache_mib(8).joins().whatever();
    story.gains("f1", 7, [0]).nothing();
    story.asks("f1", 2).nothing();
    story.job().due(60, 10).workunits(2).submits().whatever();
    for (frame, parked) in [(2, "1/0"), (3, "1/1"), (4, "1/0")] {
        let lines = [
            format!("persist accepted job-{frame}"),
            format!("accepted job-{frame}"),
            format!("changed job-{frame}"),
            format!("park f1 {parked}#1"),
            format!("lease f1 {frame}/0#1"),
        ];
        story.job().frame_of(7, 1).submits().begins(lines);
        story.reports("f1", &format!("{frame}/0"), "x").whatever();
        story.asks("f1", 1).begins([format!("resume f1 {parked}#1")]);
    }
}

#[test]
fn frames_are_for_hosts_that_give_memory_to_chunks() {
    let mut story = studio();
    story.hosts(["f1", "f2"], Farm);
    story.host("f3", Farm).chunk_cache_mib(8).joins().whatever();
    for host in ["f1", "f2", "f3"] {
        story.asks(host, 1).nothing();
    }
    assert_eq!(story.job().frame_of(7, 1).submits().leases(), ["f3 1/0#1"]);
}

#[test]
fn frames_that_a_floor_held_back_go_on_when_it_leaves_more() {
    let mut story = studio();
    story.host("f1", Farm).slots(10).chunk_cache_mib(8).joins().whatever();
    story.known_as("f1", |info| info.cores = 10);
    story.returns("f1", &[]).whatever();
    story.gains("f1", 7, [0]).nothing();
    story.job().workunits(20).submits().whatever();
    story.asks("f1", 10).whatever();
    for _ in 0..9 {
        story.job().due(900, 100).submits().whatever();
    }
    let (_, held) = story.core.farm().lane_shares();
    assert_eq!(held, [0, 9_000, 0, 0, 1_000], "the floor is one core of ten");
    for frame in 1..=10 {
        story.job().frame_of(7, frame).submits().whatever();
    }
    let (_, held) = story.core.farm().lane_shares();
    assert_eq!(held[4], 1_000, "frames leave the floor too: {held:?}");
    story.cancels(1).whatever();
    let (_, held) = story.core.farm().lane_shares();
    assert_eq!(held[0], 9_000, "one slot of a node is left for loads: {held:?}");
}

#[test]
fn the_slot_of_what_is_taken_back_counts_as_asked_for() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.job().due(1_000, 100).keeps().submits().whatever();
    // The host says nothing of the slot that the patient one leaves.
    story.job().due(110, 100).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f1 2/0#1 Preempted",
        "lease f1 3/0#1",
    ]);
}

#[test]
fn a_floor_keeps_cores_for_background_and_a_cap_holds_a_lane_back() {
    let mut config = farm_of_lanes();
    limit(&mut config, Lane::Background, 100, 25);
    limit(&mut config, Lane::Batch, 50, 0);
    let mut story = Story::with(config);
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().workunits(9).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 4);
    story.job().lane(Lane::Batch).workunits(9).submits().leases().len();
    let (given, held) = story.core.farm().lane_shares();
    assert_eq!((given, held), (4_000, [0, 0, 0, 2_000, 2_000]));
    story.job().due(60, 1).workunits(8).submits().whatever();
    let (_, held) = story.core.farm().lane_shares();
    assert_eq!(held, [0, 3_000, 0, 0, 1_000], "the batch gives all, background keeps its floor");
}

#[test]
fn what_is_parked_does_not_run_out_of_time_and_is_parked_after_a_restart() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1"], Farm);
    story.job().lease_s(60).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.job().due(900, 300).lease_s(900).submits().whatever();
    story.advance(Span::from_secs(50)).nothing();
    story.advance(Span::from_secs(20)).nothing();
    let lease = story.lease("f1", "1/0");
    let busy = story.lease("f1", "2/0");
    story.restarts().nothing();
    let parked =
        gleaner_protocol::control::Held { state: HeldState::Parked, ..held_of(lease, true) };
    story.returns_with("f1", vec![parked, held_of(busy, false)]).is([
        "welcome f1 keeps [1/0#1 2/0#1]",
        "connected f1",
        "fragment f1 1",
    ]);
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 1).is(["resume f1 1/0#1"]);
}

#[test]
fn a_due_time_outlives_a_restart() {
    let mut config = farm_of_lanes();
    config.zero_us = 1_700_000_000_000_000;
    let mut story = Story::with(config);
    story.hosts(["f1"], Farm);
    story.advance(Span::from_secs(100)).nothing();
    story.job().due(60, 10).submits().whatever();
    let due = |story: &Story| {
        let job = story.core.farm().jobs().next().expect("a job");
        (job.due.map(|due| story.core.utc_us(due)), job.accepted_us)
    };
    let before = due(&story);
    assert_eq!(before, (Some(1_700_000_160_000_000), 1_700_000_100_000_000));
    // The host was booted in between: the clock that counts from there is another.
    story.reboots(1_700_000_120_000_000);
    assert_eq!(due(&story), before);
    let left = story.core.farm().jobs().next().and_then(|job| job.due).expect("due");
    assert_eq!(left.as_micros(), 40_000_000);
}

#[test]
fn lanes_that_serve_as_hosts_ask_take_turns_by_their_order_alone() {
    let config =
        CoreConfig::background(FragmentAware).with_lane(Lane::Batch, LanePolicy::Greedy(Plain));
    let mut story = Story::with(config);
    story.host("f1", Farm).slots(2).joins().whatever();
    story.job().submits().whatever();
    story.job().lane(Lane::Batch).submits().whatever();
    story.asks("f1", 2).is(["lease f1 2/0#1", "lease f1 1/0#1"]);
}

#[test]
fn what_a_lane_was_held_back_from_is_offered_to_it_when_it_may_hold_more() {
    let mut config = farm_of_lanes();
    limit(&mut config, Lane::Background, 50, 0);
    let mut story = Story::with(config);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().workunits(9).submits().whatever();
    for host in ["f1", "f2", "f3", "f4"] {
        story.asks(host, 1).whatever();
    }
    assert_eq!(story.core.farm().lane_shares(), (4_000, [0, 0, 0, 0, 2_000]));
    // Whoever asked first gets it, though nothing of that host has changed.
    assert_eq!(story.reports("f1", "1/0", "x").leases(), ["f3 1/2#1"]);
    // More is given: the cap is half of that.
    story.host("f5", Farm).slots(2).joins().is([
        "welcome f5 keeps []",
        "connected f5",
        "fragment f5 2",
        "lease f4 1/3#1",
    ]);
}

#[test]
fn a_task_that_is_due_takes_what_is_idle_before_anything_is_parked_for_it() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1", "f2"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("f2", 1).nothing();
    assert_eq!(story.job().due(60, 10).submits().leases(), ["f2 2/0#1"]);
    assert_eq!(story.job().lane(Lane::Batch).submits().leases(), ["f1 3/0#1"]);
}

#[test]
fn what_is_parked_and_has_nothing_to_stand_for_runs_out_and_has_not_failed() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1"], Farm);
    story.job().lease_s(60).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.job().due(900, 300).lease_s(900).submits().whatever();
    story.advance(Span::from_secs(70)).nothing();
    story.reports("f1", "2/0", "x").whatever();
    // The host asks for nothing any more: nobody can tell what was parked there to go on.
    story.advance(Span::from_secs(70)).is(["abort f1 1/0#1 Expired"]);
    let counts = story.core.farm().totals();
    assert_eq!((counts.failed, counts.expired, counts.aborted), (0, 1, 0));
}

#[test]
fn only_the_deadline_lane_promises_and_no_more_than_it_can_watch() {
    let mut story = Story::with(farm_of_lanes());
    story.hosts(["f1"], Farm);
    story.job().due(60, 10).lane(Lane::Batch).submits().is([
        "refused: the job is not accepted: the batch lane promises no due times: leave --due out, \
         or have it run in the deadline lane",
    ]);
    story.job().due(60, 10).workunits(10_001).submits().is([
        "refused: the job is not accepted: a job of the deadline lane has at most 10000 workunits, \
         and this one 10001: make several jobs of it",
    ]);
}

#[test]
fn a_batch_is_not_queued_for_what_others_keep() {
    let mut config = farm_of_lanes();
    limit(&mut config, Lane::Background, 100, 25);
    let mut story = Story::with(config);
    let hosts = ["f1", "f2", "f3", "f4"];
    story.hosts(hosts, Farm);
    story.job().workunits(9).submits().whatever();
    for host in hosts {
        story.asks(host, 1).whatever();
    }
    let begun = story.job().lane(Lane::Batch).workunits(4).submits().leases();
    assert_eq!(begun, ["f1 2/0#1", "f2 2/1#1", "f3 2/2#1"]);
    story.reports("f2", "2/1", "x").whatever();
    story.asks("f2", 1).is(["lease f2 2/3#1"]);
}

#[test]
fn a_batch_that_no_host_can_run_holds_nothing_up() {
    let mut story = Story::with(farm_of_lanes());
    story.job().lane(Lane::Batch).kernel("other").workunits(3_000).submits().whatever();
    story.job().lane(Lane::Batch).submits().whatever();
    story.host("f1", Farm).joins().whatever();
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
}

#[test]
fn a_large_farm_has_no_idle_host_while_a_batch_waits() {
    let mut story = Story::with(farm_of_lanes());
    story.host("fast", Farm).kind("fast").slots(600).joins().whatever();
    story.host("slow", Farm).kind("slow").slots(600).joins().whatever();
    story
        .job()
        .lane(Lane::Batch)
        .takes([("fast", 100), ("slow", 300)])
        .workunits(5_000)
        .submits()
        .whatever();
    story.asks("fast", 600).whatever();
    // No plan rests any more: it is made anew for who asks now.
    story.advance(Span::from_secs(1)).whatever();
    story.asks("slow", 600).whatever();
    for _ in 0..40 {
        story.advance(Span::from_millis(100)).whatever();
    }
    assert_eq!(story.core.farm().lease_count(), 1_200);
}

#[test]
fn what_is_due_counts_on_those_alone_who_can_run_it() {
    let mut story = Story::with(farm_of_lanes());
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().due(60, 10).program("/bin/render").submits().is([
        "refused: the job is not accepted: none of the 1 connected hosts offers the program \
         /bin/render; no owner allows any program (`gleaner agent --allow-command`)",
    ]);
    story.host("f2", Farm).program_in("/bin/render", 1_024).joins().whatever();
    story.job().due(60, 20).program("/bin/render").workunits(4).submits().is([
        "refused: the job is not accepted: 4 tasks of 20 s each cannot all be done on 1 cores \
         within 60 s",
    ]);
    story.job().due(60, 20).program("/bin/render").workunits(2).submits().whatever();
    assert_eq!(story.asks("f2", 1).leases(), ["f2 1/0#1"]);
}

#[test]
fn an_animation_gives_way_to_a_frame_and_goes_on_when_nobody_turns_the_volume_any_more() {
    let mut story = studio();
    story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
    story.job().workunits(2).lane(Lane::Rendering).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.gains("f1", 7, [0]).nothing();
    story.job().frame_of(7, 1).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "abort f1 1/0#1 Preempted",
        "lease f1 2/0#1",
    ]);
    story.reports("f1", "2/0", "x").whatever();
    story.asks("f1", 1).nothing();
    let seen = story.advance(Span::from_secs(1));
    assert_eq!(seen.leases(), ["f1 1/0#2"], "what gave way is first");
}

#[test]
fn frames_of_several_people_that_read_nothing_wait_for_no_busy_host_beside_an_idle_one() {
    let mut story = studio();
    let names = ["f1", "f2", "f3", "f4"];
    story.hosts(names, Farm);
    for host in names {
        story.asks(host, 1).whatever();
    }
    // Four people, each of whom has two frames on their way.
    let (mut running, mut open, mut next) = (Vec::new(), 0, 0);
    for turn in 0..200_usize {
        while open < 8 {
            next += 1;
            open += 1;
            let seen = story.job().bare_frame_of(next % 4).submits();
            running.extend(seen.leases());
        }
        assert_eq!(running.len(), 4, "turn {turn}: {running:?} run");
        let done = running.swap_remove(turn * 7 % running.len());
        let (host, workunit) = done.split_once(' ').expect("a lease");
        let workunit = workunit.split_once('#').expect("an attempt").0;
        open -= 1;
        running.extend(story.reports(host, workunit, "x").leases());
        running.extend(story.asks(host, 1).leases());
    }
}

#[test]
fn a_job_whose_chunks_nobody_keeps_says_so_before_it_speaks_of_turns() {
    let mut story = studio();
    story.hosts(["f1"], Farm);
    story.job().reads(5).submits().whatever();
    let reasons = story.core.explain_job(gleaner_protocol::JobId::new(1)).expect("a known job");
    let told: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("none keeps copies: give one disk space"), "{told:?}");
}

#[test]
fn what_is_beyond_its_jobs_window_waits_for_what_comes_before_it() {
    let mut story = studio();
    story.hosts(["f1", "f2"], Farm);
    story.gains("f1", 5, [0]).whatever();
    story.gains("f2", 5, [2]).whatever();
    story.asks("f2", 1).whatever();
    story.job().reads(5).workunits(3).window(2).submits().whatever();
    let last = gleaner_protocol::WorkunitId { job: gleaner_protocol::JobId::new(1), index: 2 };
    let told = |story: &Story| -> Vec<String> {
        let reasons = story.core.explain_workunit(last).expect("a known workunit");
        reasons.iter().map(ToString::to_string).collect()
    };
    let beyond = "its job's window of 2 begins at workunit 0, which has not ended";
    assert!(told(&story).iter().any(|reason| reason == beyond), "{:?}", told(&story));
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    let ended = story.reports("f1", "1/0", "x");
    ended.whatever();
    assert!(told(&story).iter().all(|reason| reason != beyond), "{:?}", told(&story));
}
