//! A client of the broker's HTTP interface.

mod options;

pub(crate) use options::{Format, Options, trusting};

use anyhow::Context;
use gleaner_protocol::api::ApiError;
use gleaner_protocol::{Digest, JobId};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Why the broker did not do what it was asked.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    #[error(
        "cannot reach the broker at {broker}: is it running there? (--broker or GLEANER_BROKER names another)"
    )]
    Unreachable { broker: String, source: reqwest::Error },
    #[error("the broker's answer cannot be read")]
    Answer(#[source] reqwest::Error),
    #[error("{}", .0.error)]
    NotFound(ApiError),
    #[error("the broker refused ({status}): {}", error.error)]
    Refused { status: StatusCode, error: ApiError },
}

impl ClientError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 3,
            Self::NotFound(_) => 4,
            Self::Answer(_) | Self::Refused { .. } => 5,
        }
    }
}

/// Talks to one broker.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    broker: String,
    token: Option<String>,
    http: reqwest::Client,
}

impl Client {
    /// Of a broker on this machine that asks for no token.
    pub(crate) fn local(broker: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build().context("cannot set up HTTP")?;
        Ok(Self { broker: broker.to_owned(), token: None, http })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.json(self.request(Method::POST, path).json(body)).await
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
        let request = self.request(Method::PUT, &format!("/v1/blobs/{digest}"));
        self.send(request.body(content)).await.map(drop)
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
        let request = self.http.request(method, format!("{}{path}", self.broker));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        self.send(request).await?.json().await.map_err(ClientError::Answer)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let broker = || self.broker.clone();
        let response = request
            .send()
            .await
            .map_err(|source| ClientError::Unreachable { broker: broker(), source })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.map_err(ClientError::Answer)?;
        let error = serde_json::from_str(&text).unwrap_or_else(|_| ApiError {
            code: "unknown".into(),
            error: text.chars().take(500).collect(),
        });
        if status == StatusCode::NOT_FOUND {
            Err(ClientError::NotFound(error))
        } else {
            Err(ClientError::Refused { status, error })
        }
    }
}
