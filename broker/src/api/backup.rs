//! `GET /v1/backup`: all that the broker keeps, while it works, as an export.

use std::convert::Infallible;
use std::io::{self, BufWriter, Write};
use std::thread;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use gleaner_protocol::error_chain;
use gleaner_serve::Problem;
use tokio::sync::mpsc;
use warp::Filter;
use warp::Reply;
use warp::filters::BoxedFilter;
use warp::http::header::CONTENT_TYPE;
use warp::http::{HeaderValue, StatusCode};
use warp::reply::Response;

use super::blobs::Shared;
use super::{Api, handler};
use crate::archive::{self, Kept};
use crate::limits::{BACKUP_PIECES_MAX, BLOB_PIECE_BYTES};
use crate::store::StoreError;

impl Api {
    pub(super) fn backup_routes(&self) -> BoxedFilter<(Response,)> {
        handler(warp::path!("v1" / "backup").and(warp::get()), self, backup)
    }
}

/// What is acknowledged when it begins is in it. A thread of its own reads it off the disk, as fast
/// as it is taken.
async fn backup(api: Api, (): ()) -> Result<Response, Problem> {
    let Ok(place) = api.backups.clone().try_acquire_owned() else {
        let error = "another backup is being made: wait until it is done";
        return Err(Problem::new(StatusCode::CONFLICT, "busy", error.to_owned()));
    };
    // From here on none of the files is removed.
    let files = api.files.clone().read_owned().await;
    let past = api.committer.past().await.map_err(|error| Problem::from(&error))?;
    let (outputs, blobs) = (api.small_blobs.segments(), api.blobs_of_backup.clone());
    let kept = Kept { past, outputs, blobs, data_dir: api.data_dir.clone() };
    let (pieces, taken) = mpsc::channel(BACKUP_PIECES_MAX);
    let spawned = thread::Builder::new().name("backup".into()).spawn(move || {
        let _held = (place, files);
        let out = BufWriter::with_capacity(BLOB_PIECE_BYTES, Pieces(pieces));
        match archive::write(&kept, out) {
            Ok(moved) => tracing::info!(bytes = moved.bytes, "a backup was made"),
            // Whoever reads it misses the last line.
            Err(error) => tracing::error!("a backup broke off: {}", error_chain(&error)),
        }
    });
    spawned.map_err(|error| {
        Problem::from(&StoreError::file("start", "a backup's thread".as_ref())(error))
    })?;
    let pieces = stream::unfold(taken, |mut taken| async {
        let piece: Bytes = taken.recv().await?;
        Some((Ok::<_, Infallible>(piece), taken))
    });
    let mut response = warp::reply::stream(Shared::of(pieces.boxed())).into_response();
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// The way to whoever reads.
struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
