//! What a monitor that begins knows of what the one before it knew.

use std::fs;
use std::path::Path;

use gleaner_monitor::Config;
use gleaner_monitor::limits::{GAPS_MIN, LEARNED_FILE_BYTES_MAX, QUIET_LEARNED_MAX};
use gleaner_protocol::{Span, boottime};
use serde_json::{Value, json};

use crate::day::{hook, sample};
use crate::monitor::{Monitor, config};

/// Longer than any test, in seconds.
const QUIET_S: u64 = 86_400;

fn waiting_long(folder: &Path) -> Config {
    let (quiet_period_s, state_dir) = (QUIET_S as f64, Some(folder.to_owned()));
    Config { quiet_period_s, state_dir, ..config() }
}

/// Writes it down as if nothing had happened on the host for very long; since when, in us.
fn long_quiet(folder: &Path) -> u64 {
    let path = folder.join("hosts.json");
    let mut file: Value = serde_json::from_slice(&fs::read(&path).expect("written")).expect("JSON");
    assert_eq!(file["hosts"][0]["host"], "a", "{file}");
    let long = Span::from_secs(QUIET_S - 60);
    let since_us = boottime().as_micros().saturating_sub(long.as_micros());
    file["hosts"][0]["quiet_since"] = json!(since_us);
    fs::write(&path, file.to_string()).expect("written");
    since_us
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(waiting_long(folder.path())).await;
    monitor.tell("/v1/samples", sample("a", 1, json!([]))).await;
    monitor.stop().await;

    let since_us = long_quiet(folder.path());
    let monitor = Monitor::start(waiting_long(folder.path())).await;
    let waited_us = boottime().as_micros() - since_us;
    monitor.tell("/v1/samples", sample("a", 1, json!([]))).await;
    let view = monitor.get("/v1/hosts/a").await;
    let quiet_ms = view["quiet_ms"].as_u64().expect("a number");
    assert!(quiet_ms <= QUIET_S * 1_000 - waited_us / 1_000, "{quiet_ms} after {waited_us} us");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_booking_of_which_only_a_hook_told_is_there_after_a_restart_that_nobody_announced() {
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(waiting_long(folder.path())).await;
    let mut event = hook("a", "preflight", 0, Some(5));
    event["epoch"] = json!({"incarnation": 0, "count": 0});
    monitor.tell("/v1/events", event).await;
    // It is written at once; a monitor that is killed now leaves this file.
    let path = folder.path().join("hosts.json");
    let written = loop {
        match fs::read(&path) {
            Ok(bytes) if String::from_utf8_lossy(&bytes).contains("shot:1") => break bytes,
            _ => tokio::task::yield_now().await,
        }
    };
    monitor.stop().await;
    fs::write(&path, written).expect("written");

    let monitor = Monitor::start(waiting_long(folder.path())).await;
    monitor.tell("/v1/samples", sample("a", 1, json!([]))).await;
    let view = monitor.get("/v1/hosts/a").await;
    assert_eq!(view["bookings"][0]["booking"], "shot:1", "{view}");
    assert_eq!(view["bookings"][0]["seen_by"], json!(["hook"]));
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_that_cannot_be_understood_is_as_good_as_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(waiting_long(folder.path())).await;
    monitor.tell("/v1/samples", sample("a", 1, json!([]))).await;
    monitor.stop().await;
    long_quiet(folder.path());
    let path = folder.path().join("hosts.json");
    let good = fs::read_to_string(&path).expect("written");
    let files = [
        (good.clone(), true),
        (good.replace("\"version\":1", "\"version\":2"), false),
        (good.replace("\"host\":", "\"hostess\":"), false),
        (good[..good.len() - 1].to_owned(), false),
        (String::new(), false),
    ];
    for (content, is_understood) in files {
        assert_eq!(content == good, is_understood);
        fs::write(&path, &content).expect("written");
        let begun = boottime();
        let monitor = Monitor::start(waiting_long(folder.path())).await;
        monitor.tell("/v1/samples", sample("a", 1, json!([]))).await;
        let quiet_ms = monitor.get("/v1/hosts/a").await["quiet_ms"].as_u64().expect("a number");
        // Else it waits from now on.
        let waits_until = boottime() + Span::from_millis(quiet_ms);
        let is_shorter = waits_until < begun + Span::from_secs(QUIET_S);
        assert_eq!(is_shorter, is_understood, "waits {quiet_ms} ms by {content}");
        monitor.stop().await;
    }
}

/// A group whose quiet period is learned, kept in `folder`.
fn learning(folder: &Path) -> Config {
    let settings = "[[group]]\nname = 'frames'\nhosts = ['*']\nlearn_quiet = true";
    let groups = toml::from_str::<Config>(settings).expect("settings").groups;
    Config { groups, ..waiting_long(folder) }
}

/// So many renders follow each other on a host.
async fn renders(monitor: &Monitor, times: u64) {
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    for count in 1..=times {
        monitor.tell("/v1/events", hook("a", "preflight", count, Some(1))).await;
        monitor.tell("/v1/events", hook("a", "postflight", count, None)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_period_that_was_learned_holds_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let monitor = Monitor::start(learning(folder.path())).await;
    renders(&monitor, GAPS_MIN as u64 + 1).await;
    let before = monitor.get("/v1/farm").await["learned"].clone();
    assert_eq!((&before[0]["group"], &before[0]["gaps"]), (&json!("frames"), &json!(GAPS_MIN)));
    let learned_ms = before[0]["quiet_ms"].as_u64().expect("a number");
    assert!(learned_ms <= QUIET_LEARNED_MAX.as_millis(), "{learned_ms} ms, not as configured");
    monitor.stop().await;

    let monitor = Monitor::start(learning(folder.path())).await;
    assert_eq!(monitor.get("/v1/farm").await["learned"], before);
    // A host of which the monitor before knew nothing waits by it.
    monitor.tell("/v1/samples", sample("b", 0, json!([]))).await;
    let quiet_ms = monitor.get("/v1/hosts/b").await["quiet_ms"].as_u64().expect("a number");
    assert!(quiet_ms <= learned_ms, "{quiet_ms} ms");
    monitor.stop().await;

    let path = folder.path().join("learned.json");
    let good = fs::read_to_string(&path).expect("written");
    let spoiled = [
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("\"gaps_us\":", "\"gaps\":"),
        good[..good.len() - 1].to_owned(),
        String::new(),
        " ".repeat(LEARNED_FILE_BYTES_MAX as usize + 1),
    ];
    for content in spoiled {
        fs::write(&path, &content).expect("written");
        let monitor = Monitor::start(learning(folder.path())).await;
        assert_eq!(monitor.get("/v1/farm").await["learned"], json!([]), "{content:.200}");
        monitor.stop().await;
    }
    // What is learned of nobody any more is forgotten.
    fs::write(&path, &good).expect("written");
    let monitor = Monitor::start(waiting_long(folder.path())).await;
    assert_eq!(monitor.get("/v1/farm").await["learned"], json!([]));
    monitor.stop().await;
    let monitor = Monitor::start(learning(folder.path())).await;
    assert_eq!(monitor.get("/v1/farm").await["learned"], json!([]));
    monitor.stop().await;
}
