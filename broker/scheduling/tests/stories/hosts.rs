//! Hosts as they come and go.

use gleaner_protocol::LeaseToken;
use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_scheduling::PolicyName::{FragmentAware, Plain};

use crate::story::{Story, StoryLease, held_of};

#[test]
fn a_host_is_greeted_and_announced() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(2).joins().is([
        "welcome f1 keeps []",
        "connected f1",
        "fragment f1 2",
    ]);
    story.gives("f1", 2).nothing();
    story.leaves("f1").is(["disconnected f1"]);
    story.asks("f1", 1).nothing();
    story.gives("f1", 1).nothing();
}

#[test]
fn a_second_link_takes_the_place_of_the_first() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().workunits(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.returns("f1", &[("1/0", false)]).is([
        "welcome f1 keeps [1/0#1]",
        "connected f1",
        "fragment f1 1",
    ]);
    // A fresh agent holds nothing, and has asked for nothing yet.
    story.returns("f1", &[]).whatever();
    story.asks("f1", 1).is(["lease f1 1/0#2"]);
}

#[test]
fn a_host_that_moves_to_the_other_side_keeps_nothing_of_the_first() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(1).replication(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.asks("f2", 1).is(["lease f2 1/0#2"]);
    story.known_as("f1", |info| info.origin = Desktop);
    story.returns("f1", &[("1/0", false)]).is([
        "welcome f1 keeps []",
        "connected f1",
        "fragment f1 1",
    ]);
}

#[test]
fn the_plain_policy_lets_it_keep_what_it_holds() {
    let mut story = Story::of(Plain);
    story.hosts(["f1"], Farm);
    story.job().workunits(1).submits().whatever();
    story.asks("f1", 1).whatever();
    story.known_as("f1", |info| info.origin = Desktop);
    story.returns("f1", &[("1/0", false)]).is([
        "welcome f1 keeps [1/0#1]",
        "connected f1",
        "fragment f1 1",
    ]);
}

#[test]
fn nobody_can_claim_a_lease_that_was_never_given_or_is_anothers() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    story.job().workunits(3).replication(2).submits().whatever();
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
    let of_d1 = story.lease("d1", "1/0");
    let future = StoryLease { token: LeaseToken::new(of_d1.token.get() + 1), ..of_d1 };
    story.returns_with("d2", vec![held_of(of_d1, false), held_of(future, false)]).is([
        "welcome d2 keeps []",
        "connected d2",
        "fragment d2 1",
    ]);
    // The token that d2 made up is given to somebody else without harm.
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
}

#[test]
fn a_held_replica_of_an_absurd_attempt_is_no_harm() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    story.job().replication(2).submits().whatever();
    story.asks("d1", 1).whatever();
    let mut lease = story.lease("d1", "1/0");
    story.leaves("d1").whatever();
    lease.replica.attempt = u32::MAX;
    story.returns_with("d1", vec![held_of(lease, false), held_of(lease, true)]).is([
        "welcome d1 keeps [1/0#1]",
        "connected d1",
        "fragment d1 1",
    ]);
    story.asks("d2", 1).is(["lease d2 1/0#4294967295"]);
}
