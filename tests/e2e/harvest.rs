//! The main job: idle cores of farm and desktops do work, votes decide it, renders come first.

use std::collections::BTreeSet;

use gleaner_calm::{in_some_awaited_round, too_slow};
use gleaner_protocol::api::{JobState, JobStatus, ResultState};
use gleaner_protocol::{JobId, Origin, Span, boottime};
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::patience::{eventually, let_pass};
use crate::processes;

/// Positions with their published counts of move paths.
const POSITIONS: [(&str, u8, u64); 3] = [
    ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", 5, 4_865_609),
    ("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", 4, 4_085_603),
    ("8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", 5, 674_624),
];

fn submit_position(cluster: &Cluster, fen: &str, depth: u8) -> JobId {
    let depth = depth.to_string();
    let submitted: Value = cluster
        .cli(&[
            "submit",
            "gametree",
            "--fen",
            fen,
            "--depth",
            &depth,
            "--replication",
            "3",
            "--quorum",
            "2",
            "--format",
            "json",
        ])
        .json();
    JobId::new(submitted["job"].as_u64().expect("a number"))
}

#[tokio::test]
async fn farm_and_desktops_agree_on_the_published_counts() {
    let cluster = Plan::new().farm(3).desktops(3).start().await;
    cluster.are_open().await;
    let jobs = POSITIONS.map(|(fen, depth, _)| submit_position(&cluster, fen, depth));
    for (job, (fen, depth, count)) in jobs.into_iter().zip(POSITIONS) {
        let id = job.to_string();
        let waited: Vec<JobStatus> =
            cluster.cli(&["wait", &id, "--timeout", "60", "--format", "json"]).json();
        assert_eq!(waited[0].state, JobState::Completed, "{waited:?}");
        let sum: Value = cluster.cli(&["fetch", &id, "--sum", "--format", "json"]).json();
        assert_eq!(sum["sum"], count.to_string(), "{fen} at depth {depth}");
        assert_eq!(sum["complete"], true);
        assert_eq!(waited[0].replicas.disagreed, 0);
    }
    let hosts = cluster.api.hosts().await;
    let sides: BTreeSet<Origin> =
        hosts.iter().filter(|host| host.reported > 0).map(|host| host.origin).collect();
    assert_eq!(sides.len(), 2, "both sides take part: {hosts:?}");
    assert!(hosts.iter().all(|host| host.disagreed == 0));
}

#[tokio::test]
async fn a_kernel_stops_before_the_hook_returns_and_starts_over_elsewhere() {
    let cluster = Plan::new().farm(2).start().await;
    cluster.are_open().await;
    // Far more than this test has time for.
    let submit = ["submit", "gametree", "--depth", "9"];
    assert_eq!(cluster.cli(&submit).ok(), "job-1\n");
    let (host, other) = (&cluster["farm1"], &cluster["farm2"]);
    for host in [host, other] {
        eventually("both cores to compute", async || (host.slots_computing() == 2).then_some(()))
            .await;
    }
    let workers = host.workers();
    host.preflight("shot:1").run();
    let left = processes::computing(&workers);
    assert!(left.is_empty(), "{left:?}");
    cluster.api.until_cores("farm1", 0).await;
    let_pass(cluster.quiet().times(2)).await;
    assert!(processes::computing(&workers).is_empty(), "during the render nothing runs");
    host.is_idle().await;
    assert_eq!(other.slots_computing(), 2, "the other host is not concerned");
    host.postflight("shot:1").run();
    eventually("it to compute again", async || (host.slots_computing() == 2).then_some(())).await;
    let status = cluster.api.job(JobId::new(1)).await;
    assert_eq!((status.replicas.released, status.pending), (2, 4), "{status:?}");
}

#[tokio::test]
async fn a_farm_host_runs_nothing_before_its_quiet_period_is_over() {
    in_some_awaited_round(async || waits_for_its_quiet_period().await).await;
}

/// An error where this machine was so slow that the host was quiet for long enough between renders.
async fn waits_for_its_quiet_period() -> Result<(), String> {
    let quiet = Span::from_secs(3);
    let begun = boottime();
    let cluster = Plan::new().farm(1).quiet(quiet).start().await;
    let host = &cluster["farm1"];
    let mut events = cluster.api.events().await;
    let mut marks = cluster.marks();
    host.preflight("shot:1").run();
    let before = boottime() - begun;
    cluster.api.submit(&marks.job(2, 1)).await;
    // Nor does anything but the end of the quiet period open it: not a render in between.
    let_pass(Span::from_millis(300)).await;
    let begun = boottime();
    host.postflight("shot:1").run();
    let_pass(Span::from_secs(1)).await;
    host.preflight("shot:2").run();
    let between = boottime() - begun;
    if before >= quiet || between >= quiet {
        return too_slow(format!("no render for {before}, then for {between}"));
    }
    // Longer than the rest of the quiet period that was cut short.
    let_pass(Span::from_millis(2_500)).await;
    let ended = boottime();
    host.postflight("shot:2").run();
    let workers = host.workers();
    assert_eq!(processes::cpu_ticks(&workers), 0, "nothing has run");

    let (opened, slots) = events.next_fragment("farm1").await;
    let waited = opened - ended;
    eprintln!("a quiet period of {quiet}: open after {waited}");
    assert_eq!(slots, 2);
    assert!(waited >= quiet, "open {waited} after the last postflight began");
    let mark = marks.next();
    assert!(boottime() - ended >= quiet);
    assert!(processes::lives(mark.pid));
    Ok(())
}

#[tokio::test]
async fn a_workunit_that_fails_everywhere_is_given_up_with_its_reason() {
    let cluster = Plan::new().desktops(2).start().await;
    let mut spec = cluster.marks().job(2, 1);
    let gleaner_protocol::job::Task::Command(task) = &mut spec.task else { panic!("a command") };
    task.argv = ["/bin/sh", "-c", "echo no licence >&2; exit $((3 + $GLEANER_INDEX))"]
        .map(str::to_owned)
        .into();
    spec.attempts.failed = 2;
    let job = cluster.api.submit(&spec).await;
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.failed), (JobState::Failed, 2));
    for result in cluster.api.results(job).await {
        let ResultState::Failed { reason } = result.result else { panic!("{result:?}") };
        assert!(reason.contains("no licence"), "{reason}");
    }
    let id = job.to_string();
    assert_eq!(cluster.cli(&["wait", &id]).code, Some(1));
    assert_eq!(cluster.cli(&["status", &id]).code, Some(1));
    // Of all of them at once it is said which failed, and why.
    let fetched = cluster.cli(&["fetch", &id]);
    let first = format!("2 of 2 workunits failed, the first is {id}/0");
    fetched.refused(1, &[&first, "no licence", &format!("gleaner explain {id}")]);
    let whole = cluster.cli(&["explain", &id]).ok();
    for words in ["the job has ended", "1 failed (index 0)", "1 failed (index 1)", "no licence"] {
        assert!(whole.contains(words), "no {words:?} in: {whole}");
    }
    let why = cluster.cli(&["explain", &format!("{id}/1")]).ok();
    assert!(why.contains("given up") && why.contains("no licence"), "{why}");
}

#[tokio::test]
async fn an_agent_that_is_told_to_stop_gives_everything_back() {
    let mut cluster = Plan::new().desktops(1).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    let status = cluster["desk1"].agent.stop();
    assert!(status.success(), "{status}");
    let pids: Vec<i32> = begun.iter().map(|mark| mark.pid).collect();
    assert!(processes::computing(&pids).is_empty());
    assert!(pids.iter().all(|pid| processes::dies(*pid)));
    let api = cluster.api.clone();
    api.until("its farewell", async || {
        let host = api.host("desk1").await?;
        (!host.connected && host.running == 0 && host.released == 2).then_some(())
    })
    .await;
    // At once, and not when a lease or a grace period runs out.
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
    assert_eq!(marks.take(2).len(), 2);
    marks.go();
    let status = api.until_ended(job).await;
    assert_eq!((status.state, status.decided), (JobState::Completed, 2));
}
