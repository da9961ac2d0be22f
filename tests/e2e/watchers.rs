//! Whoever has a page open is told what hosts do and why, in the monitor's own words, and of jobs as
//! they come and go.

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::cluster::{Cluster, Plan};
use crate::patience::within;

/// An open page, without its browser.
struct Watcher {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    number: Value,
}

impl Watcher {
    async fn of(cluster: &Cluster) -> Self {
        let url = cluster.api.url.replacen("http", "ws", 1);
        let (socket, _) = connect_async(format!("{url}/v1/watch")).await.expect("it lets us in");
        Self { socket, number: Value::Null }
    }

    /// What it is told next.
    async fn next(&mut self) -> Value {
        loop {
            let message = self.socket.next().await.expect("it goes on").expect("a message");
            if let Message::Binary(told) = message {
                let told: Value = serde_json::from_slice(&told).expect("JSON");
                assert_eq!(told["since"], self.number, "nothing is left out");
                self.number = told["number"].clone();
                return told;
            }
        }
    }

    /// Waits until a host is told to be in this state; all that is told of it then.
    async fn until(&mut self, host: &str, state: &str) -> Value {
        let looking = async {
            loop {
                let told = self.next().await;
                let mut rows = told["hosts"].as_array().expect("a list").iter();
                let row = rows.find(|row| row["host"] == host && row["state"] == state);
                if let Some(row) = row {
                    return row.clone();
                }
            }
        };
        within(&format!("{host} to be {state}"), looking).await
    }
}

#[tokio::test]
async fn whoever_watches_is_told_what_hosts_do_and_why() {
    let state = tempfile::tempdir().expect("a folder");
    let state = state.path().to_str().expect("a plain path");
    let plan = Plan::new().farm(1).desktops(1).monitor(&["--state-dir", state]);
    let cluster = plan.start().await;
    cluster.are_open().await;
    let mut watcher = Watcher::of(&cluster).await;
    watcher.until("farm1", "idle").await;
    let farm1 = &cluster["farm1"];
    farm1.preflight("shot:1").run();
    let row = watcher.until("farm1", "rendering").await;
    assert!(row["closed"].as_str().is_some_and(|why| why.contains("booked")), "{row}");
    farm1.postflight("shot:1").run();
    watcher.until("farm1", "idle").await;
    let job = cluster.api.submit(&cluster.marks().job(100, 1)).await;
    watcher.until("farm1", "harvested").await;
    // Who comes later is told all of it at once.
    let all = within("all of it", Watcher::of(&cluster).await.next()).await;
    let jobs = all["jobs"].as_array().expect("a list");
    assert!(jobs.iter().any(|row| row["job"] == job.get()), "{all}");
    cluster.farm(&["stop", "--reason", "renders are late", "--by", "anna"]).ok();
    let row = watcher.until("farm1", "stopped").await;
    let why = row["closed"].as_str().expect("a reason");
    assert!(why.contains("anna") && why.contains("renders are late"), "{row}");
}
