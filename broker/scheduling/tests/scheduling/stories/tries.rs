//! Batches of which nobody said how long they take: each kind of host is tried.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::Span;
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Lane;
use gleaner_scheduling::PolicyName::Plain;
use gleaner_scheduling::{CoreConfig, LanePolicy};

use super::story::Story;

/// A fat host and two with GPUs, and a batch of which a replica has taken 100 s on the fat one.
fn known_on_fat_hosts() -> Story {
    let policy = LanePolicy::default_of(Lane::Batch);
    let mut story = Story::with(CoreConfig::background(Plain).with_lane(Lane::Batch, policy));
    story.host("f1", Farm).kind("fat").joins().whatever();
    story.host("g1", Farm).kind("gpu").joins().whatever();
    story.host("g2", Farm).kind("gpu").joins().whatever();
    story.job().lane(Lane::Batch).workunits(20).lease_s(9_000).submits().whatever();
    assert_eq!(story.asks("f1", 1).leases().len(), 1);
    story.advance(Span::from_secs(100)).nothing();
    let workunit = story.held_by("f1");
    story.reports_time("f1", &workunit, 100).whatever();
    story
}

#[test]
fn one_replica_tries_a_kind_of_host_and_the_others_wait_for_what_it_says() {
    let mut story = known_on_fat_hosts();
    assert_eq!(story.asks("g1", 1).leases().len(), 1, "it is tried");
    story.asks("g2", 1).nothing();
    assert_eq!(story.asks("f1", 1).leases().len(), 1, "there it is known");
    story.advance(Span::from_secs(25)).nothing();
    let workunit = story.held_by("g1");
    let leases = story.reports_time("g1", &workunit, 25).leases();
    assert!(leases.len() == 1 && leases[0].starts_with("g2 "), "{leases:?}");
    assert_eq!(story.asks("g1", 1).leases().len(), 1);
}

#[test]
fn another_tries_it_where_the_first_gives_it_back() {
    let mut story = known_on_fat_hosts();
    assert_eq!(story.asks("g1", 1).leases().len(), 1);
    story.asks("g2", 1).nothing();
    let workunit = story.held_by("g1");
    let leases = story.releases("g1", &workunit, ReleaseReason::Preempted).leases();
    assert!(leases.len() == 1 && leases[0].starts_with("g2 "), "{leases:?}");
}

#[test]
fn a_try_that_fails_says_nothing_of_how_long_others_take() {
    let mut story = known_on_fat_hosts();
    story.host("g3", Farm).kind("gpu").joins().whatever();
    assert_eq!(story.asks("g1", 1).leases().len(), 1);
    story.asks("g2", 1).nothing();
    let workunit = story.held_by("g1");
    let leases = story.fails("g1", &workunit).leases();
    assert!(leases.len() == 1 && leases[0].starts_with("g2 "), "{leases:?}");
    story.asks("g3", 1).nothing();
}

#[test]
fn no_host_is_idle_while_nothing_is_known_that_one_could_choose_by() {
    let policy = LanePolicy::default_of(Lane::Batch);
    let mut story = Story::with(CoreConfig::background(Plain).with_lane(Lane::Batch, policy));
    for host in ["f1", "f2", "f3"] {
        story.host(host, Farm).kind("fat").joins().whatever();
    }
    story.job().lane(Lane::Batch).workunits(9).submits().whatever();
    for host in ["f1", "f2", "f3"] {
        assert_eq!(story.asks(host, 1).leases().len(), 1, "{host}");
    }
}

#[test]
fn of_two_applications_each_host_tries_another() {
    let policy = LanePolicy::default_of(Lane::Batch);
    let mut story = Story::with(CoreConfig::background(Plain).with_lane(Lane::Batch, policy));
    for host in ["f1", "f2"] {
        story.host(host, Farm).kind("fat").kernels(["sum", "max"]).joins().whatever();
    }
    story.job().lane(Lane::Batch).kernel("sum").workunits(5).submits().whatever();
    story.job().lane(Lane::Batch).kernel("max").workunits(5).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    let jobs = ["f1", "f2"].map(|host| story.held_by(host).split('/').next().map(str::to_owned));
    assert_ne!(jobs[0], jobs[1]);
}
