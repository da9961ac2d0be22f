//! Hosts as they come and go.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::{HostName, LeaseToken};
use gleaner_scheduling::Input;
use gleaner_scheduling::PolicyName::{self, FragmentAware, Plain};

use super::story::{Story, StoryLease, held_of};

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
fn only_what_was_given_to_this_very_host_is_adopted_again() {
    let mut story = Story::of(FragmentAware);
    for host in ["d1", "d2", "d3"] {
        story.host(host, Desktop).slots(4).joins().whatever();
    }
    story.job().workunits(6).replication(3).quorum(3).submits().whatever();
    story.asks("d1", 2).is(["lease d1 1/0#1", "lease d1 1/1#1"]);
    let (first, second) = (story.lease("d1", "1/0"), story.lease("d1", "1/1"));
    story.restarts().nothing();
    story.returns("d2", &[]).whatever();
    // Other tries, other workunits, another lease's token, made-up tokens.
    let mut forged = vec![held_of(StoryLease { token: second.token, ..first }, false)];
    for (attempt, index) in [(2, 0), (u32::MAX, 0), (1, 1), (1, 5)] {
        let mut lease = first;
        (lease.replica.attempt, lease.replica.workunit.index) = (attempt, index);
        forged.push(held_of(lease, false));
    }
    for bit in 0..64 {
        let token = LeaseToken::new(first.token.get() ^ 1 << bit);
        forged.push(held_of(StoryLease { token, ..first }, bit % 2 == 0));
    }
    let keeps_nothing =
        |host: &str| [format!("welcome {host} keeps []"), format!("connected {host}")];
    for host in ["d1", "d3"] {
        let seen = story.returns_with(host, forged.clone());
        seen.begins(keeps_nothing(host));
    }
    // Nor what was given to another host.
    story.returns_with("d3", vec![held_of(first, false)]).begins(keeps_nothing("d3"));
    // But what it was given, once, however often it says so.
    let held = [first, second, first].map(|lease| held_of(lease, false));
    story.returns_with("d1", held.to_vec()).is([
        "welcome d1 keeps [1/0#1 1/1#1]",
        "connected d1",
        "fragment d1 4",
    ]);
    story.reports("d1", "1/0", "x").is(["persist vote 1/0 d1", "verdict d1 1/0 Counted"]);
}

#[test]
fn an_alarm_stands_until_it_is_over_or_another_agent_speaks() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    let host = HostName::new("f1").expect("plain");
    let alarm = |reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        Input::Alarm { host: host.clone(), reason }
    };
    let stands = |story: &Story| {
        let mut hosts = story.core.farm().hosts();
        hosts.next().and_then(|(_, host)| host.alarm.clone())
    };
    story.feed(alarm(Some("a task does not die"))).nothing();
    assert_eq!(stands(&story).as_deref(), Some("a task does not die"));
    story.feed(alarm(None)).nothing();
    assert_eq!(stands(&story), None);
    story.feed(alarm(Some("a task does not die"))).nothing();
    story.returns("f1", &[]).whatever();
    assert_eq!(stands(&story), None, "who connects says so anew");
}

#[test]
fn a_frozen_replica_makes_room_and_goes_on_with_its_lease() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().workunits(3).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    let host = HostName::new("f1").expect("plain");
    let token = story.lease("f1", "1/0").token;
    let frozen = |frozen| Input::Frozen { host: host.clone(), token, frozen };
    story.feed(frozen(true)).nothing();
    // Nothing of it is taken back with the cores.
    story.gives("f1", 0).is(["fragment f1 0"]);
    story.gives("f1", 1).is(["fragment f1 1"]);
    story.feed(frozen(false)).nothing();
    story.asks("f1", 1).nothing();
    story.reports("f1", "1/0", "x").whatever();
}

#[test]
fn what_a_host_had_that_is_sent_away_goes_to_others_at_once_and_is_no_attempt() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().submits().whatever();
        story.asks("f1", 1).is(["lease f1 1/0#1"]);
        story.asks("f2", 1).nothing();
        assert_eq!(story.is_expelled("f1").leases(), ["f2 1/0#2"]);
        assert_eq!(story.core.farm().totals().released, 1);
        story.is_expelled("f1").nothing();
        story.is_expelled("nobody").nothing();
    }
}
