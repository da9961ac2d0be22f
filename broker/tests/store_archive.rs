//! Data folders as a whole: exports, imports, and backups of a broker that works.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Cursor, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_broker::{
    ArchiveError, Commit, Config, DataFolder, Journal, Replayed, SledJournal, StoreError,
    StoreOptions, export, import, pack, run,
};
use gleaner_protocol::api::{JobStatus, Submitted};
use gleaner_protocol::{
    Content, Digest, HostName, JobId, LeaseToken, Manifest, Origin, OutputFile, WorkunitId, stored,
};
use gleaner_scheduling::Fact;
use tokio::sync::oneshot;

fn options() -> StoreOptions {
    StoreOptions { min_free_bytes: 1 << 20, ..StoreOptions::default() }
}

/// All facts of a folder, and its small outputs as far as `digests` names them.
fn content(folder: &Path, digests: &[Digest]) -> (Vec<Fact>, Vec<Option<Vec<u8>>>) {
    let mut facts = Vec::new();
    let (journal, _) =
        SledJournal::open(DataFolder::open(folder).expect("free"), options(), |replayed| {
            let (Replayed::Chunk(record) | Replayed::Record { record, .. }) = replayed;
            facts.extend(stored::decode::<Vec<Fact>>(record).expect("our own"));
            Ok::<(), StoreError>(())
        })
        .expect("a sound store");
    let outputs = digests.iter().map(|digest| journal.small_blobs().get(digest).expect("read"));
    let outputs = outputs.collect();
    (facts, outputs)
}

/// The blobs of a folder by their names.
fn blobs(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut blobs = BTreeMap::new();
    for first in fs::read_dir(folder.join("blobs")).expect("listed") {
        let first = first.expect("listed");
        let name = first.file_name().into_string().expect("plain");
        if name.len() == 2 {
            for blob in fs::read_dir(first.path()).expect("listed") {
                let blob = blob.expect("listed");
                let rest = blob.file_name().into_string().expect("plain");
                blobs.insert(format!("{name}{rest}"), fs::read(blob.path()).expect("read"));
            }
        }
    }
    blobs
}

/// A folder with a job of every kind of fact, outputs and blobs.
fn folder_with_content() -> (tempfile::TempDir, Vec<Digest>) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = DataFolder::open(folder.path()).expect("free");
    let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
    let (mut journal, _) = SledJournal::open(data, options(), nothing).expect("a new store");
    let json = r#"{"name":"ümläut \"quoted\"\n","task":{"command":{"argv":["/bin/x"]}},
        "workunits":{"items":["a","","c\u0000d"]}}"#;
    let spec = Arc::new(serde_json::from_str(json).expect("a job"));
    let (job, mut digests) = (JobId::new(1), Vec::new());
    let mut commit = |facts: Vec<Fact>, output: Option<&[u8]>| {
        let records = pack(facts);
        let small_blobs = output.map(|output| (Digest::of(output), output));
        let records = records.iter().map(Vec::as_slice).collect();
        let commit = Commit { records, small_blobs: small_blobs.into_iter().collect() };
        journal.append(&commit).expect("a healthy store");
    };
    commit(vec![Fact::JobAccepted { job, spec, accepted_us: 0 }], None);
    for index in 0..2 {
        let content = Content::Inline(vec![index as u8; 100]);
        let manifest = Manifest::new(vec![OutputFile { name: "stdout".into(), content }]);
        let (digest, encoded) = manifest.map(|of| (of.digest(), of.encode())).expect("one");
        digests.push(digest);
        let workunit = WorkunitId { job, index };
        let host = HostName::new("h1").expect("a plain name");
        let (side, owner, token) = (Origin::Farm, None, LeaseToken::new(u64::MAX - 1));
        let vote = Fact::Voted { workunit, side, host, owner, token, digest, cpu_us: u64::MAX };
        commit(vec![vote, Fact::Decided { workunit, digest }], Some(&encoded));
    }
    let workunit = WorkunitId { job, index: 2 };
    commit(vec![Fact::GivenUp { workunit, reason: "it \"failed\"\n".into() }], None);
    drop(journal);
    for content in [&b""[..], b"an input", &vec![7; 300_000][..]] {
        let digits = Digest::of(content).to_string();
        let path = folder.path().join("blobs").join(&digits[..2]).join(&digits[2..]);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }
    (folder, digests)
}

#[test]
fn what_is_exported_and_imported_is_the_same_facts_outputs_and_blobs() {
    let (folder, digests) = folder_with_content();
    let carried = [
        "datasets.json",
        "runs.jsonl",
        "people.json",
        "tls.key",
        "tls.crt",
        "stopped.json",
        "views.json",
        "farm.jsonl",
        "usage/0000000007.jsonl",
        "usage/0000000008.jsonl",
    ];
    let left = ["usage/note.txt", "admin-invitation", "states/a-state"];
    for name in carried.iter().chain(&left) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{name}, as it is\nof two lines\n")).expect("written");
    }
    let mut stream = Vec::new();
    let moved = export(folder.path(), &mut stream).expect("exported");
    assert_eq!((moved.facts, moved.outputs, moved.blobs), (6, 2, 3));
    assert_eq!(moved.bytes, stream.len() as u64);
    assert!(stream.starts_with(b"gleaner-export 6\nS {"), "as it is documented");
    let place = tempfile::tempdir().expect("a folder");
    let new = place.path().join("new");
    assert_eq!(import(Cursor::new(&stream), &new).expect("imported"), moved);
    assert_eq!(content(&new, &digests), content(folder.path(), &digests));
    assert_eq!(blobs(&new), blobs(folder.path()));
    for name in carried {
        let read = |folder: &Path| fs::read_to_string(folder.join(name)).expect("it came with it");
        assert_eq!(read(&new), read(folder.path()), "{name}");
        let mode = fs::metadata(new.join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is its owner's alone");
    }
    for name in left.into_iter().chain(["broker.key"]) {
        assert!(!new.join(name).exists(), "{name}");
    }
    // And it is the same folder to agents, only started more often.
    let key = |folder: &Path| {
        let opened = DataFolder::open(folder).expect("free");
        let nothing = |_: Replayed<'_>| Ok::<(), StoreError>(());
        let (_, recovered) = SledJournal::open(opened, options(), nothing).expect("sound");
        (recovered.token_key, recovered.folder_id)
    };
    assert_eq!(key(&new), key(folder.path()));
    let error = import(Cursor::new(&stream), &new).expect_err("it is there");
    assert!(matches!(error, ArchiveError::Exists(_)), "{error}");
}

#[test]
fn of_an_export_that_is_cut_off_or_changed_nothing_comes() {
    let (folder, _) = folder_with_content();
    let mut stream = Vec::new();
    export(folder.path(), &mut stream).expect("exported");
    let place = tempfile::tempdir().expect("a folder");
    let new = place.path().join("new");
    let nothing_comes_of = |stream: &[u8]| {
        let error = import(Cursor::new(stream), &new).expect_err("it is not whole");
        assert!(!new.exists(), "{error}");
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 0, "{error}");
        error.to_string()
    };
    for part in 0..20 {
        nothing_comes_of(&stream[..stream.len() * part / 20]);
    }
    nothing_comes_of(&stream[..stream.len() - 1]);
    for part in 0..20 {
        let mut flipped = stream.clone();
        flipped[(stream.len() - 1) * part / 19] ^= 1;
        nothing_comes_of(&flipped);
    }
    for other in ["5", "7"] {
        let other_version = [format!("gleaner-export {other}").as_bytes(), &stream[16..]].concat();
        let says = nothing_comes_of(&other_version);
        assert!(
            says.contains(&format!("{other:?}")) && says.contains("the release that wrote it"),
            "{says}"
        );
    }
    // Nothing but what a broker has in its folder gets a name.
    let last_line = stream.len() - "E ".len() - 64 - "\n".len();
    for name in
        ["../elsewhere", "/tmp/elsewhere", "usage/../elsewhere", "usage/1.jsonl", "lock", ""]
    {
        let added = [&stream[..last_line], format!("N {name} 2\nhi\n").as_bytes()].concat();
        let hash = blake3::hash(&added).to_hex();
        let says = nothing_comes_of(&[&added, format!("E {hash}\n").as_bytes()].concat());
        assert!(says.contains("no file of a broker's"), "{name:?}: {says}");
    }
    // What a kill has left is in nobody's way.
    fs::create_dir(place.path().join(".new.partial")).expect("made");
    fs::write(place.path().join(".new.partial/meta"), "half").expect("written");
    import(Cursor::new(&stream), &new).expect("imported");
    assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 1);
}

/// A broker in this process.
struct Broker {
    url: String,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

impl Broker {
    async fn start(data_dir: &Path) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config {
            listen,
            data_dir: data_dir.to_owned(),
            min_free_mib: 1,
            snapshot_after_mib: 1,
            ..Config::default()
        };
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(async move {
            let ready = |address| ready.send(address).expect("waited for");
            run(config, ready, async { drop(stopped.await) }).await.expect("it ends well");
        });
        let url = format!("http://{}", address.await.expect("it starts"));
        Self { url, stop, ended }
    }

    async fn stop(self) {
        drop(self.stop);
        self.ended.await.expect("no panic");
    }

    async fn submit(&self, name: &str) -> JobId {
        let json = format!(
            r#"{{"name":"{name}","task":{{"kernel":"x"}},"workunits":{{"items":["{}"]}}}}"#,
            "y".repeat(4_000)
        );
        let request = reqwest::Client::new().post(format!("{}/v1/jobs", self.url)).body(json);
        let answer = request.send().await.expect("an answer").error_for_status().expect("taken");
        answer.json::<Submitted>().await.expect("JSON").job
    }

    async fn backup(&self) -> Vec<u8> {
        let answer = reqwest::get(format!("{}/v1/backup", self.url)).await.expect("an answer");
        answer.error_for_status().expect("given").bytes().await.expect("whole").to_vec()
    }

    async fn has(&self, job: JobId) -> bool {
        let answer = reqwest::get(format!("{}/v1/jobs/{job}", self.url)).await.expect("an answer");
        answer.json::<JobStatus>().await.is_ok()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_has_what_was_acknowledged_before_it() {
    // Another test may have done so.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let place = tempfile::tempdir().expect("a folder");
    let broker = Arc::new(Broker::start(&place.path().join("data")).await);
    let content = b"an input".to_vec();
    let digest = Digest::of(&content);
    let put = reqwest::Client::new().put(format!("{}/v1/blobs/{digest}", broker.url));
    put.body(content.clone()).send().await.expect("an answer").error_for_status().expect("taken");
    let goes_on = Arc::new(AtomicBool::new(true));
    let load = tokio::spawn({
        let (broker, goes_on) = (Arc::clone(&broker), Arc::clone(&goes_on));
        async move {
            while goes_on.load(Ordering::SeqCst) {
                broker.submit("load").await;
            }
        }
    });
    for round in 0..3 {
        let mut before = BTreeSet::new();
        for number in 0..50 {
            before.insert(broker.submit(&format!("before {number}")).await);
        }
        let stream = broker.backup().await;
        let copy = place.path().join(format!("copy-{round}"));
        import(Cursor::new(stream), &copy).expect("whole");
        // All that a broker keeps is carried: what is not is made anew, or is a part of what is.
        let anew =
            ["lock", "meta", "mark", "sled", "snapshots", "outputs", "blobs", "ballast", "states"];
        for entry in fs::read_dir(place.path().join("data")).expect("listed") {
            let name = entry.expect("an entry").file_name();
            let is_anew = name.to_str().is_some_and(|name| anew.contains(&name));
            assert!(is_anew || copy.join(&name).exists(), "{} is not carried", name.display());
        }
        let copied = Broker::start(&copy).await;
        for job in before {
            assert!(copied.has(job).await, "{job} was acknowledged before");
        }
        let blob = reqwest::get(format!("{}/v1/blobs/{digest}", copied.url)).await;
        assert_eq!(blob.expect("an answer").bytes().await.expect("whole"), content);
        copied.stop().await;
    }
    goes_on.store(false, Ordering::SeqCst);
    load.await.expect("no panic");
    Arc::into_inner(broker).expect("nobody else has it").stop().await;
}

/// A stream that breaks off, as one does whose broker is killed.
struct BreaksOff<'a>(&'a [u8]);

impl Read for BreaksOff<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.0.is_empty() {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        self.0.read(buffer)
    }
}

#[test]
fn a_broker_that_is_killed_in_the_middle_leaves_no_folder() {
    let (folder, _) = folder_with_content();
    let mut stream = Vec::new();
    export(folder.path(), &mut stream).expect("exported");
    let place = tempfile::tempdir().expect("a folder");
    let new = place.path().join("new");
    let half = std::io::BufReader::new(BreaksOff(&stream[..stream.len() / 2]));
    assert!(matches!(import(half, &new), Err(ArchiveError::Stream(..))));
    assert!(!new.exists());
}
