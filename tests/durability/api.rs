//! The broker's HTTP interface as its users have it.

use std::fmt;
use std::time::Duration;

use gleaner_protocol::api::{ApiError, JobStatus, Submitted, WorkunitResult};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{Digest, JobId};
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

/// One broker, at one address.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    url: String,
}

/// Why a question has no good answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The connection broke: nobody knows whether it was heard.
    Cut(String),
    /// The broker said no.
    Refused(StatusCode, ApiError),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(how) => write!(f, "the connection broke: {how}"),
            Self::Refused(status, error) => write!(f, "{status}, {}: {}", error.code, error.error),
        }
    }
}

impl NoAnswer {
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Self::Cut(_))
    }
}

type Answer<T> = Result<T, NoAnswer>;

/// A client for all addresses. Questions that nobody answers end after a while.
pub(crate) fn client() -> reqwest::Client {
    // Fails only if another test has done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(180));
    client.build().expect("a client")
}

impl Api {
    pub(crate) fn at(client: &reqwest::Client, url: &str) -> Self {
        Self { client: client.clone(), url: url.to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn submit(&self, spec: &JobSpec) -> Answer<Submitted> {
        read(self.client.post(format!("{}/v1/jobs", self.url)).json(spec)).await
    }

    pub(crate) async fn jobs(&self) -> Answer<Vec<JobStatus>> {
        read(self.client.get(format!("{}/v1/jobs", self.url))).await
    }

    pub(crate) async fn cancel(&self, job: JobId) -> Answer<JobStatus> {
        read(self.client.delete(format!("{}/v1/jobs/{job}", self.url))).await
    }

    pub(crate) async fn results(&self, job: JobId, from: u32) -> Answer<Vec<WorkunitResult>> {
        let url = format!("{}/v1/jobs/{job}/results?from={from}&limit=10000", self.url);
        read(self.client.get(url)).await
    }

    pub(crate) async fn result_file(&self, job: JobId, index: u32) -> Answer<Vec<u8>> {
        let url = format!("{}/v1/jobs/{job}/results/{index}/result", self.url);
        read_bytes(self.client.get(url)).await
    }

    pub(crate) async fn explain(&self, job: JobId) -> Answer<serde_json::Value> {
        read(self.client.get(format!("{}/v1/explain/{job}", self.url))).await
    }

    pub(crate) async fn health(&self) -> Answer<()> {
        read_bytes(self.client.get(format!("{}/healthz", self.url))).await.map(drop)
    }

    pub(crate) async fn upload(&self, digest: Digest, content: Vec<u8>) -> Answer<()> {
        let url = format!("{}/v1/blobs/{digest}", self.url);
        read_bytes(self.client.put(url).body(content)).await.map(drop)
    }

    /// The event stream, as it comes.
    pub(crate) async fn events(&self) -> Answer<reqwest::Response> {
        let request = self.client.get(format!("{}/v1/events", self.url));
        request.timeout(Duration::from_secs(3_600)).send().await.map_err(cut)
    }
}

async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Answer<T> {
    let bytes = read_bytes(request).await?;
    Ok(serde_json::from_slice(&bytes).expect("an answer is what the protocol says"))
}

async fn read_bytes(request: RequestBuilder) -> Answer<Vec<u8>> {
    let answer = request.send().await.map_err(cut)?;
    let status = answer.status();
    let bytes = answer.bytes().await.map_err(cut)?;
    if status.is_success() {
        return Ok(bytes.into());
    }
    let error = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| ApiError::new("no-json", String::from_utf8_lossy(&bytes).into_owned()));
    Err(NoAnswer::Refused(status, error))
}

fn cut(error: reqwest::Error) -> NoAnswer {
    NoAnswer::Cut(format!("{error:?}"))
}
