//! The broker dies and comes back with what it wrote down.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::api::{JobState, JobStatus};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, Span};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{Core, CoreConfig, LanePolicy, RestoreError, check_invariants};

use super::story::Story;

fn state(story: &Story) -> JobState {
    story.core.farm().jobs().next().expect("one job").status().state
}

#[test]
fn accepted_jobs_votes_and_decisions_survive() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().workunits(3).replication(2).submits().whatever();
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).whatever();
        story.reports("f1", "1/0", "x").whatever();
        story.reports("f2", "1/0", "x").whatever();
        story.asks("f1", 1).is(["lease f1 1/1#1"]);
        story.reports("f1", "1/1", "y").whatever();
        story.restarts().nothing();
        assert_eq!(state(&story), JobState::Running);
        let job = story.core.farm().jobs().next().expect("one job");
        assert_eq!(job.ended.digest(0), Some(Digest::of(b"x")));
        assert_eq!((job.counts.reported, job.ended.decided()), (3, 1));

        story.returns("f1", &[]).whatever();
        story.asks("f1", 1).is(["lease f1 1/2#1"]);
        story.returns("f2", &[]).whatever();
        story.asks("f2", 1).is(["lease f2 1/1#2"]);
        story.reports("f2", "1/1", "y").whatever();
        assert_eq!(story.core.farm().jobs().next().expect("one").ended.decided(), 2);
    }
}

#[test]
fn what_agents_still_hold_is_adopted() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("d1", Desktop).slots(2).joins().whatever();
        story.hosts(["d2"], Desktop);
        story.job().workunits(3).submits().whatever();
        story.asks("d1", 2).whatever();
        story.restarts().nothing();
        assert_eq!(state(&story), JobState::Queued, "leases are not in the journal");
        story.returns("d1", &[("1/0", true), ("1/1", false)]).is([
            "welcome d1 keeps [1/0#1 1/1#1]",
            "connected d1",
            "fragment d1 2",
        ]);
        assert_eq!(state(&story), JobState::Running);
        story.reports("d1", "1/0", "x").is([
            "persist vote 1/0 d1",
            "persist decided 1/0",
            "changed job-1",
            "verdict d1 1/0 Counted",
        ]);
        story.returns("d2", &[]).whatever();
        story.asks("d2", 1).is(["lease d2 1/2#1"]);
        story.reports("d1", "1/1", "x").whatever();
    }
}

#[test]
fn what_was_given_to_another_since_is_not_adopted() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    story.job().workunits(1).submits().whatever();
    story.asks("d1", 1).whatever();
    story.restarts().nothing();
    story.returns("d2", &[]).whatever();
    story.asks("d2", 1).is(["lease d2 1/0#1"]);
    story.returns("d1", &[("1/0", false)]).is([
        "welcome d1 keeps []",
        "connected d1",
        "fragment d1 1",
    ]);
    story.reports("d1", "1/0", "x").is(["verdict d1 1/0 OldToken"]);
}

#[test]
fn a_held_replica_of_the_other_side_is_not_adopted() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1"], Desktop);
    story.hosts(["f1"], Farm);
    story.job().replication(2).submits().whatever();
    story.asks("d1", 1).whatever();
    story.restarts().nothing();
    story.returns("f1", &[]).whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.returns("d1", &[("1/0", false)]).is([
        "welcome d1 keeps []",
        "connected d1",
        "fragment d1 1",
    ]);
}

#[test]
fn a_report_that_was_counted_before_is_not_counted_again() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    story.job().replication(2).submits().whatever();
    story.asks("d1", 1).whatever();
    story.reports("d1", "1/0", "x").whatever();
    story.restarts().nothing();
    story.returns("d1", &[("1/0", true)]).is([
        "welcome d1 keeps []",
        "connected d1",
        "fragment d1 1",
    ]);
    story.reports("d1", "1/0", "x").is(["verdict d1 1/0 Duplicate"]);
}

#[test]
fn a_decision_that_was_lost_is_made_again() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    story.reports("f1", "1/0", "x").whatever();
    story.reports("f2", "1/0", "x").whatever();
    let without_decision = story.facts.len() - 1;
    story.restarts_from(without_decision).is(["persist decided 1/0", "changed job-1"]);
    assert_eq!(state(&story), JobState::Completed);
    story.restarts().nothing();
}

#[test]
fn a_replica_that_failures_brought_is_brought_again() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().replication(2).quorum(2).max_replicas(4).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    story.fails("f1", "1/0").whatever();
    story.fails("f2", "1/0").whatever();
    story.restarts().nothing();
    for host in ["f3", "f4"] {
        story.returns(host, &[]).whatever();
        story.asks(host, 1).whatever();
    }
    story.reports("f3", "1/0", "x").whatever();
    story.reports("f4", "1/0", "x").whatever();
    assert_eq!(state(&story), JobState::Completed);
}

#[test]
fn a_cancelled_job_stays_cancelled_and_ids_are_not_used_again() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().workunits(5).submits().whatever();
    story.asks("f1", 1).whatever();
    story.cancels(1).whatever();
    story.restarts().nothing();
    assert_eq!(state(&story), JobState::Cancelled);
    story.returns("f1", &[("1/0", true)]).whatever();
    story.asks("f1", 1).nothing();
    story.job().submits().is([
        "persist accepted job-2",
        "accepted job-2",
        "changed job-2",
        "lease f1 2/0#1",
    ]);
}

#[test]
fn leases_of_a_new_life_have_new_tokens() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    let before = story.lease("f1", "1/0").token;
    story.restarts().nothing();
    story.returns("f1", &[]).whatever();
    story.asks("f1", 1).whatever();
    let after = story.lease("f1", "1/0").token;
    assert!(after.get() >> 48 > before.get() >> 48, "{before:?} {after:?}");
}

#[test]
fn a_snapshot_restores_what_all_facts_do() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().workunits(700).replication(2).quorum(2).max_replicas(2).submits().whatever();
    for index in ["1/0", "1/1"] {
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).whatever();
        story.reports("f1", index, "x").whatever();
        story.reports("f2", index, if index == "1/0" { "x" } else { "y" }).whatever();
    }
    story.asks("f1", 1).is(["lease f1 1/2#1"]);
    story.reports("f1", "1/2", "x").whatever();
    story.job().owner("bob").workunits(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/3#1"]);
    story.is_preempted("f1", "1/3").nothing();
    story.known_as("f3", |info| info.origin = Desktop);
    story.returns("f3", &[]).whatever();
    story.asks("f3", 1).is(["lease f3 2/0#1"]);
    story.reports("f3", "2/0", "x").whatever();
    story.cancels(2).whatever();
    story.advance(Span::from_secs(100)).whatever();

    let facts: Vec<_> = story.core.facts().collect();
    let mut core = Core::new(&CoreConfig::background(FragmentAware));
    for fact in facts.clone() {
        core.restore(fact).expect("a snapshot restores");
    }
    let mut effects = Vec::new();
    core.restored(&mut effects);
    assert_eq!(effects, []);
    check_invariants(&core).expect("after a snapshot");
    // Leases are not restored, nor is what was touched by leases alone.
    let status = |core: &Core| {
        let statuses = core.farm().jobs().map(gleaner_scheduling::Job::status);
        statuses.map(|status| JobStatus { open: 0, pending: 0, ..status }).collect::<Vec<_>>()
    };
    assert_eq!(status(&core), status(&story.core));
    assert_eq!(core.farm().totals(), story.core.farm().totals());
    assert_eq!(core.facts().collect::<Vec<_>>(), facts);
}

#[test]
fn a_snapshot_keeps_whose_vote_it_was() {
    let named = |owner| Some(gleaner_protocol::OwnerName::new(owner).expect("a plain name"));
    let mut story = Story::of(FragmentAware);
    story.host("d1", Desktop).owner("cora").joins().whatever();
    story.host("d2", Desktop).owner("dora").joins().whatever();
    story.job().replication(3).quorum(3).submits().whatever();
    story.asks("d1", 1).is(["lease d1 1/0#1"]);
    story.reports("d1", "1/0", "x").whatever();
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
    story.reports("d2", "1/0", "x").whatever();
    // Both are the same person's now, who has no vote on it yet.
    for host in ["d1", "d2"] {
        story.known_as(host, |info| info.owner = named("eve"));
        story.returns(host, &[]).whatever();
    }
    story.facts = story.core.facts().collect();
    story.restarts().nothing();
    story.host("d3", Desktop).owner("cora").joins().whatever();
    story.asks("d3", 1).nothing();
    story.host("d4", Desktop).owner("eve").joins().whatever();
    story.asks("d4", 1).is(["lease d4 1/0#3"]);
}

#[test]
fn a_journal_that_contradicts_itself_is_refused() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().workunits(2).replication(1).submits().whatever();
    story.asks("f1", 1).whatever();
    story.reports("f1", "1/0", "x").whatever();
    story.cancels(1).whatever();
    let [accepted, voted, decided, cancelled] = &story.facts[..] else {
        panic!("{:?}", story.facts)
    };
    let restore = |facts: &[&gleaner_scheduling::Fact]| {
        let mut core = Core::new(&CoreConfig::background(FragmentAware));
        facts.iter().try_for_each(|fact| core.restore((*fact).clone()))
    };
    let said = |facts: &[&gleaner_scheduling::Fact]| {
        restore(facts).map_err(|error: RestoreError| error.to_string())
    };
    assert_eq!(said(&[accepted, voted, decided, cancelled]), Ok(()));
    let unknown = Err("the journal speaks of job-1/0, which it did not accept before".to_owned());
    assert_eq!(said(&[voted]), unknown);
    assert_eq!(said(&[decided]), unknown);
    let job = Err("the journal speaks of job-1, which it did not accept before".to_owned());
    assert_eq!(said(&[cancelled]), job);
    assert_eq!(said(&[accepted, accepted]), Err("the journal accepts job-1 twice".into()));
    let ended = Err("the journal speaks of job-1/0 after its end".to_owned());
    assert_eq!(said(&[accepted, voted, decided, decided]), ended);
    assert_eq!(said(&[accepted, cancelled, voted]), ended);
    let twice = Err("the journal has two votes of f1 on job-1/0".to_owned());
    assert_eq!(said(&[accepted, voted, voted]), twice);
}

/// A lease leaves before its job is on disk.
#[test]
fn what_was_leased_for_a_job_that_was_lost_is_nothing_of_the_job_that_gets_its_id() {
    for (workunits, kept) in [(7, "welcome f1 keeps []"), (3, "welcome f1 keeps [1/0#1]")] {
        let mut story = Story::of(FragmentAware);
        story.hosts(["f1"], Farm);
        story.job().workunits(3).submits().whatever();
        story.asks("f1", 1).is(["lease f1 1/0#1"]);
        story.restarts_from(0).nothing();
        // The same once more is as good as the one that was lost.
        story.job().workunits(workunits).submits().is([
            "persist accepted job-1",
            "accepted job-1",
            "changed job-1",
        ]);
        story.returns("f1", &[("1/0", true)]).begins([kept.to_owned()]);
    }
}

#[test]
fn the_window_of_a_job_goes_on_after_a_snapshot_where_it_was() {
    let of_datasets = LanePolicy::default_of(Lane::Dataset);
    let config = CoreConfig::background(FragmentAware).with_lane(Lane::Dataset, of_datasets);
    let mut story = Story::with(config);
    story.hosts(["f1"], Farm);
    story.gains("f1", 5, [0, 1, 2]).whatever();
    story.job().reads(5).workunits(3).window(1).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.reports("f1", "1/0", "x").whatever();
    story.restarts_from_snapshot().whatever();
    story.returns("f1", &[]).whatever();
    story.gains("f1", 5, [0, 1, 2]).whatever();
    assert_eq!(story.asks("f1", 1).leases(), ["f1 1/1#1"]);
}
