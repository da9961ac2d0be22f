//! What only the farm's own record tells: lost hooks, and hosts without any.

use serde_json::json;

use crate::cluster::{Cluster, Plan};
use crate::patience::let_pass;
use crate::played_farm::{PlayedFarm, allocation};
use crate::processes;

async fn polled(farm: &PlayedFarm, monitor: &[&str]) -> Cluster {
    polled_every("0.4", farm, monitor).await
}

async fn polled_every(seconds: &str, farm: &PlayedFarm, monitor: &[&str]) -> Cluster {
    let options = ["--poll-url", &farm.url(), "--poll-interval-s", seconds];
    Plan::new().farm(1).monitor(&options).monitor(monitor).start().await
}

#[tokio::test]
async fn a_lost_postflight_is_found_by_polling() {
    let farm = PlayedFarm::start(vec![allocation("farm1", 2, &[])]);
    let cluster = polled(&farm, &[]).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let host = &cluster["farm1"];
    farm.says(vec![allocation("farm1", 2, &[("shot:1", 2)])]);
    host.preflight("shot:1").cores(2).run();
    assert!(processes::computing(&host.workers()).is_empty());
    cluster.api.until_cores("farm1", 0).await;
    farm.is_polled(4);
    assert_eq!(marks.within(cluster.quiet()), [], "the farm says that it renders");
    assert!(begun.iter().all(|mark| !processes::lives(mark.pid)));
    // It ends, and the host's postflight is lost.
    farm.says(vec![allocation("farm1", 2, &[])]);
    cluster.api.until_cores("farm1", 2).await;
    assert_eq!(marks.take(2).len(), 2);
    let view = cluster.monitor_api().view("farm1").await.expect("known");
    assert!(view["contradictions"].to_string().contains("shot:1"), "{view}");
    // The next render of that name is a render, until the farm denies it.
    let mut events = cluster.api.events().await;
    host.preflight("shot:1").cores(1).run();
    events.fragment_becomes("farm1", 1).await;
    host.postflight("shot:1").run();
    farm.is_polled(1);
    cluster.api.until_cores("farm1", 2).await;
}

#[tokio::test]
async fn what_a_host_renders_for_a_manager_is_not_for_a_farms_document_to_end() {
    let farm = PlayedFarm::start(vec![allocation("farm1", 4, &[])]);
    let options = ["--poll-url", &farm.url(), "--poll-interval-s", "0.4"];
    let cluster = Plan::new().farm(1).cores(4).monitor(&options).start().await;
    cluster.are_open().await;
    let host = &cluster["farm1"];
    let mut events = cluster.api.events().await;
    host.preflight("deadline:farm1").cores(1).run();
    host.preflight("shot:1").cores(1).run();
    events.fragment_becomes("farm1", 2).await;
    // The document lists neither, and speaks of one.
    events.fragment_becomes("farm1", 3).await;
    farm.is_polled(3);
    let_pass(cluster.quiet()).await;
    assert_eq!(cluster.api.host("farm1").await.expect("known").cores_given, 3);
    let view = cluster.monitor_api().view("farm1").await.expect("known");
    assert_eq!(view["bookings"][0]["booking"], "deadline:farm1", "{view}");
    host.postflight("deadline:farm1").run();
    cluster.api.until_cores("farm1", 4).await;
}

#[tokio::test]
async fn a_lost_postflight_ends_at_the_limit_where_nothing_is_polled() {
    let cluster = Plan::new().farm(1).monitor(&["--booking-limit-s", "2"]).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(2);
    let host = &cluster["farm1"];
    let mut events = cluster.api.events().await;
    host.preflight("shot:1").cores(2).run();
    events.fragment_becomes("farm1", 0).await;
    cluster.api.until_cores("farm1", 2).await;
    assert_eq!(marks.take(2).len(), 2);
}

#[tokio::test]
async fn a_host_without_hooks_closes_when_two_polls_in_a_row_miss_it() {
    let farm = PlayedFarm::start(vec![allocation("farm1", 2, &[])]);
    // Three intervals without an answer close it too: long enough for a machine that is busy.
    let cluster = polled_every("1.5", &farm, &[]).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(2);
    let mut events = cluster.api.events().await;

    // A render that only the farm tells of.
    farm.says(vec![allocation("farm1", 2, &[("shot:1", 1)])]);
    events.fragment_becomes("farm1", 1).await;
    farm.says(vec![allocation("farm1", 2, &[])]);
    events.fragment_becomes("farm1", 2).await;
    marks.take(1);

    // One missed poll is no news.
    farm.stumbles();
    farm.is_polled(3);
    let open = cluster.api.host("farm1").await.expect("known");
    assert_eq!(open.cores_given, 2, "one poll that fails closes nothing");

    // Two in a row are.
    let before = farm.polls();
    farm.fails();
    events.fragment_becomes("farm1", 0).await;
    assert!(farm.polls() >= before + 2, "{} polls", farm.polls() - before);
    cluster.api.until_cores("farm1", 0).await;
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));

    // So is a record in which the host does not stand.
    farm.says(vec![allocation("farm1", 2, &[])]);
    events.fragment_becomes("farm1", 2).await;
    let before = farm.polls();
    farm.says(vec![allocation("farm2", 2, &[])]);
    events.fragment_becomes("farm1", 0).await;
    assert!(farm.polls() >= before + 2, "{} polls", farm.polls() - before);
}

#[tokio::test]
async fn a_record_that_makes_no_sense_opens_nothing() {
    let farm = PlayedFarm::start(vec![json!({"host": "farm1", "cores": -2})]);
    let cluster = polled(&farm, &[]).await;
    farm.is_polled(3);
    let monitor = cluster.monitor_api();
    for nonsense in [
        vec![json!("farm1")],
        vec![json!({"host": "../farm1", "cores": 2, "memory_mib": 1000})],
        vec![allocation("farm1", 2, &[]), allocation("farm1", 2, &[])],
        vec![allocation("farm1", 1_000_000, &[])],
    ] {
        farm.says(nonsense);
        farm.is_polled(2);
        let view = monitor.view("farm1").await.expect("its agent has told of it");
        assert_eq!(view["fragment"]["state"], "closed", "{view}");
    }
    monitor.is_well().await;
    let status = cluster.farm_status();
    assert_eq!(status["poll"]["not_understood"], 1, "{status}");
    let shown = cluster.farm(&["status"]).ok();
    assert!(shown.contains("host farm1 is taken for wholly booked: 1000000 cores"), "{shown}");
    // The record makes sense again.
    farm.says(vec![allocation("farm1", 1, &[])]);
    farm.is_polled(2);
    let_pass(cluster.quiet()).await;
    cluster.api.until_cores("farm1", 1).await;
}
