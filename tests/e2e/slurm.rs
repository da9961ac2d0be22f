//! Harvesting a real Slurm farm: its own jobs, our Prolog and Epilog, its record polled.

use std::path::Path;

use gleaner_calm::{Turn, assert_within};
use gleaner_protocol::{Origin, Span};
use gleaner_small_disk::{fill, run_with_one};
use serde_json::Value;

use crate::calm::starts_as_fast;
use crate::cluster::{Cluster, Plan};
use crate::host::RUN_DIR;
use crate::patience::{eventually, timed};
use crate::povray::Animation;
use crate::slurm_farm::{CORES, NODES, SlurmFarm};

/// With hosts like its nodes, and a monitor that asks it.
fn polled(farm: &SlurmFarm, plan: Plan) -> Plan {
    let conf = farm.conf();
    plan.cores(CORES)
        .monitor(&["--poll", "slurm", "--poll-interval-s", "0.5"])
        .monitor_env("SLURM_CONF", &conf.display().to_string())
}

async fn harvested(farm: &SlurmFarm, plan: Plan) -> Cluster {
    of_nodes(farm, NODES, plan).await
}

/// With as many of its nodes harvested.
async fn of_nodes(farm: &SlurmFarm, nodes: usize, plan: Plan) -> Cluster {
    let cluster = polled(farm, plan.farm(nodes)).start().await;
    farm.serves(&cluster);
    cluster.are_open().await;
    cluster
}

/// On how many slots of each node something computes.
fn computing(cluster: &Cluster) -> Vec<usize> {
    let on = |number| cluster[format!("farm{number}").as_str()].slots_computing();
    (1..=NODES).map(on).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn renders_have_the_cores_that_slurm_gave_them_and_the_harvest_the_others() {
    let farm = SlurmFarm::start(true).await;
    let cluster = harvested(&farm, Plan::new()).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 2)).await;
    marks.take(12);
    let on_every_node = || computing(&cluster).iter().all(|count| *count > 0);
    eventually("work on every node", async || on_every_node().then_some(())).await;

    // Four, two and one core of the three nodes: each finds its own place in the list.
    let mut render = farm.render(&["--nodes=3", "--ntasks=7"]);
    render.has_begun(7);
    let left = computing(&cluster);
    assert!(left[0] == 0 && left[1] <= 2 && left[2] <= 3, "{left:?} compute beside it");
    for (host, slots) in [("farm1", 0), ("farm2", 2), ("farm3", 3)] {
        cluster.api.until_cores(host, slots).await;
    }
    // What Slurm answers and what the hooks say is one booking, not two.
    let is_seen_by_both = |view: &Value| {
        let by = view["bookings"][0]["seen_by"].to_string();
        by.contains("hook") && by.contains("poll")
    };
    let monitor = cluster.monitor_api();
    let view = monitor.until_view("farm2", "both to tell of the render", is_seen_by_both).await;
    assert_eq!(view["bookings"].as_array().map(Vec::len), Some(1), "{view}");
    assert_eq!(view["contradictions"].as_array().map(Vec::len), Some(0), "{view}");

    // Another one beside it, on a node that is rendering already.
    let mut second = farm.render(&["--nodelist=farm3", "--ntasks=3"]);
    second.has_begun(3);
    assert_eq!(computing(&cluster)[2], 0);
    assert!(second.ends().success());
    assert!(render.ends().success());
    cluster.are_open().await;
    farm.all_are("idle").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_render_that_no_hook_announces_is_found_by_polling() {
    let farm = SlurmFarm::start(false).await;
    let cluster = harvested(&farm, Plan::new()).await;
    let mut render = farm.render(&["--nodelist=farm2", "--ntasks=3"]);
    render.has_begun(3);
    cluster.api.until_cores("farm2", 1).await;
    assert!(render.ends().success());
    cluster.are_open().await;
    // A node that an administrator takes out is not harvested.
    let drain = ["update", "nodename=farm1", "state=drain", "reason=test"];
    farm.says("scontrol", &drain).ok();
    cluster.api.until_cores("farm1", 0).await;
    farm.says("scontrol", &["update", "nodename=farm1", "state=resume"]).ok();
    cluster.are_open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_has_happened_to_gleaner_jobs_run_and_nodes_stay() {
    let turn = Turn::shared();
    if !run_with_one(256, "slurm::with_a_small_disk") {
        drop(turn);
        whatever_happens(None).await;
    }
}

/// Not a test by itself: runs where the small disk is mounted.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_small_disk() {
    let Some(small) = gleaner_small_disk::folder() else { return };
    whatever_happens(Some(&small)).await;
}

/// The third node's run folder is on the small disk, where there is one.
async fn whatever_happens(small: Option<&Path>) {
    /// From `srun` to a render on all cores of all nodes: what a hook may take, which is half a second,
    /// and a machine that is busy with other tests. Slurm would wait for 20 s.
    const START_MAX: Span = Span::from_secs(8);
    let farm = SlurmFarm::start(true).await;
    let mut cluster = match small {
        None => harvested(&farm, Plan::new()).await,
        Some(small) => {
            let mut cluster = polled(&farm, Plan::new().farm(NODES - 1)).start().await;
            let run_dir = small.join("run");
            let run_dir = [RUN_DIR, run_dir.to_str().expect("a plain path")];
            cluster.add_host("farm3", Origin::Farm, &run_dir);
            cluster.are_connected().await;
            farm.serves(&cluster);
            cluster.are_open().await;
            cluster
        }
    };
    let runs = async |what: &str, look: &dyn Fn()| {
        let (took, render) = timed(|| {
            let mut render = farm.render(&["--nodes=3", "--ntasks=12"]);
            render.has_begun(12);
            render
        });
        look();
        assert_within(&format!("{what}: from srun to the render"), took, START_MAX);
        assert!(render.ends().success(), "{what}");
        farm.all_are("idle").await;
    };
    let nothing = || {};
    runs("all is well", &nothing).await;
    cluster.are_open().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(12);
    cluster["farm1"].agent.kill();
    cluster["farm2"].agent.freeze();
    if let Some(small) = small {
        fill(&small.join("filler"));
    }
    let is_stopped =
        || assert_eq!(computing(&cluster), [0; NODES], "the work is stopped all the same");
    let what = "an agent is dead, one hangs, and one's disk is full";
    runs(what, &is_stopped).await;
    runs("the same once more", &nothing).await;
    cluster["farm2"].agent.kill();
    farm.hooks_read("GLEANER=/nowhere/gleaner\nGLEANER_RUN_DIR=/nowhere\n");
    runs("the program is missing", &nothing).await;
    farm.hooks_read("GLEANER=/bin/false\n");
    runs("the program fails", &nothing).await;
    farm.hooks_read("GLEANER=/bin/cat\nif\n");
    runs("the settings are no shell", &nothing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_as_fast_as_without_us() {
    const RENDERS: usize = 25;
    /// Most of it is Slurm's own: slurmd looks whether a Prolog has ended after 10 ms, and not again
    /// before 30 (`run_command_waitpid_timeout`), and takes 10 to 13 to run any.
    const DELAY_MAX: Span = Span::from_millis(if cfg!(debug_assertions) { 25 } else { 20 });
    let (ours, plain) = (SlurmFarm::start(true).await, SlurmFarm::start(false).await);
    // The node that renders alone: what is to stop waits for a core, and there is one harvest to a
    // host's cores.
    let cluster = of_nodes(&ours, 1, Plan::new().measuring().elsewhere()).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(CORES as usize);
    let start = |farm: &SlurmFarm| {
        let (took, render) = timed(|| {
            let mut render = farm.render(&["--nodelist=farm1", "--ntasks=1"]);
            render.has_begun(1);
            render
        });
        assert!(render.ends().success());
        took
    };
    let what = "from srun to the render, harvested";
    let is_harvested = async || cluster["farm1"].computes_in(4).await;
    let starts = (|| start(&plain), || start(&ours));
    starts_as_fast(what, (RENDERS, DELAY_MAX), starts.0, is_harvested, starts.1).await;
    ours.all_are("idle").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_beside_the_harvest_are_the_same_to_the_last_pixel() {
    const FRAMES: usize = 6;
    let animation = Animation::new(FRAMES);
    let farm = SlurmFarm::start(true).await;
    let cluster = harvested(&farm, Plan::new()).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(12);
    for number in 0..FRAMES {
        let node = format!("--nodelist=farm{}", number % NODES + 1);
        let mut words = vec![node, "--ntasks=1".into(), "--cpus-per-task=2".into()];
        words.extend(animation.command(number));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        farm.says("srun", &words).ok();
        assert!(computing(&cluster).iter().sum::<usize>() > 0, "the harvest goes on beside it");
    }
    animation.is_the_same();
    farm.all_are("idle").await;
}
