//! `/v1/views`: volumes that people turn; `/v1/frames`: what agents draw for them.

use std::convert::Infallible;
use std::io::{self, Read};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use gleaner_protocol::limits::{FRAME_PART_BYTES_MAX, VIEW_WISH_BYTES_MAX};
use gleaner_protocol::{
    AGENT_SECRET_HEADER, AgentSecret, DatasetKind, LeaseToken, NewView, OwnerName,
};
use gleaner_serve::{Problem, body_stream, collect_body};
use warp::filters::BoxedFilter;
use warp::http::header::CONTENT_LENGTH;
use warp::http::{HeaderValue, StatusCode};
use warp::reply::Response;
use warp::ws::Ws;
use warp::{Filter, Reply};

use super::asker::{Asker, asker};
use super::blobs::Shared;
use super::jobs::parse_id;
use super::{Api, body, handler_of, json, no_socket, no_such, parse};
use crate::blobs::BlobError;
use crate::driver::{ContentRefusal, FrameLease};
use crate::limits::WATCH_TIME_MAX;
use crate::views::{ForWhom, Histogram, Refusal};

impl Api {
    pub(super) fn view_routes(&self) -> BoxedFilter<(Response,)> {
        let views = warp::path!("v1" / "views");
        let view = warp::path!("v1" / "views" / String).and(asker());
        let made = views.and(warp::post()).and(asker()).and(body());
        let histogram = warp::path!("v1" / "views" / String / "histogram").and(asker());
        let pair = |name, who| (name, who);
        let api = self.clone();
        let live = warp::path!("v1" / "views" / String / "live");
        let no_live = live.map(|_| no_socket());
        let live = live.and(asker()).and(warp::ws()).map(
            move |name: String, who: Asker, ws: Ws| match api.open_view(&name, &who) {
                Err(problem) => problem.into_response(),
                Ok(open) => {
                    let api = api.clone();
                    ws.max_message_size(VIEW_WISH_BYTES_MAX)
                        .max_frame_size(VIEW_WISH_BYTES_MAX)
                        .on_upgrade(move |socket| async move {
                            let revoked = api.people.clone().until_revoked(who.identity());
                            let until = async {
                                // Who it is is looked up again then.
                                let _ = tokio::time::timeout(WATCH_TIME_MAX, revoked).await;
                            };
                            api.views.serve(name, socket, until).await;
                            drop(open);
                        })
                        .into_response()
                }
            },
        );
        let secret = warp::header::optional::<String>(AGENT_SECRET_HEADER);
        let frame = warp::path!("v1" / "frames" / String).and(secret);
        let length = warp::header::optional::<u64>("content-length");
        let bring = frame.and(warp::put()).and(length).and(body_stream());
        let bring = bring.map(|token, secret, length, body| (token, secret, (length, body)));
        let layers = frame.and(warp::get()).map(|token, secret| (token, secret));
        handler_of(bring, self, take_part)
            .or(handler_of(layers, self, give_layers))
            .unify()
            .or(handler_of(made.map(|who, body| (who, body)), self, add))
            .unify()
            .or(handler_of(views.and(warp::get()).and(asker()), self, list))
            .unify()
            .or(handler_of(view.clone().and(warp::get()).map(pair), self, show))
            .unify()
            .or(handler_of(view.and(warp::delete()).map(pair), self, remove))
            .unify()
            .or(handler_of(histogram.and(warp::get()).map(pair), self, show_histogram))
            .unify()
            .or(live.boxed())
            .unify()
            .or(no_live)
            .unify()
            .boxed()
    }

    fn open_view(&self, name: &str, who: &Asker) -> Result<super::streams::OpenStream, Problem> {
        self.views.status(name, who.owner()).ok_or_else(|| no_such_view(name))?;
        self.streams.open(who.identity().as_ref())
    }
}

fn no_such_view(name: &str) -> Problem {
    let name: String = name.chars().take(40).collect();
    no_such(format!("view {name}"))
}

async fn add(api: Api, (who, body): (Asker, Bytes)) -> Result<Response, Problem> {
    let new: NewView = parse(&body, "wish for a view")?;
    let dataset = api.find_dataset(&who, &new.dataset, None)?;
    let anonymous = || OwnerName::new("anonymous").expect("a plain name");
    let owner = who.owner().cloned().unwrap_or_else(anonymous);
    let whom = ForWhom { owner, project: who.identity().and_then(|identity| identity.project) };
    let status = api
        .of_datasets(move |api| api.views.add(whom, &new, dataset).map_err(Problem::from))
        .await?;
    Ok(warp::reply::with_status(json(&status), StatusCode::CREATED).into_response())
}

async fn list(api: Api, who: Asker) -> Result<Response, Problem> {
    Ok(json(&api.views.list(who.owner())))
}

async fn show(api: Api, (name, who): (String, Asker)) -> Result<Response, Problem> {
    let status = api.views.status(&name, who.owner()).ok_or_else(|| no_such_view(&name))?;
    Ok(json(&status))
}

async fn remove(api: Api, (name, who): (String, Asker)) -> Result<Response, Problem> {
    let status = api.views.status(&name, who.owner()).ok_or_else(|| no_such_view(&name))?;
    api.of_datasets(move |api| api.views.remove(&name).map_err(Problem::from)).await?;
    Ok(json(&status))
}

/// Of the coarse level of the first step.
async fn show_histogram(api: Api, (name, who): (String, Asker)) -> Result<Response, Problem> {
    let status = api.views.status(&name, who.owner()).ok_or_else(|| no_such_view(&name))?;
    let none = || no_such(format!("histogram of {}", status.dataset));
    let manifest = api.views.manifest(&name).ok_or_else(none)?;
    let is_volume = matches!(manifest.kind, DatasetKind::Bricks(_));
    let coarse = manifest.chunks.get(manifest.work_chunks() as usize).filter(|_| is_volume);
    let coarse = coarse.filter(|chunk| chunk.bytes <= FRAME_PART_BYTES_MAX).ok_or_else(none)?;
    let (digest, range, blobs) = (coarse.digest, status.range, api.local_blobs.clone());
    let counted = tokio::task::spawn_blocking(move || -> Result<_, BlobError> {
        let Some((file, _)) = blobs.open_file(digest)? else { return Ok(None) };
        let mut content = Vec::new();
        let read = file.take(FRAME_PART_BYTES_MAX).read_to_end(&mut content);
        Ok(read.ok().and_then(|_| Histogram::of(&content, range)))
    });
    let histogram = counted.await.map_err(|_| Problem::internal())??.ok_or_else(none)?;
    Ok(json(&histogram))
}

/// The lease that an agent shows.
async fn lease_of(api: &Api, token: &str, secret: Option<String>) -> Result<FrameLease, Problem> {
    let token: LeaseToken = parse_id(token)?;
    let secret: Option<AgentSecret> = secret.and_then(|shown| shown.parse().ok());
    let lease = match secret {
        Some(secret) => api.driver.frame_lease(secret, token).await?,
        None => Err(ContentRefusal::NoLink),
    };
    lease.map_err(|refusal| match refusal {
        ContentRefusal::NoLink => {
            Problem::new(StatusCode::UNAUTHORIZED, "no_link", refusal.to_string())
        }
        ContentRefusal::NoLease => {
            Problem::new(StatusCode::FORBIDDEN, "no_lease", refusal.to_string())
        }
    })
}

/// A body as it comes.
type Body = BoxStream<'static, io::Result<Bytes>>;

async fn take_part(
    api: Api,
    (token, secret, (length, body)): (String, Option<String>, (Option<u64>, Body)),
) -> Result<Response, Problem> {
    // Nothing is read of what nobody may bring.
    let lease = lease_of(&api, &token, secret).await?;
    let part = collect_body(length, body, FRAME_PART_BYTES_MAX).await?;
    match api.views.board().bring(lease, part) {
        // Where nobody waits for it any more it has come to its end all the same.
        Ok(_) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(refusal) => {
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", refusal.to_string()))
        }
    }
}

/// Each layer after its length in four bytes, little end first.
async fn give_layers(
    api: Api,
    (token, secret): (String, Option<String>),
) -> Result<Response, Problem> {
    let lease = lease_of(&api, &token, secret).await?;
    let over = || "nobody waits for this frame any more".to_owned();
    let layers = api.views.board().layers(lease);
    let layers = layers.ok_or_else(|| Problem::new(StatusCode::CONFLICT, "over", over()))?;
    let bytes: usize = layers.iter().map(|layer| 4 + layer.len()).sum();
    let pieces = layers.into_iter().flat_map(|layer| {
        let length = u32::try_from(layer.len()).expect("no layer is longer than a part of a frame");
        [Bytes::copy_from_slice(&length.to_le_bytes()), layer]
    });
    let pieces = stream::iter(pieces.map(Ok::<_, Infallible>)).boxed();
    let mut response = warp::reply::stream(Shared::of(pieces)).into_response();
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let says = refusal.to_string();
        match refusal {
            Refusal::NoVolume(_) => Self::new(StatusCode::BAD_REQUEST, "no-volume", says),
            Refusal::TooManyOfOne { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", says)
            }
            Refusal::TooMany => Self::unavailable("too-many", says),
            Refusal::Disk(_) => Self::unavailable("unavailable", says),
        }
    }
}
