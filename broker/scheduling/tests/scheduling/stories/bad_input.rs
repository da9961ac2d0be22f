//! Input that makes no sense changes nothing.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::control::ReleaseReason;
use gleaner_scheduling::CoreConfig;
use gleaner_scheduling::PolicyName::FragmentAware;

use super::story::Story;

#[test]
fn a_job_with_something_wrong_is_refused_and_named() {
    let mut story = Story::of(FragmentAware);
    story
        .job()
        .workunits(0)
        .submits()
        .is(["refused: the job is not accepted: workunits is 0, must be from 1 to 100000000"]);
    story
        .job()
        .replication(2)
        .quorum(3)
        .submits()
        .is(["refused: the job is not accepted: quorum is 3, must be from 1 to 2"]);
    assert!(story.facts.is_empty());
    story.job().submits().is(["persist accepted job-1", "accepted job-1", "changed job-1"]);
}

#[test]
fn messages_of_unknown_hosts_and_leases_change_nothing() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.hosts(["f2"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    let lease = story.lease("f1", "1/0");
    story.asks("nobody", 1).nothing();
    story.leaves("nobody").nothing();
    story.reports_lease("nobody", lease, "x").nothing();
    story.reports_lease("f2", lease, "x").is(["verdict f2 1/0 OldToken"]);
    story.leaves("f1").whatever();
    story.releases("f1", "1/0", ReleaseReason::Preempted).nothing();
}

#[test]
fn absurd_numbers_of_slots_are_bounded() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.gives("f1", u32::MAX).is(["fragment f1 4096"]);
    story.asks("f1", u32::MAX).nothing();
    story.asks("f1", u32::MAX).nothing();
    story.job().workunits(10_000).submits().whatever();
    assert_eq!(story.core.farm().lease_count(), 4096);
}

#[test]
fn an_owner_has_so_many_jobs_that_go_on_and_others_have_theirs() {
    let config = CoreConfig { open_jobs_max: 1, ..CoreConfig::background(FragmentAware) };
    let mut story = Story::with(config);
    story.job().owner("ann").submits().whatever();
    story.job().owner("ann").submits().is([
        "refused: 1 jobs of ann go on already, as many as may: wait for one to end, cancel one, or put \
         more workunits into one job",
    ]);
    story.job().owner("bob").submits().whatever();
    story.cancels(1).whatever();
    story.job().owner("ann").submits().is([
        "persist accepted job-3",
        "accepted job-3",
        "changed job-3",
    ]);
}
