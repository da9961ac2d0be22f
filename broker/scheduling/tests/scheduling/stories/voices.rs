//! Owners who are vouched for, owners who earn a voice, and those who have none.

use std::collections::BTreeSet;

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::{Digest, JobId, OwnerName};
use gleaner_scheduling::PolicyName::{self, FragmentAware, Plain};
use gleaner_scheduling::{CoreConfig, Input, OwnerlessVote, VoterIx, WaitReason};

use super::story::{Story, host_name, workunit_id};

fn owners(names: &[&str]) -> BTreeSet<OwnerName> {
    names.iter().map(|name| OwnerName::new(*name).expect("a plain name")).collect()
}

/// A farm whose admin vouches for these owners.
fn farm(policy: PolicyName, vouched: &[&str]) -> Story {
    Story::with(CoreConfig {
        ownerless_hosts_vote: OwnerlessVote::Together,
        vouched: owners(vouched),
        ..CoreConfig::background(policy)
    })
}

fn enter(story: &mut Story, hosts: &[(&str, &str)]) {
    for (host, owner) in hosts {
        story.host(host, Desktop).owner(owner).joins().whatever();
    }
}

fn decided(story: &Story, workunit: &str) -> Option<Digest> {
    let id = workunit_id(workunit);
    story.core.farm().job(id.job).expect("known").ended.digest(id.index)
}

fn voter(story: &Story, host: &str) -> VoterIx {
    story.core.farm().host_named(&host_name(host)).expect("known").voter
}

fn codes(story: &Story, workunit: &str) -> Vec<&'static str> {
    let reasons = story.core.explain_workunit(workunit_id(workunit)).expect("known");
    reasons.iter().map(WaitReason::code).collect()
}

/// `ann` agrees with the farm so often that she earns a voice.
fn earns(story: &mut Story, host: &str, farm: &str, job: u64) {
    story.job().workunits(10).replication(2).submits().whatever();
    for index in 0..10 {
        let workunit = format!("{job}/{index}");
        for host in [host, farm] {
            story.asks(host, 1).whatever();
            story.reports(host, &workunit, "right").whatever();
        }
    }
}

#[test]
fn votes_without_a_voice_decide_nothing_however_many_agree() {
    for policy in PolicyName::ALL {
        let mut story = farm(policy, &["farm"]);
        enter(&mut story, &[("x1", "x1"), ("x2", "x2"), ("x3", "ann")]);
        story.job().replication(3).submits().whatever();
        story.asks("x1", 1).is(["lease x1 1/0#1"]);
        story.asks("x2", 1).is(["lease x2 1/0#2"]);
        // The last place is for somebody with a voice.
        story.asks("x3", 1).nothing();
        story.reports("x1", "1/0", "wrong").whatever();
        story.reports("x2", "1/0", "wrong").whatever();
        assert_eq!(decided(&story, "1/0"), None, "{policy:?}");
        assert!(codes(&story, "1/0").contains(&"awaits-voice"), "{:?}", codes(&story, "1/0"));
        enter(&mut story, &[("f1", "farm")]);
        story.asks("f1", 1).is(["lease f1 1/0#3"]);
        story.reports("f1", "1/0", "right").whatever();
        assert_eq!(decided(&story, "1/0"), None, "one vote is no quorum");
        // Somebody has voted who decides: any other owner may agree.
        assert_eq!(story.held_by("x3"), "1/0");
        story.reports("x3", "1/0", "right").whatever();
        assert_eq!(decided(&story, "1/0"), Some(Digest::of(b"right")), "{policy:?}");
    }
}

#[test]
fn an_owner_earns_a_voice_by_ten_agreements_and_two_such_decide() {
    let mut story = farm(FragmentAware, &["farm"]);
    enter(&mut story, &[("f1", "farm"), ("a1", "ann"), ("b1", "bob"), ("x1", "x1")]);
    let voice = |story: &Story, host| story.core.farm().voice_of(voter(story, host)).weight();
    assert_eq!(["f1", "a1", "b1"].map(|host| voice(&story, host)), [2, 0, 0]);
    earns(&mut story, "a1", "f1", 1);
    assert_eq!(["f1", "a1", "b1"].map(|host| voice(&story, host)), [2, 1, 0]);
    // With one earned voice and any number of new ones nothing is decided.
    story.leaves("f1").whatever();
    story.job().replication(2).submits().whatever();
    for host in ["a1", "x1"] {
        story.asks(host, 1).whatever();
        story.reports(host, "2/0", "wrong").whatever();
    }
    assert_eq!(decided(&story, "2/0"), None);
    story.asks("b1", 1).nothing();
    story.cancels(2).whatever();
    story.returns("f1", &[]).whatever();
    earns(&mut story, "b1", "f1", 3);
    story.leaves("f1").whatever();
    story.job().replication(2).submits().whatever();
    for host in ["a1", "b1"] {
        story.asks(host, 1).whatever();
        story.reports(host, "4/0", "right").whatever();
    }
    assert_eq!(decided(&story, "4/0"), Some(Digest::of(b"right")));
}

#[test]
fn a_voice_is_lost_with_one_wrong_output_and_outlives_a_restart() {
    let mut story = farm(Plain, &["farm"]);
    enter(&mut story, &[("f1", "farm"), ("a1", "ann"), ("b1", "bob")]);
    earns(&mut story, "a1", "f1", 1);
    story.restarts().nothing();
    enter(&mut story, &[("f1", "farm"), ("a1", "ann"), ("b1", "bob")]);
    let reputation = |story: &Story| {
        let of = story.core.farm().reputation_of(voter(story, "a1"));
        (of.agreed, of.disagreed, of.has_earned())
    };
    assert_eq!(reputation(&story), (10, 0, true));
    story.job().replication(3).submits().whatever();
    for (host, output) in [("a1", "wrong"), ("f1", "right"), ("b1", "right")] {
        story.asks(host, 1).whatever();
        story.reports(host, "2/0", output).whatever();
    }
    assert_eq!(reputation(&story), (0, 1, false));
    story.restarts().nothing();
    enter(&mut story, &[("a1", "ann")]);
    assert_eq!(reputation(&story), (0, 1, false));
}

/// Agreement among those without a voice is worth nothing, to their hosts neither.
#[test]
fn those_without_a_voice_prove_nothing_to_each_other() {
    let mut story = farm(Plain, &["farm"]);
    enter(&mut story, &[("x1", "x1"), ("x2", "x2"), ("f1", "farm")]);
    story.job().workunits(20).replication(3).submits().whatever();
    for index in 0..20 {
        let workunit = format!("1/{index}");
        for host in ["x1", "x2"] {
            story.asks(host, 1).whatever();
            story.reports(host, &workunit, "same").whatever();
        }
    }
    let passed = |story: &Story, host| {
        story.core.farm().host_named(&host_name(host)).expect("known").standing.passed
    };
    assert_eq!(["x1", "x2"].map(|host| passed(&story, host)), [0, 0]);
    for index in 0..10 {
        story.asks("f1", 1).whatever();
        story.reports("f1", &format!("1/{index}"), "same").whatever();
    }
    // Now both have a voice, and that decides the rest.
    assert_eq!(["x1", "x2"].map(|host| passed(&story, host)), [10, 10]);
    assert_eq!(story.core.farm().job(JobId::new(1)).expect("known").ended.decided(), 20);
}

#[test]
fn whom_the_admin_vouches_for_decides_at_once_what_waited() {
    let mut story = farm(FragmentAware, &["farm"]);
    enter(&mut story, &[("a1", "ann"), ("b1", "bob")]);
    story.job().replication(3).submits().whatever();
    for host in ["a1", "b1"] {
        story.asks(host, 1).whatever();
        story.reports(host, "1/0", "right").whatever();
    }
    assert_eq!(decided(&story, "1/0"), None);
    let told = story.core.explain_job(JobId::new(1)).expect("known");
    assert!(told.iter().any(|of| of.code() == "too-few-voices"), "{told:?}");
    story.feed(Input::Vouch { owners: owners(&["ann", "farm"]) }).whatever();
    assert_eq!(decided(&story, "1/0"), Some(Digest::of(b"right")));
}

/// What one output decides needs no voice: its job trusts any host.
#[test]
fn one_replica_needs_no_voice_and_earns_none() {
    let mut story = farm(FragmentAware, &["farm"]);
    enter(&mut story, &[("a1", "ann")]);
    story.job().submits().whatever();
    story.asks("a1", 1).whatever();
    story.reports("a1", "1/0", "right").whatever();
    assert_eq!(decided(&story, "1/0"), Some(Digest::of(b"right")));
    assert_eq!(story.core.farm().reputation_of(voter(&story, "a1")).agreed, 0);
}

/// Where nobody is vouched for, all are as before.
#[test]
fn a_farm_whose_admin_vouches_for_nobody_counts_owners_alone() {
    let mut story = farm(FragmentAware, &[]);
    enter(&mut story, &[("a1", "ann"), ("b1", "bob")]);
    story.job().replication(2).submits().whatever();
    for host in ["a1", "b1"] {
        story.asks(host, 1).whatever();
        story.reports(host, "1/0", "right").whatever();
    }
    assert_eq!(decided(&story, "1/0"), Some(Digest::of(b"right")));
}

#[test]
fn trust_belongs_to_a_key_and_ends_with_it() {
    let mut story = farm(Plain, &["farm"]);
    story.host("f1", Farm).owner("farm").joins().whatever();
    enter(&mut story, &[("a1", "ann")]);
    earns(&mut story, "a1", "f1", 1);
    let stands = |story: &Story| {
        let farm = story.core.farm();
        let host = farm.host_named(&host_name("a1")).expect("known");
        (host.standing.passed_since(), farm.reputation_of(host.voter).has_earned())
    };
    assert_eq!(stands(&story), (10, true));
    let ann = OwnerName::new("ann").expect("a plain name");
    story.feed(Input::KeyRevoked { host: host_name("a1"), last_of: Some(ann) }).whatever();
    assert_eq!(stands(&story), (0, false));
    story.restarts().nothing();
    enter(&mut story, &[("a1", "ann")]);
    assert_eq!(stands(&story), (0, false));
}
