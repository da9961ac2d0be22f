//! Leases end: given back, run out, lost with a link, taken back.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Attempts;
use gleaner_protocol::{JobId, Span, WorkunitId};
use gleaner_scheduling::PolicyName::FragmentAware;
use gleaner_scheduling::{PolicyName, WaitReason};

use super::story::Story;

#[test]
fn preemption_puts_a_replica_back_without_counting() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1"], Farm);
        story.job().max_replicas(1).submits().whatever();
        for attempt in 1..10 {
            story.asks("f1", 1).is([&format!("lease f1 1/0#{attempt}")]);
            story.is_preempted("f1", "1/0").nothing();
        }
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!((job.replicas.released, job.replicas.failed, job.failed), (9, 0, 0));
        assert_eq!(story.facts.len(), 1, "nothing of it is durable");
    }
}

#[test]
fn a_lease_runs_out_at_its_time_and_not_before() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().lease_s(60).submits().whatever();
        story.asks("f1", 1).whatever();
        story.asks("f2", 1).nothing();
        assert_eq!(story.core.next_deadline(), Some(story.now() + Span::from_secs(60)));
        story.advance(Span::from_micros(59_999_999)).nothing();
        story.advance(Span::from_micros(1)).is([
            "abort f1 1/0#1 Expired",
            "persist timed out 1/0 f1",
            "lease f2 1/0#2",
        ]);
        assert_eq!(story.core.next_deadline(), Some(story.now() + Span::from_secs(60)));
        let why = story.core.explain_job(JobId::new(1)).expect("a known job");
        let most = Attempts::default();
        let anew = WaitReason::BegunAnew { replicas: 1, lease_s: 60, most };
        assert!(why.contains(&anew), "{why:?}");
        let workunit = WorkunitId { job: JobId::new(1), index: 0 };
        let why = story.core.explain_workunit(workunit).expect("a known workunit");
        let history = "f1 timed out: it was not done in 60 s".to_owned();
        assert!(why.contains(&WaitReason::Attempts { ended: [0, 1, 0], most, history }), "{why:?}");
        story.reports("f2", "1/0", "x").whatever();
        assert_eq!(story.core.next_deadline(), None);
    }
}

#[test]
fn a_lost_link_keeps_its_leases_for_the_grace_period() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["d1", "d2"], Desktop);
        story.job().lease_s(3600).submits().whatever();
        story.asks("d1", 1).whatever();
        story.asks("d2", 1).nothing();
        story.leaves("d1").is(["disconnected d1"]);
        story.leaves("d1").nothing();
        assert_eq!(story.core.next_deadline(), Some(story.now() + Span::from_secs(120)));
        story.advance(Span::from_secs(119)).nothing();
        story.advance(Span::from_secs(1)).is(["persist lost 1/0 d1", "lease d2 1/0#2"]);
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!(job.replicas.expired, 1);
    }
}

#[test]
fn a_host_that_returns_in_time_keeps_what_it_holds() {
    let mut story = Story::of(FragmentAware);
    story.host("d1", Desktop).slots(2).joins().whatever();
    story.hosts(["d2"], Desktop);
    story.job().workunits(2).submits().whatever();
    story.asks("d1", 2).is(["lease d1 1/0#1", "lease d1 1/1#1"]);
    story.asks("d2", 1).nothing();
    story.leaves("d1").whatever();
    // One of the two was lost on the way; it goes to the one who waits.
    story.returns("d1", &[("1/1", true)]).is([
        "welcome d1 keeps [1/1#1]",
        "connected d1",
        "fragment d1 2",
        "lease d2 1/0#2",
    ]);
    // What is done takes no slot.
    let host = story.core.farm().hosts().next().expect("d1 came first").1;
    assert_eq!((host.leases.len(), host.finished.len()), (0, 1));
    story.advance(Span::from_secs(59)).nothing();
    story.reports("d1", "1/1", "x").is([
        "persist vote 1/1 d1",
        "persist decided 1/1",
        "changed job-1",
        "verdict d1 1/1 Counted",
    ]);
}

#[test]
fn a_host_that_returns_late_keeps_what_nobody_took() {
    let mut story = Story::of(FragmentAware);
    story.host("d1", Desktop).slots(2).joins().whatever();
    story.hosts(["d2"], Desktop);
    story.job().workunits(2).lease_s(3600).submits().whatever();
    story.asks("d1", 2).whatever();
    story.leaves("d1").whatever();
    story.advance(Span::from_secs(120)).is(["persist lost 1/0 d1", "persist lost 1/1 d1"]);
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
    story.returns("d1", &[("1/0", false), ("1/1", false)]).is([
        "welcome d1 keeps [1/1#1]",
        "connected d1",
        "fragment d1 2",
    ]);
    story.reports("d1", "1/0", "x").is(["verdict d1 1/0 OldToken"]);
    story.reports("d1", "1/1", "x").whatever();
}

#[test]
fn a_returning_host_keeps_no_more_than_its_fragment() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(3).joins().whatever();
    story.job().workunits(3).submits().whatever();
    story.asks("f1", 3).whatever();
    story.leaves("f1").whatever();
    story.gives("f1", 1).nothing();
    story.returns("f1", &[("1/0", false), ("1/1", false), ("1/2", true)]).is([
        "welcome f1 keeps [1/2#1 1/0#1]",
        "connected f1",
        "fragment f1 1",
    ]);
}

#[test]
fn a_shrinking_fragment_gives_back_the_youngest() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("f1", Farm).slots(3).joins().whatever();
        story.hosts(["f2"], Farm);
        story.job().workunits(3).submits().whatever();
        story.asks("f1", 3).whatever();
        story.asks("f2", 1).nothing();
        story.gives("f1", 1).is([
            "abort f1 1/2#1 FragmentClosed",
            "abort f1 1/1#1 FragmentClosed",
            "fragment f1 1",
            // The first to come back, or the first of the job.
            if policy == FragmentAware { "lease f2 1/2#2" } else { "lease f2 1/1#2" },
        ]);
        story.gives("f1", 0).is(["abort f1 1/0#1 FragmentClosed", "fragment f1 0"]);
        story.asks("f1", 1).nothing();
        story.releases("f1", "1/0", ReleaseReason::Aborted).nothing();
        let again = story.gives("f1", 1).leases();
        let first = if policy == FragmentAware { "f1 1/1#2" } else { "f1 1/0#2" };
        assert_eq!(again, [first]);
    }
}

#[test]
fn what_is_released_first_is_not_aborted() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(3).joins().whatever();
    story.job().workunits(3).submits().whatever();
    story.asks("f1", 3).whatever();
    story.is_preempted("f1", "1/0").nothing();
    story.gives("f1", 2).is(["fragment f1 2"]);
}

#[test]
fn cancelling_ends_everything_of_a_job() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.host("f1", Farm).slots(2).joins().whatever();
        story.hosts(["f2", "f3"], Farm);
        story.job().workunits(10).replication(2).submits().whatever();
        story.asks("f1", 2).whatever();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
        story.leaves("f2").whatever();
        story.cancels(1).is([
            "persist cancelled job-1",
            "abort f1 1/0#1 Cancelled",
            "abort f1 1/1#1 Cancelled",
            "changed job-1",
            "cancelled: true",
        ]);
        story.cancels(1).is(["cancelled: true"]);
        story.cancels(2).is(["cancelled: false"]);
        story.asks("f3", 1).nothing();
        story.reports("f1", "1/0", "x").is(["verdict f1 1/0 Late"]);
        assert_eq!(story.core.next_deadline(), None);
        assert_eq!((story.core.farm().lease_count(), story.core.farm().open_count()), (0, 0));
        story.returns("f2", &[("1/0", true)]).is([
            "welcome f2 keeps []",
            "connected f2",
            "fragment f2 1",
        ]);
    }
}
