//! Jobs that are due: what is thought of their tasks, and what they are dealt.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::job::{Attempts, Lane};
use gleaner_protocol::{JobId, Span};
use gleaner_scheduling::PolicyName::FragmentAware;
use gleaner_scheduling::{CoreConfig, LanePolicy};

use crate::story::Story;

fn story() -> Story {
    let policy = LanePolicy::default_of(Lane::Deadline).expect("it runs on farms");
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
