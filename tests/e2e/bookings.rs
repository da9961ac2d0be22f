//! Hooks in every order: bookings are a set, and what is left of a host is harvested.

use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::farm::{Booked, HookEvent, HookKind};
use gleaner_protocol::{BookingId, Epoch, Span};
use reqwest::Method;
use serde_json::Value;

use crate::api::Api;
use crate::cluster::{Cluster, Plan};
use crate::host::Host;
use crate::marks::Mark;
use crate::patience::{eventually, let_pass};
use crate::processes;

/// One farm host of three cores, all of which work.
async fn busy_host() -> (Cluster, crate::marks::Marks, Vec<Mark>) {
    let cluster = Plan::new().farm(1).cores(3).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    let begun = marks.take(3);
    (cluster, marks, begun)
}

fn living(marks: &[Mark]) -> Vec<i32> {
    marks.iter().map(|mark| mark.pid).filter(|pid| processes::lives(*pid)).collect()
}

#[tokio::test]
async fn a_render_that_books_a_core_leaves_the_others_at_work() {
    let (cluster, mut marks, begun) = busy_host().await;
    let host = &cluster["farm1"];
    host.preflight("shot:1").cores(1).run();
    let pids: Vec<i32> = begun.iter().map(|mark| mark.pid).collect();
    let at_work = processes::computing(&pids);
    assert_eq!(at_work.len(), 2, "{at_work:?}");
    let left: Vec<i32> = at_work.iter().map(|process| process.pid).collect();
    let before = processes::cpu_ticks(&left);

    cluster.api.until_cores("farm1", 2).await;
    assert_eq!(marks.within(cluster.quiet().times(2)), [], "a core is the render's");
    assert_eq!(processes::computing(&pids).len(), 2);
    eventually("the others to go on", async || {
        (processes::cpu_ticks(&left) > before).then_some(())
    })
    .await;

    host.postflight("shot:1").run();
    cluster.api.until_cores("farm1", 3).await;
    assert_eq!(marks.next().host, "farm1");
    assert_eq!(processes::computing(&left).len(), 2, "they were never disturbed");
}

#[tokio::test]
async fn two_renders_on_one_host_count_together_and_end_one_by_one() {
    let (cluster, mut marks, begun) = busy_host().await;
    let host = &cluster["farm1"];
    for (booking, left) in [("shot:1", 2), ("shot:2", 1)] {
        host.preflight(booking).cores(1).run();
        assert_eq!(processes::computing(&pids(&begun)).len(), left);
        cluster.api.until_cores("farm1", u32::try_from(left).expect("small")).await;
        hook_is_heard_of(&cluster, booking).await;
    }
    // The first one ends: its core comes back, the other's does not.
    host.postflight("shot:1").run();
    cluster.api.until_cores("farm1", 2).await;
    let next = marks.next();
    assert_eq!(marks.within(cluster.quiet().times(2)), []);
    // A third one takes the whole host.
    host.preflight("shot:3").run();
    let all: Vec<i32> = pids(&begun).into_iter().chain([next.pid]).collect();
    assert!(processes::computing(&all).is_empty());
    cluster.api.until_cores("farm1", 0).await;
    hook_is_heard_of(&cluster, "shot:3").await;
    host.postflight("shot:3").run();
    cluster.api.until_cores("farm1", 2).await;
    host.postflight("shot:2").run();
    cluster.api.until_cores("farm1", 3).await;
}

/// Waits until the monitor has heard of this booking by its hook: the news of its end cannot
/// overtake that any more.
async fn hook_is_heard_of(cluster: &Cluster, booking: &str) {
    let what = format!("the monitor to know {booking}");
    let is_known = |view: &Value| {
        view["bookings"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|one| one["booking"] == booking && one["seen_by"].to_string().contains("hook"))
    };
    cluster.monitor_api().until_view("farm1", &what, is_known).await;
}

fn pids(marks: &[Mark]) -> Vec<i32> {
    marks.iter().map(|mark| mark.pid).collect()
}

#[tokio::test]
async fn doubled_hooks_change_nothing_more() {
    let (cluster, mut marks, begun) = busy_host().await;
    let host = &cluster["farm1"];
    host.preflight("shot:1").cores(1).run();
    assert_eq!(processes::computing(&pids(&begun)).len(), 2);
    // The monitor may wonder for a quiet period what the second one was about.
    host.preflight("shot:1").cores(1).run();
    let_pass(cluster.quiet().times(2)).await;
    cluster.api.until_cores("farm1", 2).await;
    let _ = marks.within(Span::ZERO);
    // One end ends it, and a second one ends nobody else's.
    host.preflight("shot:2").cores(1).run();
    cluster.api.until_cores("farm1", 1).await;
    host.postflight("shot:1").run();
    host.postflight("shot:1").run();
    cluster.api.until_cores("farm1", 2).await;
    let_pass(cluster.quiet().times(2)).await;
    assert_eq!(cluster.api.host("farm1").await.expect("known").cores_given, 2, "one goes on");
}

#[tokio::test]
async fn a_postflight_that_comes_first_takes_its_preflight_along() {
    let (cluster, mut marks, _) = busy_host().await;
    let host = &cluster["farm1"];
    host.postflight("shot:1").run();
    host.preflight("shot:1").cores(2).run();
    assert!(host.run_folder().bookings().expect("it lists").is_empty());
    let _ = marks.within(Span::ZERO);
    // Nobody comes to end it: it has ended already.
    cluster.api.until_cores("farm1", 3).await;
    let view = cluster
        .monitor_api()
        .until_view("farm1", "the monitor to agree", |view| view["fragment"]["cores"] == 3)
        .await;
    assert_eq!(view["bookings"], Value::Array(Vec::new()));
}

fn event(host: &Host, kind: HookKind, booking: &str, count: u64) -> HookEvent {
    let Epoch { incarnation, .. } = host.epoch();
    HookEvent {
        host: host.id(),
        kind,
        booking: BookingId::new(booking).expect("a plain name"),
        resources: Booked::default(),
        epoch: Epoch { incarnation, count },
        release_us: None,
        failed: None,
    }
}

async fn tell(monitor: &Api, event: &HookEvent) {
    let _: Value = monitor.good(monitor.request(Method::POST, "/v1/events").json(event)).await;
}

#[tokio::test]
async fn news_that_overtake_each_other_open_nothing_too_early() {
    let cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let host = &cluster["farm1"];
    let monitor = cluster.monitor_api();
    let mut marks = cluster.marks();
    // Two renders; the news of them reach the monitor late, doubled and in the wrong order.
    host.untold("preflight", "shot:1").run();
    host.untold("postflight", "shot:1").run();
    host.untold("preflight", "shot:2").run();
    let now = host.epoch().count;
    tell(&monitor, &event(host, HookKind::Postflight, "shot:1", now - 1)).await;
    tell(&monitor, &event(host, HookKind::Preflight, "shot:2", now)).await;
    tell(&monitor, &event(host, HookKind::Preflight, "shot:1", now - 1)).await;
    tell(&monitor, &event(host, HookKind::Preflight, "shot:1", now - 1)).await;
    tell(&monitor, &event(host, HookKind::Postflight, "shot:1", now - 1)).await;
    cluster.api.until_cores("farm1", 0).await;
    cluster.api.submit(&marks.job(2, 1)).await;
    assert_eq!(marks.within(cluster.quiet().times(3)), [], "the second render runs");
    let view = monitor.view("farm1").await.expect("known");
    let booked = view["bookings"].as_array().expect("a list");
    assert_eq!(booked.len(), 1, "{view}");
    assert_eq!(booked[0]["booking"], "shot:2");
    // Its end opens the host.
    host.untold("postflight", "shot:2").run();
    tell(&monitor, &event(host, HookKind::Postflight, "shot:2", now)).await;
    assert_eq!(marks.take(2).len(), 2);
}

#[tokio::test]
async fn a_hook_that_the_monitor_never_hears_of_holds_all_the_same() {
    let (cluster, mut marks, begun) = busy_host().await;
    let host = &cluster["farm1"];
    host.untold("preflight", "shot:1").run();
    assert!(living(&begun).iter().all(|pid| processes::computing(&[*pid]).is_empty()));
    cluster.api.until_cores("farm1", 0).await;
    assert_eq!(marks.within(cluster.quiet().times(3)), []);
    let status = host.ask(&SocketRequest::Status);
    assert!(matches!(status, SocketAnswer::Status { slots: 0, running: 0, .. }), "{status:?}");
    // The agent's samples have told the monitor; they tell of the end as well.
    host.untold("postflight", "shot:1").run();
    cluster.api.until_cores("farm1", 3).await;
}
