//! Why is my work not running?

use gleaner_protocol::Origin::{Desktop, Farm};
use gleaner_protocol::job::Attempts;
use gleaner_protocol::{HostName, JobId, Span};
use gleaner_scheduling::PolicyName::{FragmentAware, Plain};
use gleaner_scheduling::{ReportedOutcome, WaitReason};

use super::story::{Story, workunit_id};

fn job(story: &Story) -> Vec<String> {
    lines(&story.core.explain_job(JobId::new(1)).expect("a known job"))
}

fn workunit(story: &Story, id: &str) -> Vec<String> {
    lines(&story.core.explain_workunit(workunit_id(id)).expect("a known workunit"))
}

fn lines(reasons: &[WaitReason]) -> Vec<String> {
    reasons.iter().map(|reason| format!("{}: {reason}", reason.code())).collect()
}

#[test]
fn what_is_not_known_is_not_explained() {
    let mut story = Story::of(FragmentAware);
    story.job().submits().whatever();
    assert_eq!(story.core.explain_job(JobId::new(2)), None);
    assert_eq!(story.core.explain_workunit(workunit_id("1/1")), None);
    assert_eq!(story.core.explain_workunit(workunit_id("2/0")), None);
}

#[test]
fn each_thing_that_holds_a_job_up_has_its_reason() {
    let mut story = Story::of(FragmentAware);
    story.job().workunits(2).submits().whatever();
    let no_hosts = "no-hosts: no agent is connected; start one with `gleaner agent`";
    let in_turn = "in-turn: not begun; whoever has used least for its weight comes first (`gleaner shares`), and its jobs in turn";
    assert_eq!(job(&story), [no_hosts, in_turn]);

    story.host("traces", Farm).kernel("trace").joins().whatever();
    let nobody = "nobody-can: none of the 1 connected hosts offers the kernel sum; \
                  none has the kernel";
    assert_eq!(job(&story), [nobody, in_turn]);

    story.job().module(300).submits().whatever();
    let nobody = "nobody-can: none of the 1 connected hosts offers WebAssembly with 512 MiB of memory; \
         none runs WebAssembly";
    assert_eq!(workunit(&story, "2/0"), [nobody, in_turn]);

    story.host("f1", Farm).slots(0).joins().whatever();
    let closed = "fragments-closed: all 1 hosts that can run it are closed: \
                  renders have them, or the quiet period runs";
    assert_eq!(job(&story), [closed, in_turn]);
    story.core.note_closed(&HostName::new("f1").expect("plain"), Some("the farm is stopped"));
    let stopped = "fragments-closed: all 1 hosts that can run it are closed, 1 of them because: \
                   the farm is stopped";
    assert_eq!(job(&story), [stopped, in_turn]);

    story.gives("f1", 1).whatever();
    story.asks("f1", 1).whatever();
    assert_eq!(
        job(&story),
        [
            "running: 1 replicas run now",
            "all-busy: all 1 cores of the 1 hosts that can run it are busy",
        ]
    );
    assert_eq!(
        workunit(&story, "1/1"),
        ["all-busy: all 1 cores of the 1 hosts that can run it are busy", in_turn,]
    );
    story.reports("f1", "1/0", "x").whatever();
    assert_eq!(workunit(&story, "1/0"), ["decided: decided"]);
    story.cancels(1).whatever();
    assert_eq!(job(&story), ["cancelled: the job was cancelled"]);
    assert_eq!(workunit(&story, "1/1"), ["cancelled: the job was cancelled"]);
}

#[test]
fn a_workunit_without_another_voter_on_its_side_says_so() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.hosts(["d1"], Desktop);
    story.job().replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.asks("d1", 1).nothing();
    story.reports("f1", "1/0", "x").whatever();
    let votes = "awaits-votes: 1 of 1 votes agree and 2 must; 1 replicas wait for a host";
    assert_eq!(
        workunit(&story, "1/0"),
        [
            votes,
            "stays-on-side: it stays on the farm side, \
         where no connected host is left that has no replica or vote of it",
        ]
    );
    assert_eq!(job(&story), workunit(&story, "1/0"));
    story.hosts(["f2"], Farm);
    assert_eq!(
        workunit(&story, "1/0"),
        [
            votes,
            "stays-on-side: it stays on the farm side, \
         where 1 more connected hosts may take a replica",
        ]
    );
}

#[test]
fn the_plain_policy_names_its_queue() {
    let mut story = Story::of(Plain);
    story.hosts(["f1"], Farm);
    story.job().replication(2).submits().whatever();
    story.asks("f1", 1).whatever();
    story.advance(Span::from_secs(1)).nothing();
    assert_eq!(
        workunit(&story, "1/0"),
        [
            "running: 1 replicas run now",
            "awaits-votes: 0 of 0 votes agree and 2 must; 1 replicas wait for a host",
            "too-few-voters: 2 hosts of different owners have to agree, and those that can run it \
             are of 1: hosts of one owner have one vote together, and so have those without one \
             (set `owner` in the agents' configuration, or `ownerless_hosts_vote` in the broker's)",
            "all-busy: all 1 cores of the 1 hosts that can run it are busy",
            "first-come-first-served: first come, first served: 1 workunits have replicas waiting",
        ]
    );
}

#[test]
fn an_ended_job_says_so() {
    let mut story = Story::of(FragmentAware);
    story.hosts(["f1"], Farm);
    story.job().submits().whatever();
    story.asks("f1", 1).whatever();
    story.reports("f1", "1/0", "x").whatever();
    assert_eq!(job(&story), ["ended: the job has ended"]);
}

#[test]
fn a_failed_job_names_what_failed_and_why() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(30).joins().whatever();
    let attempts = Attempts { failed: 1, ..Attempts::default() };
    story.job().workunits(30).attempts(attempts).submits().whatever();
    story.asks("f1", 30).whatever();
    let fails = |story: &mut Story, index: u32, why: &str| {
        let lease = story.lease("f1", &format!("1/{index}"));
        let outcome = ReportedOutcome::Failed(why.into());
        story.reports_outcome("f1", lease, outcome).whatever();
    };
    fails(&mut story, 5, "exit code 7");
    let failed = |count: u32, indexes: &str, why: &str| {
        format!(
            "failed-workunits: {count} failed (index {indexes}): 1 attempts failed \
             (attempts.failed is 1): f1 failed: {why}"
        )
    };
    let running = "running: 29 replicas run now";
    assert_eq!(job(&story), [&failed(1, "5", "exit code 7"), running]);
    (8..20).for_each(|index| fails(&mut story, index, "exit code 8"));
    (20..30).for_each(|index| fails(&mut story, index, &format!("exit code {index}")));
    for index in (0..8).filter(|index| *index != 5) {
        story.reports("f1", &format!("1/{index}"), "x").whatever();
    }
    let told = job(&story);
    let twelve = failed(12, "8, 9, 10, 11, 12, 13, 14, 15, 16, 17, …", "exit code 8");
    assert_eq!(told[..3], ["ended: the job has ended", &twelve, &failed(1, "5", "exit code 7")]);
    let more = "failed-workunits: 4 more failed for other reasons; `gleaner fetch` lists all";
    assert_eq!((told.len(), told.last().map(String::as_str)), (10, Some(more)));
}

#[test]
fn who_has_used_more_for_its_weight_is_told_how_many_come_first() {
    let mut story = Story::of(FragmentAware);
    story.host("f1", Farm).slots(1).joins().whatever();
    story.job().owner("ann").submits().whatever();
    story.job().owner("bob").workunits(2).submits().whatever();
    story.asks("f1", 1).is(["lease f1 1/0#1"]);
    story.advance(Span::from_secs(36)).nothing();
    story.job().owner("ann").submits().whatever();
    let told = lines(&story.core.explain_job(JobId::new(3)).expect("a known job"));
    let share = "share: ann has used 0.01 core hours for a weight of 1, and 1 with jobs have used \
                 less for theirs (`gleaner shares`)";
    assert_eq!(told.last().map(String::as_str), Some(share), "{told:?}");
    let told = lines(&story.core.explain_job(JobId::new(2)).expect("a known job"));
    assert!(!told.iter().any(|line| line.starts_with("share:")), "bob is next: {told:?}");
}
