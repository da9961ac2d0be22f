//! A client of the HTTP interfaces of broker and monitor.

mod options;

pub(crate) use options::{Access, Format, Options, trusting};

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use gleaner_protocol::api::ApiError;
use gleaner_protocol::{Digest, JobId};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::failure::Failure;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

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
        "cannot reach the {name} at {address}: is it running there? ({option} or {variable} names another)",
        name = service.name, option = service.option, variable = service.variable
    )]
    Unreachable { service: Service, address: String, source: reqwest::Error },
    #[error("the {}'s answer cannot be read", service.name)]
    Answer { service: Service, source: reqwest::Error },
    #[error("{}", .0.error)]
    NotFound(ApiError),
    #[error("the {} refused ({status}): {}", service.name, error.error)]
    Refused { service: Service, status: StatusCode, error: ApiError },
}

impl ClientError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } => 3,
            Self::NotFound(_) => 4,
            Self::Answer { .. } | Self::Refused { .. } => 5,
        }
    }
}

/// Talks to one service.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    service: Service,
    address: String,
    token: Option<String>,
    http: reqwest::Client,
}

impl Client {
    /// Of a broker on this machine that asks for no token.
    pub(crate) fn local(broker: &str) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().no_proxy().build().context("cannot set up HTTP")?;
        let (service, address) = (Service::BROKER, broker.to_owned());
        Ok(Self { service, address, token: None, http })
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
        let token = token_file.map(|path| {
            fs::read_to_string(path)
                .map(|token| token.trim().to_owned())
                .with_context(|| format!("cannot read the token file {}", path.display()))
        });
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIME_MAX).no_proxy();
        http = trusting(http, ca_file)?;
        let http = http.build().context("cannot set up HTTP")?;
        Ok(Self { service, address, token: token.transpose()?, http })
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
        let request = self.http.request(method, format!("{}{path}", self.address));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let service = self.service;
        let answer = self.send(request).await?.json().await;
        answer.map_err(|source| ClientError::Answer { service, source })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let service = self.service;
        let unreachable = |source| {
            let address = self.address.clone();
            ClientError::Unreachable { service, address, source }
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await;
        let text = text.map_err(|source| ClientError::Answer { service, source })?;
        let error = serde_json::from_str(&text).unwrap_or_else(|_| ApiError {
            code: "unknown".into(),
            error: text.chars().take(500).collect(),
        });
        if status == StatusCode::NOT_FOUND {
            Err(ClientError::NotFound(error))
        } else {
            Err(ClientError::Refused { service, status, error })
        }
    }
}
