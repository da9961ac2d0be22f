//! Blobs in a local folder: what goes in, what comes out, and what is refused.

use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use gleaner_broker::{BlobError, BlobStore, LocalBlobs};
use gleaner_protocol::Digest;

const LIMIT: u64 = 4 << 20;

fn store(folder: &Path) -> LocalBlobs {
    LocalBlobs::open(folder, 1 << 20).expect("a folder")
}

/// The content in pieces of odd length, as a network brings it.
fn pieces(content: &[u8]) -> BoxStream<'static, io::Result<Bytes>> {
    let pieces: Vec<_> = content.chunks(70_001).map(|piece| Ok(piece.to_vec().into())).collect();
    stream::iter(pieces).boxed()
}

async fn read(blobs: &LocalBlobs, digest: Digest) -> Result<Option<Vec<u8>>, BlobError> {
    let Some(content) = blobs.open(digest).await? else { return Ok(None) };
    let read: Vec<Bytes> = content.stream.try_collect().await?;
    let read = read.concat();
    assert_eq!(content.bytes, read.len() as u64);
    Ok(Some(read))
}

fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("listed") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path.display().to_string());
        }
    }
    files
}

#[tokio::test]
async fn contents_come_back_under_their_digest_over_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = [vec![], vec![1; 5], vec![2; 256 << 10], vec![3; 1_000_003]];
    let blobs = store(folder.path());
    for content in &contents {
        let digest = Digest::of(content);
        assert_eq!(read(&blobs, digest).await.expect("works"), None);
        assert_eq!(blobs.keep(digest).await.expect("works"), None);
        // Twice: the second one finds it there.
        for _ in 0..2 {
            let stored = blobs.put_stream(digest, pieces(content), LIMIT).await;
            assert_eq!(stored.expect("stored"), content.len() as u64);
        }
    }
    drop(blobs);
    let blobs = store(folder.path());
    for content in &contents {
        let digest = Digest::of(content);
        assert_eq!(read(&blobs, digest).await.expect("works").as_ref(), Some(content));
        assert_eq!(blobs.keep(digest).await.expect("works"), Some(content.len() as u64));
    }
    assert_eq!(files_below(folder.path()).len(), contents.len());
}

#[tokio::test]
async fn what_is_refused_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let blobs = store(folder.path());
    let content = vec![7; 600_000];
    let digest = Digest::of(&content);

    let error = blobs.put_stream(digest, pieces(&content[1..]), LIMIT).await.expect_err("another");
    assert!(matches!(error, BlobError::Mismatch { expected, .. } if expected == digest), "{error}");

    let error = blobs.put_stream(digest, pieces(&content), 599_999).await.expect_err("too long");
    assert!(matches!(error, BlobError::TooLarge { limit_bytes: 599_999, .. }), "{error}");

    let broken = pieces(&content[..400_000])
        .chain(stream::iter([Err(io::ErrorKind::ConnectionReset.into())]))
        .boxed();
    let error = blobs.put_stream(digest, broken, LIMIT).await.expect_err("broken off");
    assert!(matches!(error, BlobError::BrokenOff { bytes: 400_000, .. }), "{error}");

    // A sender that goes away: the future is dropped in the middle.
    let endless = pieces(&content).chain(stream::pending()).boxed();
    let mut putting = Box::pin(blobs.put_stream(digest, endless, LIMIT));
    let half_way = async {
        while files_below(folder.path()).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = &mut putting => panic!("it has no end"),
        () = half_way => {}
    }
    drop(putting);
    // The last piece may still be on its way to the disk.
    while !files_below(folder.path()).is_empty() {
        tokio::task::yield_now().await;
    }

    assert_eq!(blobs.keep(digest).await.expect("works"), None);
    assert_eq!(blobs.put_stream(digest, pieces(&content), LIMIT).await.expect("stored"), 600_000);
}

#[tokio::test]
async fn a_known_blob_is_still_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let blobs = store(folder.path());
    let digest = Digest::of(b"content");
    blobs.put_stream(digest, pieces(b"content"), LIMIT).await.expect("stored");
    let error = blobs.put_stream(digest, pieces(b"CONTENT"), LIMIT).await.expect_err("another");
    assert!(matches!(error, BlobError::Mismatch { .. }), "{error}");
    assert_eq!(read(&blobs, digest).await.expect("works").as_deref(), Some(&b"content"[..]));
}

#[tokio::test]
async fn a_damaged_blob_never_comes_out_whole_and_can_be_sent_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let blobs = store(folder.path());
    let content = vec![5; 700_000];
    let digest = Digest::of(&content);
    blobs.put_stream(digest, pieces(&content), LIMIT).await.expect("stored");
    let file = &files_below(folder.path())[0];
    for damage in [0, 699_999, 350_000] {
        let mut bytes = content.clone();
        bytes[damage] ^= 1;
        fs::write(file, &bytes).expect("written");
        let opened = blobs.open(digest).await.expect("works").expect("there");
        let mut came = 0;
        let mut stream = opened.stream;
        let error = loop {
            match stream.next().await.expect("an error before the end") {
                Ok(piece) => came += piece.len(),
                Err(error) => break error,
            }
        };
        assert!(came < content.len(), "{came} bytes came");
        assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(&digest.to_string()), "{error}");
        assert_eq!(blobs.keep(digest).await.expect("works"), None);
        blobs.put_stream(digest, pieces(&content), LIMIT).await.expect("stored again");
        assert_eq!(read(&blobs, digest).await.expect("works").as_ref(), Some(&content));
    }
}

#[tokio::test]
async fn many_senders_of_one_blob_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let blobs = store(folder.path());
    let content = vec![9; 900_000];
    let digest = Digest::of(&content);
    let senders = (0..16).map(|_| blobs.put_stream(digest, pieces(&content), LIMIT));
    for stored in futures_util::future::join_all(senders).await {
        assert_eq!(stored.expect("stored"), 900_000);
    }
    assert_eq!(read(&blobs, digest).await.expect("works"), Some(content));
    assert_eq!(files_below(folder.path()).len(), 1);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_what_was_left_half_way_is_removed_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    drop(store(folder.path()));
    fs::write(folder.path().join("incoming/17"), b"half").expect("written");
    let blobs = LocalBlobs::open(folder.path(), u64::MAX).expect("a folder");
    assert!(files_below(folder.path()).is_empty());
    let digest = Digest::of(b"content");
    let error = blobs.put_stream(digest, pieces(b"content"), LIMIT).await.expect_err("full");
    assert!(matches!(error, BlobError::Full { .. }), "{error}");
    assert!(files_below(folder.path()).is_empty());
}
