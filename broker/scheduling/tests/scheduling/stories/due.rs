//! Jobs that are due: what is thought of their tasks, and what they are dealt.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::job::{Attempts, Lane};
use gleaner_protocol::{JobId, Span};
use gleaner_scheduling::PolicyName::FragmentAware;
use gleaner_scheduling::{CoreConfig, LanePolicy};

use super::story::Story;

fn story() -> Story {
    let policy = LanePolicy::default_of(Lane::Deadline);
    Story::with(CoreConfig::background(FragmentAware).with_lane(Lane::Deadline, policy))
}

/// What is left of the tasks of a job, in whole seconds of a core.
fn left_s(story: &Story, job: u64) -> Vec<u64> {
    let left = story.core.left_us(JobId::new(job));
    left.into_iter().map(|left_us| left_us / 1_000_000).collect()
}

#[test]
fn a_task_that_fails_says_nothing_of_how_long_the_others_take() {
    let mut story = story();
    story.host("f1", Farm).joins().whatever();
    let attempts = Attempts { failed: 1, ..Attempts::default() };
    story.job().due(500, 100).workunits(2).attempts(attempts).lease_s(400).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.advance(Span::from_secs(3)).nothing();
    story.fails("f1", "1/0").whatever();
    assert_eq!(left_s(&story, 1), [102]);
    story.advance(Span::from_secs(60)).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 1/1#1"]);
    story.advance(Span::from_secs(50)).whatever();
    assert_eq!(left_s(&story, 1), [52]);
}

#[test]
fn what_a_failed_attempt_did_is_no_part_of_what_the_next_one_takes() {
    let mut story = story();
    story.host("f1", Farm).joins().whatever();
    story.job().due(500, 100).keeps().lease_s(400).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.advance(Span::from_secs(50)).whatever();
    story.fails("f1", "1/0").whatever();
    assert_eq!(left_s(&story, 1), [102], "it begins anew");
}

fn is_lost(story: &Story, job: u64) -> bool {
    story.core.is_out_of_reach(JobId::new(job))
}

fn seconds_go_by(story: &mut Story, seconds: u64) {
    for _ in 0..seconds {
        story.advance(Span::from_secs(1)).whatever();
    }
}

#[test]
fn what_was_promised_on_a_forecast_counts_on_cores_that_are_not_given_yet() {
    let mut story = story();
    story.host("f1", Farm).slots(1).joins().whatever();
    story.job().due(200, 60).workunits(8).promised().submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    // Three more of its four cores are thought to come.
    seconds_go_by(&mut story, 20);
    assert!(!is_lost(&story, 1));
    story.gives("f1", 0).whatever();
    seconds_go_by(&mut story, 20);
    assert!(!is_lost(&story, 1), "nor is it when none is given");
    // There is no time any more to do two rounds of four.
    seconds_go_by(&mut story, 80);
    assert!(is_lost(&story, 1));
}

#[test]
fn what_was_promised_on_cores_of_now_is_lost_with_them() {
    let mut story = story();
    story.host("f1", Farm).slots(4).joins().whatever();
    story.job().due(200, 60).workunits(8).submits().whatever();
    story.asks("f1", 4).whatever();
    seconds_go_by(&mut story, 5);
    assert!(!is_lost(&story, 1));
    story.gives("f1", 1).whatever();
    seconds_go_by(&mut story, 5);
    assert!(is_lost(&story, 1));
}

#[test]
fn after_a_restart_nothing_is_lost_before_hosts_had_the_time_to_come_back() {
    let mut story = story();
    story.hosts(["f1", "f2"], Farm);
    story.job().due(1_000, 60).workunits(2).lease_s(900).submits().whatever();
    story.job().due(1_000, 60).workunits(2).promised().lease_s(900).submits().whatever();
    story.asks("f1", 1).whatever();
    story.restarts().whatever();
    seconds_go_by(&mut story, 60);
    assert!(!is_lost(&story, 1) && !is_lost(&story, 2));
    story.returns("f1", &[]).whatever();
    story.asks("f1", 1).whatever();
    seconds_go_by(&mut story, 50);
    assert!(!is_lost(&story, 1) && !is_lost(&story, 2));
    // The other host stays away: one can do both in time.
    seconds_go_by(&mut story, 60);
    assert!(!is_lost(&story, 1) && !is_lost(&story, 2));
    // Now nobody comes back.
    story.restarts().whatever();
    seconds_go_by(&mut story, 110);
    assert!(!is_lost(&story, 1) && !is_lost(&story, 2));
    seconds_go_by(&mut story, 20);
    assert!(is_lost(&story, 1) && is_lost(&story, 2));
}

#[test]
fn links_that_break_for_a_moment_lose_nothing() {
    let mut story = story();
    story.hosts(["f1", "f2"], Farm);
    story.job().due(400, 150).workunits(2).lease_s(900).submits().whatever();
    for host in ["f1", "f2"] {
        story.asks(host, 1).whatever();
    }
    for host in ["f1", "f2"] {
        story.leaves(host).whatever();
    }
    seconds_go_by(&mut story, 100);
    assert!(!is_lost(&story, 1));
    story.returns("f1", &[("1/0", false)]).whatever();
    seconds_go_by(&mut story, 10);
    assert!(!is_lost(&story, 1));
    // The other one does not come back. What it ran can still be done on the first.
    seconds_go_by(&mut story, 100);
    story.leaves("f1").whatever();
    seconds_go_by(&mut story, 130);
    assert!(is_lost(&story, 1), "nobody is there");
}

#[test]
fn tasks_of_two_cores_are_promised_and_run_two_at_a_time_on_four() {
    let mut story = story();
    story.host("f1", Farm).slots(4).joins().whatever();
    // 40 s of a core each, on two: four rounds of 20 s would be one too many.
    story.job().due(70, 40).cores_permille(2_000).workunits(8).submits().is([
        "refused: the job is not accepted: 8 tasks of 20 s each cannot all be done 2 at a time, on \
         2 cores each, within 70 s",
    ]);
    story.job().due(70, 40).cores_permille(2_000).workunits(6).submits().whatever();
    assert_eq!(story.asks("f1", 4).leases(), ["f1 1/0#1", "f1 1/1#1"]);
    let mut next = 0;
    for round in 1..=3 {
        assert!(!is_lost(&story, 1), "round {round}");
        seconds_go_by(&mut story, 20);
        for _ in 0..2 {
            story.reports_time("f1", &format!("1/{next}"), 40).whatever();
            story.asks("f1", 2).whatever();
            next += 1;
        }
    }
    let job = story.core.farm().job(JobId::new(1)).expect("a known job");
    assert_eq!(job.ended.decided(), 6);
    assert!(job.ended_at <= job.due);
}

#[test]
fn tasks_of_two_cores_need_them_on_one_host() {
    let mut story = story();
    for host in ["f1", "f2", "f3"] {
        story.host(host, Farm).slots(1).joins().whatever();
    }
    story.job().due(100, 40).cores_permille(2_000).submits().is([
        "refused: the job is not accepted: 1 tasks of 20 s each cannot all be done 0 at a time, on \
         2 cores each, within 100 s",
    ]);
    story.gives("f1", 3).whatever();
    story.job().due(45, 40).cores_permille(2_000).workunits(2).submits().whatever();
    // The third core of the first host is of use to what takes one.
    story.job().due(1_000, 10).workunits(3).submits().whatever();
    assert_eq!(story.asks("f1", 3).leases(), ["f1 1/0#1", "f1 2/0#1"]);
    assert_eq!(story.asks("f2", 1).leases(), ["f2 2/1#1"]);
}

#[test]
fn what_can_wait_makes_way_on_one_host_for_what_takes_two_cores() {
    let mut story = story();
    story.host("f1", Farm).slots(2).joins().whatever();
    story.host("f2", Farm).slots(1).joins().whatever();
    story.job().due(10_000, 100).workunits(3).keeps().lease_s(900).submits().whatever();
    story.asks("f1", 2).whatever();
    assert_eq!(story.asks("f2", 1).leases(), ["f2 1/2#1"]);
    let seen = story.job().due(25, 40).cores_permille(2_000).submits().leases();
    assert_eq!(seen, ["f1 2/0#1"]);
    assert_eq!(story.held_by("f2"), "1/2", "it is in nobody's way");
}

#[test]
fn a_lost_task_is_killed_for_one_alone_that_can_use_its_core() {
    let mut story = story();
    story.host("f1", Farm).kernels(["sum", "max"]).joins().whatever();
    story.host("f2", Farm).kernel("sum").joins().whatever();
    story.host("f3", Farm).kernels(["sum", "max"]).joins().whatever();
    story.job().due(130, 60).workunits(6).lease_s(900).submits().whatever();
    for host in ["f1", "f2", "f3"] {
        story.asks(host, 1).whatever();
    }
    // It cannot be done on two any more.
    story.gives("f3", 0).whatever();
    seconds_go_by(&mut story, 3);
    assert!(is_lost(&story, 1));
    let (first, second) = (story.held_by("f1"), story.held_by("f2"));
    story.job().due(40, 30).kernel("max").promised().submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        &format!("abort f1 {first}#1 Preempted"),
        "lease f1 2/0#1",
    ]);
    assert_eq!(story.held_by("f2"), second);
    // One more of that kind has no place: nobody is killed for it.
    story.job().due(40, 30).kernel("max").promised().submits().whatever();
    assert_eq!(story.held_by("f2"), second);
}

#[test]
fn what_was_decided_before_a_snapshot_is_left_of_no_job() {
    let mut story = story();
    story.host("f1", Farm).joins().whatever();
    story.job().due(500, 100).workunits(3).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.reports("f1", "1/0", "x").whatever();
    let before = left_s(&story, 1);
    assert_eq!(before.len(), 2);
    story.restarts_from_snapshot().whatever();
    assert_eq!(left_s(&story, 1).len(), 2, "the first is no task any more");
    story.returns("f1", &[]).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 1/1#1"]);
}
