//! `/v1/views`: volumes that people turn; `/v1/frames`: what agents draw for them.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use gleaner_protocol::limits::{FRAME_PART_BYTES_MAX, FRAME_STRIPS_MAX, VIEW_WISH_BYTES_MAX};
use gleaner_protocol::{
    AGENT_SECRET_HEADER, AgentSecret, DatasetKind, FrameStage, KeptLayer, LayerAnswer, LayerPlace,
    LeaseToken, NewView, OwnerName, codec,
};
use gleaner_serve::{Problem, any_of, body_bytes, body_stream, collect_body};
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
use crate::blobs::read_whole;
use crate::driver::ContentRefusal;
use crate::limits::WATCH_TIME_MAX;
use crate::metrics::LayerWay;
use crate::views::{ForWhom, Histogram, Layer, PartRefusal, Refusal};

impl Api {
    pub(super) fn view_routes(&self) -> BoxedFilter<(Response,)> {
        let views = warp::path!("v1" / "views");
        let view = warp::path!("v1" / "views" / String).and(asker());
        let made = views.and(warp::post()).and(asker()).and(body());
        let histogram = warp::path!("v1" / "views" / String / "histogram").and(asker());
        let pair = |name, who| (name, who);
        let api = self.clone();
        let live = warp::path!("v1" / "views" / String / "live");
        let no_live = live.map(|_| no_socket()).boxed();
        let live = live.and(asker()).and(warp::ws()).map(
            move |name: String, who: Asker, ws: Ws| match api.open_view(&name, &who) {
                Err(problem) => problem.into_response(),
                Ok(open) => {
                    let (api, seat) = (api.clone(), api.views.seat(&name));
                    ws.max_message_size(VIEW_WISH_BYTES_MAX)
                        .max_frame_size(VIEW_WISH_BYTES_MAX)
                        .on_upgrade(move |socket| async move {
                            let revoked = api.people.clone().until_revoked(who.identity());
                            let until = async {
                                // Who it is is looked up again then.
                                let _ = tokio::time::timeout(WATCH_TIME_MAX, revoked).await;
                            };
                            api.views.clone().serve(seat, socket, until).await;
                            drop(open);
                        })
                        .into_response()
                }
            },
        );
        any_of([
            handler_of(made.map(|who, body| (who, body)), self, add),
            handler_of(views.and(warp::get()).and(asker()), self, list),
            handler_of(view.clone().and(warp::get()).map(pair), self, show),
            handler_of(view.and(warp::delete()).map(pair), self, remove),
            handler_of(histogram.and(warp::get()).map(pair), self, show_histogram),
            live.boxed(),
            no_live,
        ])
    }

    /// What agents bring and fetch, many times for each frame.
    pub(super) fn frame_routes(&self) -> BoxedFilter<(Response,)> {
        let secret = warp::header::optional::<String>(AGENT_SECRET_HEADER);
        let frame = warp::path!("v1" / "frames" / String).and(secret);
        let length = warp::header::optional::<u64>("content-length");
        let bring = frame.and(warp::put()).and(length).and(body_stream());
        let bring = bring.map(|token, secret, length, body| (token, secret, (length, body)));
        let layers = frame.and(warp::get()).map(|token, secret| (token, secret));
        let kept = warp::path!("v1" / "frames" / String / "kept");
        let kept = kept.and(secret).and(warp::put()).and(body_bytes(KEPT_LAYER_BYTES_MAX));
        let kept = kept.map(|token, secret, body| (token, secret, body));
        any_of([
            handler_of(kept, self, note_kept),
            handler_of(bring, self, take_part),
            handler_of(layers, self, give_layers),
        ])
    }

    pub(super) fn open_view(
        &self,
        name: &str,
        who: &Asker,
    ) -> Result<super::streams::OpenStream, Problem> {
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
    let content = read_whole(&*api.blobs, coarse.digest, FRAME_PART_BYTES_MAX).await?;
    let (content, range) = (content.ok_or_else(none)?, status.range);
    let counted = tokio::task::spawn_blocking(move || Histogram::of(&content, range));
    let histogram = counted.await.map_err(|_| Problem::internal())?.ok_or_else(none)?;
    Ok(json(&histogram))
}

/// The lease that an agent shows, and the secret with it.
fn shown(token: &str, secret: Option<String>) -> Result<(AgentSecret, LeaseToken), Problem> {
    let token: LeaseToken = parse_id(token)?;
    let secret = secret.and_then(|shown| shown.parse().ok());
    Ok((secret.ok_or_else(|| refused(ContentRefusal::NoLink))?, token))
}

fn refused(refusal: ContentRefusal) -> Problem {
    match refusal {
        ContentRefusal::NoLink => {
            Problem::new(StatusCode::UNAUTHORIZED, "no_link", refusal.to_string())
        }
        ContentRefusal::NoLease => {
            Problem::new(StatusCode::FORBIDDEN, "no_lease", refusal.to_string())
        }
    }
}

/// Most bytes of what a host says of a layer that it keeps.
const KEPT_LAYER_BYTES_MAX: u64 = 64 * FRAME_STRIPS_MAX as u64;

/// A body as it comes.
type Body = BoxStream<'static, io::Result<Bytes>>;

async fn take_part(
    api: Api,
    (token, secret, (length, body)): (String, Option<String>, (Option<u64>, Body)),
) -> Result<Response, Problem> {
    // Nothing is read of what nobody may bring.
    let (secret, token) = shown(&token, secret)?;
    let lease = api.driver.frame_lease(secret, token).await?.map_err(refused)?;
    let part = collect_body(length, body, FRAME_PART_BYTES_MAX).await?;
    let bytes = part.len() as u64;
    // Where nobody waits for it any more it has come to its end all the same.
    let is_taken = api.views.board().bring(lease, part)?;
    if is_taken && lease.stage == FrameStage::Layer {
        api.metrics.layer_bytes(LayerWay::Broker, bytes);
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A layer whose strips its host would keep for whoever joins them.
async fn note_kept(
    api: Api,
    (token, secret, body): (String, Option<String>, Bytes),
) -> Result<Response, Problem> {
    let (secret, token) = shown(&token, secret)?;
    let kept: Vec<KeptLayer> = codec::decode(&body)
        .map_err(|error| Problem::malformed(format!("the body is no kept layer: {error}")))?;
    let bytes = kept.iter().fold(0, |all: u64, kept| all.saturating_add(kept.bytes));
    let (lease, host) = api.driver.layer_keeper(secret, token).await?.map_err(refused)?;
    let answer = api.views.board().keep(lease, host, kept)?;
    if answer == LayerAnswer::Keep {
        api.metrics.layer_bytes(LayerWay::Hosts, bytes);
    }
    Ok(codec::encode(&answer).into_response())
}

/// Where each layer is, after the length of that in four bytes, little end first; and those that are here.
async fn give_layers(
    api: Api,
    (token, secret): (String, Option<String>),
) -> Result<Response, Problem> {
    let (secret, token) = shown(&token, secret)?;
    let lease = api.driver.frame_lease(secret, token).await?.map_err(refused)?;
    let conflict = |code, says: &str| Problem::new(StatusCode::CONFLICT, code, says.to_owned());
    let layers = api.views.board().layers(lease);
    let over = || conflict("over", "nobody waits for this frame any more");
    let layers = layers.ok_or_else(over)?;
    let kept = layers.iter().filter_map(|layer| match layer {
        Layer::Here(_) => None,
        Layer::Kept(host, kept) => Some((host.clone(), kept.digest)),
    });
    let kept: Vec<_> = kept.collect();
    let mut sources = Vec::new();
    if !kept.is_empty() {
        let named = api.driver.name_layers(secret, token, kept).await?;
        let gone = || conflict("gone", "a host that kept a layer of this frame is gone");
        sources = named.ok_or_else(gone)?;
    }
    let (mut places, mut here, mut sources) = (Vec::new(), Vec::new(), sources.into_iter());
    for layer in layers {
        places.push(match layer {
            Layer::Here(bytes) => {
                let length = u32::try_from(bytes.len());
                here.push(bytes);
                LayerPlace::Here(length.expect("no layer is longer than a part of a frame"))
            }
            Layer::Kept(_, kept) => {
                LayerPlace::There(kept, sources.next().expect("one for each was named"))
            }
        });
    }
    let places = codec::encode(&places);
    let length = u32::try_from(places.len()).expect("a frame has few layers");
    let head = Bytes::from([&length.to_le_bytes()[..], &places].concat());
    let pieces: Vec<Bytes> = std::iter::once(head).chain(here).collect();
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)).boxed();
    let mut response = warp::reply::stream(Shared::of(pieces)).into_response();
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

impl From<PartRefusal> for Problem {
    fn from(refusal: PartRefusal) -> Self {
        let says = refusal.to_string();
        match refusal {
            PartRefusal::Strips { .. } => Self::malformed(says),
            PartRefusal::Layers(_) | PartRefusal::All(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", says)
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let says = refusal.to_string();
        match refusal {
            Refusal::NoVolume(_) => Self::new(StatusCode::BAD_REQUEST, "no-volume", says),
            Refusal::TooSlow => Self::new(StatusCode::BAD_REQUEST, "too-slow", says),
            Refusal::TooManyOfOne { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", says)
            }
            Refusal::TooMany => Self::unavailable("too-many", says),
            Refusal::Disk(_) => Self::unavailable("unavailable", says),
        }
    }
}
