//! Copies of chunks piece by piece: each is checked as it comes, and what is there is not fetched again.

use std::io::SeekFrom;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{Digest, PIECE_BYTES, Pieces, codec};
use reqwest::header::RANGE;
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::cache::Cache;
use super::{BlobError, Blobs, CachedBlob, Try, again, check_status, within_stall};

/// Longest list of pieces, in bytes: of the largest content.
const LIST_BYTES_MAX: usize = 64 + 33 * (BLOB_BYTES_MAX as usize / PIECE_BYTES);

impl Blobs {
    /// Fetches a content into a cache, from where an earlier try has left it.
    pub(super) async fn fetch_pieces(
        &self,
        cache: &Arc<Cache>,
        digest: Digest,
        goes_on: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<CachedBlob, Try> {
        let pieces = self.pieces_of(digest).await?;
        let path = cache.unfinished(digest);
        let disk = |source| Try::Never(BlobError::Disk { digest, path: path.clone(), source });
        let mut file = open(&path).await.map_err(disk)?;
        let mut next = right_at_the_beginning(&mut file, &pieces).await.map_err(disk)?;
        if next < pieces.count() {
            let (from, _) = pieces.place(next);
            // Whatever follows is no part of it.
            file.set_len(from).await.map_err(disk)?;
            file.seek(SeekFrom::Start(from)).await.map_err(disk)?;
            let request = self.client.get(self.address(digest));
            let request =
                if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request };
            let request = self.authorised(request).await?;
            let response = within_stall(request.send()).await?.map_err(again)?;
            let mut response = check_status(digest, response)?;
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let mut is_over = false;
            while next < pieces.count() {
                let (from, length) = pieces.place(next);
                while piece.len() < length && !is_over {
                    match within_stall(response.chunk()).await?.map_err(again)? {
                        Some(part) => {
                            self.carried.fetch_add(part.len() as u64, Ordering::Relaxed);
                            piece.extend_from_slice(&part);
                        }
                        None => is_over = true,
                    }
                }
                if piece.len() < length {
                    return Err(Try::Again(format!("it broke off in piece {next}")));
                }
                let rest = piece.split_off(length);
                if !pieces.is_right(next, &piece) {
                    return Err(Try::Again(format!("piece {next} of it is wrong")));
                }
                file.write_all(&piece).await.map_err(disk)?;
                piece = rest;
                next += 1;
                if !goes_on(from + length as u64) {
                    file.flush().await.map_err(disk)?;
                    let reason = "it comes too slowly".to_owned();
                    return Err(Try::Never(BlobError::Transfer { digest, reason }));
                }
            }
            file.flush().await.map_err(disk)?;
        }
        drop(file);
        let (cache, bytes) = (Arc::clone(cache), pieces.bytes());
        tokio::task::spawn_blocking(move || Cache::enter(&cache, digest, bytes))
            .await
            .map_err(|error| Try::Again(error.to_string()))?
            .map_err(disk)?
            .ok_or_else(|| Try::Again("what came has another content".into()))
    }

    /// The hashes of a content's pieces, which are those of its digest.
    async fn pieces_of(&self, digest: Digest) -> Result<Pieces, Try> {
        let request = self.client.get(format!("{}/pieces", self.address(digest)));
        let request = self.authorised(request).await?;
        let response = within_stall(request.send()).await?.map_err(again)?;
        let mut response = check_status(digest, response)?;
        let mut bytes = Vec::new();
        while let Some(part) = within_stall(response.chunk()).await?.map_err(again)? {
            bytes.extend_from_slice(&part);
            if bytes.len() > LIST_BYTES_MAX {
                return Err(Try::Again("the list of its pieces is too long".into()));
            }
        }
        let pieces: Pieces = codec::decode(&bytes)
            .map_err(|error| Try::Again(format!("the list of its pieces: {error}")))?;
        match pieces.digest() == Some(digest) && pieces.bytes() <= BLOB_BYTES_MAX {
            true => Ok(pieces),
            false => Err(Try::Again("the list of its pieces is of another content".into())),
        }
    }
}

/// A file that is there, or a new one.
async fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).await
}

/// How many pieces at the beginning of a file are right.
async fn right_at_the_beginning(file: &mut File, pieces: &Pieces) -> std::io::Result<usize> {
    let there = file.metadata().await?.len();
    let mut piece = vec![0; PIECE_BYTES];
    for index in 0..pieces.count() {
        let (from, length) = pieces.place(index);
        if length == 0 || from + length as u64 > there {
            return Ok(index);
        }
        file.read_exact(&mut piece[..length]).await?;
        if !pieces.is_right(index, &piece[..length]) {
            return Ok(index);
        }
    }
    Ok(pieces.count())
}
