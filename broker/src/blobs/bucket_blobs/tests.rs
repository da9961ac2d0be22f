//! Against a store in memory; `tests/s3/run` does the same against a real one.

use object_store::memory::InMemory;

use super::*;

/// A bucket that outlives brokers, and one broker's folder.
struct Stage {
    bucket: Arc<InMemory>,
    folder: tempfile::TempDir,
    ages: Ages,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let ages = Ages { unused: Duration::ZERO, named_within: Span::ZERO };
        Self { bucket: Arc::default(), folder, ages }
    }

    fn arrived(&self) -> LocalBlobs {
        LocalBlobs::open(&self.folder.path().join("blobs"), 0).expect("opened")
    }

    async fn open(&self) -> Result<BucketBlobs, BucketError> {
        let bucket = Arc::<InMemory>::clone(&self.bucket);
        let url = "s3://farm/blobs".to_owned();
        let (prefix, arrived) = (Key::from("blobs"), self.arrived());
        BucketBlobs::open_in(bucket, prefix, url, self.folder.path(), arrived, self.ages).await
    }
}

fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

async fn put(blobs: &BucketBlobs, content: &Bytes) -> Result<u64, BlobError> {
    let part = content.clone();
    let whole = stream::once(async move { Ok(part) }).boxed();
    blobs.put_stream(Digest::of(content), whole, 1 << 30).await
}

async fn read(
    blobs: &BucketBlobs,
    digest: Digest,
    from: u64,
) -> Result<Option<Vec<u8>>, BlobError> {
    let Some(mut content) = blobs.read_from(digest, from).await? else { return Ok(None) };
    let mut whole = Vec::new();
    while let Some(piece) = content.stream.next().await {
        whole.extend_from_slice(&piece?);
    }
    assert_eq!(whole.len() as u64, content.bytes);
    Ok(Some(whole))
}

#[tokio::test]
async fn what_is_put_comes_back_whole_in_part_and_in_pieces() {
    let stage = Stage::new();
    let blobs = stage.open().await.expect("opened");
    for bytes in [0, 1, 300_000, 2 * BUCKET_PART_BYTES as usize + 5] {
        let content = content(bytes);
        let digest = Digest::of(&content);
        assert_eq!(blobs.keep(digest).await.expect("looked up"), None);
        assert_eq!(read(&blobs, digest, 0).await.expect("none"), None);
        for _ in 0..2 {
            assert_eq!(put(&blobs, &content).await.expect("stored"), bytes as u64);
        }
        assert_eq!(blobs.keep(digest).await.expect("looked up"), Some(bytes as u64));
        assert_eq!(read(&blobs, digest, 0).await.expect("read").as_deref(), Some(&content[..]));
        for from in [bytes / 2, bytes, bytes + 1] {
            let rest = read(&blobs, digest, from as u64).await.expect("read").expect("it is here");
            assert_eq!(rest, content[from.min(bytes)..], "{bytes} from {from}");
        }
        let pieces = blobs.pieces(digest).await.expect("read").expect("it is here");
        assert_eq!((pieces.digest(), pieces.bytes()), (Some(digest), bytes as u64));
        let named = blobs.beginning_with(digest.as_bytes()[0]).await.expect("listed");
        assert!(named.contains(&digest));
    }
    assert!(stage.arrived().all().expect("listed").is_empty(), "nothing stays in the folder");
}

#[tokio::test]
async fn another_content_is_refused_and_a_changed_object_is_noticed_before_its_end() {
    let stage = Stage::new();
    let blobs = stage.open().await.expect("opened");
    let (right, wrong) = (content(70_000), Bytes::from_static(b"another"));
    let whole = stream::once(async move { Ok(wrong) }).boxed();
    let refused = blobs.put_stream(Digest::of(&right), whole, 1 << 30).await;
    assert!(matches!(refused, Err(BlobError::Mismatch { .. })));
    assert_eq!(blobs.keep(Digest::of(&right)).await.expect("looked up"), None);
    put(&blobs, &right).await.expect("stored");
    let digest = Digest::of(&right);
    let mut changed = right.to_vec();
    changed[50_000] ^= 1;
    stage.bucket.put(&blobs.key_of(digest), changed.into()).await.expect("changed");
    let Err(BlobError::Damaged { moved_to, .. }) = read(&blobs, digest, 0).await else {
        panic!("it is damaged")
    };
    assert_eq!(moved_to, Path::new(&format!("s3://farm/blobs/damaged/{digest}")));
    assert_eq!(blobs.keep(digest).await.expect("looked up"), None, "it may come again");
}

#[tokio::test]
async fn what_lay_in_the_folder_is_in_the_bucket_before_anything_is_served() {
    let stage = Stage::new();
    let content = content(123_456);
    let digest = Digest::of(&content);
    let arrived = stage.arrived().take(digest).and_then(|blob| blob.add(&content)?.finish());
    arrived.expect("stored");
    let blobs = stage.open().await.expect("opened");
    assert_eq!(read(&blobs, digest, 0).await.expect("read").as_deref(), Some(&content[..]));
    assert!(stage.arrived().all().expect("listed").is_empty());
}

#[tokio::test]
async fn a_prefix_belongs_to_one_folder_and_a_folder_to_one_prefix() {
    let mut stage = Stage::new();
    assert!(BucketBlobs::check_none(stage.folder.path()).is_ok());
    drop(stage.open().await.expect("opened"));
    drop(stage.open().await.expect("the same again"));
    let error = BucketBlobs::check_none(stage.folder.path()).expect_err("its blobs are there");
    assert!(error.to_string().contains("set bucket.url to it"), "{error}");
    let own = std::mem::replace(&mut stage.folder, tempfile::tempdir().expect("a folder"));
    let error = stage.open().await.expect_err("another folder").to_string();
    assert!(error.contains("s3://farm/blobs/broker"), "{error}");
    // A kill between the file and the object.
    stage.folder = own;
    stage.bucket.delete(&Key::from("blobs/broker")).await.expect("removed");
    stage.open().await.expect("made good");
    // A copy of the folder.
    BucketBlobs::disown(stage.folder.path()).expect("written");
    assert!(BucketBlobs::check_none(stage.folder.path()).is_err(), "its blobs are in the bucket");
    assert!(matches!(stage.open().await, Err(BucketError::Taken { .. })));
    stage.bucket.delete(&Key::from("blobs/broker")).await.expect("removed");
    stage.open().await.expect("taken over");
}

#[tokio::test]
async fn what_nobody_names_goes_and_what_is_new_or_kept_stays() {
    let mut stage = Stage::new();
    let hour = Span::from_secs(3_600);
    let (old, other) = (content(100), content(101));
    let digests = vec![Digest::of(&old), Digest::of(&other)];
    let first = stage.open().await.expect("opened");
    put(&first, &old).await.expect("stored");
    put(&first, &other).await.expect("stored");
    let removed = |removed, young| RemovedBlobs { removed, young };
    stage.ages = Ages { unused: Duration::from_secs(3_600), named_within: Span::ZERO };
    let second = stage.open().await.expect("opened");
    assert_eq!(second.remove_unused(digests.clone()).await.expect("asked"), removed(0, 2));
    stage.ages = Ages { unused: Duration::ZERO, named_within: hour };
    let third = stage.open().await.expect("opened");
    assert_eq!(
        third.remove_unused(digests.clone()).await.expect("asked"),
        removed(0, 2),
        "what was kept before a start is not known"
    );
    stage.ages = Ages { unused: Duration::ZERO, named_within: Span::from_micros(1) };
    let last = stage.open().await.expect("opened");
    last.shared.kept.note(digests[1], boottime() + hour);
    let opened = boottime();
    while boottime() <= opened {
        tokio::task::yield_now().await;
    }
    assert_eq!(last.remove_unused(digests.clone()).await.expect("asked"), removed(1, 1));
    assert_eq!(last.keep(digests[0]).await.expect("looked up"), None);
    assert_eq!(last.keep(digests[1]).await.expect("looked up"), Some(101));
}
