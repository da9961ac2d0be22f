//! A farm that says by MQTT when something changes: Flamenco's Manager, played, and a real broker.

use std::cell::Cell;

use gleaner_protocol::boottime;
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::mosquitto::Mosquitto;
use crate::patience::{eventually, let_pass};
use crate::played_farm::PlayedFarm;
use crate::program::{gleaner, run};

/// Where a task's changes are published; which job it is matters to nobody.
const JOB: &str = "flamenco/jobs/6006be6b-51c4-4f9e-a6ea-a5fd4a5d1d4c";

/// A monitor that polls in turn so often, and listens there.
async fn listening(farm: &PlayedFarm, seconds: &str, url: &str, options: &[&str]) -> Cluster {
    let polled = ["--poll", "flamenco", "--poll-url", &farm.manager_url()];
    let listens = ["--poll-interval-s", seconds, "--poll-events-url", url];
    Plan::new().farm(1).monitor(&polled).monitor(&listens).monitor(options).start().await
}

fn status(cluster: &Cluster) -> String {
    let mut command = gleaner(["farm", "status"]);
    run(command.env("GLEANER_MONITOR", &cluster.monitor_api().url)).ok()
}

async fn until_heard(cluster: &Cluster, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let monitor = cluster.monitor_api();
    eventually(what, async || {
        let events = monitor.get::<Value>("/v1/farm").await["farm_events"].clone();
        is_so(&events).then_some(events)
    })
    .await
}

#[tokio::test]
async fn a_message_has_the_farm_polled_at_once_and_is_not_believed() {
    let farm = PlayedFarm::flamenco(&["farm1"]);
    let mut mosquitto = Mosquitto::start().await;
    // The next poll in turn is after the test.
    let url = format!("mqtt://{}", mosquitto.address());
    let cluster = listening(&farm, "3600", &url, &[]).await;
    until_heard(&cluster, "the monitor to listen", |events| events["is_connected"] == true).await;
    cluster.api.until_cores("farm1", 2).await;

    farm.works(&[("farm1", Some("t-1"))]);
    mosquitto.publish(&[(JOB, r#"{"id":"t-1","status":"active"}"#)]);
    cluster.api.until_cores("farm1", 0).await;
    // What it says is not so.
    for lie in [r#"{"id":"t-1","status":"completed"}"#, "", "{", r#"{"worker":"../../farm1"}"#] {
        let before = farm.polls();
        mosquitto.publish(&[(JOB, lie)]);
        eventually("a poll", async || (farm.polls() > before).then_some(())).await;
    }
    let_pass(cluster.quiet()).await;
    let host = cluster.api.host("farm1").await.expect("known");
    assert_eq!(host.cores_given, 0, "the farm says that it renders");
    farm.works(&[("farm1", None)]);
    mosquitto.publish(&[("flamenco/workers", r#"{"name":"farm1","status":"awake"}"#)]);
    cluster.api.until_cores("farm1", 2).await;

    // Of other topics it hears nothing, and however much it hears, it asks twice a second at most.
    let (before, begun) = (farm.polls(), boottime());
    let storm = [(JOB, "{}"), ("flamenco/task", "{}"), ("other/workers", "{}")];
    let sent = Cell::new(6);
    let goes_on = || {
        mosquitto.publish(&storm);
        sent.set(sent.get() + 1);
    };
    (0..100).for_each(|_| goes_on());
    let is_heard = |events: &Value| {
        goes_on();
        events["heard"].as_u64() > Some(6)
    };
    until_heard(&cluster, "the storm", is_heard).await;
    let (polls, took_ms) = (farm.polls() - before, (boottime() - begun).as_millis());
    assert!(polls <= took_ms / 500 + 2, "{polls} polls in {took_ms} ms");

    // Who was away is told by nobody what happened meanwhile, and looks.
    mosquitto.ends();
    until_heard(&cluster, "the loss", |events| events["is_connected"] == false).await;
    let shown = status(&cluster);
    assert!(shown.contains("polled in turn only") && shown.contains(&url), "{shown}");
    farm.works(&[("farm1", Some("t-2"))]);
    mosquitto.begins().await;
    cluster.api.until_cores("farm1", 0).await;
    let events = until_heard(&cluster, "it back", |events| events["is_connected"] == true).await;
    assert!(events["heard"].as_u64() <= Some(sent.get()), "{events}");
    let shown = status(&cluster);
    assert!(shown.contains("polled at once when mqtt://"), "{shown}");
}

#[tokio::test]
async fn a_broker_that_is_not_there_changes_nothing_of_polling() {
    let farm = PlayedFarm::flamenco(&["farm1"]);
    let cluster = listening(&farm, "0.4", "mqtt://127.0.0.1:9", &[]).await;
    let lost = until_heard(&cluster, "trouble", |events| events["trouble"].is_string()).await;
    assert_eq!((&lost["is_connected"], &lost["heard"]), (&Value::from(false), &Value::from(0)));
    cluster.api.until_cores("farm1", 2).await;
    farm.works(&[("farm1", Some("t-1"))]);
    cluster.api.until_cores("farm1", 0).await;
    farm.works(&[("farm1", None)]);
    cluster.api.until_cores("farm1", 2).await;
    let shown = status(&cluster);
    assert!(shown.contains("mqtt://127.0.0.1:9/flamenco is not heard"), "{shown}");
    let log = cluster.monitor.as_ref().expect("there is one").said();
    assert_eq!(log.matches("messages are not heard").count(), 1, "{log}");
}

#[tokio::test]
async fn a_password_goes_over_tls_and_a_wrong_one_hears_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
    let certificate = write("cert.pem", &made.cert.pem());
    let key = write("key.pem", &made.signing_key.serialize_pem());
    let mosquitto = Mosquitto::secure(&certificate, &key, "gleaner", "open sesame").await;
    let ca = certificate.to_str().expect("plain");
    let farm = PlayedFarm::flamenco(&["farm1"]);
    let url = format!("mqtts://gleaner@{}/studio", mosquitto.address());
    for (password, is_right) in [("open sesame", true), ("open barley", false)] {
        let password = write("password", password);
        let file = ["--poll-events-password-file", password.to_str().expect("plain")];
        let options = [&file[..], &["--ca-file", ca]].concat();
        let cluster = listening(&farm, "3600", &url, &options).await;
        let is_refused = |events: &Value| events["trouble"].to_string().contains("login");
        let is_known = |events: &Value| events["is_connected"] == true || is_refused(events);
        let events = until_heard(&cluster, "an answer", is_known).await;
        assert_eq!(events["is_connected"], is_right, "{events}");
        assert_eq!(events["url"], format!("mqtts://{}/studio", mosquitto.address()));
    }
}
