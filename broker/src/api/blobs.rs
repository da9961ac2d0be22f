//! `/v1/blobs/{digest}`: inputs and outputs; `/v1/states/{digest}`: what replicas saved.
//!
//! An agent reads what its leases need, and brings what comes of them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{AGENT_SECRET_HEADER, AgentSecret, Digest, codec, error_chain};
use gleaner_serve::{Problem, Role, any_of, body_stream};
use warp::filters::BoxedFilter;
use warp::http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use warp::http::{HeaderValue, StatusCode};
use warp::reply::Response;
use warp::{Filter, Reply};

use super::jobs::parse_id;
use super::{Api, handler_of, no_such};
use crate::blobs::{BlobContent, BlobError};
use crate::driver::{ContentRefusal, ContentUse};
use crate::people::TooMuch;

impl Api {
    pub(super) fn blob_routes(&self) -> BoxedFilter<(Response,)> {
        let blob = warp::path!("v1" / "blobs" / String).and(who_asks());
        let range = warp::header::optional::<String>("range");
        let fetch = blob.clone().and(warp::get()).and(range);
        let fetch = fetch.map(|digest, who, range| (digest, who, range));
        let pieces = warp::path!("v1" / "blobs" / String / "pieces").and(who_asks());
        let pieces = pieces.and(warp::get()).map(|digest, who| (digest, who));
        let announced = warp::header::optional::<u64>("content-length");
        let upload = blob
            .and(warp::put())
            .and(super::asker::asker())
            .and(announced)
            .and(body_stream())
            .map(|digest, who, by, announced, body| (digest, (who, by), announced, body));
        let state = warp::path!("v1" / "states" / String).and(who_asks());
        let load = state.clone().and(warp::get()).map(|digest, who| (digest, who));
        let save = state
            .and(warp::put())
            .and(warp::query::<Saved>())
            .and(body_stream())
            .map(|digest, who, saved: Saved, body| (digest, who, saved.replaces, body));
        any_of([
            handler_of(upload, self, take),
            handler_of(fetch, self, give),
            handler_of(pieces, self, give_pieces),
            handler_of(save, self, take_state),
            handler_of(load, self, give_state),
        ])
    }
}

/// Who asks for a content, or brings one.
#[derive(Clone, Copy)]
enum Asker {
    /// Somebody who may have all.
    Member,
    /// An agent, and the secret that it shows.
    Agent(Option<AgentSecret>),
}

fn who_asks() -> BoxedFilter<(Asker,)> {
    let shown = warp::header::optional::<String>(AGENT_SECRET_HEADER);
    let asker = |role, shown: Option<String>| match role {
        Role::Agent => Asker::Agent(shown.and_then(|shown| shown.parse().ok())),
        _ => Asker::Member,
    };
    warp::ext::get::<Role>().and(shown).map(asker).boxed()
}

impl Asker {
    /// Whether it may do this.
    async fn may(self, api: &Api, what: ContentUse) -> Result<(), Problem> {
        let Self::Agent(secret) = self else { return Ok(()) };
        let refusal = match secret {
            Some(secret) => api.driver.may_use(secret, what).await?.err(),
            None => Some(ContentRefusal::NoLink),
        };
        match refusal {
            None => Ok(()),
            // It may try again when its link stands.
            Some(refusal @ ContentRefusal::NoLink) => {
                Err(Problem::new(StatusCode::UNAUTHORIZED, "no_link", refusal.to_string()))
            }
            Some(refusal @ ContentRefusal::NoLease) => {
                Err(Problem::new(StatusCode::FORBIDDEN, "no_lease", refusal.to_string()))
            }
        }
    }
}

async fn take(
    api: Api,
    (digest, (who, by), announced, body): (
        String,
        (Asker, super::asker::Asker),
        Option<u64>,
        BoxStream<'static, io::Result<Bytes>>,
    ),
) -> Result<Response, Problem> {
    api.committer.admit().map_err(|error| Problem::from(&*error))?;
    let digest: Digest = parse_id(&digest)?;
    who.may(&api, ContentUse::Bring).await?;
    if announced.is_some_and(|bytes| bytes > BLOB_BYTES_MAX) {
        // Before any of it is on its way.
        return Err(Problem::too_large(BLOB_BYTES_MAX));
    }
    let Some(owner) = by.owner().cloned() else {
        api.blobs.put_stream(digest, body, BLOB_BYTES_MAX).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    // What is announced is not counted before it comes.
    let uploads = api.people.uploads().clone();
    uploads.count(&owner, 0)?;
    let too_much = Arc::new(OnceLock::new());
    let told = Arc::clone(&too_much);
    let counted = body.map(move |piece| {
        let piece = piece?;
        uploads.count(&owner, piece.len() as u64).map_err(|why| {
            let error = io::Error::other(why.to_string());
            let _ = told.set(why);
            error
        })?;
        Ok(piece)
    });
    let stored = api.blobs.put_stream(digest, counted.boxed(), BLOB_BYTES_MAX).await;
    if let Some(why) = too_much.get() {
        return Err(Problem::from(why.clone()));
    }
    stored?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl From<TooMuch> for Problem {
    fn from(why: TooMuch) -> Self {
        Self::too_often(why.wait, why.to_string())
    }
}

async fn give(
    api: Api,
    (digest, who, range): (String, Asker, Option<String>),
) -> Result<Response, Problem> {
    let digest = parse_id(&digest)?;
    who.may(&api, ContentUse::ReadBlob(digest)).await?;
    let sent = match range.as_deref().and_then(bytes_of) {
        Some((from, last)) if from > 0 || last.is_some() => {
            send_from(&api, digest, from, last).await?
        }
        // A range that is not understood is left out of account, as the standard has it.
        _ => send(&api, digest).await?,
    };
    sent.ok_or_else(|| no_such(format!("blob {digest}")))
}

/// The first byte of a range, and the last one where it does not go on to the end.
fn bytes_of(range: &str) -> Option<(u64, Option<u64>)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    match last {
        "" => Some((first, None)),
        last => Some((first, Some(last.parse().ok().filter(|last| *last >= first)?))),
    }
}

/// Streams a part of a blob, which its reader checks piece by piece.
async fn send_from(
    api: &Api,
    digest: Digest,
    from: u64,
    last: Option<u64>,
) -> Result<Option<Response>, Problem> {
    let Some(content) = api.blobs.read_from(digest, from).await? else { return Ok(None) };
    let (rest, all) = (content.bytes, from.saturating_add(content.bytes));
    let content = match last {
        Some(last) => first_of(content, (last - from).saturating_add(1)),
        None => content,
    };
    let last = from.saturating_add(content.bytes).saturating_sub(1);
    if rest == 0 {
        let error = format!("blob {digest} ends before byte {from}");
        return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "range", error));
    }
    let mut response = stream_of(Some(content)).await?;
    if let Some(response) = &mut response {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {from}-{last}/{all}");
        let range = HeaderValue::from_str(&range).expect("digits and a few signs");
        response.headers_mut().insert(CONTENT_RANGE, range);
    }
    Ok(response)
}

/// So many bytes of a content.
fn first_of(content: BlobContent, bytes: u64) -> BlobContent {
    let bytes = bytes.min(content.bytes);
    let stream = content.stream.scan(bytes, |left, piece| {
        let cut = match piece {
            _ if *left == 0 => None,
            Ok(mut piece) => {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                Some(Ok(piece))
            }
            Err(error) => Some(Err(error)),
        };
        std::future::ready(cut)
    });
    BlobContent { bytes, stream: stream.boxed() }
}

/// The hashes of a blob's pieces.
async fn give_pieces(api: Api, (digest, who): (String, Asker)) -> Result<Response, Problem> {
    let digest = parse_id(&digest)?;
    who.may(&api, ContentUse::ReadBlob(digest)).await?;
    let pieces = api.blobs.pieces(digest).await?;
    let pieces = pieces.ok_or_else(|| no_such(format!("blob {digest}")))?;
    Ok(codec::encode(&pieces).into_response())
}

/// What else is said of a state.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
pub(super) struct Saved {
    /// What the same replica saved before.
    replaces: Option<String>,
}

async fn take_state(
    api: Api,
    (digest, who, replaces, body): (
        String,
        Asker,
        Option<String>,
        BoxStream<'static, io::Result<Bytes>>,
    ),
) -> Result<Response, Problem> {
    who.may(&api, ContentUse::Bring).await?;
    let replaces = replaces.map(|old| parse_id(&old)).transpose()?;
    api.states.put(parse_id(&digest)?, replaces, body).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn give_state(api: Api, (digest, who): (String, Asker)) -> Result<Response, Problem> {
    let digest = parse_id(&digest)?;
    who.may(&api, ContentUse::ReadState(digest)).await?;
    let content = api.states.open_state(digest).await?;
    stream_of(content).await?.ok_or_else(|| no_such(format!("state {digest}")))
}

/// Streams a blob, if it is here. One that is found to be damaged at once is refused; a longer
/// one breaks off before its last piece.
pub(super) async fn send(api: &Api, digest: Digest) -> Result<Option<Response>, Problem> {
    stream_of(api.blobs.open(digest).await?).await
}

async fn stream_of(content: Option<BlobContent>) -> Result<Option<Response>, Problem> {
    let Some(content) = content else { return Ok(None) };
    let mut rest = content.stream;
    let first = rest.next().await.transpose()?;
    let rest = rest.inspect(|piece| {
        if let Err(error) = piece {
            tracing::error!("a blob breaks off: {error}");
        }
    });
    let whole = stream::iter(first.map(Ok)).chain(rest).boxed();
    let mut response = warp::reply::stream(Shared::of(whole)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(content.bytes));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(Some(response))
}

/// 500: what was stored cannot be had any more.
pub(super) fn damaged(error: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", error)
}

/// A stream that may be shared between threads, because only its owner ever polls it.
pub(super) struct Shared<T>(Mutex<BoxStream<'static, T>>);

impl<T> Shared<T> {
    pub(super) fn of(stream: BoxStream<'static, T>) -> Self {
        Self(Mutex::new(stream))
    }
}

impl<T> Stream for Shared<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let stream = self.0.get_mut().expect("nobody locks it");
        stream.poll_next_unpin(context)
    }
}

impl From<BlobError> for Problem {
    fn from(error: BlobError) -> Self {
        match &error {
            BlobError::Mismatch { .. } | BlobError::BrokenOff { .. } => {
                Self::malformed(error.to_string())
            }
            BlobError::TooLarge { limit_bytes, .. } => Self::too_large(*limit_bytes),
            BlobError::Full { .. } => Self::unavailable("store_full", error.to_string()),
            BlobError::Damaged { digest, .. } => {
                tracing::error!("{error}");
                damaged(format!("blob {digest} is damaged; the broker's log says more"))
            }
            BlobError::File { .. } => {
                tracing::error!("{error}");
                Self::internal()
            }
            BlobError::Bucket { .. } => {
                tracing::error!("{}", error_chain(&error));
                Self::unavailable("no_bucket", format!("{error}; the broker's log says more"))
            }
        }
    }
}
