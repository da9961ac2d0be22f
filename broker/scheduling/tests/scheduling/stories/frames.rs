//! Frames whose hosts fail them.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::Span;
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Lane;
use gleaner_scheduling::PolicyName::FragmentAware;
use gleaner_scheduling::baselines::{FairSharing, FirstCome};
use gleaner_scheduling::visualization::{Gleaner, TestRun};
use gleaner_scheduling::{CoreConfig, Policy};

use super::story::{Policies, Story};

const RUN: TestRun = TestRun { render: Span::from_millis(10), load_per_mib: Span::from_millis(4) };

fn of(policy: impl Policy + 'static) -> Policies {
    Policies::from([(Lane::Rendering, Box::new(policy) as Box<dyn Policy>)])
}

/// Farms of two hosts, of which the second has begun to render, under several policies.
fn farms() -> Vec<Story> {
    let policies: [fn() -> Policies; 3] =
        [|| of(Gleaner::new(RUN)), || of(FairSharing::new(RUN)), || of(FirstCome::fcfs(RUN))];
    let farm = |policies| {
        let mut story = Story::with_more(CoreConfig::background(FragmentAware), policies);
        story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
        story.host("f2", Farm).chunk_cache_mib(8).joins().whatever();
        story.gives("f2", 0).whatever();
        story.asks("f1", 1).nothing();
        story.gains("f1", 7, [0]).nothing();
        assert_eq!(story.job().frame_of(7, 1).submits().leases(), ["f1 1/0#1"]);
        story
    };
    policies.map(farm).into()
}

fn refusal() -> ReleaseReason {
    ReleaseReason::CannotRun("the broker cannot be reached".into())
}

#[test]
fn what_a_host_cannot_draw_goes_to_another_one_as_soon_as_that_gives_something() {
    for mut story in farms() {
        story.releases("f1", "1/0", refusal()).whatever();
        story.asks("f1", 1).nothing();
        story.gives("f2", 1).whatever();
        assert_eq!(story.asks("f2", 1).leases(), ["f2 1/0#2"]);
    }
}

#[test]
fn what_a_host_cannot_draw_is_drawn_there_after_a_pause_where_others_render() {
    for mut story in farms() {
        story.releases("f1", "1/0", refusal()).whatever();
        story.asks("f1", 1).nothing();
        // Nothing comes of trying again at once.
        let due = story.core.next_deadline().expect("the pause has an end");
        assert!(due > story.now(), "{due:?}");
        let begun = story.advance(due.since(story.now())).leases();
        assert_eq!(begun, ["f1 1/0#2"]);
    }
}

#[test]
fn what_waits_is_looked_at_again_when_a_host_goes_and_waits_once() {
    for mut story in farms() {
        story.releases("f1", "1/0", refusal()).whatever();
        story.host("f3", Farm).slots(0).joins().whatever();
        story.leaves("f3").whatever();
        story.leaves("f2").whatever();
        story.asks("f1", 1).whatever();
    }
}

/// One host with the chunks of datasets 7 and 8, for which one frame each was drawn; another one joined later.
fn two_datasets_on_one_host() -> Story {
    let mut story =
        Story::with_more(CoreConfig::background(FragmentAware), || of(Gleaner::new(RUN)));
    story.host("f1", Farm).chunk_cache_mib(8).joins().whatever();
    for (job, dataset) in [("1/0", 7), ("2/0", 8)] {
        story.job().frame_of(dataset, dataset).submits().whatever();
        story.asks("f1", 1).whatever();
        story.gains("f1", dataset, [0]).whatever();
        story.reports("f1", job, "x").whatever();
    }
    story.host("f2", Farm).chunk_cache_mib(8).joins().whatever();
    story.asks("f2", 1).nothing();
    story.asks("f1", 1).nothing();
    story
}

#[test]
fn a_dataset_of_a_host_that_is_behind_goes_to_an_idle_one() {
    let mut story = two_datasets_on_one_host();
    assert_eq!(story.job().frame_of(7, 7).submits().leases(), ["f1 3/0#1"]);
    assert!(
        story.job().frame_of(8, 8).submits().leases().is_empty(),
        "nothing waits at its host so far"
    );
    assert_eq!(story.job().frame_of(8, 8).submits().leases(), ["f2 5/0#1"]);
    // What waited where it was is drawn there.
    story.reports("f1", "3/0", "x").whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 4/0#1"]);
    // The other one is idle, and of one viewer each nobody has more.
    story.gains("f2", 8, [0]).nothing();
    story.reports("f2", "5/0", "x").whatever();
    story.asks("f2", 1).nothing();
    story.advance(Span::from_millis(100)).nothing();
    story.job().frame_of(7, 7).submits().whatever();
    assert!(story.job().frame_of(7, 7).submits().leases().is_empty());
    story.reports("f1", "4/0", "x").whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 6/0#1"]);
}

#[test]
fn who_begins_at_a_backlog_is_late_by_it_and_those_who_are_in_time_go_before() {
    let mut story = two_datasets_on_one_host();
    story.leaves("f2").whatever();
    for _ in 0..4 {
        story.job().frame_of(7, 7).submits().whatever();
    }
    // Three of 10 ms each wait.
    story.job().frame_of(7, 9).submits().whatever();
    story.advance(Span::from_millis(20)).whatever();
    story.job().frame_of(7, 7).submits().whatever();
    let mut order = Vec::new();
    for job in [3, 4, 5, 6, 8, 7] {
        story.reports("f1", &format!("{job}/0"), "x").whatever();
        order.extend(story.asks("f1", 1).leases());
    }
    assert_eq!(order, ["f1 4/0#1", "f1 5/0#1", "f1 6/0#1", "f1 8/0#1", "f1 7/0#1"]);
}
