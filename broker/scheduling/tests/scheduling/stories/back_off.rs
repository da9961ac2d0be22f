//! Hosts that fail or refuse what others can do, and jobs that nobody can.

use gleaner_protocol::Origin::Farm;
use gleaner_protocol::control::ReleaseReason;
use gleaner_protocol::job::Attempts;
use gleaner_protocol::{JobId, Span};
use gleaner_scheduling::PolicyName::{self, FragmentAware};
use gleaner_scheduling::{Core, Host, ReportedOutcome};

use super::story::Story;

const BAD: [&str; 3] = ["bad1", "bad2", "bad3"];

fn known<'a>(core: &'a Core, name: &str) -> &'a Host {
    core.farm().hosts().find(|(_, host)| host.info.name.as_str() == name).expect("known").1
}

fn given(core: &Core, host: &str) -> Option<String> {
    let lease = known(core, host).leases.first()?;
    let id = core.farm().workunit(lease.workunit).id;
    Some(format!("{}/{}", id.job.get(), id.index))
}

/// What a host does with what it is given.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Fails,
    Refuses,
}

fn does(story: &mut Story, host: &str, workunit: &str, what: Does) {
    match what {
        Does::Fails => {
            let (lease, why) = (story.lease(host, workunit), "exit code 127".to_owned());
            story.reports_outcome(host, lease, ReportedOutcome::Failed(why)).whatever();
        }
        Does::Refuses => {
            let why = ReleaseReason::CannotRun("it is not allowed".into());
            story.releases(host, workunit, why).whatever();
        }
    }
}

/// Three hosts do that at once with all they get, an honest one takes a second for each workunit;
/// until the job has ended, or so many seconds.
fn black_holes(policy: PolicyName, workunits: u32, what: Does) -> Story {
    let mut story = Story::of(policy);
    story.hosts([BAD[0], BAD[1], BAD[2], "good"], Farm);
    story.job().workunits(workunits).lease_s(3_600).submits().whatever();
    for _ in 0..workunits + 60 {
        for bad in BAD {
            story.asks(bad, 1).whatever();
            while let Some(workunit) = given(&story.core, bad) {
                does(&mut story, bad, &workunit, what);
                story.asks(bad, 1).whatever();
            }
        }
        story.asks("good", 1).whatever();
        story.advance(Span::from_secs(1)).whatever();
        if let Some(workunit) = given(&story.core, "good") {
            story.reports("good", &workunit, "x").whatever();
        }
    }
    story
}

#[test]
fn three_hosts_that_fail_all_lose_nothing_beside_an_honest_one() {
    let story = black_holes(FragmentAware, 2_000, Does::Fails);
    let job = story.core.farm().jobs().next().expect("one job").status();
    assert!(job.failed <= 10, "{} of 2,000 were given up", job.failed);
    assert_eq!((job.decided, job.failed), (2_000, 0));
    // 1 + 2 + 4 + … seconds: in 2,000 s each fails eleven times, not 2,000 times.
    assert!(job.replicas.failed <= 3 * 12, "{} failures", job.replicas.failed);
    for policy in PolicyName::ALL {
        let story = black_holes(policy, 100, Does::Fails);
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!((job.decided, job.failed), (100, 0), "{policy}");
    }
}

/// Its attempts are used up, on more than one host: that was the job's fault.
#[test]
fn hosts_on_which_one_workunit_failed_for_good_are_not_held_up_by_it() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2", "f3"], Farm);
    let attempts = Attempts { failed: 2, ..Attempts::default() };
    story.job().attempts(attempts).submits().whatever();
    for host in ["f1", "f2"] {
        story.asks(host, 1).whatever();
        does(&mut story, host, "1/0", Does::Fails);
    }
    assert_eq!(story.core.farm().jobs().next().expect("known").status().failed, 1);
    story.job().workunits(2).submits().whatever();
    for host in ["f1", "f2"] {
        story.asks(host, 1).whatever();
        assert!(given(&story.core, host).is_some(), "{host} backs off from the next job");
    }
}

#[test]
fn three_hosts_that_refuse_all_lose_nothing_beside_an_honest_one() {
    for policy in PolicyName::ALL {
        let workunits = if policy == FragmentAware { 2_000 } else { 100 };
        let story = black_holes(policy, workunits, Does::Refuses);
        let job = story.core.farm().jobs().next().expect("one job").status();
        assert_eq!((job.decided, job.failed), (workunits, 0), "{policy}");
        assert!(job.replicas.released <= 3 * 12, "{} refusals", job.replicas.released);
    }
}

/// A job that fails everywhere, or that everybody refuses, beside one that asks for the same and
/// goes well.
#[test]
fn a_job_that_nobody_can_do_does_not_take_the_farm_from_others() {
    for policy in PolicyName::ALL {
        for what in [Does::Fails, Does::Refuses] {
            let hosts = ["f1", "f2", "f3", "f4"];
            let mut story = Story::of(policy);
            story.hosts(hosts, Farm);
            story.job().owner("ann").workunits(40).lease_s(3_600).submits().whatever();
            story.job().owner("bob").workunits(40).lease_s(3_600).submits().whatever();
            let state = |story: &Story, job| {
                story.core.farm().job(JobId::new(job)).expect("known").status()
            };
            let mut seconds = 0;
            while state(&story, 2).decided < 40 {
                for host in hosts {
                    story.asks(host, 1).whatever();
                    while let Some(workunit) = given(&story.core, host)
                        && workunit.starts_with("1/")
                    {
                        does(&mut story, host, &workunit, what);
                        story.asks(host, 1).whatever();
                    }
                }
                story.advance(Span::from_secs(1)).whatever();
                for host in hosts {
                    if let Some(workunit) =
                        given(&story.core, host).filter(|of| of.starts_with("2/"))
                    {
                        story.reports(host, &workunit, "x").whatever();
                    }
                }
                seconds += 1;
                assert!(seconds < 300, "{policy}: bob's job waits for ann's");
            }
            let ann = state(&story, 1);
            match what {
                Does::Fails => assert!(ann.failed > 0, "{policy}: ann is told of nothing"),
                Does::Refuses => assert_eq!((ann.failed, ann.replicas.failed), (0, 0)),
            }
        }
    }
}

/// On the only host there is nobody else who could do better: nothing waits.
#[test]
fn a_job_that_fails_on_the_only_host_fails_at_once() {
    for policy in PolicyName::ALL {
        let mut story = Story::of(policy);
        story.hosts(["f1"], Farm);
        let attempts = Attempts { failed: 3, ..Attempts::default() };
        story.job().workunits(4).attempts(attempts).submits().whatever();
        for _ in 0..12 {
            story.asks("f1", 1).whatever();
            let workunit = given(&story.core, "f1").expect("it is tried again at once");
            does(&mut story, "f1", &workunit, Does::Fails);
        }
        assert_eq!(story.core.farm().jobs().next().expect("one job").status().failed, 4);
    }
}

#[test]
fn the_first_success_ends_it() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(3).joins().whatever();
    story.hosts(["f2"], Farm);
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 2).is(["lease f1 1/0#1", "lease f1 1/1#1"]);
    story.fails("f1", "1/0").whatever();
    story.asks("f1", 1).nothing();
    let backs_off = |story: &Story| known(&story.core, "f1").backoffs.iter().any(|of| of.is_on);
    assert!(backs_off(&story));
    let leases = story.reports("f1", "1/1", "x").leases();
    assert_eq!(leases, ["f1 1/2#1"], "its request stood");
    assert!(!backs_off(&story));
    story.fails("f1", "1/2").whatever();
    let [of] = &known(&story.core, "f1").backoffs[..] else { panic!("one back-off") };
    assert_eq!((of.in_a_row, of.until), (1, story.now() + Span::from_secs(1)));
}

#[test]
fn who_connects_again_backs_off_still() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 1).whatever();
    story.fails("f1", "1/0").whatever();
    story.starts_again("f1").whatever();
    story.asks("f1", 1).nothing();
    story.advance(Span::from_secs(1)).is(["lease f1 1/1#1"]);
}

#[test]
fn trouble_of_the_host_is_never_held_against_the_job() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    for doubled in 0..4 {
        story.asks("f1", 1).whatever();
        let full = ReleaseReason::HostTrouble("No space left on device".into());
        story.releases("f1", "1/0", full).nothing();
        let [of] = &known(&story.core, "f1").backoffs[..] else { panic!("one back-off") };
        assert_eq!(of.until, story.now() + Span::from_secs(1 << doubled));
        story.advance(Span::from_secs(1 << doubled)).whatever();
    }
    let job = story.core.farm().jobs().next().expect("one job").status();
    assert_eq!((job.failed, job.replicas.failed), (0, 0));
}

#[test]
fn explain_and_the_list_of_hosts_say_who_backs_off_from_what() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1", "f2"], Farm);
    story.job().workunits(9).submits().whatever();
    story.asks("f1", 1).whatever();
    let why = ReleaseReason::CannotRun("it is not allowed".into());
    story.releases("f1", "1/0", why).nothing();
    let told = story.core.explain_job(JobId::new(1)).expect("known");
    let told: Vec<_> = told.iter().map(|of| format!("{}: {of}", of.code())).collect();
    assert_eq!(
        told[..2],
        [
            "backing-off: 1 of 2 hosts back off from the kernel sum, since it failed or was refused \
             there; f1 gets some again in 1 s, the last time: it is not allowed",
            "refused: hosts refused it, and nobody has done it since; f1 was the last: it is not \
             allowed",
        ]
    );
    let farm = story.core.farm();
    let listed: Vec<_> = farm.backoffs(known(&story.core, "f1")).collect();
    let [(what, of, left)] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((what.as_str(), of.in_a_row, *left), ("the kernel sum", 1, Span::from_secs(1)));
    assert_eq!(farm.backoffs(known(&story.core, "f2")).count(), 0);
}
