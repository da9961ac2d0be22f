//! Harvesting a host of a real Grid Engine: its own jobs, our prolog and epilog.

use crate::cluster::{Cluster, Plan};
use crate::grid_engine_farm::{GridEngineFarm, SLOTS};

fn settings(cluster: &Cluster) -> String {
    format!(
        "GLEANER={}\nGLEANER_RUN_DIR={}\nGLEANER_MONITOR={}\nGLEANER_HOST=farm1\n",
        env!("CARGO_BIN_EXE_gleaner"),
        cluster["farm1"].run_dir().display(),
        cluster.monitor_api().url,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_queue_have_their_slots_and_the_harvest_the_others() {
    let farm = GridEngineFarm::start().await;
    let mut cluster = Plan::new().farm(1).cores(SLOTS).start().await;
    farm.hooks_read(&settings(&cluster));
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 2)).await;
    marks.take(4);

    let three = farm.render(3);
    three.has_begun();
    assert!(cluster["farm1"].slots_computing() <= 1);
    cluster.api.until_slots("farm1", 1).await;
    let one = farm.render(1);
    one.has_begun();
    assert_eq!(cluster["farm1"].slots_computing(), 0);
    assert!(one.ends() && three.ends());
    cluster.api.until_slots("farm1", SLOTS).await;

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
