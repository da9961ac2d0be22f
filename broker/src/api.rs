//! The HTTP interface under `/v1`, `/metrics` and `/healthz`, and the pages.
//!
//! Each handler reads or changes the core through the [driver](crate::driver), so that what it
//! answers is durable. Bodies are JSON of `gleaner_protocol::api`; errors are its `ApiError`.

mod access;
mod asker;
mod backup;
mod blobs;
mod datasets;
mod events;
mod farm;
mod farm_stop;
mod history;
mod jobs;
mod kernel_times;
mod lanes;
mod logins;
mod logs;
mod monitor_told;
mod openapi;
mod pages;
mod people;
mod percent;
mod results;
mod streams;
mod usage;
mod view_states;
mod views;
mod watch;
mod workunits;

pub(crate) use access::ACCESS;
pub(crate) use datasets::is_read;
pub(crate) use farm::host_status;
pub(crate) use lanes::lane_statuses;
pub(crate) use monitor_told::MonitorTold;
pub(crate) use pages::PAGES;
pub(crate) use people::OPEN;
pub(crate) use results::manifest;
pub(crate) use streams::Streams;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gleaner_protocol::job::RunsOn;
use gleaner_protocol::limits::{CONTROL_MESSAGE_BYTES_MAX, HTTP_BODY_BYTES_MAX};
use gleaner_protocol::people::Identity;
use gleaner_scheduling::Core;
use gleaner_serve::{Caller, Problem, any_of, body_bytes, openmetrics};
use tokio::sync::{RwLock, Semaphore};
use warp::filters::BoxedFilter;
use warp::http::header::UPGRADE;
use warp::http::{HeaderValue, Method, StatusCode};
use warp::reply::Response;
use warp::{Filter, Reply};

use crate::blobs::{BlobStore, LocalBlobs};
use crate::budgets::Budgets;
use crate::classes::Classes;
use crate::control_link::ControlLinks;
use crate::datasets::Datasets;
use crate::driver::{DriverGone, DriverHandle};
use crate::events::Events;
use crate::farm_history::FarmHistory;
use crate::farm_stop::FarmStop;
use crate::history::RunHistory;
use crate::kernel_times::KernelTimes;
use crate::metrics::{CoreFigures, Metrics};
use crate::people::People;
use crate::pictures::Pictures;
use crate::promises::Promises;
use crate::states::States;
use crate::store::{Committer, SmallBlobs, StoreState};
use crate::usage::Usage;
use crate::views::Views;

/// What handlers share. Warp clones whatever answers a route for each request, also for those of other routes.
#[derive(Clone)]
pub(crate) struct Api(Arc<ApiState>);

/// The parts of a broker that its handlers use.
pub(crate) struct ApiState {
    pub(crate) driver: DriverHandle,
    pub(crate) committer: Committer,
    pub(crate) blobs: Arc<dyn BlobStore>,
    /// The same, for those who need its files.
    pub(crate) blobs_of_backup: Option<LocalBlobs>,
    /// Held while files must stay.
    pub(crate) files: Arc<RwLock<()>>,
    /// The place of the one backup that is made at a time.
    pub(crate) backups: Arc<Semaphore>,
    pub(crate) states: States,
    pub(crate) small_blobs: SmallBlobs,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) kernel_times: KernelTimes,
    pub(crate) history: RunHistory,
    pub(crate) usage: Usage,
    pub(crate) promises: Promises,
    pub(crate) budgets: Budgets,
    pub(crate) people: People,
    pub(crate) streams: Streams,
    pub(crate) pictures: Pictures,
    pub(crate) farm_history: FarmHistory,
    pub(crate) farm_stop: FarmStop,
    pub(crate) monitor_told: MonitorTold,
    /// Whether browsers come through TLS.
    pub(crate) is_secure: bool,
    pub(crate) datasets: Datasets,
    pub(crate) views: Views,
    /// On which hosts a job may run that does not say so.
    pub(crate) default_on: RunsOn,
    pub(crate) data_dir: PathBuf,
}

impl Deref for Api {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.0
    }
}

impl Api {
    pub(crate) fn new(state: ApiState) -> Self {
        Self(Arc::new(state))
    }

    /// All routes, the busiest first.
    pub(crate) fn routes(self) -> BoxedFilter<(Response,)> {
        let links = ControlLinks::new(
            self.driver.clone(),
            Classes::new(
                self.driver.clone(),
                Arc::clone(&self.blobs),
                self.small_blobs.clone(),
                Arc::clone(&self.metrics),
            ),
            Arc::clone(&self.blobs),
            self.people.clone(),
        );
        let path = warp::path!("v1" / "control");
        let control = path
            .and(warp::ext::optional::<Identity>())
            .and(warp::ext::optional::<Caller>())
            .and(warp::ws())
            .map(move |identity, caller: Option<Caller>, ws: warp::ws::Ws| {
                let links = links.clone();
                ws.max_message_size(CONTROL_MESSAGE_BYTES_MAX)
                    .max_frame_size(CONTROL_MESSAGE_BYTES_MAX)
                    .on_upgrade(move |socket| links.serve(socket, identity, caller))
                    .into_response()
            });
        any_of([
            control.boxed(),
            path.map(no_socket).boxed(),
            self.frame_routes(),
            self.job_routes(),
            self.result_routes(),
            self.log_routes(),
            self.farm_routes(),
            self.farm_stop_routes(),
            self.monitor_told_routes(),
            self.lane_routes(),
            self.blob_routes(),
            self.dataset_routes(),
            self.view_routes(),
            self.view_state_routes(),
            self.backup_routes(),
            self.event_routes(),
            self.kernel_time_routes(),
            self.history_routes(),
            self.people_routes(),
            self.usage_routes(),
            self.watch_routes(),
            self.workunit_routes(),
            self.login_routes(),
            Self::openapi_routes(),
            self.health_routes(),
            Self::page_routes(),
        ])
    }

    /// Reads the core.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.settled(self.driver.query(read)).await
    }

    /// Waits for the driver's answer, but not while the store takes nothing: then says so.
    async fn settled<T>(
        &self,
        answer: impl Future<Output = Result<T, DriverGone>>,
    ) -> Result<T, Problem> {
        let mut state = self.committer.state();
        let stuck = state.wait_for(|state| !matches!(state, StoreState::Ready));
        tokio::select! {
            biased;
            state = stuck => match state.as_deref() {
                Ok(StoreState::Full(why) | StoreState::Failed(why)) => Err(Problem::from(&**why)),
                Ok(StoreState::Ready) | Err(_) => Err(DriverGone.into()),
            },
            answer = answer => Ok(answer?),
        }
    }

    /// Whether what is asked now can be done.
    pub(crate) fn health(&self) -> Result<(), Problem> {
        self.committer.admit().map_err(|error| Problem::from(&*error))?;
        if self.driver.is_gone() { Err(DriverGone.into()) } else { Ok(()) }
    }

    fn health_routes(&self) -> BoxedFilter<(Response,)> {
        let api = self.clone();
        let health = warp::path!("healthz").and(warp::get()).map(move || match api.health() {
            Ok(()) => "ok\n".into_response(),
            Err(problem) => problem.into_response(),
        });
        let metrics =
            handler(warp::path!("metrics").and(warp::get()), self, |api, ()| async move {
                let figures = api.read(CoreFigures::of).await?;
                let text = api.metrics.render(&figures);
                Ok(openmetrics(text))
            });
        any_of([health.boxed(), metrics])
    }
}

/// A route whose handler gets the shared state and what the filter extracted as one value.
fn handler<F, H, R>(filter: F, api: &Api, handle: H) -> BoxedFilter<(Response,)>
where
    F: Filter<Extract = (), Error = warp::Rejection> + Clone + Send + Sync + 'static,
    H: Fn(Api, ()) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    handler_of(filter.map(|| ()), api, handle)
}

/// As [`handler`], for filters that extract one value.
fn handler_of<F, T, H, R>(filter: F, api: &Api, handle: H) -> BoxedFilter<(Response,)>
where
    F: Filter<Extract = (T,), Error = warp::Rejection> + Clone + Send + Sync + 'static,
    T: Send + 'static,
    H: Fn(Api, T) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, Problem>> + Send + 'static,
{
    let api = api.clone();
    let answer = move |value| handle(api.clone(), value).boxed();
    answered(filter.map(answer).boxed())
}

/// What a handler does for its answer. All handlers have this one type: with a type for each, which holds
/// the types of its filter, the compiler takes twice as long for this crate.
type Answer = BoxFuture<'static, Result<Response, Problem>>;

/// What changes something is done to its end, also where whoever asked is gone: half of it could be on the
/// disk. Nobody waits for what would only have been read.
fn answered(asked: BoxedFilter<(Answer,)>) -> BoxedFilter<(Response,)> {
    warp::method()
        .and(asked)
        .then(|method: Method, answer| async move {
            let answer = match method.is_safe() {
                true => answer.await,
                false => tokio::spawn(answer).await.unwrap_or_else(|_| Err(Problem::internal())),
            };
            answer.unwrap_or_else(Reply::into_response)
        })
        .boxed()
}

/// How many elements a page is to have, of at most `max`.
fn page_limit(limit: Option<usize>, max: usize) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(max);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    let error = format!("limit is {limit}, must be from 1 to {max}");
    Err(Problem::new(StatusCode::BAD_REQUEST, "out-of-range", error))
}

/// The whole body, before anything is made of it.
fn body() -> BoxedFilter<(bytes::Bytes,)> {
    body_bytes(HTTP_BODY_BYTES_MAX)
}

/// Reads a JSON body.
fn parse<T: serde::de::DeserializeOwned>(body: &[u8], what: &'static str) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::malformed(format!("the body is no {what}: {error}")))
}

fn no_such(what: impl std::fmt::Display) -> Problem {
    Problem::not_found(format!("there is no {what} at this broker"))
}

/// What whoever asks a socket's path for something else is told.
fn no_socket() -> Response {
    let error = "this path is a WebSocket: ask for one (`Upgrade: websocket`)";
    let mut answer = Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade", error).into_response();
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    answer
}

fn json<T: serde::Serialize>(value: &T) -> Response {
    warp::reply::json(value).into_response()
}

impl From<DriverGone> for Problem {
    fn from(gone: DriverGone) -> Self {
        Self::unavailable("unavailable", gone.to_string())
    }
}
