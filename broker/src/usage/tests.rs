use std::fs;

use gleaner_protocol::api::{HistoryBy, ReplicaOutcome, UsageBy};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Digest, HostName, JobId, OwnerName, WorkunitId};

use super::*;

/// A replica of a job of an owner, which had a core for so many seconds; with an output it counts.
fn ended(job: u64, owner: &str, host: &str, seconds: u64, output: Option<&str>) -> UsageRecord {
    UsageRecord::Ended(EndedReplica {
        job: JobId::new(job),
        index: 0,
        owner: OwnerName::new(owner).expect("a plain name"),
        project: None,
        host: HostName::new(host).expect("a plain name"),
        host_owner: None,
        lane: Lane::Background,
        began_ms: 1_000_000,
        ended_ms: 1_000_000 + seconds * 1_000,
        slot_us: seconds * 1_000_000,
        cpu_us: seconds * 500_000,
        peak_memory_mib: Some(7),
        outcome: output.map_or(ReplicaOutcome::Preempted, |_| ReplicaOutcome::Counted),
        output: output.map(|output| OutputMark::of(Digest::of(output.as_bytes()))),
    })
}

fn decided(job: u64, output: &str) -> UsageRecord {
    let workunit = WorkunitId { job: JobId::new(job), index: 0 };
    let fact = Fact::Decided { workunit, digest: Digest::of(output.as_bytes()) };
    decision(&fact).expect("it is one")
}

fn by(by: UsageBy) -> UsageQuery {
    UsageQuery { by, each: None, within_ms: 0..u64::MAX, of: None }
}

/// Of each row its name, replicas, accepted ones, and seconds occupied and charged.
async fn rows(usage: &Usage, query: UsageQuery) -> Vec<(String, u64, u64, f64, f64)> {
    let rows = usage.sum(query).await.expect("summed");
    let row = |row: UsageRow| {
        assert_eq!((row.project, row.gpu_s, row.cpu_s), (None, 0.0, row.slot_s / 2.0));
        let names = [
            row.owner.map(|owner| owner.to_string()),
            row.job.map(|job| job.to_string()),
            row.host.map(|host| host.to_string()),
            row.outcome.map(|outcome| outcome.as_str().to_owned()),
        ];
        let mut names = names.into_iter().flatten();
        let name = names.next().expect("it is of something");
        assert_eq!(names.next(), None);
        (name, row.replicas, row.accepted, row.slot_s, row.charged_s)
    };
    rows.into_iter().map(row).collect()
}

#[tokio::test]
async fn charged_is_what_agreed_with_the_accepted_output_before_and_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (usage, writer) = start(folder.path(), 0).expect("it starts");
    assert_eq!(rows(&usage, by(UsageBy::Owner)).await, []);
    usage.add(vec![
        ended(1, "eve", "a", 5, Some("right")),
        ended(1, "eve", "b", 7, Some("wrong")),
        ended(2, "bob", "a", 3, Some("of a job that is cancelled")),
    ]);
    usage.add(vec![ended(1, "eve", "c", 1, None), ended(1, "eve", "c", 9, Some("right"))]);
    let before = [("bob".to_owned(), 1, 0, 3.0, 0.0), ("eve".to_owned(), 4, 0, 22.0, 0.0)];
    assert_eq!(rows(&usage, by(UsageBy::Owner)).await, before);
    writer.end();
    assert!(usage.sum(by(UsageBy::Owner)).await.is_err(), "it has ended");
    let (usage, writer) = start(folder.path(), 0).expect("it starts");
    usage.add(vec![decided(1, "right"), decided(3, "nobody's")]);
    let owners = rows(&usage, by(UsageBy::Owner)).await;
    assert_eq!(owners, [before[0].clone(), ("eve".to_owned(), 4, 2, 22.0, 14.0)]);
    let jobs = rows(&usage, by(UsageBy::Job)).await;
    assert_eq!(jobs[0], ("job-1".to_owned(), 4, 2, 22.0, 14.0));
    assert_eq!(jobs[1], ("job-2".to_owned(), 1, 0, 3.0, 0.0));
    let hosts = rows(&usage, by(UsageBy::Host)).await;
    assert_eq!(hosts[0], ("a".to_owned(), 2, 1, 8.0, 5.0));
    assert_eq!(hosts[1], ("b".to_owned(), 1, 0, 7.0, 0.0));
    assert_eq!(hosts[2], ("c".to_owned(), 2, 1, 10.0, 9.0));
    let outcomes = rows(&usage, by(UsageBy::Outcome)).await;
    assert_eq!(outcomes[0], ("counted".to_owned(), 4, 2, 24.0, 14.0));
    assert_eq!(outcomes[1], ("preempted".to_owned(), 1, 0, 1.0, 0.0));
    writer.end();
}

#[tokio::test]
async fn a_time_has_what_ended_in_it_whenever_it_was_decided() {
    let folder = tempfile::tempdir().expect("a folder");
    let (usage, writer) = start(folder.path(), 0).expect("it starts");
    usage.add(vec![
        ended(1, "eve", "a", 5, Some("right")),
        ended(1, "eve", "b", 7, Some("right")),
        decided(1, "right"),
    ]);
    let within = |within_ms| UsageQuery { within_ms, ..by(UsageBy::Host) };
    let of_a = ("a".to_owned(), 1, 1, 5.0, 5.0);
    assert_eq!(rows(&usage, within(1_005_000..1_007_000)).await, [of_a]);
    assert_eq!(rows(&usage, within(1_007_001..u64::MAX)).await, []);
    usage.add(vec![ended(2, "bob", "a", 25, None)]);
    let each = UsageQuery { each: Some(HistoryBy::Minute), ..by(UsageBy::Owner) };
    let minutes = usage.sum(each).await.expect("summed");
    let of = |row: &UsageRow| {
        (row.start_ms, row.owner.as_ref().map(OwnerName::to_string), row.replicas, row.accepted)
    };
    let eve = (Some(960_000), Some("eve".to_owned()), 2, 2);
    let bob = (Some(1_020_000), Some("bob".to_owned()), 1, 0);
    assert_eq!(minutes.iter().map(of).collect::<Vec<_>>(), [eve, bob]);
    // What one took that the broker had ended is told later, and counts where it ended.
    let UsageRecord::Ended(late) = ended(1, "eve", "a", 5, None) else { unreachable!("it is one") };
    let took = |ended_ms| EndedReplica { cpu_us: 2_000_000, ended_ms, ..late.clone() };
    usage.add([late.ended_ms, 1].map(|at| UsageRecord::Took(took(at))).to_vec());
    let of_a = &usage.sum(within(1_005_000..1_007_000)).await.expect("summed")[0];
    assert_eq!((of_a.replicas, of_a.slot_s, of_a.cpu_s), (1, 5.0, 2.5 + 2.0));
    writer.end();
}

#[tokio::test]
async fn a_full_disk_gets_nothing_and_what_waits_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let (usage, writer) = start(folder.path(), u64::MAX).expect("it starts");
    usage.add(vec![ended(1, "eve", "a", 5, None)]);
    assert_eq!(rows(&usage, by(UsageBy::Owner)).await, []);
    writer.end();
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 0);
    let space = FreeSpace::new(folder.path(), u64::MAX);
    let segments = Segments::open(folder.path(), Bounds::default(), 0).expect("opened").0;
    let waiting = VecDeque::new();
    let mut recorder = Recorder { segments: Some(segments), space, waiting, has_failed: false };
    let many = vec![decided(1, "right"); USAGE_WAITING_MAX - 1];
    recorder.take(many.clone());
    recorder.take(many);
    assert_eq!(recorder.waiting.len(), USAGE_WAITING_MAX);
    recorder.space = FreeSpace::new(folder.path(), 0);
    recorder.write();
    assert!(recorder.waiting.is_empty(), "there is space again");
}

#[tokio::test]
async fn who_agrees_earns_the_same_and_nothing_by_own_jobs_or_by_saying_much() {
    let folder = tempfile::tempdir().expect("a folder");
    let (usage, writer) = start(folder.path(), 0).expect("it starts");
    let vote = |host: &str, host_owner: Option<&str>, seconds: u64, cpu_s: u64, output: &str| {
        let UsageRecord::Ended(mut ended) = ended(1, "eve", host, seconds, Some(output)) else {
            unreachable!("one that has ended")
        };
        ended.cpu_us = cpu_s * 1_000_000;
        ended.host_owner = host_owner.map(|owner| OwnerName::new(owner).expect("a plain name"));
        UsageRecord::Ended(ended)
    };
    usage.add(vec![
        vote("a", Some("ann"), 9, 900, "right"),
        vote("b", Some("ben"), 8, 6, "right"),
        vote("c", Some("eve"), 8, 7, "right"),
        vote("d", Some("dan"), 8, 5, "wrong"),
        decided(1, "right"),
    ]);
    let credit = async |query| -> Vec<(Option<String>, f64)> {
        let rows: Vec<UsageRow> = usage.sum(query).await.expect("summed");
        let name = |row: &UsageRow| row.host_owner.as_ref().map(ToString::to_string);
        rows.iter().map(|row| (name(row), row.credit_s)).collect()
    };
    let name = |name: &str| Some(name.to_owned());
    let all = [(name("ann"), 6.0), (name("ben"), 6.0), (name("dan"), 0.0), (name("eve"), 0.0)];
    assert_eq!(credit(by(UsageBy::HostOwner)).await, all);
    let ann = Whose::Hosts(OwnerName::new("ann").expect("a plain name"));
    let mine = UsageQuery { of: Some(ann), ..by(UsageBy::HostOwner) };
    assert_eq!(credit(mine).await, [(name("ann"), 6.0)], "what others took counts all the same");
    writer.end();
}
