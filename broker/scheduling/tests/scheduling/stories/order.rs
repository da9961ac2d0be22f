//! Which workunit a host is given.

use gleaner_protocol::JobId;
use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::job::Lane;
use gleaner_scheduling::LanePolicy;
use gleaner_scheduling::PolicyName::{self, FragmentAware, Plain};

use super::story::Story;

#[test]
fn the_workunit_nearest_to_completion_comes_first() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().workunits(2).replication(4).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.asks("f3", 1).is(["lease f3 1/0#3"]);
    story.gives("f1", 2).is(["fragment f1 2"]);
    story.asks("f1", 1).is(["lease f1 1/1#1"]);
    // 1/1 has no complete replica (key 1), 1/0 has one (key 3/4).
    story.reports("f2", "1/0", "x").is(["persist vote 1/0 f2", "verdict f2 1/0 Counted"]);
    story.asks("f4", 1).is(["lease f4 1/0#4"]);
}

#[test]
fn of_equal_keys_the_one_that_came_first_is_first() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(3).joins().whatever();
    story.host("f2", Farm).slots(3).joins().whatever();
    story.job().workunits(3).replication(2).submits().whatever();
    story.asks("f1", 3).is(["lease f1 1/0#1", "lease f1 1/1#1", "lease f1 1/2#1"]);
    story.asks("f2", 3).is(["lease f2 1/0#2", "lease f2 1/1#2", "lease f2 1/2#2"]);
}

#[test]
fn a_workunit_stays_on_the_side_of_its_first_assignment() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.hosts(["d1", "d2"], Desktop);
    story.job().workunits(2).replication(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("d1", 1).is(["lease d1 1/1#1"]);
    story.asks("d2", 1).is(["lease d2 1/1#2"]);
    story.is_preempted("d2", "1/1").nothing();
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.asks("d2", 1).is(["lease d2 1/1#3"]);
    story.is_preempted("f2", "1/0").nothing();
    story.reports("d2", "1/1", "x").whatever();
    story.asks("d2", 1).nothing();
}

#[test]
fn the_plain_policy_takes_replicas_one_by_one_from_any_side() {
    let mut story = Story::of(Plain);
    story.hosts(["f1", "f2"], Farm);
    story.hosts(["d1", "d2"], Desktop);
    story.job().workunits(2).replication(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("d1", 1).is(["lease d1 1/0#2"]);
    story.asks("f2", 1).is(["lease f2 1/1#1"]);
    story.is_preempted("d1", "1/0").nothing();
    story.asks("d2", 1).is(["lease d2 1/0#3"]);
}

#[test]
fn a_standing_request_is_served_when_work_appears() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["d1", "d2"], Desktop);
        story.asks("d1", 1).nothing();
        story.asks("d2", 1).nothing();
        story.job().workunits(1).replication(1).submits().is([
            "persist accepted job-1",
            "accepted job-1",
            "changed job-1",
            "lease d1 1/0#1",
        ]);
        story.is_preempted("d1", "1/0").is(["lease d2 1/0#2"]);
        story.leaves("d2").is(["disconnected d2"]);
    }
}

#[test]
fn a_request_for_more_than_there_is_room_for_is_served_as_room_appears() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("d1", Desktop).slots(1).joins().whatever();
        story.job().workunits(3).submits().whatever();
        story.asks("d1", 2).is(["lease d1 1/0#1"]);
        story.reports("d1", "1/0", "x").is([
            "persist vote 1/0 d1",
            "persist decided 1/0",
            "changed job-1",
            "verdict d1 1/0 Counted",
            "lease d1 1/1#1",
        ]);
        story.gives("d1", 2).is(["fragment d1 2"]);
        story.asks("d1", 1).is(["lease d1 1/2#1"]);
    }
}

#[test]
fn ten_workunits_do_not_wait_behind_a_million() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(64).joins().whatever();
    story.job().owner("ann").workunits(1_000_000).submits().whatever();
    story.job().owner("bob").workunits(10).submits().whatever();
    let leases = story.asks("f1", 22).leases();
    let of_bob = leases.iter().filter(|lease| lease.starts_with("f1 2/")).count();
    assert_eq!(of_bob, 10, "all of bob's ten are among the first 22: {leases:?}");
    let farm = story.core.farm();
    assert_eq!(farm.open_count(), 22, "an array is a range until it is touched");
}

#[test]
fn an_owner_of_many_small_jobs_waits_its_turn() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).joins().whatever();
    for _ in 0..3 {
        story.job().owner("ann").submits().whatever();
    }
    story.job().owner("bob").workunits(2).submits().whatever();
    let leases = story.asks("f1", 4).leases();
    assert_eq!(leases, ["f1 1/0#1", "f1 4/0#1", "f1 2/0#1", "f1 4/1#1"]);
}

#[test]
fn the_jobs_of_one_owner_take_turns() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().workunits(1000).submits().whatever();
    story.job().workunits(2).submits().whatever();
    let leases = story.asks("f1", 4).leases();
    assert_eq!(leases, ["f1 1/0#1", "f1 2/0#1", "f1 1/1#1", "f1 2/1#1"]);
}

#[test]
fn a_host_is_given_only_what_it_can_run() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["sums"], Farm);
        story.host("traces", Farm).kernel("trace").slots(2).joins().whatever();
        story.job().kernel("sum").workunits(5).replication(2).submits().whatever();
        story.job().program("/usr/bin/render").submits().whatever();
        story.asks("traces", 1).nothing();
        story.job().kernel("trace").workunits(2).submits().is([
            "persist accepted job-3",
            "accepted job-3",
            "changed job-3",
            "lease traces 3/0#1",
        ]);
        story.asks("sums", 1).is(["lease sums 1/0#1"]);
        story.asks("traces", 1).is(["lease traces 3/1#1"]);
    }
}

#[test]
fn a_module_goes_to_hosts_with_the_memory_for_it() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["sums"], Farm);
        story.host("small", Farm).wasm_memory_mib(256).joins().whatever();
        story.host("large", Farm).wasm_memory_mib(1024).joins().whatever();
        // Counted as 512, and as 256.
        story.job().module(300).submits().whatever();
        story.job().module(129).submits().whatever();
        story.asks("sums", 1).nothing();
        story.asks("small", 1).is(["lease small 2/0#1"]);
        story.asks("large", 1).is(["lease large 1/0#1"]);
    }
}

#[test]
fn a_program_goes_to_hosts_with_the_memory_for_it() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("small", Farm).program_in("/bin/render", 8_000).joins().whatever();
        story.host("large", Farm).program_in("/bin/render", 64_000).joins().whatever();
        story.job().program_in("/bin/render", Some(8_001)).submits().whatever();
        story.job().program_in("/bin/render", Some(40_000)).submits().whatever();
        story.job().program_in("/bin/render", Some(64_000)).submits().whatever();
        story.job().program_in("/bin/render", Some(100_000)).submits().whatever();
        // What hosts have is counted a little generously: it bounds a replica, and keeps it no room.
        story.asks("small", 1).is(["lease small 1/0#1"]);
        story.asks("small", 1).nothing();
        story.asks("large", 1).is(["lease large 2/0#1"]);
        let why = story.core.explain_job(JobId::new(4)).expect("a known job");
        let nobody = "none of the 2 connected hosts offers the program /bin/render with 98304 MiB of \
                      memory or more; the largest that allows it has 64000 MiB";
        assert!(why.iter().any(|reason| reason.to_string() == nobody), "{why:?}");
    }
}

#[test]
fn a_kernel_with_a_specification_goes_to_hosts_with_the_memory_for_it() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("small", Farm).kernel("pca").kernel_memory_mib(256).joins().whatever();
        story.host("large", Farm).kernel("pca").kernel_memory_mib(1024).joins().whatever();
        story.host("other", Farm).kernel("sum").kernel_memory_mib(1024).joins().whatever();
        // Counted as 512; the next makes do with what it gets.
        story.job().application("pca", Some(300)).submits().whatever();
        story.job().application("pca", None).submits().whatever();
        story.asks("other", 1).nothing();
        story.asks("small", 1).is(["lease small 2/0#1"]);
        story.asks("large", 1).is(["lease large 1/0#1"]);
    }
}

#[test]
fn a_host_that_returns_without_a_capability_gets_no_more_of_it() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().workunits(3).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.leaves("f1").is(["disconnected f1"]);
    story.known_as("f1", |info| info.capabilities.kernels.clear());
    story.returns("f1", &[]).is(["welcome f1 keeps []", "connected f1", "fragment f1 1"]);
    story.asks("f1", 1).nothing();
}

#[test]
fn a_lane_without_a_policy_takes_no_jobs() {
    let mut story = Story::of(FragmentAware);
    story
        .job()
        .lane(Lane::Rendering)
        .submits()
        .is(["refused: the rendering lane runs nothing at this broker"]);
    assert_eq!(story.core.policy(Lane::Background), Some("fragment-aware"));
    assert_eq!(story.core.policy(Lane::Rendering), None);
    assert!(story.facts.is_empty());
}

#[test]
fn a_fragment_is_offered_to_the_lanes_in_order() {
    let mut config = gleaner_scheduling::CoreConfig::background(FragmentAware);
    config = config.with_lane(Lane::Batch, LanePolicy::Greedy(Plain));
    let mut story = Story::with(config);
    story.hosts(["f1"], Farm);
    story.job().lane(Lane::Background).submits().whatever();
    story.job().lane(Lane::Batch).submits().whatever();
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
}

#[test]
fn many_touched_workunits_do_not_hide_the_one_that_a_host_may_take() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(200).joins().whatever();
    story.host("f2", Farm).slots(2).joins().whatever();
    story.job().workunits(150).replication(2).submits().whatever();
    assert_eq!(story.asks("f1", 150).leases().len(), 150);
    story.is_preempted("f1", "1/149").nothing();
    story.asks("f1", 1).is(["lease f1 1/149#2"]);
    // f1 has come to the end of the queue; what enters it anew is found all the same.
    story.is_preempted("f1", "1/77").nothing();
    story.is_preempted("f1", "1/7").nothing();
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.asks("f1", 2).is(["lease f1 1/7#2", "lease f1 1/77#2"]);
    story.asks("f2", 1).is(["lease f2 1/1#2"]);
    story.asks("f1", 1).nothing();
    // What has become free for a standing request is given to it at once.
    story.is_preempted("f1", "1/3").is(["lease f1 1/3#2"]);
}
