//! A client of the HTTP interfaces of broker and monitor.

mod options;

pub(crate) use options::{Access, Broker, Format, Options, trusting};

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::{Stream, stream};
use gleaner_identity::{Credentials, KeyPair, SessionClient, SessionError};
use gleaner_protocol::api::{ApiError, HostStatus, JobStatus};
use gleaner_protocol::{Digest, JobId};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::failure::Failure;
use crate::given_file;

/// Longest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 64 << 10;
/// Kinds of bodies.
const JSON: &str = "application/json";
const CONTENT: &str = "application/octet-stream";
/// Time for the refusal of a request whose connection was broken off.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(5);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How often, and how long, is waited before the same is asked again where the broker says so.
const WAITS_MAX: usize = 10;
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Whom a client talks to, and how the command line names another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Service {
    name: &'static str,
    option: &'static str,
    variable: &'static str,
}

impl Service {
    pub(crate) const BROKER: Self =
        Self { name: "broker", option: "--broker", variable: "GLEANER_BROKER" };
    pub(crate) const MONITOR: Self =
        Self { name: "monitor", option: "--monitor", variable: "GLEANER_MONITOR" };
    /// The one that a host's hooks tell.
    pub(crate) const MONITOR_OF_HOOKS: Self = Self {
        name: "monitor",
        option: "GLEANER_MONITOR of the hooks' settings",
        variable: "--monitor of `gleaner farm install`",
    };
}

/// Why a service did not do what it was asked.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error(
        "cannot reach the {name} at {address}: {doubt} ({option} or {variable} names another)",
        name = service.name, doubt = doubt(source), option = service.option,
        variable = service.variable
    )]
    Unreachable { service: Service, address: String, source: reqwest::Error },
    #[error("the {name} at {address} broke the connection off while a request was sent to it", name = service.name)]
    BrokeOff { service: Service, address: String, source: reqwest::Error },
    #[error("{source}")]
    Session { source: SessionError },
    #[error("the {}'s answer cannot be read", service.name)]
    Answer { service: Service, source: reqwest::Error },
    #[error("{}", .0.error)]
    NotFound(ApiError),
    #[error("the {} refused ({status}): {}", service.name, error.error)]
    Refused { service: Service, status: StatusCode, error: ApiError },
}

/// What may be wrong where a service cannot be reached.
fn doubt(error: &reqwest::Error) -> &'static str {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    let mut causes = causes.map(ToString::to_string);
    if causes.any(|cause| cause.contains("certificate")) {
        "it answers, and its certificate is not accepted"
    } else {
        "is it running there?"
    }
}

impl ClientError {
    /// The answer where a job was declined.
    pub(crate) fn declined(&self) -> Option<&ApiError> {
        match self {
            Self::Refused { error, .. } if error.code == "declined" => Some(error),
            _ => None,
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. }
            | Self::BrokeOff { .. }
            | Self::Session { source: SessionError::Unreachable { .. } } => 3,
            Self::NotFound(_) => 4,
            Self::Answer { .. } | Self::Refused { .. } | Self::Session { .. } => 5,
        }
    }
}

/// Talks to one service.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    service: Service,
    address: String,
    credentials: Credentials,
    http: reqwest::Client,
}

impl Client {
    /// Of a broker on this machine that asks for no key.
    pub(crate) fn local(broker: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build().context("cannot set up HTTP")?;
        let (service, address) = (Service::BROKER, broker.to_owned());
        Ok(Self { service, address, credentials: Credentials::None, http })
    }

    /// Of a service at an address, with the token and the certificates of these files, if any.
    pub(crate) fn new(
        service: Service,
        address: &str,
        token_file: Option<&Path>,
        ca_file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let address = address.trim_end_matches('/').to_owned();
        if !address.starts_with("http://") && !address.starts_with("https://") {
            let option = service.option;
            let hint =
                format!("{option} {address:?} is no address: it begins with http:// or https://");
            return Err(Failure::Usage(hint).into());
        }
        let token = token_file.map(|path| -> anyhow::Result<String> {
            let content = given_file::read("the token file", path, TOKEN_FILE_BYTES_MAX)?;
            Ok(given_file::text(path, content)?.trim().to_owned())
        });
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).no_proxy();
        http = trusting(http, ca_file)?;
        let http = http.build().context("cannot set up HTTP")?;
        let credentials = Credentials::of_token(token.transpose()?.as_deref());
        Ok(Self { service, address, credentials, http })
    }

    /// Of a service at an address of https://, by these settings of TLS.
    pub(crate) fn over(
        service: Service,
        address: &str,
        tls: rustls::ClientConfig,
    ) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).no_proxy();
        let http = http.tls_backend_preconfigured(tls).build().context("cannot set up HTTP")?;
        let address = address.trim_end_matches('/').to_owned();
        Ok(Self { service, address, credentials: Credentials::None, http })
    }

    /// The same, which shows the sessions of this key.
    pub(crate) fn with_key(self, file: &Path) -> anyhow::Result<Self> {
        let key = KeyPair::read(file).map_err(|error| Failure::Usage(error.to_string()))?;
        let (http, key) = (self.http.clone(), Arc::new(key));
        let sessions = match self.service {
            Service::MONITOR => SessionClient::of_monitor(http, &self.address, key),
            _ => SessionClient::of_broker(http, &self.address, key),
        };
        Ok(Self { credentials: Credentials::Key(Arc::new(sessions)), ..self })
    }

    /// Where it is, without a slash at the end.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("our own types serialise");
        self.post_json(path, body).await
    }

    /// The same, of a body that is JSON already.
    pub(crate) async fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, ClientError> {
        let service = self.service;
        let bytes = body.len() as u64;
        let answer = self.send_body(Method::POST, path, JSON, bytes, body.into()).await?;
        answer.json().await.map_err(|source| ClientError::Answer { service, source })
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(self.request(Method::DELETE, path)).await
    }

    /// An answer whose body is not JSON.
    pub(crate) async fn raw(&self, path: &str) -> Result<Response, ClientError> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Uploads a blob.
    pub(crate) async fn put_blob(
        &self,
        digest: Digest,
        content: Vec<u8>,
    ) -> Result<(), ClientError> {
        let (path, bytes) = (format!("/v1/blobs/{digest}"), content.len() as u64);
        self.send_body(Method::PUT, &path, CONTENT, bytes, content.into()).await.map(drop)
    }

    /// Uploads a blob of so many bytes as they come.
    pub(crate) async fn put_stream(
        &self,
        digest: Digest,
        bytes: u64,
        content: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
    ) -> Result<(), ClientError> {
        let path = format!("/v1/blobs/{digest}");
        let body = Body::wrap_stream(content);
        self.send_body(Method::PUT, &path, CONTENT, bytes, body).await.map(drop)
    }

    /// All jobs, page by page.
    pub(crate) async fn jobs(&self) -> Result<Vec<JobStatus>, ClientError> {
        let mut jobs: Vec<JobStatus> = self.get("/v1/jobs").await?;
        while let Some(last) = jobs.last() {
            let from = last.job.get() + 1;
            let page: Vec<JobStatus> = self.get(&format!("/v1/jobs?from={from}")).await?;
            if page.is_empty() {
                break;
            }
            jobs.extend(page);
        }
        Ok(jobs)
    }

    /// All hosts that the broker knows, page by page.
    pub(crate) async fn hosts(&self) -> Result<Vec<HostStatus>, ClientError> {
        let mut hosts: Vec<HostStatus> = self.get("/v1/hosts").await?;
        while let Some(last) = hosts.last() {
            let after = in_a_query(last.host.as_str());
            let page: Vec<HostStatus> = self.get(&format!("/v1/hosts?after={after}")).await?;
            if page.is_empty() {
                break;
            }
            hosts.extend(page);
        }
        Ok(hosts)
    }

    /// One page of a job's results.
    pub(crate) async fn results(
        &self,
        job: JobId,
        from: u32,
        limit: u32,
    ) -> Result<Vec<gleaner_protocol::api::WorkunitResult>, ClientError> {
        self.get(&format!("/v1/jobs/{job}/results?from={from}&limit={limit}")).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.address))
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let service = self.service;
        let answer = self.send(request).await?.json().await;
        answer.map_err(|source| ClientError::Answer { service, source })
    }

    /// Sends a body of so many bytes. Who refuses it before all of it has come may break the
    /// connection off, and the answer is lost with it: then it is asked for once more.
    async fn send_body(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        bytes: u64,
        body: Body,
    ) -> Result<Response, ClientError> {
        let request = |body: Body| {
            self.request(method.clone(), path)
                .header(CONTENT_TYPE, kind)
                .header(CONTENT_LENGTH, bytes)
                .body(body)
        };
        let sent = self.send(request(body)).await;
        let broke_off = match &sent {
            Err(ClientError::BrokeOff { source, .. }) => is_broken(source),
            Err(ClientError::Answer { .. }) => true,
            _ => false,
        };
        if !broke_off {
            return sent;
        }
        // The same head, and a body of which nothing comes: nothing can be done but refuse it.
        let nothing = stream::pending::<io::Result<Vec<u8>>>();
        let refusal = self.send(request(Body::wrap_stream(nothing)));
        match tokio::time::timeout(REFUSAL_TIME_MAX, refusal).await {
            Ok(refused @ Err(ClientError::Refused { .. } | ClientError::NotFound(_))) => refused,
            Ok(_) | Err(_) => sent,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let service = self.service;
        let failed = |source: reqwest::Error| {
            let address = self.address.clone();
            match source.is_connect() {
                true => ClientError::Unreachable { service, address, source },
                false => ClientError::BrokeOff { service, address, source },
            }
        };
        let token = self.credentials.bearer().await;
        let request = match token.map_err(|source| ClientError::Session { source })? {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let mut response = None;
        // Who asks too fast is told when to ask again; a stream cannot be sent twice.
        for _ in 0..WAITS_MAX {
            let Some(again) = request.try_clone() else { break };
            let answer = again.send().await.map_err(failed)?;
            let Some(wait) = wait_of(&answer) else {
                response = Some(answer);
                break;
            };
            tokio::time::sleep(wait).await;
        }
        let response = match response {
            Some(response) => response,
            None => request.send().await.map_err(failed)?,
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await;
        let text = text.map_err(|source| ClientError::Answer { service, source })?;
        let error = serde_json::from_str(&text).unwrap_or_else(|_| {
            ApiError::new("unknown", text.chars().take(500).collect::<String>())
        });
        if status == StatusCode::NOT_FOUND {
            Err(ClientError::NotFound(error))
        } else {
            Err(ClientError::Refused { service, status, error })
        }
    }
}

/// How long an answer asks to wait before the same is asked again, where that is not too long.
fn wait_of(answer: &Response) -> Option<Duration> {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let wait = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(wait)).filter(|wait| *wait <= WAIT_MAX)
}

/// Whether a connection was broken off by the other end.
fn is_broken(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
            return matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset);
        }
        cause = error.source();
    }
    // An end without an answer.
    !error.is_timeout()
}

/// A name as it may stand in a query.
fn in_a_query(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => text.push(byte.into()),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// A service that refuses each request when it has seen its head, and hangs up with what comes
    /// behind it unread.
    fn refusing() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("a call");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    connection.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let error = r#"{"code":"too_large","error":"the body is longer than 9 bytes"}"#;
                let length = error.len();
                let answer = format!(
                    "HTTP/1.1 413 Payload Too Large\r\nContent-Length: {length}\r\n\r\n{error}"
                );
                // Who sends on may not take it any more.
                let _ = connection.write_all(answer.as_bytes());
            }
        });
        address
    }

    #[test]
    fn every_character_of_a_name_survives_a_query() {
        assert_eq!(in_a_query("a-1.b_C"), "a-1.b_C");
        assert_eq!(in_a_query("x@y:1+2"), "x%40y%3A1%2B2");
        assert_eq!(in_a_query("ü"), "%C3%BC");
    }

    /// A broker that knows five hosts and answers two at a time.
    fn paging() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("a call");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    connection.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).expect("text");
                let path = head.split(' ').nth(1).expect("a path");
                let after = path.strip_prefix("/v1/hosts?after=").unwrap_or("");
                let behind = ["a", "b%2B", "c", "d", "e"].into_iter().filter(|name| *name > after);
                let page = behind.take(2).map(|name| {
                    let name = name.replace("%2B", "+");
                    format!(
                        r#"{{"host":"{name}","origin":"farm","owner":null,"connected":true,"cores":1,"cores_given":1,"running":0,"epoch":{{"incarnation":0,"count":0}},"reported":0,"disagreed":0,"released":0}}"#
                    )
                });
                let body = format!("[{}]", page.collect::<Vec<_>>().join(","));
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                );
                connection.write_all(answer.as_bytes()).expect("it listens");
            }
        });
        address
    }

    #[tokio::test]
    async fn hosts_are_read_page_by_page_to_the_last() {
        crate::process::install_crypto();
        let client = Client::new(Service::BROKER, &paging(), None, None).expect("a client");
        let hosts = client.hosts().await.expect("pages");
        let names: Vec<_> = hosts.iter().map(|host| host.host.as_str()).collect();
        assert_eq!(names, ["a", "b+", "c", "d", "e"]);
    }

    #[tokio::test]
    async fn a_refusal_that_comes_early_is_read_whatever_becomes_of_the_connection() {
        crate::process::install_crypto();
        let client = Client::new(Service::BROKER, &refusing(), None, None).expect("a client");
        let content = vec![7; 8 << 20];
        for _ in 0..20 {
            let digest = Digest::of(b"any");
            let error = client.put_blob(digest, content.clone()).await.expect_err("refused");
            let ClientError::Refused { status, error, .. } = error else { panic!("{error:?}") };
            assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(error.error, "the body is longer than 9 bytes");
        }
    }

    #[tokio::test]
    async fn a_service_that_hangs_up_is_not_said_to_be_missing() {
        crate::process::install_crypto();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let client = Client::new(Service::BROKER, &address, None, None).expect("a client");
        let error = client.post::<()>("/v1/jobs", &vec![7; 1 << 20]).await.expect_err("no answer");
        assert!(matches!(error, ClientError::BrokeOff { .. }), "{error:?}");
        assert_eq!(error.exit_code(), 3);
    }
}
