//! What a farm does, and what the broker is told of it.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use gleaner_monitor::limits::SILENT_POLL_INTERVALS_MAX;
use gleaner_monitor::{Config, RunError, run};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::{Span, Time, boottime};
use serde_json::{Value, json};
use tokio::net::TcpSocket;

use crate::broker::Broker;
use crate::monitor::{Monitor, Secrets, config};

pub(crate) fn sample(host: &str, count: u64, bookings: Value) -> Value {
    json!({
        "host": host, "origin": "farm", "cores": 12, "memory_mib": 48_000,
        "epoch": {"incarnation": 7, "count": count}, "bookings": bookings,
        "cpu_percent": 3.5, "used_memory_mib": 900, "replicas": 0,
    })
}

pub(crate) fn hook(host: &str, kind: &str, count: u64, cores: Option<u32>) -> Value {
    json!({
        "host": host, "kind": kind, "booking": "shot:1", "resources": {"cores": cores},
        "epoch": {"incarnation": 7, "count": count},
    })
}

fn told(events: &[FarmEvent]) -> Vec<String> {
    let text = |event: &FarmEvent| match event {
        FarmEvent::FragmentOpened { host, epoch, cores, .. } => {
            format!("open {} {cores} at {}", host.as_str(), epoch.count)
        }
        FarmEvent::FragmentClosed { host, .. } => format!("close {}", host.as_str()),
    };
    events.iter().map(text).collect()
}

fn for_broker(broker: &Broker) -> Config {
    Config { broker: format!("http://{}", broker.address), ..config() }
}

/// Looks at the monitor's figures until they are as wished. The wait is only bounded so that a
/// failure is one.
async fn until_metrics(monitor: &Monitor, are_so: impl Fn(&str) -> bool) {
    let end = boottime() + Span::from_secs(60);
    loop {
        let metrics = monitor.get_text("/metrics").await;
        if are_so(&metrics) {
            return;
        }
        assert!(boottime() < end, "in vain: {metrics}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_hears_of_a_host_that_opens_shrinks_closes_and_opens_again() {
    let broker = Broker::anywhere(&[]);
    let monitor = Monitor::start(for_broker(&broker)).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    let (head, events) = broker.batch();
    assert!(head.starts_with("POST /v1/farm/events HTTP/1.1"), "{head}");
    assert_eq!(told(&events), ["open a 12 at 0"]);
    let FarmEvent::FragmentOpened { memory_mib, gpus, valid_ms, .. } = events[0] else { panic!() };
    assert_eq!((memory_mib, gpus), (48_000, Some(0)));
    // Of thirty seconds, what is left when it is told.
    assert!((1_000..=30_000).contains(&valid_ms), "{valid_ms}");

    monitor.tell("/v1/events", hook("a", "preflight", 1, Some(8))).await;
    assert_eq!(told(&broker.events()), ["open a 4 at 1"]);
    let mut second = hook("a", "preflight", 2, None);
    second["booking"] = json!("shot:2");
    monitor.tell("/v1/events", second.clone()).await;
    assert_eq!(told(&broker.events()), ["close a"]);
    second["kind"] = json!("postflight");
    monitor.tell("/v1/events", second).await;
    assert_eq!(told(&broker.events()), ["open a 4 at 2"]);
    monitor.tell("/v1/events", hook("a", "postflight", 2, None)).await;
    assert_eq!(told(&broker.events()), ["open a 12 at 2"]);
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_and_metrics_show_what_is_known() {
    let broker = Broker::anywhere(&[]);
    let monitor = Monitor::start(for_broker(&broker)).await;
    assert_eq!(monitor.get("/v1/hosts").await, json!([]));
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    assert_eq!(told(&broker.events()), ["open a 12 at 0"]);
    monitor.tell("/v1/events", hook("a", "preflight", 1, Some(8))).await;
    assert_eq!(told(&broker.events()), ["open a 4 at 1"]);

    let hosts = monitor.get("/v1/hosts").await;
    assert_eq!(hosts[0], monitor.get("/v1/hosts/a").await.with_ages_of(&hosts[0]));
    let host = &hosts[0];
    assert_eq!((&host["host"], &host["origin"]), (&json!("a"), &json!("farm")));
    assert_eq!((&host["cores"], &host["cpu_percent"]), (&json!(12), &json!(3.5)));
    assert_eq!(host["epoch"], json!({"incarnation": 7, "count": 1}));
    assert_eq!(host["bookings"][0]["booking"], "shot:1");
    assert_eq!(host["bookings"][0]["seen_by"], json!(["hook"]));
    assert_eq!(host["fragment"]["state"], "open");
    assert_eq!(host["fragment"]["cores"], 4);
    assert!(host["sample_age_ms"].is_u64() && host["event_age_ms"].is_u64());
    assert_eq!(host["poll_age_ms"], Value::Null);
    assert_eq!(host["contradictions"], json!([]));

    let metrics = monitor.get_text("/metrics").await;
    for line in [
        "gleaner_monitor_hosts 1",
        "gleaner_monitor_fragment_cores 4",
        "gleaner_monitor_preflights_total 1",
        "gleaner_monitor_samples_total 1",
        "gleaner_monitor_fragments_opened_total 2",
        "# TYPE gleaner_monitor_hosts gauge",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    }
    assert_eq!(monitor.get_text("/healthz").await, "ok\n");
    monitor.stop().await;
}

/// Ages differ from request to request.
trait WithAges {
    fn with_ages_of(self, other: &Value) -> Value;
}

impl WithAges for Value {
    fn with_ages_of(mut self, other: &Value) -> Value {
        for key in ["event_age_ms", "sample_age_ms", "quiet_ms"] {
            self[key] = other[key].clone();
        }
        self["bookings"][0]["age_ms"] = other["bookings"][0]["age_ms"].clone();
        self
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_was_away_is_told_where_the_hosts_stand_now() {
    // Its port refuses every call until it listens, and nobody else is given it.
    let away = TcpSocket::new_v4().expect("a socket");
    away.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("binds");
    let address = away.local_addr().expect("an address");
    let monitor = Monitor::start(Config { broker: format!("http://{address}"), ..config() }).await;
    for host in ["a", "b"] {
        monitor.tell("/v1/samples", sample(host, 0, json!([]))).await;
    }
    // Both open, and the broker is not there to be told.
    let both_open = "gleaner_monitor_broker_events_waiting 2";
    until_metrics(&monitor, |metrics| {
        metrics.contains(both_open)
            && !metrics.contains("gleaner_monitor_broker_failures_total 0\n")
    })
    .await;
    monitor.tell("/v1/events", hook("a", "preflight", 1, None)).await;
    let back = away.listen(16).and_then(tokio::net::TcpListener::into_std).expect("listens");
    back.set_nonblocking(false).expect("sets");
    let broker = Broker::start(back, &[]);
    let mut events = broker.events();
    while events.len() < 2 {
        events.extend(broker.events());
    }
    assert_eq!(told(&events), ["open b 12 at 0", "close a"], "of a, only the newest");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_in_trouble_is_told_again() {
    let broker = Broker::anywhere(&[503, 500, 429]);
    let monitor = Monitor::start(for_broker(&broker)).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    assert_eq!(told(&broker.events()), ["open a 12 at 0"]);
    let metrics = monitor.get_text("/metrics").await;
    assert!(metrics.contains("gleaner_monitor_broker_failures_total 3\n"), "{metrics}");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_the_broker_refuses_do_not_hold_up_the_others() {
    let broker = Broker::anywhere(&[400]);
    let monitor = Monitor::start(for_broker(&broker)).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    until_metrics(&monitor, |metrics| {
        metrics.contains("gleaner_monitor_broker_events_refused_total 1\n")
    })
    .await;
    monitor.tell("/v1/events", hook("a", "preflight", 1, None)).await;
    assert_eq!(told(&broker.events()), ["close a"]);
    monitor.stop().await;
}

/// A farm whose allocations can be read, until they are garbled.
struct Allocations {
    address: SocketAddr,
    /// When they could be read for the last time, and whether they still can.
    good: Arc<Mutex<(Time, bool)>>,
}

impl Allocations {
    fn serve(document: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("an address");
        let good = Arc::new(Mutex::new((boottime(), true)));
        let served = Arc::clone(&good);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepts");
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                }
                let body = match &mut *served.lock().expect("no panic") {
                    (last, true) => {
                        *last = boottime();
                        document
                    }
                    _ => "no JSON",
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, good }
    }

    /// Garbles them; when they could be read for the last time.
    fn garble(&self) -> Time {
        let mut good = self.good.lock().expect("no panic");
        good.1 = false;
        good.0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_farm_that_is_polled_shrinks_its_hosts_and_two_missed_polls_close_them() {
    const BOOKED: &str = r#"{"hosts":[{"host":"a","cores":12,"memory_mib":48000,
        "bookings":[{"booking":"job-1","cores":8}]}]}"#;
    const INTERVAL: Span = Span::from_secs(1);
    let farm = Allocations::serve(BOOKED);
    let broker = Broker::anywhere(&[]);
    let polled = Config {
        poll_url: Some(format!("http://{}/allocations.json", farm.address)),
        poll_interval_s: INTERVAL.as_secs_f64(),
        ..for_broker(&broker)
    };
    let monitor = Monitor::start(polled).await;
    monitor.tell("/v1/samples", sample("a", 0, json!([]))).await;
    assert_eq!(told(&broker.events()), ["open a 4 at 0"]);
    let last_good = farm.garble();
    assert_eq!(told(&broker.events()), ["close a"]);
    let silence = boottime() - last_good;
    let metrics = monitor.get_text("/metrics").await;
    let failed = "gleaner_monitor_polls_failed_total ";
    let failed = metrics.lines().find_map(|line| line.strip_prefix(failed)).expect("counted");
    // One missed poll does not, but for a machine so slow that so much time has passed meanwhile.
    let is_silent = silence >= INTERVAL.times(SILENT_POLL_INTERVALS_MAX);
    assert!(failed.parse::<u64>().expect("a number") >= 2 || is_silent, "{silence}: {metrics}");
    monitor.stop().await;
}

async fn start_error(config: Config) -> RunError {
    let ready = |_| panic!("it must not start");
    run(config, ready, std::future::pending()).await.expect_err("refused")
}

#[tokio::test]
async fn what_cannot_be_served_safely_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = Secrets::new(folder.path());
    let beyond = Config { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..config() };
    let (tls_cert, tls_key) = (Some(secrets.certificate.clone()), Some(secrets.key.clone()));
    let key_file = Some(secrets.broker_key.clone());
    for (config, missing) in [
        (beyond.clone(), "TLS is missing"),
        (Config { broker_key_file: key_file, ..beyond.clone() }, "TLS is missing"),
        (
            Config { tls_cert: tls_cert.clone(), tls_key, ..beyond },
            "nobody can have a key here: set broker_key_file",
        ),
        (Config { tls_cert, ..config() }, "tls_cert and tls_key go together"),
        (Config { require_keys: true, ..config() }, "set broker_key_file as well"),
    ] {
        let error = start_error(config).await;
        let RunError::Serve(why) = &error else { panic!("{error}") };
        assert!(why.to_string().contains(missing), "{why}");
    }

    let no_key = folder.path().join("no-key");
    let start_with = async || {
        let broker_key_file = Some(no_key.clone());
        start_error(Config { broker_key_file, ..config() }).await.to_string()
    };
    assert!(start_with().await.contains("no-key"));
    std::fs::write(&no_key, "gleaner-key-1 00").expect("written");
    assert!(start_with().await.contains("chmod 600"));
    std::fs::set_permissions(&no_key, Permissions::from_mode(0o600)).expect("set");
    assert!(start_with().await.contains("holds no key"));
    let error = start_error(Config { quiet_period_s: -1.0, ..config() }).await;
    assert!(matches!(error, RunError::Config(_)), "{error}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("binds");
    let listen = taken.local_addr().expect("an address");
    let error = start_error(Config { listen, ..config() }).await;
    let RunError::Serve(error) = error else { panic!("{error}") };
    let error = error.to_string();
    assert!(error.contains(&listen.to_string()) && error.contains("another program"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_this_machine_it_speaks_tls_to_those_who_show_a_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = Secrets::new(folder.path());
    let config = Config {
        listen: SocketAddr::from(([0, 0, 0, 0], 0)),
        tls_cert: Some(secrets.certificate.clone()),
        tls_key: Some(secrets.key.clone()),
        ..secrets.config()
    };
    let monitor = Monitor::start(config).await;
    let port = monitor.listen.port();
    let pem = std::fs::read(&secrets.certificate).expect("there");
    let trusted = reqwest::Certificate::from_pem(&pem).expect("our own");
    let _ = rustls::crypto::ring::default_provider().install_default();
    // By a name that is not loopback's: beyond it, keys keep strangers out.
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([trusted])
        .resolve("monitor.farm", SocketAddr::from(([127, 0, 0, 1], port)));
    let client = client.build().expect("a client");
    let event = || {
        let url = format!("https://monitor.farm:{port}/v1/events");
        client.post(url).body(hook("a", "preflight", 1, Some(8)).to_string())
    };
    let answer = event().bearer_auth(&secrets.admin).send().await.expect("answers");
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
    let without = event().send().await.expect("answers");
    assert_eq!(without.status().as_u16(), 401);
    let plain = monitor.client.get(monitor.url("/v1/hosts")).bearer_auth(&secrets.admin);
    plain.send().await.expect_err("no plain HTTP where there is TLS");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_schedules_of_the_configuration_hold_from_the_start() {
    let group = |name: &str, more: &str| format!("[[group]]\nname = '{name}'\n{more}\n");
    let text = [
        group("desks", "hosts = ['ws-*']\nharvest = false"),
        group("big", "hosts = ['big?']\nreserve_cores = 5"),
        "[[schedule]]\nname = 'always'\ntime_zone = 'Asia/Tokyo'\nhours = ['00:00-24:00']\n\
         groups = ['big']\nreserve_cores = 7\n"
            .to_owned(),
    ];
    let rules: Config = toml::from_str(&text.concat()).expect("settings");
    let broker = Broker::anywhere(&[]);
    let config = Config { groups: rules.groups, schedules: rules.schedules, ..for_broker(&broker) };
    let monitor = Monitor::start(config.clone()).await;
    monitor.tell("/v1/samples", sample("ws-1", 0, json!([]))).await;
    monitor.tell("/v1/samples", sample("big1", 0, json!([]))).await;
    assert_eq!(told(&broker.events()), ["open big1 5 at 0"]);
    let desk = monitor.get("/v1/hosts/ws-1").await;
    assert_eq!(desk["fragment"]["reason"], "the group \"desks\" is never harvested");
    monitor.stop().await;

    let mut wrong = config;
    wrong.schedules[0].groups = vec!["bigg".into()];
    let error = run(wrong, |_| panic!("it starts"), async {}).await.expect_err("no such group");
    assert!(matches!(error, RunError::Config(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("[[schedule]] \"always\": groups = \"bigg\""), "{error}");
    assert!(error.contains("such as \"big\""), "{error}");
}
