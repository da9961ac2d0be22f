//! The server from outside: who gets in, what they are told, and how it ends.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use gleaner_protocol::api::ApiError;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::people::{self, Identity, PrincipalId};
use gleaner_protocol::{Span, boottime};
use gleaner_serve::{
    ListenConfig, Listener, Problem, ServeError, ServeLimits, Sessions, TlsFiles, bind, body_bytes,
    body_json, body_stream, room_for_connections, serve,
};
use reqwest::{Client, Method, StatusCode};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use warp::{Filter, Rejection, Reply};

const BODY_MAX: u64 = 1_000;
const TOKEN: &str = "a-token-for-tests-only";

/// Knows one token: an administrator's.
struct OneToken;

impl Sessions for OneToken {
    fn who(&self, token: &str) -> Option<Result<Identity, String>> {
        let identity = || Identity {
            id: PrincipalId::of_key(&[7; 32]),
            role: people::Role::Admin,
            owner: "anna".parse().expect("a plain name"),
            project: None,
            host: None,
        };
        (token == TOKEN).then(|| Ok(identity()))
    }
}

/// A server with a few routes of each kind.
struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Server {
    fn start(listener: Listener) -> Self {
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let ended = tokio::spawn(serve(listener, routes(), shutdown));
        Self { address, stop, ended }
    }

    async fn plain() -> Self {
        Self::limited(ServeLimits::default()).await
    }

    async fn limited(limits: ServeLimits) -> Self {
        Self::start(bind(&loopback()).await.expect("a free port").with_limits(limits))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops it, and says how long that took.
    async fn stop(self) -> Span {
        let begin = boottime();
        self.stop.send(()).expect("it runs");
        self.ended.await.expect("no panic");
        boottime() - begin
    }
}

fn routes() -> impl Filter<Extract = (impl Reply,), Error = Rejection> + Clone + Send + Sync {
    let echo = warp::path!("v1" / "echo")
        .and(warp::post())
        .and(body_bytes(BODY_MAX))
        .map(|body: Bytes| warp::http::Response::new(body.to_vec()));
    let job = warp::path!("v1" / "jobs")
        .and(warp::post())
        .and(body_json("a job", BODY_MAX))
        .map(|job: JobSpec| warp::reply::json(&job).into_response());
    let missing =
        warp::path!("v1" / "jobs" / u64).and(warp::get()).and_then(|id: u64| async move {
            Err::<&str, _>(warp::reject::custom(Problem::not_found(format!(
                "there is no job-{id}"
            ))))
        });
    let count = warp::path!("v1" / "count").and(warp::put()).and(body_stream()).then(
        |mut body: stream::BoxStream<'static, io::Result<Bytes>>| async move {
            let mut bytes = 0;
            while let Some(Ok(piece)) = body.next().await {
                bytes += piece.len();
            }
            bytes.to_string()
        },
    );
    let events = warp::path!("v1" / "events").and(warp::get()).map(|| {
        let first =
            stream::once(async { Ok::<_, io::Error>(warp::sse::Event::default().data("1")) });
        warp::sse::reply(first.chain(stream::pending()))
    });
    let socket = warp::path!("v1" / "control").and(warp::ws()).map(|ws: warp::ws::Ws| {
        ws.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.next().await {
                if message.is_binary() && socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    });
    let health = warp::path!("healthz").and(warp::get()).map(|| "alive");
    echo.or(job).or(missing).or(count).or(events).or(socket).or(health)
}

fn loopback() -> ListenConfig {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    ListenConfig::new(listen, None, None).expect("nothing is half")
}

fn client() -> Client {
    // Already installed by another test is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().build().expect("a client")
}

async fn problem(response: reqwest::Response) -> (StatusCode, ApiError) {
    let status = response.status();
    assert_eq!(response.headers()["content-type"], "application/json");
    (status, response.json().await.expect("an error in JSON"))
}

fn write(path: &Path, content: &str, mode: u32) {
    fs::write(path, content).expect("written");
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Writes a certificate for `localhost` and 127.0.0.1, and its key.
fn certificate(folder: &Path) -> TlsFiles {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let files = TlsFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    write(&files.certificate, &made.cert.pem(), 0o644);
    write(&files.key, &made.signing_key.serialize_pem(), 0o600);
    files
}

#[tokio::test]
async fn requests_are_answered_and_wrong_ones_get_json() {
    let server = Server::plain().await;
    let client = client();
    let echoed = client.post(server.url("/v1/echo")).body("hello").send().await.expect("answered");
    assert_eq!(echoed.text().await.expect("text"), "hello");

    for (method, path, body, status, code, says) in [
        (Method::GET, "/v1/nothing", "", 404, "no_route", "there is no GET /v1/nothing"),
        (Method::GET, "/v1/jobs/7", "", 404, "not_found", "there is no job-7"),
        (Method::DELETE, "/v1/jobs/7", "", 405, "method", "/v1/jobs/7 does not take DELETE"),
        (Method::GET, "/v1/echo", "", 405, "method", "/v1/echo does not take GET"),
        (Method::POST, "/v1/jobs", "{", 400, "malformed", "not a job: EOF while parsing"),
        (Method::POST, "/v1/jobs", r#"{"tusk":1}"#, 400, "malformed", "unknown field `tusk`"),
        (Method::POST, "/v1/jobs", r#"{"tusk":1}"#, 400, "malformed", "line 1 column 7"),
        (Method::POST, "/v1/jobs", "\0\u{ff}", 400, "malformed", "expected value at line 1"),
    ] {
        let request = client.request(method, server.url(path)).body(body);
        let (found, error) = problem(request.send().await.expect("answered")).await;
        assert_eq!((found.as_u16(), error.code.as_str()), (status, code), "{path}: {error:?}");
        assert!(error.error.contains(says), "{path}: {error:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_announced_or_not() {
    let server = Server::plain().await;
    let client = client();
    let fits = "x".repeat(BODY_MAX as usize);
    let sent = client.post(server.url("/v1/echo")).body(fits).send().await.expect("answered");
    assert_eq!(sent.status(), StatusCode::OK);

    let large = "x".repeat(BODY_MAX as usize + 1);
    let announced = client.post(server.url("/v1/echo")).body(large.clone());
    let pieces =
        stream::iter([Ok::<_, io::Error>(large[..600].to_owned()), Ok(large[600..].to_owned())]);
    let chunked = client.post(server.url("/v1/echo")).body(reqwest::Body::wrap_stream(pieces));
    for request in [announced, chunked] {
        let (status, error) = problem(request.send().await.expect("answered")).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{error:?}");
        assert!(error.error.contains("1000 bytes"), "{error:?}");
    }

    let long = vec![7; 3 << 20];
    let counted = client.put(server.url("/v1/count")).body(long).send().await.expect("answered");
    assert_eq!(counted.text().await.expect("text"), (3 << 20).to_string());
    server.stop().await;
}

/// Where the server closed at once, the kernel would reset the connection for the rest of the body, and throw the
/// answer away.
#[tokio::test]
async fn who_still_sends_a_refused_body_gets_the_answer() {
    let server = Server::plain().await;
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    let bytes = 8 << 20;
    let head =
        format!("POST /v1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream.readable().await.expect("an answer");
    stream.write_all(&vec![b'x'; bytes]).await.expect("it still reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer, and an end");
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    drop(stream);
    server.stop().await;
}

/// So it is for a head that nobody reads to its end, be it the first of its connection or a later one.
#[tokio::test]
async fn who_still_sends_a_refused_head_gets_the_answer() {
    let server = Server::plain().await;
    for has_asked in [false, true] {
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        if has_asked {
            let head = format!("GET /nowhere HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
            stream.write_all(head.as_bytes()).await.expect("it reads");
            let mut answer = [0; 4 << 10];
            let length = stream.read(&mut answer).await.expect("an answer");
            assert!(answer[..length].starts_with(b"HTTP/1.1 404 "), "{answer:?}");
        }
        stream.write_all(b"GET /v1/echo HTTP/1.1\r\nCookie: ").await.expect("it reads");
        stream.write_all(&vec![b'x'; 8 << 20]).await.expect("it still reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer, and an end");
        assert!(answer.contains("HTTP/1.1 431 "), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn pages_from_elsewhere_and_other_names_for_us_are_refused() {
    let server = Server::plain().await;
    let client = client();
    let ask = |name: &'static str, value: String| {
        client.post(server.url("/v1/echo")).header(name, value).send()
    };
    let (status, error) =
        problem(ask("origin", "http://evil.example".into()).await.expect("answered")).await;
    assert_eq!((status, error.code.as_str()), (StatusCode::FORBIDDEN, "browser"));
    let (status, error) =
        problem(ask("host", "evil.example".into()).await.expect("answered")).await;
    assert_eq!((status, error.code.as_str()), (StatusCode::FORBIDDEN, "host"));
    let own = ask("origin", format!("http://{}", server.address)).await.expect("answered");
    assert_eq!(own.status(), StatusCode::OK);
    let health = client.get(server.url("/healthz")).header("host", "balancer.example");
    assert_eq!(health.send().await.expect("answered").text().await.expect("text"), "alive");

    // A page cannot open the control link either.
    let mut request =
        tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(format!(
            "ws://{}/v1/control",
            server.address
        ))
        .expect("a request");
    request.headers_mut().insert("origin", "http://evil.example".parse().expect("a value"));
    let error = tokio_tungstenite::connect_async(request).await.expect_err("refused");
    assert!(error.to_string().contains("403"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn with_tls_and_keys_it_may_listen_for_other_machines() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificate(folder.path());
    let pem = fs::read(&tls.certificate).expect("read");
    let config = ListenConfig {
        listen: SocketAddr::from(([0, 0, 0, 0], 0)),
        tls: Some(tls),
        knows_keys: true,
        ..loopback()
    };
    let listener = bind(&config).await.expect("all is given");
    let listener = listener.with_sessions(Arc::new(OneToken), &[], &[]);
    assert!(listener.url().starts_with("https://"));
    let server = Server::start(listener);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = reqwest::Certificate::from_pem(&pem).expect("a certificate");
    let client = Client::builder().tls_certs_only([certificate]).build().expect("a client");
    let url = format!("https://127.0.0.1:{}/v1/echo", server.address.port());

    let with = client.post(&url).bearer_auth(TOKEN).body("hello").send().await.expect("answered");
    assert_eq!(with.text().await.expect("text"), "hello");
    for request in [client.post(&url), client.post(&url).bearer_auth("another-token-altogether")] {
        let response = request.send().await.expect("answered");
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, error) = problem(response).await;
        assert_eq!((status, error.code.as_str()), (StatusCode::UNAUTHORIZED, "token"));
    }
    // Without TLS there is no answer, and the next one is served all the same.
    let plain = reqwest::get(url.replace("https", "http")).await;
    assert!(plain.is_err());
    let again = client.post(&url).bearer_auth(TOKEN).send().await.expect("answered");
    assert_eq!(again.status(), StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn an_exposed_address_is_refused_with_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificate(folder.path());
    for (tls, knows_keys, says) in [
        (None, false, "TLS is missing"),
        (None, true, "TLS is missing"),
        (Some(tls), false, "nobody can have a key here: set broker_key_file"),
    ] {
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7070"] {
            let listen = listen.parse().expect("an address");
            let config = ListenConfig { listen, tls: tls.clone(), knows_keys, ..loopback() };
            let error = bind(&config).await.expect_err("exposed");
            assert!(matches!(error, ServeError::Exposed { .. }));
            assert!(error.to_string().contains(says), "{error}");
        }
    }
    let config = ListenConfig { requires_keys: true, ..loopback() };
    let error = bind(&config).await.expect_err("nobody could speak to it");
    assert!(matches!(error, ServeError::NoKeys) && error.to_string().contains("broker_key_file"));
}

#[tokio::test]
async fn a_port_in_use_and_files_that_are_no_good_are_named() {
    let taken = bind(&loopback()).await.expect("a free port");
    let config = ListenConfig { listen: taken.address(), ..loopback() };
    let error = bind(&config).await.expect_err("taken").to_string();
    assert!(error.contains(&taken.address().to_string()) && error.contains("in use"), "{error}");

    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificate(folder.path());
    let nowhere = folder.path().join("nowhere");
    let garbage = folder.path().join("garbage");
    write(&garbage, "no PEM at all", 0o600);
    let other = folder.path().join("other");
    fs::create_dir(&other).expect("made");
    let others = certificate(&other);
    let with = |certificate: &Path, key: &Path| {
        Some(TlsFiles { certificate: certificate.into(), key: key.into() })
    };
    for (tls, named) in [
        (with(&nowhere, &tls.key), &nowhere),
        (with(&garbage, &tls.key), &garbage),
        (with(&tls.certificate, &nowhere), &nowhere),
        (with(&tls.certificate, &garbage), &garbage),
        (with(&tls.certificate, &tls.certificate), &tls.certificate),
        (with(&tls.certificate, &others.key), &others.key),
    ] {
        let config = ListenConfig { tls, ..loopback() };
        let error = bind(&config).await.expect_err("no good").to_string();
        assert!(error.contains(&named.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn whoever_dawdles_over_the_head_is_shown_the_door() {
    // Time enough on a busy machine for who does not dawdle.
    let limits = ServeLimits { head_time_max: Duration::from_secs(2), ..ServeLimits::default() };
    let server = Server::limited(limits).await;
    let mut silent = TcpStream::connect(server.address).await.expect("connected");
    let mut slow = TcpStream::connect(server.address).await.expect("connected");
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").await.expect("sent");
    let mut idle = TcpStream::connect(server.address).await.expect("connected");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    for (stream, answered) in [(&mut silent, false), (&mut slow, false), (&mut idle, true)] {
        let mut answer = Vec::new();
        // Ends when the server closes; a server that does not would hang the test.
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(answer.starts_with(b"HTTP/1.1 200"), answered);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificate(folder.path());
    let config = ListenConfig { tls: Some(tls), ..loopback() };
    let limits =
        ServeLimits { handshake_time_max: Duration::from_millis(100), ..ServeLimits::default() };
    let server = Server::start(bind(&config).await.expect("a free port").with_limits(limits));
    let mut silent = TcpStream::connect(server.address).await.expect("connected");
    let mut answer = Vec::new();
    let _ = silent.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_until_one_ends() {
    let limits = ServeLimits { connections_max: 1, ..ServeLimits::default() };
    let server = Server::limited(limits).await;
    // A WebSocket keeps its place after HTTP has let go of it.
    let url = format!("ws://{}/v1/control", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.expect("upgraded");
    let mut waiting = TcpStream::connect(server.address).await.expect("in the kernel's queue");
    let ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    waiting.write_all(ask).await.expect("sent");
    let mut first = [0; 1];
    let early = tokio::time::timeout(Duration::from_millis(100), waiting.read(&mut first)).await;
    assert!(early.is_err(), "it was served beside the other one");
    socket.close(None).await.expect("closed");
    while socket.next().await.is_some() {}
    drop(socket);
    let mut answer = Vec::new();
    waiting.read_to_end(&mut answer).await.expect("answered");
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    server.stop().await;
}

#[tokio::test]
async fn it_ends_at_once_when_nothing_is_open() {
    let limits = ServeLimits { grace: Duration::from_secs(60), ..ServeLimits::default() };
    let server = Server::limited(limits).await;
    let client = client();
    let echoed = client.post(server.url("/v1/echo")).send().await.expect("answered");
    assert_eq!(echoed.status(), StatusCode::OK);
    // The client keeps its connection, which is idle.
    let span = server.stop().await;
    gleaner_calm::assert_within("the end without a grace", span, Span::from_secs(30));
}

#[tokio::test]
async fn it_ends_in_bounded_time_with_streams_and_sockets_open() {
    let limits = ServeLimits { grace: Duration::from_millis(300), ..ServeLimits::default() };
    let server = Server::limited(limits).await;
    let client = client();
    let mut events = client.get(server.url("/v1/events")).send().await.expect("answered");
    assert!(events.chunk().await.expect("a chunk").is_some());
    let url = format!("ws://{}/v1/control", server.address);
    let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.expect("upgraded");
    let message = tokio_tungstenite::tungstenite::Message::binary(vec![1, 2, 3]);
    socket.send(message.clone()).await.expect("sent");
    assert_eq!(socket.next().await.expect("an echo").expect("an echo"), message);
    let mut half = TcpStream::connect(server.address).await.expect("connected");
    half.write_all(b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        .await
        .expect("sent");

    let address = server.address;
    let span = server.stop().await;
    assert!(span >= Span::from_millis(300), "{span}");
    gleaner_calm::assert_within("the end", span, Span::from_secs(20));
    // All of them see the end, and nobody new gets in.
    assert!(!matches!(events.chunk().await, Ok(Some(_))));
    while let Some(Ok(_)) = socket.next().await {}
    let mut answer = Vec::new();
    let _ = half.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    assert!(TcpStream::connect(address).await.is_err());
}

/// How many connections an attacker opens, as many as there are places.
const FLOOD: usize = 8_192;

/// A server that wants a token, on as many files as it may have.
async fn with_token() -> Server {
    let config = ListenConfig { knows_keys: true, requires_keys: true, ..loopback() };
    let connections_max = room_for_connections();
    let limits = ServeLimits { connections_max, ..ServeLimits::default() };
    let listener = bind(&config).await.expect("a free port").with_limits(limits);
    Server::start(listener.with_sessions(Arc::new(OneToken), &[], &[]))
}

/// Connects from an address of this machine.
async fn connect_from(from: [u8; 4], to: SocketAddr) -> io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(to).await
}

/// What a client with a token is answered on a connection of its own.
async fn ask_with_token(server: &Server) -> String {
    let client = Client::builder().no_proxy().build().expect("a client");
    let request = client.post(server.url("/v1/echo")).bearer_auth(TOKEN).body("hello");
    request.send().await.expect("answered").text().await.expect("text")
}

#[tokio::test]
async fn who_has_a_token_is_served_beside_8192_connections_without_one() {
    let _ = client();
    let _ = room_for_connections();
    // Both ends are files of this process, and the other tests have some.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let flood = FLOOD.min(usize::try_from(files).unwrap_or(usize::MAX) / 3);
    let is_from_many: [fn(usize) -> [u8; 4]; 2] =
        [|_| [127, 0, 0, 1], |number| [127, 0, 1 + (number / 250) as u8, 1 + (number % 250) as u8]];
    for from in is_from_many {
        let server = with_token().await;
        // Connected before the flood, it is out of the flood's reach.
        let known = format!("ws://{}/v1/control", server.address);
        let mut request =
            tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(known)
                .expect("a request");
        let bearer = format!("Bearer {TOKEN}").parse().expect("a value");
        request.headers_mut().insert("authorization", bearer);
        let (mut known, _) = tokio_tungstenite::connect_async(request).await.expect("upgraded");

        let mut held = Vec::with_capacity(flood);
        for number in 0..flood {
            let mut stream = connect_from(from(number), server.address).await.expect("connected");
            // Some say nothing, some begin, some ask for what costs no token, and keep alive.
            let said: &[u8] = match number % 16 {
                0 => b"GET /v1/echo HTTP/1.1\r\n",
                1..8 => b"",
                _ => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            };
            // It may have been shown the door already.
            let _ = stream.write_all(said).await;
            held.push(stream);
        }
        let begin = boottime();
        assert_eq!(ask_with_token(&server).await, "hello");
        let took = boottime() - begin;
        gleaner_calm::assert_within("a client beside the flood", took, Span::from_secs(1));
        let message = tokio_tungstenite::tungstenite::Message::binary(vec![1, 2, 3]);
        known.send(message.clone()).await.expect("sent");
        assert_eq!(known.next().await.expect("an echo").expect("an echo"), message);
        drop(held);
        server.stop().await;
    }
}

#[tokio::test]
async fn what_costs_no_token_does_not_keep_a_connection() {
    let server = with_token().await;
    for (path, status) in [("/healthz", "200"), ("/v1/echo", "401"), ("/v1/nothing", "401")] {
        let mut stream = TcpStream::connect(server.address).await.expect("connected");
        let ask = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        // Ends when the server closes; a server that does not would hang the test.
        stream.read_to_string(&mut answer).await.expect("closed in order");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    // Who has shown a token keeps it, even with a mistake.
    let mut stream = TcpStream::connect(server.address).await.expect("connected");
    for path in ["/v1/nothing", "/v1/jobs/7"] {
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.expect("sent");
        let mut answer = [0; 1_024];
        let length = stream.read(&mut answer).await.expect("answered");
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        assert!(!answer.to_lowercase().contains("connection: close"), "{answer}");
    }
    server.stop().await;
}
