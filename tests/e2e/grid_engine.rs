//! Harvesting a host of a real Grid Engine: its own jobs, our prolog and epilog.

use std::{fs, thread};

use gleaner_protocol::{Origin, Span};
use serde_json::{Value, json};

use crate::calm::starts_as_fast;
use crate::cluster::{Cluster, Plan};
use crate::grid_engine_farm::{GridEngineFarm, SLOTS};
use crate::povray::Animation;
use crate::program::write_program;

/// Of the hooks of a host that Gleaner calls so.
fn settings(cluster: &Cluster, host: &str) -> String {
    format!(
        "GLEANER={}\nGLEANER_RUN_DIR={}\nGLEANER_MONITOR={}\nGLEANER_HOST={host}\n",
        env!("CARGO_BIN_EXE_gleaner-hook"),
        cluster[host].run_dir().display(),
        cluster.monitor_api().url,
    )
}

/// A cluster whose monitor polls this farm, with its host, as Grid Engine calls it, and its cores.
async fn polled(farm: &GridEngineFarm) -> (Cluster, u32) {
    let polls = ["--poll", "grid-engine", "--poll-interval-s", "0.5"];
    // The host has as many cores as this machine.
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32).min(SLOTS);
    let mut plan = Plan::new().cores(cores).monitor(&polls);
    for (name, value) in farm.environment() {
        plan = plan.monitor_env(name, &value);
    }
    let mut cluster = plan.farm(1).start().await;
    cluster.add_host("localhost", Origin::Farm, &[]);
    cluster.api.until_cores("localhost", cores).await;
    (cluster, cores)
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_queue_have_their_slots_and_the_harvest_the_others() {
    let farm = GridEngineFarm::start(true).await;
    let mut cluster = Plan::new().farm(1).cores(SLOTS).start().await;
    farm.hooks_read(&settings(&cluster, "farm1"));
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 2)).await;
    marks.take(4);

    let three = farm.render(3);
    three.has_begun();
    assert!(cluster["farm1"].slots_computing() <= 1);
    cluster.api.until_cores("farm1", 1).await;
    let one = farm.render(1);
    one.has_begun();
    assert_eq!(cluster["farm1"].slots_computing(), 0);
    assert!(one.ends() && three.ends());
    cluster.api.until_cores("farm1", SLOTS).await;

    // Whatever happens to Gleaner, jobs run and the queue stays.
    cluster["farm1"].agent.freeze();
    let render = farm.render(2);
    render.has_begun();
    assert!(render.ends(), "an agent that hangs");
    cluster["farm1"].agent.kill();
    farm.hooks_read("GLEANER=/nowhere/gleaner\nif\n");
    let render = farm.render(4);
    render.has_begun();
    assert!(render.ends(), "a program that is missing");
    let queue = farm.states();
    let line = queue.lines().find(|line| line.starts_with("farm.q")).expect("a queue");
    assert_eq!(line.split_whitespace().count(), 5, "no state but that it is well: {line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_render_that_no_hook_announces_is_found_by_polling() {
    let farm = GridEngineFarm::start(false).await;
    let (cluster, cores) = polled(&farm).await;
    let render = farm.render(1);
    render.has_begun();
    cluster.api.until_cores("localhost", cores - 1).await;
    let view = cluster.monitor_api().view("localhost").await.expect("known");
    let booking = view["bookings"][0]["booking"].as_str().expect("a name").to_owned();
    assert!(booking.starts_with("grid-engine:"), "{view}");
    assert!(render.ends());
    cluster.api.until_cores("localhost", cores).await;
    // A queue that an administrator takes out is not harvested.
    farm.says("qmod", &["-d", "farm.q"]).ok();
    cluster.api.until_cores("localhost", 0).await;
    farm.says("qmod", &["-e", "farm.q"]).ok();
    cluster.api.until_cores("localhost", cores).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hook_and_the_poll_tell_of_is_one_booking() {
    let farm = GridEngineFarm::start(true).await;
    let (cluster, cores) = polled(&farm).await;
    farm.hooks_read(&settings(&cluster, "localhost"));
    let render = farm.render(1);
    render.has_begun();
    cluster.api.until_cores("localhost", cores - 1).await;
    let is_seen_by_both = |view: &Value| {
        let by = view["bookings"][0]["seen_by"].to_string();
        by.contains("hook") && by.contains("poll")
    };
    let monitor = cluster.monitor_api();
    let view = monitor.until_view("localhost", "both to tell of the job", is_seen_by_both).await;
    assert_eq!(view["bookings"].as_array().map(Vec::len), Some(1), "{view}");
    assert_eq!(view["bookings"][0]["cores"], 1, "{view}");
    assert_eq!(view["contradictions"], json!([]), "{view}");
    assert!(render.ends());
    cluster.api.until_cores("localhost", cores).await;
    let has_none = |view: &Value| view["bookings"] == json!([]);
    let view = monitor.until_view("localhost", "the booking to end", has_none).await;
    assert_eq!(view["contradictions"], json!([]), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epilog_is_told_how_its_job_ended() {
    let farm = GridEngineFarm::start(true).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (hook, told) = (folder.path().join("hook"), folder.path().join("told"));
    let text =
        "#!/bin/sh\n[ \"$2\" != postflight ] || echo \"$SGE_JOBEXIT_STAT\" >>\"${0%/*}/told\"\n";
    write_program(&hook, text);
    farm.hooks_read(&format!("GLEANER={}\n", hook.display()));
    for (ends, status) in
        [("exit 0", "0"), ("exit 3", "3"), ("kill -SEGV $$", "139"), ("kill -KILL $$", "137")]
    {
        let command = ["/bin/sh", "-c", ends].map(String::from);
        assert_eq!(farm.runs(1, &command), ends == "exit 0", "{ends}");
        let told = fs::read_to_string(&told).expect("the epilog has run");
        assert_eq!(told.lines().last(), Some(status), "{ends}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_beside_the_harvest_are_the_same_to_the_last_pixel() {
    const FRAMES: usize = 3;
    let animation = Animation::new(FRAMES);
    let farm = GridEngineFarm::start(true).await;
    let cluster = Plan::new().farm(1).cores(SLOTS).start().await;
    farm.hooks_read(&settings(&cluster, "farm1"));
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);
    for number in 0..FRAMES {
        assert!(farm.runs(2, &animation.command(number)), "frame {number}");
        assert!(cluster["farm1"].slots_computing() > 0, "the harvest goes on beside it");
    }
    animation.is_the_same();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_as_fast_as_with_a_prolog_that_does_nothing() {
    const RENDERS: usize = 9;
    const DELAY_MAX: Span = Span::from_millis(20);
    let (ours, plain) = (GridEngineFarm::start(true).await, GridEngineFarm::start(false).await);
    // For a prolog that does nothing Grid Engine takes some 40 ms itself, and for none nothing.
    plain.says("qconf", &["-mattr", "queue", "prolog", "/bin/true", "farm.q"]).ok();
    let cluster = Plan::new().farm(1).cores(SLOTS).measuring().start().await;
    ours.hooks_read(&settings(&cluster, "farm1"));
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);
    // Its scheduler looks once in a second, so it counts from when the host has the job.
    let launch = |farm: &GridEngineFarm| {
        let render = farm.render(1);
        render.has_begun();
        let took = farm.launch_took(&render);
        assert!(render.ends());
        took
    };
    let what = "from Grid Engine's execution daemon to the render, harvested";
    let is_harvested = async || cluster["farm1"].computes_in(SLOTS as usize).await;
    let (plain, ours) = (|| launch(&plain), || launch(&ours));
    starts_as_fast(what, (RENDERS, DELAY_MAX), plain, is_harvested, ours).await;
}
