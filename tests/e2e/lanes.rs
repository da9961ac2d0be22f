//! Lanes that share a farm: what is due takes the cores of what is not, which goes on afterwards.

use gleaner_calm::{in_some_awaited_round, within};
use gleaner_protocol::api::{JobState, LaneStatus};
use gleaner_protocol::boottime;
use gleaner_protocol::job::{JobSpec, Lane};
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::marks::{Mark, Marks};
use crate::patience::eventually;
use crate::processes;

/// The same job, due in ten minutes.
fn due(spec: JobSpec) -> JobSpec {
    let mut spec = JobSpec { lane: Lane::Deadline, ..spec };
    spec.profile.due_ms = Some(600_000);
    spec.profile.cpu_us = Some(1_000_000);
    spec
}

/// Two hosts of two cores that are full of background work, and the work that is due.
async fn full() -> (Cluster, Marks, Vec<Mark>, Marks) {
    let cluster = Plan::new().desktops(2).start().await;
    let mut background = cluster.marks();
    cluster.api.submit(&background.job(6, 1)).await;
    let begun = background.take(4);
    let urgent = Marks::named(cluster.folder(), "urgent");
    (cluster, background, begun, urgent)
}

async fn are_frozen(marks: &[Mark], frozen: bool) {
    let what = format!("{} replicas to be frozen: {frozen}", marks.len());
    eventually(&what, async || {
        marks.iter().all(|mark| processes::is_frozen(mark.pid) == frozen).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_due_runs_at_once_and_what_it_displaced_goes_on_where_it_was() {
    let (cluster, background, begun, mut urgent) = full().await;
    let job = cluster.api.submit(&due(urgent.job(3, 1))).await;
    let running = urgent.take(3);
    let frozen = |mark: &&Mark| processes::is_frozen(mark.pid);
    eventually("three to be frozen", async || {
        (begun.iter().filter(frozen).count() == 3).then_some(())
    })
    .await;
    let lanes: Vec<LaneStatus> = cluster.api.get("/v1/lanes").await;
    let held: Vec<_> = lanes.iter().map(|of| (of.lane, of.held_permille, of.parked)).collect();
    assert_eq!(
        held,
        [
            (Lane::Rendering, 0, 0),
            (Lane::Deadline, 3_000, 0),
            (Lane::Dataset, 0, 0),
            (Lane::Batch, 0, 0),
            (Lane::Background, 1_000, 3)
        ]
    );
    urgent.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
    assert!(running.iter().all(|mark| processes::dies(mark.pid)));
    are_frozen(&begun, false).await;
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    assert_eq!(status.state, JobState::Completed);
    let counts = status.replicas;
    assert_eq!((counts.leased, counts.aborted, counts.released, counts.failed), (6, 0, 0, 0));
    assert_eq!(cluster.api.metric("gleaner_parks_total").await, 3.0);
    assert_eq!(cluster.api.metric("gleaner_resumes_total").await, 3.0);
}

#[tokio::test]
async fn a_restart_of_the_broker_or_the_link_forgets_neither_due_times_nor_what_is_parked() {
    let (mut cluster, background, begun, mut urgent) = full().await;
    let job = cluster.api.submit(&due(urgent.job(4, 1))).await;
    urgent.take(4);
    are_frozen(&begun, true).await;
    let before = cluster.api.job(job).await;
    assert!(before.due_ms.is_some());
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.are_connected().await;
    let after = cluster.api.job(job).await;
    assert_eq!((after.due_ms, after.lane), (before.due_ms, Lane::Deadline));
    are_frozen(&begun, true).await;
    urgent.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
    are_frozen(&begun, false).await;
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    assert_eq!((status.state, status.decided), (JobState::Completed, 6));
}

#[tokio::test]
async fn a_render_takes_its_cores_from_what_is_due_and_from_what_is_parked() {
    let mut cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let mut background = cluster.marks();
    cluster.api.submit(&background.job(4, 1)).await;
    let begun = background.take(2);
    let mut urgent = Marks::named(cluster.folder(), "urgent");
    let job = cluster.api.submit(&due(urgent.job(2, 1))).await;
    let running = urgent.take(2);
    are_frozen(&begun, true).await;
    let host = &cluster["farm1"];
    host.preflight("render-1").run();
    host.is_idle().await;
    assert!(
        begun
            .iter()
            .chain(&running)
            .all(|mark| processes::is_frozen(mark.pid) || !processes::lives(mark.pid))
    );
    host.postflight("render-1").run();
    // What was driven out begins anew, before background gets anything.
    urgent.take(2);
    urgent.go();
    assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    assert_eq!((status.state, status.replicas.failed), (JobState::Completed, 0));
    cluster.are_connected().await;
}

#[tokio::test]
async fn a_submitter_is_told_what_is_promised_and_what_cannot_be() {
    let (cluster, background, _, mut urgent) = full().await;
    let folder = cluster.folder().join("urgent");
    let folder = folder.to_str().expect("a plain path");
    let spin = r#"echo "$$ $PWD" > "$1/$GLEANER_INDEX.$$"; while [ ! -e "$1/go" ]; do :; done"#;
    let submit = |options: &[&str]| {
        let program = ["--", "/bin/sh", "-c", spin, "spin", folder];
        cluster.cli(&[&["submit", "command"], options, &program].concat())
    };
    let answer: Value =
        submit(&["--due", "10m", "--cpu-s", "5", "--count", "2", "--format", "json"]).json();
    assert_eq!(answer["job"], 2, "{answer}");
    assert!(answer["chance"].as_f64().is_some_and(|chance| chance >= 0.9), "{answer}");
    assert_eq!(answer["confidence"], 0.9);
    let [due, end] = ["due", "expected_end"].map(|key| answer[key].as_str().expect("a time"));
    assert!(end < due && due.ends_with('Z'), "{answer}");
    urgent.take(2);

    let declined = submit(&["--due", "10s", "--cpu-s", "60", "--count", "9", "--format", "json"]);
    assert_eq!(declined.code, Some(8), "{declined}");
    let answer: Value = serde_json::from_str(&declined.stdout).expect("JSON");
    let why = answer["declined"].as_str().expect("words");
    assert!(why.contains("the chance that its 9 workunits are done by then is 0 %"), "{why}");
    assert!(answer["earliest_due"].as_str().is_some_and(|due| due.ends_with('Z')), "{answer}");
    let declined = submit(&["--due", "10s", "--cpu-s", "60"]);
    declined.refused(8, &["declined: the job is not accepted", "4 cores are given now"]);
    submit(&["--due", "1h"]).refused(8, &["nothing is known of how long", "--cpu-s"]);
    submit(&["--due", "1h", "--cpu-s", "1", "--replication", "2"]).refused(8, &["one replica"]);
    submit(&["--due", "2020-01-01 12:00", "--cpu-s", "1"]).refused(2, &["is past"]);
    submit(&["--due", "tomorrow", "--cpu-s", "1"]).refused(2, &["expected a span as in 45m"]);
    submit(&["--due", "1h", "--cpu-s=-3"]).refused(2, &["--cpu-s"]);
    submit(&["--confidence", "0.9"]).refused(2, &["--due"]);
    submit(&["--lane", "rendering"]).refused(5, &["the rendering lane draws volumes"]);
    submit(&["--lane", "deadline", "--cpu-s", "1"]).refused(8, &["needs a due time"]);

    let lanes = cluster.cli(&["lanes"]).ok();
    let deadline = lanes.lines().find(|line| line.contains("deadline")).expect("a line");
    let words: Vec<_> = deadline.split_whitespace().collect();
    assert_eq!(words[..6], ["deadline", "gleaner", "1", "2", "4", "0"], "{lanes}");
    let told = cluster.cli(&["explain", "job-1"]).ok();
    assert!(told.contains("2 of its replicas stand still on their hosts"), "{told}");
    assert!(told.contains("the deadline lane, which comes before its own, holds 2 of 4"), "{told}");
    let jobs = cluster.cli(&["jobs"]).ok();
    assert!(jobs.lines().any(|line| line.contains("job-2") && line.contains("deadline")), "{jobs}");
    urgent.go();
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    assert_eq!(status.state, JobState::Completed);
}

#[tokio::test]
async fn what_is_due_runs_within_a_tenth_of_a_second_of_its_answer() {
    let cluster = Plan::new().desktops(4).measuring().start().await;
    let mut background = cluster.marks();
    cluster.api.submit(&background.job(16, 1)).await;
    background.take(8);
    let mut round = 0;
    in_some_awaited_round(async || {
        round += 1;
        let mut urgent = Marks::named(cluster.folder(), &format!("urgent-{round}"));
        let job = cluster.api.submit(&due(urgent.job(4, 1))).await;
        let answered = boottime();
        urgent.take(4);
        let took_ms = boottime().since(answered).as_secs_f64() * 1e3;
        urgent.go();
        assert_eq!(cluster.api.until_ended(job).await.state, JobState::Completed);
        within("ms from the answer until four due tasks run", took_ms, 100.0)
    })
    .await;
    background.go();
    let status = cluster.api.until_ended(gleaner_protocol::JobId::new(1)).await;
    let counts = status.replicas;
    assert_eq!((status.state, counts.leased, counts.aborted), (JobState::Completed, 16, 0));
}
