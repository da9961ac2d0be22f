//! A farm is recorded.

use std::path::{Path, PathBuf};

use gleaner_monitor::{Config, RunError, run};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::recording::Line;
use serde_json::json;

use crate::broker::Broker;
use crate::day::{hook, sample};
use crate::monitor::{Monitor, config};

fn recording_to(path: &Path) -> Config {
    Config { record: Some(path.to_owned()), quiet_period_s: 0.05, ..config() }
}

/// The lines in words.
fn read(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a recording");
    let word = |line: &str| match serde_json::from_str(line).expect(line) {
        Line::Recording(head) => format!("begin, continued: {}", head.continued),
        Line::Host(host) => format!("{} {} of {}", host.host.as_str(), host.busy, host.cores),
        Line::Preflight(render) => format!("preflight {:?}", render.cores),
        Line::Postflight(_) => "postflight".into(),
        Line::Poll(poll) => format!("poll {:?}", poll.hosts),
        Line::Opened(opened) => format!("opened {}", opened.cores),
        Line::Closed(closed) => format!("closed {}", closed.host.as_str()),
        Line::Alive(_) => "alive".into(),
        Line::Lost(lost) => format!("lost {}", lost.lines),
    };
    text.lines().map(word).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_heard_and_decided_is_in_the_file_when_the_monitor_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("farm.jsonl");
    let broker = Broker::anywhere(&[]);
    let address = format!("http://{}", broker.address);
    let monitor = Monitor::start(Config { broker: address, ..recording_to(&path) }).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    monitor.tell("/v1/events", hook("a", "preflight", 1, Some(8))).await;
    monitor.tell("/v1/events", hook("a", "postflight", 1, None)).await;
    // Until it has opened, which takes a quiet period: the broker is told.
    let opened = |event: &FarmEvent| matches!(event, FarmEvent::FragmentOpened { cores: 12, epoch, .. } if epoch.count == 1);
    while !broker.events().iter().any(opened) {}
    let metrics = monitor.get_text("/metrics").await;
    assert!(metrics.contains("gleaner_monitor_recorded_lines_lost_total 0"), "{metrics}");
    monitor.stop().await;
    let said = read(&path);
    let told: Vec<&str> = said.iter().map(String::as_str).collect();
    // The first opening may have come before the render, or not.
    let others: Vec<&str> =
        told.iter().copied().filter(|line| !line.starts_with("opened")).collect();
    let expected = [
        "begin, continued: false",
        "a 0 of 12",
        "preflight Some(8)",
        "a 8 of 12",
        "postflight",
        "a 0 of 12",
    ];
    assert_eq!(others, expected);
    assert_eq!(told.last(), Some(&"opened 12"));

    // A second life goes on in the same file, also behind a torn line.
    let mut torn = std::fs::read(&path).expect("a recording");
    torn.truncate(torn.len() - 3);
    std::fs::write(&path, &torn).expect("written");
    Monitor::start(recording_to(&path)).await.stop().await;
    let text = std::fs::read_to_string(&path).expect("a recording");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("{\"recording\"")), "{text}");
    assert_eq!(text.lines().count(), told.len() + 1);
}

#[tokio::test]
async fn a_monitor_that_cannot_record_does_not_start() {
    let path = PathBuf::from("/no/such/folder/farm.jsonl");
    let config = recording_to(&path);
    let error = run(config, |_| panic!("it listens"), std::future::pending()).await;
    let error = error.expect_err("no such folder");
    assert!(matches!(error, RunError::Record { .. }), "{error}");
    assert!(error.to_string().contains("cannot record to /no/such/folder/farm.jsonl"), "{error}");
}
