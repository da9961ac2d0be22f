//! Hosts without an owner: one voter together, unless the farm trusts them one by one.

use gleaner_protocol::JobId;
use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{CoreConfig, OwnerlessVote};

use super::story::Story;

fn together(policy: PolicyName) -> Story {
    let config = CoreConfig {
        ownerless_hosts_vote: OwnerlessVote::Together,
        ..CoreConfig::background(policy)
    };
    Story::with(config)
}

#[test]
fn two_invented_names_do_not_outvote_an_honest_host() {
    for policy in PolicyName::ALL {
        for origin in [Farm, Desktop] {
            let mut story = together(policy);
            story.hosts(["x1", "x2"], origin);
            story.host("h1", origin).owner("ann").joins().whatever();
            story.host("h2", origin).owner("bob").joins().whatever();
            story.job().replication(3).submits().whatever();
            story.asks("x1", 1).is(["lease x1 1/0#1"]);
            story.asks("x2", 1).nothing();
            story.asks("h1", 1).is(["lease h1 1/0#2"]);
            story.asks("h2", 1).is(["lease h2 1/0#3"]);
            story.reports("x1", "1/0", "wrong").whatever();
            story.asks("x2", 1).nothing();
            story.reports("h1", "1/0", "right").whatever();
            story.reports("h2", "1/0", "right").whatever();
            let job = story.core.farm().job(JobId::new(1)).expect("known");
            assert_eq!(job.ended.digest(0), Some(gleaner_protocol::Digest::of(b"right")));
        }
    }
}

#[test]
fn too_few_voters_are_told_of() {
    let mut story = together(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().replication(2).submits().whatever();
    let told = story.core.explain_job(JobId::new(1)).expect("known");
    assert_eq!(told[0].code(), "too-few-voters");
    assert!(told[0].to_string().contains("of 1: hosts of one owner have one vote"), "{}", told[0]);
}

#[test]
fn another_host_of_the_same_voter_takes_over_what_failed() {
    for policy in PolicyName::ALL {
        let mut story = together(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().submits().whatever();
        story.asks("f1", 1).whatever();
        story.fails("f1", "1/0").whatever();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
    }
}

/// What was voted while each had a vote stays; what is voted from now on is one vote.
#[test]
fn a_broker_that_lets_them_vote_together_reads_what_each_has_voted() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().replication(4).quorum(4).max_replicas(4).submits().whatever();
    for host in ["f1", "f2"] {
        story.asks(host, 1).whatever();
        story.reports(host, "1/0", "x").whatever();
    }
    let mut later = together(FragmentAware);
    later.facts = story.facts.clone();
    later.restarts().nothing();
    later.hosts(["f3"], Farm);
    later.asks("f3", 1).nothing();
    later.host("h1", Farm).owner("ann").joins().whatever();
    later.asks("h1", 1).is(["lease h1 1/0#3"]);
}
