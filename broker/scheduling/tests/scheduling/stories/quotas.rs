//! How many replicas hosts are given that err.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::{JobId, Span};
use gleaner_scheduling::PolicyName::Plain;
use gleaner_scheduling::limits::{BACKOFF_MOST, QUOTA_FIRST, QUOTA_WINDOW};

use super::story::{Story, host_name};

fn allowed(story: &Story, host: &str) -> Option<u32> {
    let host = story.core.farm().host_named(&host_name(host)).expect("known");
    host.quota.map(|quota| quota.allowed)
}

/// A host that fails one replica of each of so many jobs, which another host can do.
fn fails(story: &mut Story, host: &str, times: u32) {
    for _ in 0..times {
        story.advance(BACKOFF_MOST).whatever();
        story.job().submits().whatever();
        story.asks(host, 1).whatever();
        let workunit = story.held_by(host);
        story.fails(host, &workunit).whatever();
        story.asks("good", 1).whatever();
        story.reports("good", &workunit, "right").whatever();
    }
}

#[test]
fn it_is_halved_by_errors_and_doubled_by_what_is_accepted() {
    let mut story = Story::of(Plain);
    story.hosts(["good", "bad"], Farm);
    assert_eq!(allowed(&story, "bad"), None);
    fails(&mut story, "bad", 3);
    assert_eq!(allowed(&story, "bad"), Some(QUOTA_FIRST / 4));
    assert_eq!(allowed(&story, "good"), None);
    for (_, quota) in (0..4).zip([Some(QUOTA_FIRST / 2), Some(QUOTA_FIRST), None, None]) {
        story.advance(BACKOFF_MOST).whatever();
        story.job().submits().whatever();
        story.asks("bad", 1).whatever();
        let workunit = story.held_by("bad");
        story.reports("bad", &workunit, "right").whatever();
        assert_eq!(allowed(&story, "bad"), quota);
    }
}

#[test]
fn whoever_has_spent_it_waits_for_the_next_hour_and_that_is_told() {
    let mut story = Story::of(Plain);
    story.hosts(["good", "bad"], Farm);
    fails(&mut story, "bad", 20);
    assert_eq!(allowed(&story, "bad"), Some(1), "one at least");
    story.leaves("good").whatever();
    story.advance(BACKOFF_MOST).whatever();
    story.advance(QUOTA_WINDOW).whatever();
    story.job().workunits(3).replication(2).submits().whatever();
    assert_eq!(story.asks("bad", 2).leases().len(), 1);
    // Before it is known what it is worth there is no other.
    let workunit = story.held_by("bad");
    story.reports("bad", &workunit, "right").whatever();
    assert!(story.core.farm().lease_count() == 0);
    let told = story.core.explain_job(JobId::new(21)).expect("known");
    assert!(told.iter().any(|of| of.code() == "quotas-spent"), "{told:?}");
    assert_eq!(story.advance(QUOTA_WINDOW + Span::from_secs(1)).leases().len(), 1);
}

#[test]
fn who_is_outvoted_errs_too() {
    let mut story = Story::of(Plain);
    story.hosts(["h1", "h2", "bad"], Farm);
    story.job().replication(3).submits().whatever();
    for (host, output) in [("bad", "wrong"), ("h1", "right"), ("h2", "right")] {
        story.asks(host, 1).whatever();
        story.reports(host, "1/0", output).whatever();
    }
    assert_eq!(
        ["h1", "h2", "bad"].map(|host| allowed(&story, host)),
        [None, None, Some(QUOTA_FIRST)]
    );
}

/// A job that nobody can do is at fault itself.
#[test]
fn a_bad_job_costs_nobody_a_quota() {
    let mut story = Story::of(Plain);
    story.hosts(["h1", "h2", "h3"], Farm);
    story.job().replication(3).submits().whatever();
    for host in ["h1", "h2", "h3"] {
        story.asks(host, 1).whatever();
        story.fails(host, "1/0").whatever();
    }
    assert_eq!(["h1", "h2", "h3"].map(|host| allowed(&story, host)), [None; 3]);
}
