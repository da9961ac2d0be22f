//! Parts that are killed with -9 while work runs: nothing is lost, and nothing runs on unwatched.

use std::collections::BTreeSet;

use gleaner_protocol::api::{JobState, ResultState};
use gleaner_protocol::job::{JobSpec, Lane, Task, Workunits};
use gleaner_protocol::{KernelName, OwnerName, Span};

use crate::cluster::Plan;
use crate::patience::eventually;
use crate::processes;

#[tokio::test]
async fn agents_run_on_while_the_broker_is_dead_and_report_when_it_is_back() {
    let mut cluster = Plan::new().farm(1).desktops(2).start().await;
    cluster.are_open().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(6, 1)).await;
    let begun = marks.take(6);
    let pids: Vec<i32> = begun.iter().map(|mark| mark.pid).collect();

    cluster.broker.kill();
    let before = processes::cpu_ticks(&pids);
    eventually("them to compute on", async || {
        (processes::cpu_ticks(&pids) > before + 10).then_some(())
    })
    .await;
    assert!(pids.iter().all(|pid| processes::lives(*pid)), "they run on");
    // Some end while nobody is there to be told.
    marks.go();
    assert!(pids.iter().all(|pid| processes::dies(*pid)));

    cluster.restart_broker();
    let status = cluster.api.until_ended(job).await;
    assert_eq!(status.state, JobState::Completed, "{status:?}");
    assert_eq!(status.decided, 6);
    // A host that came back before the others may have been given a workunit of theirs once more;
    // the votes of both are counted or refused, and none is lost.
    let results = cluster.api.results(job).await;
    let indices: BTreeSet<u32> = results
        .iter()
        .filter(|result| matches!(result.result, ResultState::Decided { .. }))
        .map(|result| result.index)
        .collect();
    assert_eq!(indices, (0..6).collect());
    assert_eq!(cluster.api.metric("gleaner_leases").await, 0.0);
}

#[tokio::test]
async fn a_restarted_broker_adopts_what_still_runs() {
    let mut cluster = Plan::new().desktops(2).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(6, 1)).await;
    let begun = marks.take(4);
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.are_connected().await;
    cluster
        .api
        .until("all to be adopted", async || {
            (cluster.api.metric("gleaner_leases").await >= 4.0).then_some(())
        })
        .await;
    assert_eq!(marks.within(Span::from_millis(300)), [], "their slots are taken");
    assert!(begun.iter().all(|mark| processes::lives(mark.pid)));
    // What nobody wants any more after the restart ends like everything else.
    marks.go();
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.decided), (JobState::Completed, 6));
    assert_eq!(marks.take(2).len(), 2, "only what had not begun began");
}

#[tokio::test]
async fn a_cancelled_job_stops_where_it_runs_even_over_a_restart() {
    let mut cluster = Plan::new().desktops(1).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(2, 1)).await;
    let begun = marks.take(2);
    // The agent does not hear of it before the broker dies.
    cluster["desk1"].agent.freeze();
    cluster.cli(&["cancel", &job.to_string()]).ok();
    cluster.broker.kill();
    cluster["desk1"].agent.thaw();
    cluster.restart_broker();
    assert!(begun.iter().all(|mark| processes::dies(mark.pid)));
    assert_eq!(cluster.api.job(job).await.state, JobState::Cancelled);
}

#[tokio::test]
async fn the_work_of_a_killed_agent_dies_with_it_and_goes_to_others() {
    let mut cluster = Plan::new().desktops(2).broker(&["--reconnect-grace-s", "0.5"]).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(4, 1)).await;
    let begun = marks.take(4);
    let lost: BTreeSet<u32> =
        begun.iter().filter(|mark| mark.host == "desk1").map(|mark| mark.index).collect();
    assert_eq!(lost.len(), 2);
    let workers = cluster["desk1"].workers();
    cluster["desk1"].agent.kill();
    assert!(workers.iter().all(|pid| processes::dies(*pid)), "no work outlives its agent");

    // Their cores are free only now; the lost ones come to the other host.
    marks.go();
    let again: BTreeSet<u32> = marks.take(2).iter().map(|mark| mark.index).collect();
    assert_eq!(again, lost);
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.decided), (JobState::Completed, 4));
    assert!(!cluster.api.host("desk1").await.expect("known").connected);
    // It comes back, and has left nothing of before.
    cluster.restart_agent("desk1");
    cluster.are_connected().await;
    cluster["desk1"].is_idle().await;
}

#[tokio::test]
async fn whatever_is_killed_under_load_every_workunit_is_decided_once() {
    let mut cluster =
        Plan::new().farm(1).desktops(2).broker(&["--reconnect-grace-s", "0.5"]).start().await;
    let fen = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1";
    let items = gleaner_agent::gametree::split(fen, 4, 2).expect("a position");
    let workunits = u32::try_from(items.len()).expect("some");
    let spec = JobSpec {
        name: String::new(),
        owner: OwnerName::new("tester").expect("a plain name"),
        project: None,
        lane: Lane::Background,
        task: Task::Kernel(KernelName::new("gametree").expect("a plain name")),
        workunits: Workunits::Items(items.into()),
        replication: 1,
        quorum: None,
        max_replicas: None,
        lease_s: 600,
        profile: Default::default(),
        trust: Default::default(),
        on_release: Default::default(),
        attempts: Default::default(),
        on: None,
        cores_permille: gleaner_protocol::Share::WHOLE,
        gpus: 0,
    };
    let job = cluster.api.submit(&spec).await;
    for round in 1..=3_u32 {
        let goal = workunits * round / 4;
        cluster.api.until_job(job, "some progress", |status| status.decided >= goal).await;
        cluster["desk1"].agent.kill();
        cluster.broker.kill();
        cluster.restart_broker();
        cluster.restart_agent("desk1");
        cluster.monitor.as_ref().expect("there is one").freeze();
        cluster.are_connected().await;
        cluster.monitor.as_ref().expect("there is one").thaw();
    }
    let status = cluster.api.until_ended(job).await;
    assert_eq!((status.state, status.decided), (JobState::Completed, workunits), "{status:?}");
    let sum: serde_json::Value =
        cluster.cli(&["fetch", &job.to_string(), "--sum", "--format", "json"]).json();
    assert_eq!(sum["sum"], "4085603");
    assert_eq!(sum["complete"], true);
}
