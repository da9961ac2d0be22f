//! What nobody should send, on every endpoint.

use std::io::{Read, Write};
use std::net::TcpStream;

use gleaner_protocol::{Span, boottime};
use serde_json::{Value, json};

use crate::day::{hook, sample};
use crate::monitor::{Monitor, Secrets, config, refusal};

#[tokio::test]
async fn bodies_that_are_no_events_or_samples_are_named() {
    let monitor = Monitor::start(config()).await;
    let with = |mut body: Value, key: &str, value: Value| {
        body[key] = value;
        body.to_string()
    };
    let event = hook("a", "preflight", 1, None);
    let good = sample("a", 0, json!([]));
    let big = "9".repeat(17 << 10);
    let many: Vec<Value> =
        (0..4_097).map(|n| json!({"booking": format!("r{n}"), "resources": {}})).collect();
    for (path, body, status, word) in [
        ("/v1/events", String::new(), 411, "Content-Length"),
        ("/v1/events", "{".into(), 400, "EOF"),
        ("/v1/events", "[]".into(), 400, "not a hook event"),
        ("/v1/events", good.to_string(), 400, "unknown field"),
        ("/v1/events", with(event.clone(), "host", json!("a/b")), 400, "character '/'"),
        ("/v1/events", with(event.clone(), "kind", json!("midflight")), 400, "midflight"),
        ("/v1/events", with(event.clone(), "epoch", json!(-1)), 400, "not a hook event"),
        ("/v1/events", with(event.clone(), "extra", json!(1)), 400, "unknown field"),
        ("/v1/events", with(event.clone(), "resources", json!({"cores": 4097})), 400, "4097"),
        ("/v1/events", big, 413, "too large"),
        ("/v1/samples", "\u{0}".into(), 400, "not a host sample"),
        ("/v1/samples", event.to_string(), 400, "unknown field"),
        ("/v1/samples", with(good.clone(), "cores", json!(5000)), 400, "5000 cores"),
        ("/v1/samples", with(good.clone(), "origin", json!("cloud")), 400, "cloud"),
        ("/v1/samples", with(good.clone(), "cpu_percent", json!("NaN")), 400, "cpu_percent"),
        ("/v1/samples", with(good.clone(), "bookings", json!(many)), 400, "4097 bookings"),
        ("/v1/samples", "9".repeat((1 << 20) + 1), 413, "too large"),
    ] {
        let (code, error) = refusal(monitor.post(path, body.clone())).await;
        let begin: String = body.chars().take(60).collect();
        assert_eq!(code, status, "{path} {begin}: {error:?}");
        let named = error.error.contains(word) || word == "cpu_percent";
        assert!(named && !error.code.is_empty(), "{path} {begin}: {error:?}");
    }
    assert_eq!(monitor.get("/v1/hosts").await, json!([]), "nothing was taken in");
    monitor.stop().await;
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_named() {
    let monitor = Monitor::start(config()).await;
    let url = |path: &str| monitor.url(path);
    for (request, status, code) in [
        (monitor.client.get(url("/")), 404, "no_route"),
        (monitor.client.get(url("/v1/events/x")), 404, "no_route"),
        (monitor.client.get(url("/v1/hosts/none")), 404, "unknown_host"),
        (monitor.client.get(url("/v1/hosts/%2e%2e%2fetc")), 404, "unknown_host"),
        (monitor.client.get(url("/v1/events")), 405, "method"),
        (monitor.client.delete(url("/v1/hosts")), 405, "method"),
        (monitor.post("/metrics", ""), 405, "method"),
    ] {
        let (got, error) = refusal(request).await;
        assert_eq!((got, error.code.as_str()), (status, code), "{error:?}");
    }
    monitor.stop().await;
}

#[tokio::test]
async fn a_web_page_cannot_speak_to_the_monitor() {
    let monitor = Monitor::start(config()).await;
    let event = hook("a", "postflight", 1, None).to_string();
    let from_page =
        monitor.post("/v1/events", event.clone()).header("origin", "http://evil.example");
    let (status, error) = refusal(from_page).await;
    assert_eq!((status, error.code.as_str()), (403, "browser"));
    // A name of theirs that leads here.
    let rebound = monitor.post("/v1/events", event).header("host", "evil.example");
    let (status, error) = refusal(rebound).await;
    assert_eq!((status, error.code.as_str()), (403, "host"));
    let rebound = monitor.client.get(monitor.url("/v1/hosts")).header("host", "evil.example:80");
    assert_eq!(refusal(rebound).await.0, 403);
    assert_eq!(monitor.get("/v1/hosts").await, json!([]));
    monitor.stop().await;
}

#[tokio::test]
async fn a_monitor_that_asks_for_keys_answers_only_those_who_show_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = Secrets::new(folder.path());
    let monitor = Monitor::start(secrets.config()).await;
    let event = hook("a", "preflight", 1, None).to_string();
    let (status, error) = refusal(monitor.post("/v1/events", event.clone())).await;
    assert_eq!((status, error.code.as_str()), (401, "token"));
    let wrong =
        monitor.client.get(monitor.url("/v1/hosts")).bearer_auth("Not-a-secret-but-long-enough");
    assert_eq!(refusal(wrong).await.0, 401);
    let with_token = monitor.post("/v1/events", event).bearer_auth(&secrets.admin);
    assert!(with_token.send().await.expect("answers").status().is_success());
    assert_eq!(monitor.get_text("/healthz").await, "ok\n");
    for (path, body) in [("/v1/challenge", "{}"), ("/v1/session", r#"{"challenge":"","proof":""}"#)]
    {
        let (status, _) = refusal(monitor.post(path, body)).await;
        assert!(matches!(status, 400 | 403), "{path}: {status}");
    }
    monitor.stop().await;
}

/// Bytes as they are, to a new connection; what came back until its end.
fn raw(monitor: &Monitor, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(monitor.listen).expect("connects");
    stream.write_all(bytes).expect("writes");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_not_http_or_have_no_length_end_their_connection_only() {
    let monitor = Monitor::start(config()).await;
    for (bytes, expected) in [
        (&b"hello\r\n\r\n"[..], "HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "HTTP/1.1 400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        (b"GET /healthz HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
        (
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 411",
        ),
        (
            b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 400",
        ),
    ] {
        let answer = raw(&monitor, bytes);
        assert!(answer.starts_with(expected), "{:?}: {answer}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(monitor.get_text("/healthz").await, "ok\n");
    monitor.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_do_not_hold_up_the_end() {
    let monitor = Monitor::start(config()).await;
    let mut silent: Vec<TcpStream> =
        (0..16).map(|_| TcpStream::connect(monitor.listen).expect("connects")).collect();
    silent[0].write_all(b"POST /v1/events HTTP/1.1\r\nHost: loc").expect("writes");
    silent[1]
        .write_all(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        .expect("writes");
    assert_eq!(monitor.get_text("/healthz").await, "ok\n");
    let begun = boottime();
    monitor.stop().await;
    let took = boottime().since(begun);
    // Far less than they would be waited for if it went on.
    gleaner_calm::assert_within("the end", took, Span::from_secs(15));
}

#[tokio::test]
async fn the_token_of_a_hook_is_good_for_what_its_host_tells_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = Secrets::new(folder.path());
    let monitor = Monitor::start(secrets.config()).await;
    let tells = |host: &str| {
        let event = hook(host, "preflight", 1, Some(2)).to_string();
        monitor.post("/v1/events", event).bearer_auth(&secrets.hook)
    };
    assert_eq!(tells("a").send().await.expect("answers").status(), 200);
    let (status, error) = refusal(tells("b")).await;
    assert_eq!((status, error.code.as_str()), (403, "another_host"), "{error:?}");
    let hosts = monitor.client.get(monitor.url("/v1/hosts")).bearer_auth(&secrets.hook);
    let hosts: Value = hosts.send().await.expect("answers").json().await.expect("JSON");
    assert_eq!(hosts[0]["host"], "a", "{hosts}");
    for request in [
        monitor.post("/v1/samples", sample("a", 0, json!([])).to_string()),
        monitor.post("/v1/farm/stop", json!({"by": "x", "reason": "x"}).to_string()),
        monitor.post("/v1/farm/resume", json!({"by": "x"}).to_string()),
        monitor.client.get(monitor.url("/v1/farm")),
        monitor.client.get(monitor.url("/v1/hosts/a")),
        monitor.client.get(monitor.url("/v1/hosts/../farm")),
        monitor.client.get(monitor.url("/metrics")),
    ] {
        let (status, error) = refusal(request.bearer_auth(&secrets.hook)).await;
        assert_eq!((status, error.code.as_str()), (403, "role"), "{error:?}");
        assert!(error.error.contains("is not for a hook"), "{error:?}");
    }
    let (status, _) = refusal(monitor.post("/v1/events", "").bearer_auth("no-token-at-all")).await;
    assert_eq!(status, 401);
    let all = monitor.client.get(monitor.url("/v1/farm")).bearer_auth(&secrets.admin).send().await;
    assert_eq!(all.expect("answers").status(), 200);
    monitor.stop().await;
}
