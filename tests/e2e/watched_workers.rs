//! Renders of farm managers that call no hook, seen as their worker starts them.

use gleaner_calm::{Turn, in_some_awaited_round, repeats, within};
use gleaner_protocol::{Origin, Span, boottime};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::calm::Measured;
use crate::cluster::{Cluster, Plan};
use crate::farm_worker::FarmWorker;
use crate::patience::{eventually, let_pass};
use crate::played_farm::{PlayedFarm, allocation};
use crate::processes;
use crate::program::{gleaner, run};
use crate::rqd_farm::RqdFarm;

fn end(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
}

/// Until as many slots of the host compute.
async fn until_computing(cluster: &Cluster, slots: usize) {
    let what = format!("{slots} slots to compute");
    let computes = async || (cluster["watched"].slots_computing() == slots).then_some(());
    eventually(&what, computes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_starts_is_given_way_to_at_once() {
    if !geteuid().is_root() {
        return refuses_without_the_right();
    }
    let mut cluster = Plan::new().farm(1).cores(4).measuring().start().await;
    // An agent hears of the children of all that have the name. This is the one that no other has.
    let rqd = if RqdFarm::worker() == "rqd" { "openrqd" } else { "rqd" };
    let watches = ["--watch-worker", rqd, "--watch-worker", "other-worker"];
    let mut rqd = FarmWorker::start(rqd);
    // Before the agent, which finds it.
    let early = rqd.starts("CUE_FRAME_ID=early CUE_THREADS=1");
    cluster.add_host("watched", Origin::Farm, &watches);
    cluster.api.until_cores("watched", 3).await;
    end(early);
    cluster.api.until_cores("watched", 4).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(8);

    // A helper of RQD's own.
    let helper = rqd.starts("PATH=$PATH");
    let mut round = 0;
    in_some_awaited_round(async || {
        until_computing(&cluster, 4).await;
        round += 1;
        let begun = boottime();
        let frame = rqd.starts(&format!("CUE_FRAME_ID=r-{round} CUE_THREADS=3 LD_PRELOAD="));
        until_computing(&cluster, 1).await;
        let took = boottime() - begun;
        cluster.api.until_cores("watched", 1).await;
        end(frame);
        cluster.api.until_cores("watched", 4).await;
        let what = "from the word to a worker to the last replica in a render's way";
        within(what, took, Span::from_secs(1))
    })
    .await;
    let frame = rqd.starts("CUE_FRAME_ID=f-7 CUE_THREADS=3 LD_PRELOAD=");
    // And the helper is none.
    let is_alone = |view: &Value| {
        let bookings = view["bookings"].as_array().expect("a list");
        bookings.iter().map(|one| &one["booking"]).eq(["opencue:f-7"])
    };
    let monitor = cluster.monitor_api();
    monitor.until_view("watched", "the frame to be all that is booked", is_alone).await;
    cluster.api.until_cores("watched", 1).await;
    end(frame);
    cluster.api.until_cores("watched", 4).await;

    let mut other = FarmWorker::start("other-worker");
    let render = other.starts("PATH=$PATH");
    until_computing(&cluster, 0).await;
    end(render);
    cluster.api.until_cores("watched", 4).await;

    // Renders that are over before anybody has looked at them leave no booking, and the one that
    // begins last is booked beside them.
    other.starts_short_ones(20);
    let last = other.starts("PATH=$PATH");
    until_computing(&cluster, 0).await;
    end(last);
    cluster.api.until_cores("watched", 4).await;

    // The agent is gone when a render ends; the next one knows that it had booked it.
    let frame = rqd.starts("CUE_FRAME_ID=f-8 CUE_THREADS=3");
    cluster.api.until_cores("watched", 1).await;
    cluster["watched"].agent.kill();
    end(frame);
    cluster.restart_agent("watched");
    cluster.are_connected().await;
    cluster.api.until_cores("watched", 4).await;
    end(helper);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_render_has_its_cores_within_ten_milliseconds_of_its_start() {
    const RENDERS: usize = 9;
    const RELEASE_MAX: Span = Span::from_millis(10);
    if !geteuid().is_root() {
        return refuses_without_the_right();
    }
    let mut cluster = Plan::new().farm(1).cores(4).measuring().start().await;
    cluster.add_host("watched", Origin::Farm, &["--watch-worker", "a-worker"]);
    cluster.api.until_cores("watched", 4).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);
    let mut worker = FarmWorker::stamping("a-worker");
    in_some_awaited_round(async || {
        let mut took = Measured::default();
        for _ in 0..repeats(RENDERS) {
            until_computing(&cluster, 4).await;
            let working = cluster["watched"].computing();
            let working: Vec<i32> = working.iter().map(|process| process.pid).collect();
            let (render, began) = worker.starts_stamped();
            took.add(processes::stopped_at(&working) - began);
            end(render);
            cluster.api.until_cores("watched", 4).await;
        }
        let what = "from just before a worker starts a render to the last replica in its way";
        took.is_at_most(RELEASE_MAX, what)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_farm_has_given_up_stays_booked_as_long_as_its_process_lives() {
    if !geteuid().is_root() {
        return refuses_without_the_right();
    }
    let idle = || vec![allocation("watched", 4, &[])];
    let farm = PlayedFarm::start(idle());
    let polled = ["--poll-url", &farm.url(), "--poll-interval-s", "0.4"];
    let mut cluster = Plan::new().farm(1).cores(4).measuring().monitor(&polled).start().await;
    cluster.add_host("watched", Origin::Farm, &["--watch-worker", "hung-worker"]);
    cluster.api.until_cores("watched", 4).await;

    // The farm knows it by another name.
    let mut worker = FarmWorker::start("hung-worker");
    let render = worker.starts("PATH=$PATH");
    farm.says(vec![allocation("watched", 4, &[("flamenco:task", 4)])]);
    cluster.api.until_cores("watched", 0).await;
    farm.is_polled(4);
    // It hangs, and its task is timed out.
    farm.says(idle());
    farm.is_polled(4);
    let_pass(cluster.quiet() + cluster.quiet()).await;
    farm.is_polled(1);
    let view = cluster.monitor_api().view("watched").await.expect("known");
    assert!(view["fragment"]["reason"].to_string().contains("its process lives"), "{view}");
    assert_eq!(view["contradictions"].as_array().map(Vec::len), Some(0), "{view}");
    end(render);
    cluster.api.until_cores("watched", 4).await;
}

fn refuses_without_the_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut agent = gleaner(["agent", "--broker", "http://127.0.0.1:1", "--watch-worker", "rqd"]);
    agent.arg("--run-dir").arg(folder.path().join("run"));
    agent.arg("--work-dir").arg(folder.path().join("work"));
    run(&mut agent).refused(1, &["watch_workers", "CAP_NET_ADMIN"]);
}

#[test]
fn a_name_that_no_process_has_is_refused() {
    let _turn = Turn::shared();
    for name in ["", "flamenco-worker-of-mine"] {
        let said = run(gleaner(["agent"]).args(["--watch-worker", name]));
        said.refused(2, &["watch_workers", "15 bytes"]);
    }
}
