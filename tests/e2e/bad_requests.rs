//! Requests that make no sense, to the broker and to the monitor: each is answered with its
//! reason, and nothing else is affected.

use gleaner_protocol::Digest;
use gleaner_protocol::limits::{HTTP_BODY_BYTES_MAX, WORKUNITS_MAX};
use reqwest::Method;

use crate::api::Api;
use crate::cluster::Plan;
use crate::raw_http::{connect, head, send_bytes};

/// Sends a request that must be refused with this status; its reason must hold a word.
async fn refused(api: &Api, method: Method, path: &str, body: &[u8], status: u16, word: &str) {
    let request = api.request(method.clone(), path).body(body.to_vec());
    let (is, text) = api.send(request).await;
    let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
    assert_eq!(is.as_u16(), status, "{method} {path} with {shown}: {text}");
    let error: gleaner_protocol::api::ApiError =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert!(error.error.contains(word), "no {word:?} for {path} with {shown}: {text}");
}

/// What no HTTP server should mind: the status where one was given.
fn malformed_http(url: &str) {
    let long_line = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(200_000));
    let many = format!("{}{}\r\n", head("GET", "/v1/hosts", ""), "a: b\r\n".repeat(20_000));
    let twice = head("POST", "/v1/events", "Content-Length: 2\r\nContent-Length: 3\r\n");
    let smuggled =
        head("POST", "/v1/events", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n");
    let endless = head("POST", "/v1/jobs", "Content-Length: 99999999999999999999\r\n");
    let negative = head("POST", "/v1/jobs", "Content-Length: -1\r\n");
    let bad_chunk = head("POST", "/v1/jobs", "Transfer-Encoding: chunked\r\n");
    let requests = [
        Vec::new(),
        b"\r\n\r\n\r\n".to_vec(),
        b"hello\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n".to_vec(),
        b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS greeting".to_vec(),
        (0..=255).collect(),
        long_line.into_bytes(),
        many.into_bytes(),
        format!("{twice}\r\nab").into_bytes(),
        format!("{smuggled}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n").into_bytes(),
        format!("{endless}\r\nab").into_bytes(),
        format!("{negative}\r\nab").into_bytes(),
        format!("{bad_chunk}\r\nzz\r\nabc\r\n").into_bytes(),
        format!("{bad_chunk}\r\nffffffffffffffff1\r\nabc\r\n").into_bytes(),
        head("GET", "/healthz", "").into_bytes(),
    ];
    for request in requests {
        let status = send_bytes(url, &request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{status:?} {shown:?}");
    }
}

#[tokio::test]
async fn the_broker_refuses_each_with_its_reason() {
    let cluster = Plan::new().desktops(1).start().await;
    let api = &cluster.api;
    let job = |rest: &str| format!(r#"{{"task":{{"kernel":"gametree"}},{rest}}}"#).into_bytes();
    let nested = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    let too_many = format!(r#""workunits":{{"count":{}}}"#, u64::from(WORKUNITS_MAX) + 1);
    let long_item = format!(r#""workunits":{{"items":["{}"]}}"#, "x".repeat(70_000));
    let input = format!(
        r#"{{"task":{{"command":{{"argv":["/bin/sh"],"inputs":[{{"name":"a","digest":"{}"}}]}}}},"workunits":{{"count":1}}}}"#,
        Digest::of(b"never uploaded"),
    );
    let jobs: [(&[u8], &str); 19] = [
        (b"", "no job"),
        (b"{", "no job"),
        (b"[]", "no job"),
        (b"null", "no job"),
        (b"\xff\xfe", "no job"),
        (&nested, "no job"),
        (b"{\"task\":{}}", "no job"),
        (&job(r#""workunits":{"count":-1}"#), "no job"),
        (&job(r#""workunits":{"count":1.5}"#), "no job"),
        (&job(r#""workunits":{"count":1},"count":1"#), "unknown field"),
        (&job(r#""workunits":{"count":0}"#), "workunits is 0"),
        (&job(&too_many), "workunits is"),
        (&job(r#""workunits":{"items":[]}"#), "workunits is 0"),
        (&job(&long_item), "item 0"),
        (&job(r#""workunits":{"count":1},"replication":0"#), "replication is 0"),
        (&job(r#""workunits":{"count":1},"replication":3,"quorum":4"#), "quorum is 4"),
        (&job(r#""workunits":{"count":1},"lease_s":0"#), "lease_s is 0"),
        (&job(r#""workunits":{"count":1},"lane":"rendering""#), "rendering"),
        (input.as_bytes(), "was not uploaded"),
    ];
    for (body, word) in jobs {
        refused(api, Method::POST, "/v1/jobs", body, 400, word).await;
    }
    let digest = Digest::of(b"content").to_string();
    let blob = format!("/v1/blobs/{digest}");
    let events_max = format!(
        "[{}]",
        vec![r#"{"event":"fragment_closed","host":"a","reason":""}"#; 10_001].join(",")
    );
    let requests: [(Method, &str, &[u8], u16, &str); 42] = [
        (Method::GET, "/v1/jobs/x", b"", 400, "job-NUMBER"),
        (Method::GET, "/v1/jobs/-1", b"", 400, "job-NUMBER"),
        (Method::GET, "/v1/jobs/99999999999999999999999", b"", 400, "job-NUMBER"),
        (Method::GET, "/v1/jobs/job-7", b"", 404, "job-7"),
        (Method::DELETE, "/v1/jobs/job-7", b"", 404, "job-7"),
        (Method::GET, "/v1/jobs/job-7/results", b"", 404, "job-7"),
        (Method::GET, "/v1/jobs/job-7/results?limit=0", b"", 400, "limit is 0"),
        (Method::GET, "/v1/jobs/job-7/results?from=-1", b"", 400, "query"),
        (Method::GET, "/v1/jobs/job-7/results?form=1", b"", 400, "query"),
        (Method::GET, "/v1/jobs/job-7/results/0/result", b"", 404, "job-7/0"),
        (Method::GET, "/v1/jobs/job-7/results/x/result", b"", 404, "GET"),
        (Method::GET, "/v1/explain/job-7", b"", 404, "job-7"),
        (Method::GET, "/v1/explain/job-7/x", b"", 400, "index"),
        (Method::GET, "/v1/blobs/abc", b"", 400, "64"),
        (Method::GET, &blob, b"", 404, &digest),
        (Method::PUT, &blob, b"other content", 400, &digest),
        (Method::PUT, "/v1/blobs/..%2f..%2fetc", b"x", 400, "64"),
        (Method::POST, "/v1/farm/events", b"", 400, "farm events"),
        (Method::POST, "/v1/farm/events", b"{}", 400, "farm events"),
        (Method::POST, "/v1/farm/events", br#"[{"event":"render_started"}]"#, 400, "unknown"),
        (Method::POST, "/v1/farm/events", events_max.as_bytes(), 400, "10001 events"),
        (Method::PUT, "/v1/jobs", b"{}", 405, "PUT"),
        (Method::GET, "/v1/hosts?limit=0", b"", 400, "limit is 0"),
        (Method::GET, "/v1/hosts?limit=1001", b"", 400, "from 1 to 1000"),
        (Method::GET, "/v1/hosts?after=a%2fb", b"", 400, "character"),
        (Method::POST, "/v1/hosts", b"{}", 405, "POST"),
        (Method::DELETE, "/v1/hosts", b"", 405, "DELETE"),
        (Method::GET, "/v1/farm/events", b"", 405, "GET"),
        (Method::GET, "/v2/jobs", b"", 404, "/v2/jobs"),
        (Method::GET, "/page", b"", 404, "/page"),
        (Method::POST, "/", b"", 404, "POST /"),
        (Method::GET, "/pages/..%2fv1", b"", 404, "/pages/..%2fv1"),
        (Method::GET, "/pages/app.js/", b"", 404, "/pages/app.js/"),
        (Method::GET, "/v1/watch", b"", 426, "WebSocket"),
        (Method::GET, "/v1/farm/history?by=year", b"", 400, "query"),
        (Method::GET, "/v1/farm/history?from_ms=-1", b"", 400, "query"),
        (Method::GET, "/v1/jobs/job-7/workunits", b"", 404, "job-7"),
        (Method::GET, "/v1/jobs/job-7/workunits?limit=201", b"", 400, "from 1 to 200"),
        (Method::POST, "/v1/login", b"{}", 400, "secret"),
        (Method::POST, "/v1/login", br#"{"secret":"0123"}"#, 403, "gleaner login"),
        (Method::POST, "/v1/me", b"", 405, "POST"),
        (Method::GET, "/v1/control", b"", 426, "WebSocket"),
    ];
    for (method, path, body, status, word) in requests {
        refused(api, method, path, body, status, word).await;
    }
    // What a web page would send, and what comes by a name that is not ours.
    for (header, value) in [
        ("Origin", "https://example.com"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Host", "broker.example.com"),
    ] {
        let request = api.request(Method::GET, "/v1/jobs").header(header, value);
        let error = api.refused(request, 403).await;
        assert!(!error.error.is_empty());
    }
    // A body that says how long it is, and one that does not.
    let length = HTTP_BODY_BYTES_MAX + 1;
    let huge = head("POST", "/v1/jobs", &format!("Content-Length: {length}\r\n"));
    assert_eq!(send_bytes(&api.url, format!("{huge}\r\nab").as_bytes()), Some(413));
    let mut chunked = head("POST", "/v1/jobs", "Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..=16 {
        chunked.extend_from_slice(b"100000\r\n");
        chunked.resize(chunked.len() + (1 << 20), b' ');
        chunked.extend_from_slice(b"\r\n");
    }
    assert!(matches!(send_bytes(&api.url, &chunked), Some(413) | None));
    malformed_http(&api.url);

    // Connections that say nothing keep nobody waiting.
    let silent: Vec<_> = (0..100).map(|_| connect(&api.url)).collect();
    assert_eq!(cluster.cli(&["submit", "gametree", "--depth", "3"]).ok(), "job-1\n");
    cluster.cli(&["wait", "job-1", "--timeout", "60"]).ok();
    drop(silent);
    api.is_well().await;
    let jobs: Vec<serde_json::Value> = api.get("/v1/jobs").await;
    assert_eq!(jobs.len(), 1, "none of all that was taken for a job");
}

#[tokio::test]
async fn the_monitor_refuses_each_with_its_reason() {
    let cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let monitor = cluster.monitor_api();
    let event =
        |rest: &str| format!(r#"{{"host":"farm1","kind":"preflight",{rest}}}"#).into_bytes();
    let epoch = r#""epoch":{"incarnation":1,"count":1}"#;
    let bodies: [(&str, &[u8], u16, &str); 11] = [
        ("/v1/events", b"", 411, "Content-Length"),
        ("/v1/events", b"[]", 400, "hook event"),
        ("/v1/events", b"\xff", 400, "hook event"),
        ("/v1/events", &event(&format!(r#""booking":"",{epoch}"#)), 400, "empty"),
        ("/v1/events", &event(&format!(r#""booking":"a b",{epoch}"#)), 400, "character"),
        ("/v1/events", &event(r#""booking":"a""#), 400, "epoch"),
        ("/v1/events", &event(&format!(r#""booking":"a","colour":1,{epoch}"#)), 400, "colour"),
        (
            "/v1/events",
            &event(&format!(r#""booking":"a","resources":{{"cores":5000}},{epoch}"#)),
            400,
            "5000 cores",
        ),
        ("/v1/samples", b"{}", 400, "host sample"),
        ("/v1/samples", b"null", 400, "host sample"),
        ("/v1/nothing", b"{}", 404, "there is no POST /v1/nothing"),
    ];
    for (path, body, status, word) in bodies {
        refused(&monitor, Method::POST, path, body, status, word).await;
    }
    // Refused by their announced length: who sends all of it may find the connection closed.
    for (path, length) in [("/v1/events", 100_000), ("/v1/samples", 2 << 20)] {
        let huge = head("POST", path, &format!("Content-Length: {length}\r\n"));
        assert_eq!(send_bytes(&monitor.url, format!("{huge}\r\nab").as_bytes()), Some(413));
    }
    refused(&monitor, Method::GET, "/v1/hosts/nobody", b"", 404, "nobody").await;
    refused(&monitor, Method::GET, "/v1/hosts/a%2fb", b"", 404, "a").await;
    refused(&monitor, Method::GET, "/v1/events", b"", 405, "does not take").await;
    refused(&monitor, Method::DELETE, "/v1/hosts", b"", 405, "does not take").await;
    let page = monitor.request(Method::GET, "/v1/hosts").header("Origin", "https://example.com");
    monitor.refused(page, 403).await;
    let elsewhere = monitor.request(Method::GET, "/v1/hosts").header("Host", "example.com");
    monitor.refused(elsewhere, 403).await;
    malformed_http(&monitor.url);

    let _silent: Vec<_> = (0..100).map(|_| connect(&monitor.url)).collect();
    monitor.is_well().await;
    let known: Vec<serde_json::Value> = monitor.get("/v1/hosts").await;
    assert_eq!(known.len(), 1, "nobody has made up a host: {known:?}");
    // It still does its work.
    let host = &cluster["farm1"];
    host.preflight("shot:1").run();
    cluster.api.until_cores("farm1", 0).await;
    host.postflight("shot:1").run();
    cluster.api.until_cores("farm1", 2).await;
}

#[tokio::test]
async fn invented_news_of_a_host_close_it_and_never_open_it() {
    let cluster = Plan::new().farm(1).start().await;
    cluster.are_open().await;
    let monitor = cluster.monitor_api();
    // Of other lives and of far futures: the monitor believes nothing that would open more.
    for (incarnation, count) in [(1, 0), (1, u64::MAX), (u64::MAX, 1), (0, 0), (0, u64::MAX)] {
        for kind in ["preflight", "postflight"] {
            let body = serde_json::json!({
                "host": "farm1", "kind": kind, "booking": "ghost",
                "epoch": {"incarnation": incarnation, "count": count},
            });
            let request = monitor.request(Method::POST, "/v1/events").json(&body);
            let _: serde_json::Value = monitor.good(request).await;
        }
    }
    monitor.is_well().await;
    let host = &cluster["farm1"];
    let mut marks = cluster.marks();
    host.preflight("shot:1").run();
    cluster.api.until_cores("farm1", 0).await;
    cluster.api.submit(&marks.job(2, 1)).await;
    assert_eq!(marks.within(cluster.quiet().times(3)), [], "a render runs");
    host.postflight("shot:1").run();
    // The host's own samples set it right.
    cluster.api.until_cores("farm1", 2).await;
    assert_eq!(marks.take(2).len(), 2);
}
