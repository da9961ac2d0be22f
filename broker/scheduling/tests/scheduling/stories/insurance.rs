//! Promises in danger: better hosts, insurance, and what can no longer be kept.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{JobId, Span};
use gleaner_scheduling::PolicyName::FragmentAware;
use gleaner_scheduling::{CoreConfig, Input, LanePolicy};

use super::story::{Story, host_name, workunit_id};

fn story() -> Story {
    let policy = LanePolicy::default_of(Lane::Deadline);
    Story::with(CoreConfig::background(FragmentAware).with_lane(Lane::Deadline, policy))
}

/// Another promise runs on a host of its own, for so long that insurance may cost 100 s.
fn with_means(story: &mut Story) {
    story.host("other", Farm).joins().whatever();
    story.job().due(100_000, 1_000).keeps().lease_s(5_000).submits().whatever();
    story.asks("other", 1).is(["lease other 1/0#1"]);
}

fn goes_by(story: &mut Story, seconds: u64) {
    for _ in 0..seconds {
        story.advance(Span::from_secs(1)).nothing();
    }
}

fn freezes(story: &mut Story, host: &str, workunit: &str, frozen: bool) {
    let token = story.lease(host, workunit).token;
    story.feed(Input::Frozen { host: host_name(host), token, frozen }).nothing();
}

fn says(story: &Story, workunit: &str) -> Vec<String> {
    let reasons = story.core.explain_workunit(workunit_id(workunit)).expect("a known workunit");
    reasons.iter().map(|reason| format!("{}: {reason}", reason.code())).collect()
}

/// A task of 20 s stands still on f1, and its insurance runs on f2.
fn insured(story: &mut Story) {
    with_means(story);
    story.host("f1", Farm).joins().whatever();
    story.job().due(100, 20).submits().whatever();
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
    story.host("f2", Farm).joins().whatever();
    story.asks("f2", 1).nothing();
    goes_by(story, 10);
    freezes(story, "f1", "2/0", true);
    // It could stand still until its lease ends, and begin anew in time.
    goes_by(story, 29);
    story.advance(Span::from_secs(1)).is(["lease f2 2/0#2"]);
}

#[test]
fn what_stands_still_too_long_runs_elsewhere_too_and_whichever_is_done_first_counts() {
    let mut story = story();
    insured(&mut story);
    freezes(&mut story, "f1", "2/0", false);
    goes_by(&mut story, 5);
    story.reports("f1", "2/0", "x").is([
        "persist vote 2/0 f1",
        "persist decided 2/0",
        "abort f2 2/0#2 Decided",
        "changed job-2",
        "verdict f1 2/0 Counted",
    ]);
}

#[test]
fn what_goes_on_again_is_no_insurance_but_what_ran_in_its_place_is() {
    let mut story = story();
    insured(&mut story);
    let on_f2 = "insured: a second replica runs on f2 for insurance, for the first may end too \
                 late: whichever is done first counts";
    assert!(says(&story, "2/0").contains(&on_f2.to_owned()), "while the first stands still");
    freezes(&mut story, "f1", "2/0", false);
    assert!(says(&story, "2/0").contains(&on_f2.to_owned()), "and once it goes on");
    // What the first did is not forgotten: the second gives way to another promise.
    let left_us = story.core.left_us(JobId::new(2));
    assert!(left_us.iter().all(|left_us| *left_us <= 11_000_000), "{left_us:?}");
    story.job().due(25, 20).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f2 2/0#2 Preempted",
        "lease f2 3/0#1",
    ]);
    assert_eq!(story.held_by("f1"), "2/0");
}

#[test]
fn what_stood_still_and_is_given_back_has_done_nothing() {
    let mut story = story();
    story.host("f1", Farm).joins().whatever();
    story.job().due(100, 20).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    goes_by(&mut story, 10);
    freezes(&mut story, "f1", "1/0", true);
    assert_eq!(story.core.left_us(JobId::new(1)), [10_400_000]);
    story.is_preempted("f1", "1/0").whatever();
    assert_eq!(story.core.left_us(JobId::new(1)), [20_400_000]);
}

#[test]
fn insurance_that_is_lost_or_taken_back_is_no_attempt() {
    let mut story = story();
    insured(&mut story);
    freezes(&mut story, "f1", "2/0", false);
    story.starts_again("f2").whatever();
    let counts = story.core.farm().totals();
    assert_eq!((counts.failed, counts.expired), (0, 1));
    assert!(!says(&story, "2/0").iter().any(|line| line.starts_with("attempts")));
    story.reports("f1", "2/0", "x").whatever();
    assert!(story.facts.iter().all(|fact| !format!("{fact:?}").starts_with("AttemptFailed")));
}

#[test]
fn a_task_that_takes_too_long_begins_elsewhere_while_there_is_time_for_it() {
    let mut story = story();
    with_means(&mut story);
    story.host("f1", Farm).joins().whatever();
    story.job().due(100, 20).lease_s(200).submits().whatever();
    story.asks("f1", 1).is(["lease f1 2/0#1"]);
    story.host("d1", Desktop).joins().whatever();
    story.asks("d1", 1).nothing();
    // At 60 s it has taken 40 s too long; it may take 40 s more.
    goes_by(&mut story, 60);
    assert_eq!(says(&story, "2/0")[0], "running: 1 replicas run now");
    let mut leases = Vec::new();
    for _ in 0..15 {
        leases.extend(story.advance(Span::from_secs(1)).leases());
    }
    assert_eq!(leases, ["d1 2/0#2"]);
    let insured = "insured: a second replica runs on d1 for insurance, for the first may end too \
                   late: whichever is done first counts";
    assert_eq!(says(&story, "2/0")[..2], ["running: 2 replicas run now", insured]);
    let of_job = story.core.explain_job(JobId::new(2)).expect("a known job");
    assert!(of_job.iter().any(|reason| reason.to_string() == insured["insured: ".len()..]));
    story.reports("d1", "2/0", "x").begins([
        "persist vote 2/0 d1".into(),
        "persist decided 2/0".into(),
        "abort f1 2/0#1 Decided".into(),
    ]);
}

/// A host of a desktop's opens and closes every hour, one of the farm stays open.
fn one_closes_often(story: &mut Story) {
    story.host("d1", Desktop).joins().whatever();
    story.host("f1", Farm).joins().whatever();
    for _ in 0..8 {
        goes_by_hours(story, 1);
        story.gives("d1", 0).whatever();
        goes_by_hours(story, 1);
        story.gives("d1", 1).whatever();
    }
}

fn goes_by_hours(story: &mut Story, hours: u64) {
    story.advance(Span::from_secs(3_600 * hours)).whatever();
}

#[test]
fn a_task_begins_where_hosts_close_least_often() {
    let mut story = story();
    one_closes_often(&mut story);
    story.job().due(10_000, 1_000).submits().whatever();
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
    story.is_preempted("d1", "1/0").whatever();
    story.asks("f1", 1).is(["lease f1 1/0#2"]);
    story.reports("f1", "1/0", "x").whatever();
    // With both idle it is the one that stays open.
    story.asks("f1", 1).nothing();
    story.asks("d1", 1).nothing();
    let seen = story.job().due(10_000, 1_000).submits();
    assert_eq!(seen.leases(), ["f1 2/0#1"]);
}

#[test]
fn a_task_begins_on_the_kind_of_host_that_is_fastest_for_it() {
    let mut story = story();
    story.host("slow", Farm).kind("old").joins().whatever();
    story.host("fast", Farm).kind("new").joins().whatever();
    story.asks("slow", 1).nothing();
    story.asks("fast", 1).nothing();
    let seen = story.job().due(200, 60).takes([("old", 60), ("new", 20)]).submits();
    assert_eq!(seen.leases(), ["fast 1/0#1"]);
}

#[test]
fn a_task_that_its_host_is_likely_to_lose_too_late_is_insured_on_one_that_stays_open() {
    let mut story = story();
    one_closes_often(&mut story);
    story.host("f2", Farm).joins().whatever();
    // Begun on the only host that asks. There is time to do it once, not twice.
    story.job().due(5_000, 3_000).lease_s(9_000).submits().whatever();
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
    story.asks("f1", 1).nothing();
    // Its insurance would cost more than a tenth of what the promised jobs use.
    assert_eq!(says(&story, "1/0")[0], "running: 1 replicas run now");
    story.job().due(1_000_000, 40_000).keeps().submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "lease f1 2/0#1",
    ]);
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    // It gives way to a task that was promised.
    story.job().due(4_000, 3_500).submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
        "abort f2 1/0#2 Preempted",
        "lease f2 3/0#1",
    ]);
}

#[test]
fn what_can_no_longer_be_kept_makes_way_for_what_can() {
    let mut story = story();
    for host in ["f1", "f2", "f3", "f4"] {
        story.host(host, Farm).joins().whatever();
    }
    story.job().due(130, 60).workunits(4).keeps().submits().whatever();
    story.job().due(140, 60).workunits(2).keeps().submits().whatever();
    for host in ["f1", "f2", "f3", "f4"] {
        story.asks(host, 1).whatever();
    }
    assert!(!story.core.is_out_of_reach(JobId::new(1)));
    for host in ["f1", "f2"] {
        story.gives(host, 0).whatever();
    }
    story.advance(Span::from_secs(2)).whatever();
    let lost = [1, 2].map(|job| story.core.is_out_of_reach(JobId::new(job)));
    assert_eq!(lost, [true, false]);
    let reasons = story.core.explain_job(JobId::new(1)).expect("a known job");
    assert!(reasons.iter().any(|reason| reason.code() == "out-of-reach"), "{reasons:?}");
    let pending = |job| story.core.farm().job(JobId::new(job)).expect("a known job").pending;
    assert_eq!((pending(1), pending(2)), (0, 2));
    // With the cores back in time it is within reach again.
    for host in ["f1", "f2"] {
        story.gives(host, 1).whatever();
        story.asks(host, 1).whatever();
    }
    story.advance(Span::from_secs(2)).whatever();
    assert!(!story.core.is_out_of_reach(JobId::new(1)));
}
