//! The red button: who presses it, what it does at once, and what outlives the monitor.

use std::fs;
use std::path::Path;

use gleaner_monitor::{Config, RunError, run};
use gleaner_protocol::farm::FarmEvent;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::day::sample;
use crate::monitor::{Monitor, config, refusal};

fn keeping(broker: &Broker, folder: &Path) -> Config {
    let broker = format!("http://{}", broker.address);
    Config { broker, state_dir: Some(folder.to_owned()), ..config() }
}

async fn order(monitor: &Monitor, path: &str, body: Value) -> Value {
    let answer = monitor.post(path, body.to_string()).send().await.expect("answers");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

fn anna() -> Value {
    json!({"by": "anna@head", "reason": "renders are late"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_closes_what_is_open_and_outlives_the_monitor() {
    let broker = Broker::anywhere(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    assert!(matches!(broker.events()[..], [FarmEvent::FragmentOpened { .. }]));

    let answer = order(&monitor, "/v1/farm/stop", anna()).await;
    assert_eq!((&answer["is_kept"], &answer["is_new"]), (&json!(true), &json!(true)));
    let events = broker.events();
    let [FarmEvent::FragmentClosed { reason, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("anna@head") && reason.contains("renders are late"), "{reason}");
    // Whoever presses it again is told who did so first.
    let again = json!({"by": "ben", "reason": "me too"});
    let answer = order(&monitor, "/v1/farm/stop", again).await;
    assert_eq!((&answer["stop"]["by"], &answer["is_new"]), (&json!("anna@head"), &json!(false)));
    monitor.stop().await;

    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    let farm = monitor.get("/v1/farm").await;
    assert_eq!(farm["stop"]["by"], "anna@head", "{farm}");
    assert_eq!(farm["stop"]["at"], answer["stop"]["at"]);
    assert_eq!(farm["hosts"][0]["fragment"]["state"], "closed");
    let events = broker.events();
    let [FarmEvent::FragmentClosed { reason, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("anna@head"), "of a host that is closed it is told why: {reason}");
    let lifted = order(&monitor, "/v1/farm/resume", json!({"by": "ben"})).await;
    assert_eq!(lifted["lifted"]["reason"], "renders are late");
    assert!(matches!(broker.events()[..], [FarmEvent::FragmentOpened { .. }]));
    assert_eq!(monitor.get("/v1/farm").await["stop"], Value::Null);
    let nothing = order(&monitor, "/v1/farm/resume", json!({"by": "ben"})).await;
    assert_eq!(nothing["lifted"], Value::Null);
    monitor.stop().await;

    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    assert_eq!(monitor.get("/v1/farm").await["stop"], Value::Null, "the resume outlives it too");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_cannot_be_kept_holds_all_the_same_and_says_so() {
    let broker = Broker::anywhere(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let forgetful = Config { state_dir: None, ..keeping(&broker, folder.path()) };
    let monitor = Monitor::start(forgetful).await;
    let answer = order(&monitor, "/v1/farm/stop", anna()).await;
    assert_eq!(answer["is_kept"], false);
    assert_eq!(answer["trouble"], "the monitor has no state_dir");
    monitor.stop().await;

    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    // Nothing can be written there any more, whoever runs this test.
    let blocked = folder.path().join("stop.json.new");
    fs::create_dir(&blocked).expect("made");
    let answer = order(&monitor, "/v1/farm/stop", anna()).await;
    assert_eq!(answer["is_kept"], false, "{answer}");
    assert_eq!(monitor.get("/v1/farm").await["is_stop_kept"], false);
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    // Nor is it lifted: after a restart nobody would know.
    let resume = monitor.post("/v1/farm/resume", json!({"by": "ben"}).to_string());
    let (status, error) = refusal(resume).await;
    assert_eq!((status, error.code.as_str()), (507, "not_kept"), "{}", error.error);
    assert_eq!(monitor.get("/v1/farm").await["stop"]["by"], "anna@head");
    fs::remove_dir(&blocked).expect("gone");
    let answer = order(&monitor, "/v1/farm/stop", anna()).await;
    assert_eq!((&answer["is_kept"], &answer["is_new"]), (&json!(true), &json!(false)));
    assert_eq!(monitor.get("/v1/farm").await["is_stop_kept"], true);
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_that_cannot_be_understood_stops_the_farm() {
    let broker = Broker::anywhere(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("stop.json"), "{\"version\":1,\"st").expect("written");
    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    let farm = monitor.get("/v1/farm").await;
    assert_eq!(farm["stop"]["by"], "the monitor itself", "{farm}");
    order(&monitor, "/v1/farm/resume", json!({"by": "anna"})).await;
    assert_eq!(monitor.get("/v1/farm").await["stop"], Value::Null);
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_say_not_who_or_why_are_refused() {
    let broker = Broker::anywhere(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    for body in [
        json!({}),
        json!({"by": "anna"}),
        json!({"by": "anna", "reason": ""}),
        json!({"by": "anna", "reason": "x".repeat(2_000)}),
        json!({"by": "anna", "reason": "x", "until": "noon"}),
    ] {
        let (status, error) = refusal(monitor.post("/v1/farm/stop", body.to_string())).await;
        assert_eq!(status, 400, "{body}: {}", error.error);
    }
    assert_eq!(monitor.get("/v1/farm").await["stop"], Value::Null);
    // A second monitor does not get this one's folder.
    let error = run(keeping(&broker, folder.path()), |_| panic!("it starts"), async {})
        .await
        .expect_err("in use");
    assert!(matches!(error, RunError::State(_)), "{error}");
    assert!(error.to_string().contains("another monitor"), "{error}");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_farm_as_a_whole_is_shown() {
    let broker = Broker::anywhere(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(keeping(&broker, folder.path())).await;
    assert_eq!(monitor.get("/v1/farm").await["release"], Value::Null);
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    for (count, release_us) in [(1, 900), (2, 1_500), (3, 40_000)] {
        let mut hook = crate::day::hook("a", "preflight", count, Some(1));
        hook["booking"] = json!(format!("shot:{count}"));
        hook["release_us"] = json!(release_us);
        monitor.tell("/v1/events", hook).await;
    }
    let farm = monitor.get("/v1/farm").await;
    let release = json!({
        "preflights": 3, "p50_us": 1_500, "p90_us": 40_000, "p99_us": 40_000, "max_us": 40_000,
    });
    assert_eq!(farm["release"], release);
    assert_eq!((&farm["totals"]["hosts"], &farm["totals"]["bookings"]), (&json!(1), &json!(3)));
    assert_eq!(farm["is_stop_kept"], true);
    assert_eq!(farm["hosts"][0]["host"], "a");
    monitor.stop().await;
}
