//! Request bodies, never longer than allowed and never slower.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use serde::de::DeserializeOwned;
use warp::filters::BoxedFilter;
use warp::http::StatusCode;
use warp::{Filter, Rejection};

use crate::limits::HTTP_BODY_PAUSE_MAX;
use crate::problem::Problem;

/// The whole body, refused as soon as it is known to be longer than `limit_bytes`.
pub fn body_bytes(limit_bytes: u64) -> BoxedFilter<(Bytes,)> {
    let announced = warp::header::optional::<u64>("content-length");
    let body = announced.and(body_stream()).and_then(
        move |announced: Option<u64>, body: BoxStream<'static, io::Result<Bytes>>| async move {
            collect_body(announced, body, limit_bytes).await.map_err(warp::reject::custom)
        },
    );
    body.boxed()
}

/// The body as JSON; `what` names in errors what it should be ("a job").
pub fn body_json<T: DeserializeOwned + Send>(
    what: &'static str,
    limit_bytes: u64,
) -> impl Filter<Extract = (T,), Error = Rejection> + Clone + Send + Sync + 'static {
    body_bytes(limit_bytes).and_then(move |body: Bytes| async move {
        serde_json::from_slice(&body).map_err(|error| {
            warp::reject::custom(Problem::malformed(format!("the body is not {what}: {error}")))
        })
    })
}

/// The body as it comes. Whoever reads it counts; a client that pauses too long ends it.
pub fn body_stream() -> BoxedFilter<(BoxStream<'static, io::Result<Bytes>>,)> {
    Filter::boxed(warp::body::stream().map(|body| StreamExt::boxed(unpaused(body))))
}

fn unpaused<B: Buf>(
    body: impl Stream<Item = Result<B, warp::Error>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::unfold(Some(Box::pin(body)), |body| async move {
        let mut body = body?;
        match tokio::time::timeout(HTTP_BODY_PAUSE_MAX, body.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(mut piece))) => {
                Some((Ok(piece.copy_to_bytes(piece.remaining())), Some(body)))
            }
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Err(_) => Some((Err(io::ErrorKind::TimedOut.into()), None)),
        }
    })
}

/// All of a body, refused as soon as it is known to be longer than `limit_bytes`.
///
/// # Errors
/// It is too long, it stands still for too long, or it breaks off.
pub async fn collect_body(
    announced: Option<u64>,
    mut body: BoxStream<'static, io::Result<Bytes>>,
    limit_bytes: u64,
) -> Result<Bytes, Problem> {
    if announced.is_some_and(|bytes| bytes > limit_bytes) {
        return Err(Problem::too_large(limit_bytes));
    }
    let mut all = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "too_slow",
                format!("nothing came for {} s within the body", HTTP_BODY_PAUSE_MAX.as_secs()),
            ),
            _ => Problem::malformed(format!("the body broke off: {error}")),
        })?;
        if (all.len() + piece.len()) as u64 > limit_bytes {
            return Err(Problem::too_large(limit_bytes));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}
