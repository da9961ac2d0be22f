//! How workunits are decided.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::Span;
use gleaner_protocol::api::JobState;
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Attempts;
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{ReportedOutcome, WaitReason};

use super::story::{Story, workunit_id};

fn state(story: &Story, job: u64) -> JobState {
    let job = story.core.farm().job(gleaner_protocol::JobId::new(job));
    job.expect("a job of the story").status().state
}

#[test]
fn a_majority_completes_and_leftovers_are_cancelled() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2", "f3"], Farm);
        story.job().workunits(2).replication(3).submits().whatever();
        assert_eq!(state(&story, 1), JobState::Queued);
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).whatever();
        story.asks("f3", 1).is(["lease f3 1/0#3"]);
        assert_eq!(state(&story, 1), JobState::Running);
        story.reports("f1", "1/0", "x").is(["persist vote 1/0 f1", "verdict f1 1/0 Counted"]);
        story.reports("f2", "1/0", "x").is([
            "persist vote 1/0 f2",
            "persist decided 1/0",
            "abort f3 1/0#3 Decided",
            "changed job-1",
            "verdict f2 1/0 Counted",
        ]);
        story.releases("f3", "1/0", ReleaseReason::Aborted).nothing();
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!((job.decided, job.open, job.replicas.aborted), (1, 0, 1));
        assert_eq!(job.replicas.accepted_cpu_us, 20);
    }
}

#[test]
fn a_job_ends_with_its_last_workunit() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    story.reports("f1", "1/0", "x").is([
        "persist vote 1/0 f1",
        "persist decided 1/0",
        "changed job-1",
        "verdict f1 1/0 Counted",
    ]);
    assert_eq!(state(&story, 1), JobState::Completed);
    assert_eq!(story.core.farm().open_count(), 0);
}

#[test]
fn a_host_has_one_vote_on_a_workunit() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("f1", Farm).slots(3).joins().whatever();
        story.job().replication(3).submits().whatever();
        story.asks("f1", 3).is(["lease f1 1/0#1"]);
        story.reports("f1", "1/0", "x").whatever();
        story.asks("f1", 1).nothing();
    }
}

#[test]
fn the_outputs_beside_a_report_are_known_where_it_would_count() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3", "f4"], Farm);
    story.job().replication(4).quorum(4).max_replicas(8).submits().whatever();
    for host in ["f1", "f2", "f3", "f4"] {
        story.asks(host, 1).whatever();
    }
    let outputs = |story: &Story, host: &str, of: &str| {
        let lease = story.lease(of, "1/0");
        let host = gleaner_protocol::HostName::new(host).expect("plain");
        story.core.outputs_beside(&host, lease.token, lease.replica)
    };
    let [x, y] = ["x", "y"].map(|output| gleaner_protocol::Digest::of(output.as_bytes()));
    assert_eq!(outputs(&story, "f1", "f1"), Some(vec![]));
    story.reports("f1", "1/0", "y").whatever();
    story.reports("f2", "1/0", "x").whatever();
    assert_eq!(outputs(&story, "f3", "f3"), Some(vec![y, x]), "the first one first");
    story.reports("f3", "1/0", "y").whatever();
    assert_eq!(outputs(&story, "f4", "f4"), Some(vec![y, x]), "each once");
    assert_eq!(outputs(&story, "f1", "f1"), None, "it has voted");
    assert_eq!(outputs(&story, "f4", "f3"), None, "it is another's lease");
    assert_eq!(outputs(&story, "f5", "f4"), None, "there is no such host");
    story.leaves("f4").whatever();
    assert_eq!(outputs(&story, "f4", "f4"), None, "it is not connected");
}

#[test]
fn an_owner_has_one_vote_on_a_workunit() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("d1", Desktop).owner("carl").joins().whatever();
        story.host("d2", Desktop).owner("carl").joins().whatever();
        story.host("d3", Desktop).owner("dora").joins().whatever();
        story.job().replication(3).submits().whatever();
        story.asks("d1", 1).is(["lease d1 1/0#1"]);
        story.asks("d2", 1).nothing();
        story.asks("d3", 1).is(["lease d3 1/0#2"]);
        // Carl's replica comes back, so his other host may take it: its request stands.
        story.is_preempted("d1", "1/0").is(["lease d2 1/0#3"]);
        story.reports("d2", "1/0", "x").whatever();
        story.asks("d1", 1).nothing();
    }
}

#[test]
fn a_host_that_changes_its_owner_keeps_its_one_vote() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    story.job().replication(3).quorum(2).submits().whatever();
    story.asks("d1", 1).whatever();
    story.reports("d1", "1/0", "x").whatever();
    for owner in [Some("carl"), Some("dora"), None] {
        story.known_as("d1", |info| {
            info.owner = owner.map(|owner| gleaner_protocol::OwnerName::new(owner).expect("plain"));
        });
        story.returns("d1", &[]).whatever();
        story.asks("d1", 1).nothing();
    }
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
}

#[test]
fn a_replica_held_over_a_change_of_owner_counts_for_the_new_one() {
    let mut story = Story::of(FragmentAware);
    story.host("d1", Desktop).owner("carl").joins().whatever();
    story.host("d2", Desktop).owner("dora").joins().whatever();
    story.job().replication(3).quorum(2).submits().whatever();
    story.asks("d1", 1).whatever();
    story.asks("d2", 1).whatever();
    story.known_as("d1", |info| info.owner = None);
    story.returns("d1", &[("1/0", false)]).is([
        "welcome d1 keeps [1/0#1]",
        "connected d1",
        "fragment d1 1",
    ]);
    // Dora has a replica of it already, so what her new host holds is not wanted.
    let dora = gleaner_protocol::OwnerName::new("dora").expect("plain");
    story.known_as("d1", |info| info.owner = Some(dora));
    story.returns("d1", &[("1/0", false)]).is([
        "welcome d1 keeps []",
        "connected d1",
        "fragment d1 1",
    ]);
}

#[test]
fn a_report_that_comes_twice_counts_once() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(2).replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.reports("f1", "1/0", "x").whatever();
    story.reports("f1", "1/0", "x").is(["verdict f1 1/0 Duplicate"]);
    story.reports("f1", "1/0", "y").is(["verdict f1 1/0 Duplicate"]);
    story.asks("f2", 1).whatever();
    story.reports("f2", "1/0", "x").whatever();
    story.reports("f2", "1/0", "x").is(["verdict f2 1/0 Late"]);
}

#[test]
fn a_report_under_an_old_token_changes_nothing() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    let old = story.lease("f1", "1/0");
    story.advance(Span::from_secs(60)).is(["abort f1 1/0#1 Expired", "persist timed out 1/0 f1"]);
    story.reports_lease("f1", old, "x").is(["verdict f1 1/0 OldToken"]);
    story.asks("f1", 1).is(["lease f1 1/0#2"]);
    story.reports_lease("f1", old, "x").is(["verdict f1 1/0 OldToken"]);
    story.reports("f1", "1/0", "x").is(["persist vote 1/0 f1", "verdict f1 1/0 Counted"]);
    story.reports_lease("f1", old, "x").is(["verdict f1 1/0 SecondVote"]);
    // Another host's token is nobody else's.
    story.hosts(["f2"], Farm);
    story.asks("f2", 1).is(["lease f2 1/0#3"]);
    let other = story.lease("f2", "1/0");
    story.reports_lease("f1", other, "x").is(["verdict f1 1/0 SecondVote"]);
    let job = story.core.farm().jobs().next().expect("one job").status();
    assert_eq!((job.replicas.reported, job.pending), (1, 1));
}

#[test]
fn a_report_for_an_unknown_job_says_so() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    let mut lease = story.lease("f1", "1/0");
    lease.replica.workunit = workunit_id("9/0");
    story.reports_lease("f1", lease, "x").is(["verdict f1 9/0 UnknownJob"]);
    lease.replica.workunit = workunit_id("1/77");
    story.reports_lease("f1", lease, "x").is(["verdict f1 1/77 OldToken"]);
}

#[test]
fn disagreement_brings_another_replica_up_to_the_limit() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2", "f3", "f4"], Farm);
        story.job().replication(2).quorum(2).max_replicas(3).submits().whatever();
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
        story.asks("f3", 1).nothing();
        story.reports("f1", "1/0", "x").is(["persist vote 1/0 f1", "verdict f1 1/0 Counted"]);
        story.reports("f2", "1/0", "y").is([
            "persist vote 1/0 f2",
            "verdict f2 1/0 Counted",
            "lease f3 1/0#3",
        ]);
        story.reports("f3", "1/0", "z").is([
            "persist vote 1/0 f3",
            "persist given-up 1/0",
            "changed job-1",
            "verdict f3 1/0 Counted",
        ]);
        assert_eq!(state(&story, 1), JobState::Failed);
        let reasons = story.core.explain_workunit(workunit_id("1/0")).expect("known");
        let [WaitReason::GivenUp { reason }] = &reasons[..] else { panic!("{reasons:?}") };
        assert_eq!(reason, "3 outputs came, at most 1 agree and 2 must (max_replicas is 3)");
    }
}

#[test]
fn a_third_vote_settles_a_disagreement() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3"], Farm);
    story.job().replication(2).quorum(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("f2", 1).whatever();
    story.reports("f1", "1/0", "wrong").whatever();
    story.reports("f2", "1/0", "x").whatever();
    story.asks("f3", 1).is(["lease f3 1/0#3"]);
    story.reports("f3", "1/0", "x").whatever();
    let job = story.core.farm().jobs().next().expect("one job");
    assert_eq!(job.ended.digest(0), Some(gleaner_protocol::Digest::of(b"x")));
    assert_eq!(job.counts.disagreed, 1);
    let disagreed: Vec<_> = story.core.farm().hosts().map(|(_, host)| host.disagreed).collect();
    assert_eq!(disagreed, [1, 0, 0]);
}

#[test]
fn failed_and_malformed_replicas_are_tried_elsewhere() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2", "f3", "f4"], Farm);
        story.job().attempts(Attempts { failed: 3, ..Attempts::default() }).submits().whatever();
        story.asks("f1", 1).whatever();
        story.fails("f1", "1/0").is(["persist failed 1/0 f1", "verdict f1 1/0 Counted"]);
        story.fails("f1", "1/0").is(["verdict f1 1/0 Duplicate"]);
        story.asks("f1", 1).nothing();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
        let lease = story.lease("f2", "1/0");
        // The request of f1 stands, but it has had its try.
        story
            .reports_outcome("f2", lease, ReportedOutcome::Malformed)
            .is(["persist failed 1/0 f2", "verdict f2 1/0 Malformed"]);
        story.asks("f3", 1).is(["lease f3 1/0#3"]);
        // A refusal is no attempt.
        story.releases("f3", "1/0", ReleaseReason::CannotRun("no such file".into())).nothing();
        story.asks("f4", 1).is(["lease f4 1/0#4"]);
        story.fails("f4", "1/0").is([
            "persist failed 1/0 f4",
            "persist given-up 1/0",
            "changed job-1",
            "verdict f4 1/0 Counted",
        ]);
        assert_eq!(state(&story, 1), JobState::Failed);
    }
}

#[test]
fn a_failure_is_no_vote() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2", "f3"], Farm);
        story.job().replication(2).max_replicas(2).submits().whatever();
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
        story.fails("f1", "1/0").is(["persist failed 1/0 f1", "verdict f1 1/0 Counted"]);
        story.reports("f2", "1/0", "x").whatever();
        story.asks("f3", 1).is(["lease f3 1/0#3"]);
        story.reports("f3", "1/0", "x").whatever();
        assert_eq!(state(&story, 1), JobState::Completed);
    }
}

#[test]
fn giving_up_aborts_what_still_runs() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3"], Farm);
    let attempts = Attempts { failed: 1, ..Attempts::default() };
    story.job().replication(3).quorum(3).attempts(attempts).submits().whatever();
    for host in ["f1", "f2", "f3"] {
        story.asks(host, 1).whatever();
    }
    story.fails("f1", "1/0").is([
        "persist failed 1/0 f1",
        "persist given-up 1/0",
        "abort f2 1/0#2 GivenUp",
        "abort f3 1/0#3 GivenUp",
        "changed job-1",
        "verdict f1 1/0 Counted",
    ]);
}
