//! Memory and GPUs: what a replica has of its host until it ends.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::control::{Fragment, HeldState, ReleaseReason};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{HostName, JobId, Kept, Span};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{CoreConfig, Input, LaneLimits, LanePolicy, RequestId};

use super::story::{Story, held_of, with_deadlines};

fn left(story: &Story, host: &str) -> Kept {
    let name = HostName::new(host).expect("a plain name");
    story.core.farm().host_named(&name).expect("a host").kept_left()
}

#[test]
fn two_large_ones_do_not_share_a_host_and_small_ones_go_beside_them() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
        story.job().memory(12_288).workunits(2).submits().whatever();
        assert_eq!(story.asks("f1", 4).leases(), ["f1 1/0#1"]);
        let reasons = story.why(1);
        let says = "it takes 12288 MiB of memory, which 1 of the 1 hosts that can run it do not have \
                    left: the most that is left of one is 4096 of 16384 MiB";
        assert!(reasons.contains(says), "{reasons}");
        assert_eq!(story.job().memory(4_096).submits().leases(), ["f1 2/0#1"]);
        assert_eq!(story.job().submits().leases(), ["f1 3/0#1"], "that takes none");
        story.reports("f1", "2/0", "x").whatever();
        assert_eq!(story.asks("f1", 1).leases().len(), 0);
        // Its end is the next one's turn, whether or not its core is asked for.
        assert_eq!(story.reports("f1", "1/0", "x").leases(), ["f1 1/1#1"]);
    }
}

#[test]
fn a_host_that_does_not_say_what_memory_it_gives_gives_any() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).program_in("/big", 16_384).joins().whatever();
    story.job().memory(12_288).workunits(4).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 4);
}

#[test]
fn a_booking_that_takes_memory_takes_back_what_does_not_fit_and_its_end_lets_it_begin() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
        story.job().memory(6_144).workunits(2).submits().whatever();
        story.job().submits().whatever();
        assert_eq!(story.asks("f1", 4).leases().len(), 3);
        story.gives_memory("f1", 8_192).is(["abort f1 1/1#1 FragmentClosed"]);
        assert_eq!(left(&story, "f1").memory_mib, 2_048);
        let reasons = story.why(1);
        assert!(!reasons.contains("busy"), "{reasons}");
        story.asks("f1", 1).nothing();
        assert_eq!(story.gives_memory("f1", 16_384).leases(), ["f1 1/1#2"]);
    }
}

#[test]
fn what_asks_for_more_than_hosts_give_now_says_so_and_waits_for_it() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    story.gives_memory("f1", 2_048).nothing();
    story.asks("f1", 4).nothing();
    story.job().memory(4_096).submits().whatever();
    let reasons = story.why(1);
    assert!(reasons.contains("the most that one gives now is 2048 MiB"), "{reasons}");
    assert_eq!(story.gives_memory("f1", 4_096).leases(), ["f1 1/0#1"]);
}

#[test]
fn a_due_job_has_background_end_for_its_memory_and_stand_still_for_its_cores() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(3).memory(16_384).joins().whatever();
    story.job().memory(12_288).submits().whatever();
    story.job().memory(1_024).workunits(2).submits().whatever();
    assert_eq!(story.asks("f1", 3).leases().len(), 3);
    // The others, which began last, have too little memory to be of use, but for their cores.
    story.job().due(600, 10).memory(8_192).cores_permille(2_000).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "park f1 2/0#1",
        "abort f1 1/0#1 Preempted",
        "lease f1 3/0#1",
    ]);
    let reasons = story.why(1);
    assert!(reasons.contains("12288 MiB of memory"), "{reasons}");
    story.reports("f1", "3/0", "x").whatever();
    story.asks("f1", 2).is(["resume f1 2/0#1", "lease f1 1/0#2"]);
}

#[test]
fn a_due_job_has_as_many_of_background_end_at_once_as_it_needs_the_memory_of() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    story.job().memory(4_096).workunits(4).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 4);
    let seen = story.job().due(100, 10).memory(6_144).workunits(2).submits().leases();
    assert_eq!(seen, ["f1 2/0#1", "f1 2/1#1"]);
}

#[test]
fn what_is_parked_keeps_its_memory_and_ends_for_a_lane_before_it_that_wants_it() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(2).memory(16_384).joins().whatever();
    story.job().memory(12_288).workunits(2).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases(), ["f1 1/0#1"]);
    story.job().due(600, 10).cores_permille(2_000).submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "park f1 1/0#1",
        "lease f1 2/0#1",
    ]);
    assert_eq!(left(&story, "f1").memory_mib, 4_096, "it is still in memory");
    story.job().due(600, 10).memory(8_192).submits().whatever();
    story.reports("f1", "2/0", "x").is([
        "persist vote 2/0 f1",
        "persist decided 2/0",
        "changed job-2",
        "verdict f1 2/0 Counted",
    ]);
    story.asks("f1", 1).is(["abort f1 1/0#1 Preempted", "lease f1 3/0#1"]);
    story.asks("f1", 1).nothing();
    assert_eq!(story.reports("f1", "3/0", "x").leases(), ["f1 1/0#2"]);
}

#[test]
fn what_a_render_has_frozen_keeps_its_memory_until_it_is_released() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(2).memory(16_384).joins().whatever();
    story.job().memory(12_288).workunits(2).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases(), ["f1 1/0#1"]);
    let (host, token) =
        (HostName::new("f1").expect("a plain name"), story.lease("f1", "1/0").token);
    story.feed(Input::Frozen { host, token, frozen: true }).nothing();
    story.asks("f1", 1).nothing();
    assert_eq!(story.releases("f1", "1/0", ReleaseReason::Preempted).leases().len(), 1);
}

#[test]
fn a_returning_host_keeps_no_more_than_its_memory_and_what_has_ended_takes_none() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    story.job().memory(6_144).workunits(2).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases().len(), 2);
    story.leaves("f1").whatever();
    let held = ["1/0", "1/1"].map(|unit| held_of(story.lease("f1", unit), false));
    story.known_as("f1", |_| {});
    story.gives_of("f1", |fragment| fragment.memory_mib = Some(8_192)).nothing();
    story.returns_with("f1", held.to_vec()).whatever();
    assert_eq!(story.core.farm().lease_count(), 1, "one fits");
    assert_eq!(left(&story, "f1").memory_mib, 2_048);
    story.leaves("f1").whatever();
    let ended =
        held.map(|held| gleaner_protocol::control::Held { state: HeldState::Ended, ..held });
    story.returns_with("f1", ended.to_vec()).whatever();
    assert_eq!(left(&story, "f1").memory_mib, 8_192, "only their reports are to come");
    // Its agent says that they go on after all.
    let host = HostName::new("f1").expect("a plain name");
    let goes_on =
        held.map(|held| Input::Frozen { host: host.clone(), token: held.token, frozen: false });
    let [first, second] = goes_on;
    story.feed(first).nothing();
    assert_eq!(left(&story, "f1").memory_mib, 2_048);
    story.feed(second).is(["abort f1 1/1#1 FragmentClosed"]);
}

#[test]
fn a_restarted_broker_counts_the_memory_of_what_hosts_still_hold() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    story.job().memory(6_144).workunits(3).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases().len(), 2);
    let held = ["1/0", "1/1"].map(|unit| held_of(story.lease("f1", unit), false));
    story.restarts().whatever();
    story.returns_with("f1", held.to_vec()).whatever();
    assert_eq!(left(&story, "f1").memory_mib, 4_096);
    story.asks("f1", 2).nothing();
}

#[test]
fn a_job_with_a_gpu_waits_for_the_host_that_has_one_and_says_so() {
    for policy in PolicyName::ALL {
        let mut story = Story::with(CoreConfig::background(policy));
        story.host("f1", Farm).slots(4).joins().whatever();
        story.asks("f1", 4).nothing();
        story.job().gpus(1).parts(&["1", "2"]).submits().whatever();
        let reasons = story.why(1);
        let says = "the kernel sum with a GPU of its own (--gpus 1)";
        assert!(reasons.contains(says), "{reasons}");
        assert!(reasons.contains("none that offers it gives a GPU"), "{reasons}");
        story.host("f2", Farm).slots(4).gpu().joins().whatever();
        assert_eq!(story.asks("f2", 4).leases(), ["f2 1/0#1"]);
        let reasons = story.why(1);
        let says = "it takes 1 of a host's GPUs, which 1 of the 1 hosts that can run it do not have \
                    left: others have them of the 1 that one gives";
        assert!(reasons.contains(says), "{reasons}");
        assert_eq!(story.job().submits().leases().len(), 1, "others run beside it");
        assert_eq!(story.reports("f2", "1/0", "x").leases(), ["f2 1/1#1"]);
        // Its owner has a use for it.
        let back = story.gives_of("f2", |fragment| fragment.gpus = 0);
        back.is(["abort f2 1/1#1 FragmentClosed"]);
        let reasons = story.why(1);
        assert!(reasons.contains("none gives one now"), "{reasons}");
        story.asks("f2", 1).nothing();
        assert_eq!(story.gives_of("f2", |fragment| fragment.gpus = 1).leases(), ["f2 1/1#2"]);
    }
}

#[test]
fn a_due_job_has_background_end_for_a_gpu() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).gpu().joins().whatever();
    story.job().gpus(1).submits().whatever();
    story.job().submits().whatever();
    assert_eq!(story.asks("f1", 4).leases().len(), 2);
    story.job().due(600, 10).gpus(1).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f1 1/0#1 Preempted",
        "lease f1 3/0#1",
    ]);
    story.asks("f1", 2).nothing();
    assert_eq!(story.reports("f1", "3/0", "x").leases(), ["f1 1/0#2"]);
}

#[test]
fn a_batch_counts_on_as_many_places_of_each_host_as_memory_or_gpus_allow() {
    for of_gpus in [false, true] {
        let batch = LanePolicy::default_of(Lane::Batch);
        let mut story =
            Story::with(CoreConfig::background(FragmentAware).with_lane(Lane::Batch, batch));
        for (name, kind) in [("f1", "fast"), ("f2", "slow")] {
            let memory_mib = if of_gpus { 16_384 } else { 8_192 };
            let host = story.host(name, Farm).slots(4).memory(memory_mib).kind(kind);
            host.gpu().joins().whatever();
            story.asks(name, 4).nothing();
        }
        // One after the other on the fast host takes 20 s.
        let job = story.job().lane(Lane::Batch);
        let job = match of_gpus {
            true => job.gpus(1).parts(&["1", "2"]),
            false => job.memory(6_144).workunits(2),
        };
        let leases = job.takes([("fast", 10), ("slow", 15)]).submits().leases();
        let on: Vec<&str> = leases.iter().map(|lease| &lease[..2]).collect();
        assert_eq!(on, ["f1", "f2"], "{leases:?}");
    }
}

#[test]
fn a_batch_waits_for_memory_and_not_for_a_core_beside_it() {
    let batch = LanePolicy::default_of(Lane::Batch);
    let mut story =
        Story::with(CoreConfig::background(FragmentAware).with_lane(Lane::Batch, batch));
    story.host("f1", Farm).slots(2).memory(8_192).kind("fast").joins().whatever();
    story.asks("f1", 2).nothing();
    for (memory_mib, seconds) in [(6_144, 60), (1_024, 10)] {
        let job = story.job().lane(Lane::Batch).memory(memory_mib);
        assert_eq!(job.takes([("fast", seconds), ("slow", 200)]).submits().leases().len(), 1);
    }
    story.host("f2", Farm).slots(1).memory(8_192).kind("slow").joins().whatever();
    story.asks("f2", 1).nothing();
    // The fast host has a core in 10 s, and the memory in 60 s.
    let job = story.job().lane(Lane::Batch).memory(6_144);
    assert_eq!(job.takes([("fast", 10), ("slow", 40)]).submits().leases(), ["f2 3/0#1"]);
}

#[test]
fn a_batch_waits_for_the_memory_of_several_together() {
    let batch = LanePolicy::default_of(Lane::Batch);
    let mut story =
        Story::with(CoreConfig::background(FragmentAware).with_lane(Lane::Batch, batch));
    story.host("f1", Farm).slots(3).memory(8_192).kind("fast").joins().whatever();
    story.asks("f1", 3).nothing();
    let job = story.job().lane(Lane::Batch).memory(3_072).workunits(2);
    assert_eq!(job.takes([("fast", 60), ("slow", 200)]).submits().leases().len(), 2);
    story.host("f2", Farm).slots(1).memory(8_192).kind("slow").joins().whatever();
    story.asks("f2", 1).nothing();
    // The fast host has an idle core, and the memory in 60 s.
    let job = story.job().lane(Lane::Batch).memory(6_144);
    assert_eq!(job.takes([("fast", 10), ("slow", 40)]).submits().leases(), ["f2 2/0#1"]);
}

#[test]
fn who_gives_too_little_memory_is_not_waited_for() {
    let mut story = Story::of(FragmentAware);
    for name in ["f1", "f2"] {
        story.host(name, Farm).slots(1).memory(16_384).joins().whatever();
    }
    story.gives_memory("f2", 2_048).nothing();
    story.asks("f1", 1).nothing();
    assert_eq!(story.job().memory(4_096).submits().leases(), ["f1 1/0#1"]);
    story.fails("f1", "1/0").whatever();
    story.advance(Span::from_secs(60)).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 1/0#2"]);
}

#[test]
fn whom_a_render_has_with_its_memory_is_waited_for() {
    let mut story = Story::of(FragmentAware);
    for name in ["f1", "f2"] {
        story.host(name, Farm).slots(1).memory(16_384).joins().whatever();
    }
    let renders = |fragment: &mut Fragment| (fragment.cores, fragment.memory_mib) = (0, Some(0));
    story.gives_of("f2", renders).whatever();
    story.asks("f1", 1).nothing();
    assert_eq!(story.job().memory(4_096).submits().leases(), ["f1 1/0#1"]);
    story.fails("f1", "1/0").whatever();
    story.advance(Span::from_secs(60)).whatever();
    story.asks("f1", 1).nothing();
}

#[test]
fn a_due_job_counts_on_as_many_places_as_memory_allows() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    // Four at a time would take 20 s, two at a time take 40 s.
    let job = story.job().due(30, 10).memory(8_192).workunits(8);
    let seen = job.submits().leases();
    assert_eq!(seen.len(), 0);
    assert!(story.core.explain_job(JobId::new(1)).is_none(), "it is declined");
    story.job().due(50, 10).memory(8_192).workunits(8).submits().whatever();
    assert!(story.core.explain_job(JobId::new(1)).is_some());
}

#[test]
fn what_is_late_in_any_case_makes_way_for_memory() {
    let mut story = Story::with(with_deadlines());
    story.host("f1", Farm).slots(4).memory(16_384).joins().whatever();
    story.asks("f1", 4).nothing();
    assert_eq!(story.job().due(20, 15).memory(12_288).submits().leases(), ["f1 1/0#1"]);
    story.advance(Span::from_secs(10)).whatever();
    // A render drives it out: it has to begin anew, with 10 s left for 15 s of work.
    let again = story.releases("f1", "1/0", ReleaseReason::Preempted).leases();
    assert_eq!(again, ["f1 1/0#2"], "nobody else wants the core");
    let seen = story.job().due(100, 10).memory(12_288).submits();
    seen.is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "abort f1 1/0#2 Preempted",
        "lease f1 2/0#1",
    ]);
}

#[test]
fn memory_that_the_floor_of_a_lane_behind_keeps_is_not_counted_on() {
    let mut config = with_deadlines();
    let background = config.lanes.get_mut(&Lane::Background).expect("a lane");
    background.limits = LaneLimits { min_percent: 50, ..LaneLimits::of(Lane::Background) };
    let mut story = Story::with(config);
    story.host("f1", Farm).slots(2).memory(16_384).joins().whatever();
    story.job().memory(10_240).submits().whatever();
    assert_eq!(story.asks("f1", 2).leases(), ["f1 1/0#1"]);
    assert_eq!(story.job().due(20, 15).memory(6_144).submits().leases(), ["f1 2/0#1"]);
    story.advance(Span::from_secs(10)).whatever();
    // A render drives it out: it is late in any case.
    story.releases("f1", "2/0", ReleaseReason::Preempted).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 2/0#2"]);
    story.asks("f1", 1).nothing();
    // Background keeps its half, and what is late makes way.
    story.job().due(100, 10).memory(6_144).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f1 2/0#2 Preempted",
        "lease f1 3/0#1",
    ]);
}

/// A farm with this lane, and background behind it.
fn farm_with(lane: Lane, policy: LanePolicy) -> Story {
    let config = CoreConfig::background(FragmentAware).with_lane(lane, policy);
    let mut story = Story::with(config);
    let host = story.host("f1", Farm).slots(4).memory(16_384).chunk_cache_mib(64);
    host.joins().whatever();
    story.gains("f1", 5, [0, 1, 2]).whatever();
    story
}

fn running(story: &Story) -> Vec<String> {
    let farm = story.core.farm();
    let (_, host) = farm.hosts().next().expect("it joined");
    let id = |lease: &gleaner_scheduling::Lease| farm.workunit(lease.workunit).id;
    let ids = host.leases.iter().map(id);
    ids.map(|id| format!("{}/{}", id.job.get(), id.index)).collect()
}

/// Goes on until something runs, as agents do: they ask for what is idle.
fn goes_on(story: &mut Story) {
    for _ in 0..40 {
        story.advance(Span::from_millis(500)).whatever();
        let name = HostName::new("f1").expect("a plain name");
        let asked = story.core.farm().host_named(&name).expect("a host").asked;
        story.asks("f1", 4 - asked).whatever();
    }
}

#[test]
fn every_policy_of_every_lane_keeps_what_finds_too_little_memory_and_begins_it_later() {
    for lane in Lane::ALL {
        for policy in LanePolicy::all_of(lane) {
            let name = policy.as_str();
            let mut story = farm_with(lane, policy);
            // The second comes while the first has the memory.
            for _ in 0..2 {
                let spec = Box::new(story_job(lane));
                story.feed(Input::Submit { request: RequestId::new(1), spec }).whatever();
                goes_on(&mut story);
            }
            for done in 0..6 {
                goes_on(&mut story);
                let runs = running(&story);
                assert_eq!(runs.len(), 1, "{lane} {name} after {done}: {runs:?}");
                story.reports("f1", &runs[0], "x").whatever();
            }
            goes_on(&mut story);
            assert_eq!(running(&story).len(), 0, "{lane} {name}");
            assert_eq!(story.core.farm().open_count(), 0, "{lane} {name}");
        }
    }
}

#[test]
fn every_policy_of_every_lane_begins_what_more_memory_makes_room_for() {
    for lane in Lane::ALL {
        for policy in LanePolicy::all_of(lane) {
            let name = policy.as_str();
            let mut story = farm_with(lane, policy);
            story.gives_memory("f1", 2_048).whatever();
            let spec = Box::new(story_job(lane));
            story.feed(Input::Submit { request: RequestId::new(1), spec }).whatever();
            goes_on(&mut story);
            assert_eq!(running(&story).len(), 0, "{lane} {name}");
            story.gives_memory("f1", 16_384).whatever();
            goes_on(&mut story);
            let runs = running(&story);
            // One that was declined is none of the policy's.
            let is_known = story.core.farm().job(JobId::new(1)).is_some();
            assert_eq!(runs.len(), usize::from(is_known), "{lane} {name}: {runs:?}");
        }
    }
}

/// Three workunits of 12 GiB for a lane.
fn story_job(lane: Lane) -> gleaner_protocol::job::JobSpec {
    let mut scratch = Story::of(FragmentAware);
    let job = scratch.job().memory(12_288).workunits(3).lane(lane);
    let job = match lane {
        Lane::Deadline => job.due(3_000, 10),
        Lane::Dataset => job.reads(5),
        _ => job,
    };
    job.spec()
}
