//! Attempts without an output: counted by their cause, and a workunit fails when they are used up.

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Attempts;
use gleaner_protocol::{HostName, JobId, Span};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{Core, CoreConfig, Input};

use super::story::Story;

fn reason(core: &Core) -> String {
    let job = core.farm().job(JobId::new(1)).expect("a job of the story");
    job.ended.failure(0).expect("it was given up").to_owned()
}

#[test]
fn a_hang_repeats_as_often_as_it_may_and_not_for_ever() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1"], Farm);
        story.job().attempts(Attempts { timed_out: 2, ..Attempts::default() }).submits().whatever();
        story.asks("f1", 1).is(["lease f1 1/0#1"]);
        story
            .advance(Span::from_secs(60))
            .is(["abort f1 1/0#1 Expired", "persist timed out 1/0 f1"]);
        story.asks("f1", 1).is(["lease f1 1/0#2"]);
        story.advance(Span::from_secs(60)).is([
            "abort f1 1/0#2 Expired",
            "persist timed out 1/0 f1",
            "persist given-up 1/0",
            "changed job-1",
        ]);
        assert_eq!(
            reason(&story.core),
            "2 attempts were not done in time (attempts.timed_out is 2): \
             f1 timed out 2 times: it was not done in 60 s"
        );
    }
}

#[test]
fn a_host_that_is_lost_with_it_counts_and_one_that_starts_again_without_it() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1", "d2"], Desktop);
    let attempts = Attempts { lost: 2, ..Attempts::default() };
    story.job().attempts(attempts).lease_s(3_600).submits().whatever();
    story.asks("d1", 1).whatever();
    story.leaves("d1").whatever();
    story.advance(Span::from_secs(120)).is(["persist lost 1/0 d1"]);
    story.asks("d2", 1).is(["lease d2 1/0#2"]);
    story.starts_again("d2").begins([
        "persist lost 1/0 d2".to_owned(),
        "persist given-up 1/0".to_owned(),
        "changed job-1".to_owned(),
    ]);
    assert_eq!(
        reason(&story.core),
        "2 attempts were lost with their hosts (attempts.lost is 2): \
         d1 lost: its host was not heard of for too long; d2 lost: its agent started again without it"
    );
}

/// A render that comes while the link is down is not told of: the agent just holds less.
#[test]
fn what_the_same_agent_no_longer_holds_is_no_attempt() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["d1"], Desktop);
    let attempts = Attempts { failed: 1, timed_out: 1, lost: 1 };
    story.job().attempts(attempts).lease_s(3_600).submits().whatever();
    for _ in 0..3 {
        story.asks("d1", 1).whatever();
        story.leaves("d1").whatever();
        story.returns("d1", &[]).whatever();
    }
    assert_eq!(story.facts.len(), 1, "only the job is durable");
}

#[test]
fn what_a_render_does_is_no_attempt() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    let attempts = Attempts { failed: 1, timed_out: 1, lost: 1 };
    story.job().attempts(attempts).submits().whatever();
    story.asks("f1", 1).whatever();
    story.releases("f1", "1/0", ReleaseReason::FragmentClosed).nothing();
    story.asks("f1", 1).whatever();
    story.is_preempted("f1", "1/0").nothing();
    // Nor that it stands still until its lease has run out.
    story.asks("f1", 1).whatever();
    let (host, token) = (HostName::new("f1").expect("plain"), story.lease("f1", "1/0").token);
    story.feed(Input::Frozen { host, token, frozen: true }).nothing();
    story.advance(Span::from_secs(60)).is(["abort f1 1/0#3 Expired"]);
    assert_eq!(story.facts.len(), 1, "only the job is durable");
}

#[test]
fn others_try_it_first_and_when_all_have_it_is_tried_again() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().attempts(Attempts { failed: 4, ..Attempts::default() }).submits().whatever();
        story.asks("f1", 1).whatever();
        story.fails("f1", "1/0").whatever();
        story.advance(Span::from_secs(60)).nothing();
        story.asks("f1", 1).nothing();
        story.asks("f2", 1).is(["lease f2 1/0#2"]);
        // Nobody else is left, and both have failed it: it is the job's fault, and nobody backs off.
        story.fails("f2", "1/0").is([
            "persist failed 1/0 f2",
            "verdict f2 1/0 Counted",
            "lease f1 1/0#3",
        ]);
        story.fails("f1", "1/0").whatever();
        story.asks("f2", 1).is(["lease f2 1/0#4"]);
        story.fails("f2", "1/0").is([
            "persist failed 1/0 f2",
            "persist given-up 1/0",
            "changed job-1",
            "verdict f2 1/0 Counted",
        ]);
        assert_eq!(
            reason(&story.core),
            "4 attempts failed (attempts.failed is 4): \
             f1 failed 2 times: no memory; f2 failed 2 times: no memory"
        );
    }
}

#[test]
fn when_the_others_have_gone_who_failed_it_tries_it_again() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2"], Farm);
        story.job().submits().whatever();
        story.asks("f1", 1).whatever();
        story.fails("f1", "1/0").whatever();
        story.advance(Span::from_secs(60)).nothing();
        story.asks("f1", 1).nothing();
        story.leaves("f2").is(["disconnected f2", "lease f1 1/0#2"]);
    }
}

#[test]
fn who_has_been_closed_for_a_day_is_not_waited_for() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    story.gives("f2", 0).whatever();
    story.fails("f1", "1/0").whatever();
    story.advance(Span::from_secs(3_600)).nothing();
    story.asks("f1", 1).nothing();
    story.advance(Span::from_secs(86_400)).nothing();
    story.asks("f1", 1).nothing();
    story.gives("f1", 0).whatever();
    story.gives("f1", 1).is(["fragment f1 1", "lease f1 1/0#2"]);
}

#[test]
fn attempts_and_their_words_survive_a_restart_and_a_snapshot() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1", "f2", "f3"], Farm);
        let attempts = Attempts { failed: 3, timed_out: 2, lost: 2 };
        story.job().attempts(attempts).submits().whatever();
        story.asks("f1", 1).whatever();
        story.fails("f1", "1/0").whatever();
        story.asks("f2", 1).whatever();
        story.advance(Span::from_secs(60)).whatever();
        let facts: Vec<_> = story.core.facts().collect();
        let mut core = Core::new(&CoreConfig::background(policy));
        for fact in facts.clone() {
            core.restore(fact).expect("a snapshot restores");
        }
        assert_eq!(core.facts().collect::<Vec<_>>(), facts);

        story.restarts().nothing();
        for host in ["f1", "f2", "f3"] {
            story.returns(host, &[]).whatever();
        }
        // Each has tried it, f3 not.
        story.asks("f1", 1).nothing();
        story.asks("f3", 1).whatever();
        story.advance(Span::from_secs(60)).is([
            "abort f3 1/0#2 Expired",
            "persist timed out 1/0 f3",
            "persist given-up 1/0",
            "changed job-1",
        ]);
        assert_eq!(
            reason(&story.core),
            "2 attempts were not done in time (attempts.timed_out is 2): f1 failed: no memory; \
             f2 timed out: it was not done in 60 s; f3 timed out: it was not done in 60 s"
        );
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!((job.replicas.failed, job.replicas.expired), (1, 2));
    }
}

/// A broker that dies between two facts of one input.
#[test]
fn used_up_attempts_are_given_up_after_a_restart() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().attempts(Attempts { failed: 1, ..Attempts::default() }).submits().whatever();
    story.asks("f1", 1).whatever();
    story.fails("f1", "1/0").whatever();
    story.restarts_from(2).is(["persist given-up 1/0", "changed job-1"]);
}
