//! HTTP interfaces of broker and monitor, as programs use them.

use std::time::Duration;

use gleaner_protocol::api::{
    ApiError, FarmEventsAccepted, HostStatus, JobStatus, Submitted, WorkunitResult,
};
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{Digest, JobId};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::events::Events;
use crate::patience::{PATIENCE, eventually, within};

/// At the latest after this time the broker is asked again: not everything has an event.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// One service at one address.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: Client,
    pub(crate) url: String,
}

impl Api {
    /// With a client of its own.
    pub(crate) fn through(url: &str, client: reqwest::ClientBuilder) -> Self {
        // Fails only if another test has done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // No connection is kept: the next one may lead to another process at that address.
        let client = client.no_proxy().pool_max_idle_per_host(0).connect_timeout(PATIENCE);
        let client = client.build().expect("a client");
        Self { client, url: url.to_owned() }
    }

    /// With the same client, at another address.
    pub(crate) fn beside(&self, url: &str) -> Self {
        Self { client: self.client.clone(), url: url.to_owned() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// Status and body of any request.
    pub(crate) async fn send(&self, request: RequestBuilder) -> (StatusCode, String) {
        let asking = async {
            let answer = request.send().await.unwrap_or_else(|error| panic!("{error:?}"));
            (answer.status(), answer.text().await.expect("a whole body"))
        };
        within("an answer", asking).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.good(self.request(Method::GET, path)).await
    }

    /// A request that must succeed.
    pub(crate) async fn good<T: DeserializeOwned>(&self, request: RequestBuilder) -> T {
        let (status, body) = self.send(request).await;
        assert!(status.is_success(), "{status}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"))
    }

    /// A request that must be refused with this status; the reason.
    pub(crate) async fn refused(&self, request: RequestBuilder, with: u16) -> ApiError {
        let (status, body) = self.send(request).await;
        assert_eq!(status.as_u16(), with, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"))
    }

    /// That it lives.
    pub(crate) async fn is_well(&self) {
        let (status, body) = self.send(self.request(Method::GET, "/healthz")).await;
        assert_eq!((status.as_u16(), body.as_str()), (200, "ok\n"));
    }

    /// A sample of `/metrics`, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.send(self.request(Method::GET, "/metrics")).await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// Uploads a content.
    pub(crate) async fn upload(&self, content: &[u8]) -> Digest {
        let digest = Digest::of(content);
        let request = self.request(Method::PUT, &format!("/v1/blobs/{digest}"));
        let (status, body) = self.send(request.body(content.to_vec())).await;
        assert!(status.is_success(), "{status}: {body}");
        digest
    }

    pub(crate) async fn submit(&self, spec: &JobSpec) -> JobId {
        let submitted: Submitted =
            self.good(self.request(Method::POST, "/v1/jobs").json(spec)).await;
        submitted.job
    }

    pub(crate) async fn job(&self, job: JobId) -> JobStatus {
        self.get(&format!("/v1/jobs/{job}")).await
    }

    pub(crate) async fn results(&self, job: JobId) -> Vec<WorkunitResult> {
        self.get(&format!("/v1/jobs/{job}/results?from=0&limit=10000")).await
    }

    pub(crate) async fn hosts(&self) -> Vec<HostStatus> {
        let mut hosts: Vec<HostStatus> = self.get("/v1/hosts").await;
        while let Some(last) = hosts.last() {
            let page: Vec<HostStatus> = self.get(&format!("/v1/hosts?after={}", last.host)).await;
            if page.is_empty() {
                break;
            }
            hosts.extend(page);
        }
        hosts
    }

    pub(crate) async fn host(&self, name: &str) -> Option<HostStatus> {
        self.hosts().await.into_iter().find(|host| host.host.as_str() == name)
    }

    /// Tells the broker what a monitor would.
    pub(crate) async fn farm_event(&self, event: &FarmEvent) -> FarmEventsAccepted {
        self.good(self.request(Method::POST, "/v1/farm/events").json(&[event])).await
    }

    pub(crate) async fn events(&self) -> Events {
        let request = self.request(Method::GET, "/v1/events");
        let answer = within("the event stream", request.send()).await.expect("it listens");
        Events::of(answer).await
    }

    /// Looks at the broker after each of its events until `look` gives a value.
    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let mut events = self.events().await;
        let looking = async {
            loop {
                if let Some(value) = look().await {
                    return value;
                }
                let _ = tokio::time::timeout(LOOK_AGAIN, events.next()).await;
            }
        };
        within(what, looking).await
    }

    /// Until a host is connected and gives this many cores.
    pub(crate) async fn until_cores(&self, name: &str, cores: u32) {
        let what = format!("{cores} cores of {name}");
        self.until(&what, async || {
            let host = self.host(name).await?;
            (host.connected && host.cores_given == cores).then_some(())
        })
        .await;
    }

    /// Until a job stands as wished.
    pub(crate) async fn until_job(
        &self,
        job: JobId,
        what: &str,
        is_so: impl Fn(&JobStatus) -> bool,
    ) -> JobStatus {
        let what = format!("{job}: {what}");
        self.until(&what, async || Some(self.job(job).await).filter(|status| is_so(status))).await
    }

    pub(crate) async fn until_ended(&self, job: JobId) -> JobStatus {
        self.until_job(job, "its end", |status| status.state.is_final()).await
    }

    /// The monitor's view of a host.
    pub(crate) async fn view(&self, name: &str) -> Option<Value> {
        let (status, body) =
            self.send(self.request(Method::GET, &format!("/v1/hosts/{name}"))).await;
        status.is_success().then(|| serde_json::from_str(&body).expect("a view"))
    }

    /// Until the monitor sees a host as wished.
    pub(crate) async fn until_view(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, async || self.view(name).await.filter(|view| is_so(view))).await
    }
}
