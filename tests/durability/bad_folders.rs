//! Folders and ports that a broker must leave alone.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::api::{Api, client};
use crate::broker::Launch;
use crate::content::scratch;
use crate::plan::Fate;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

/// The error that a start in vain ends with.
fn error_of((status, said): &(ExitStatus, String)) -> String {
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let error = said.lines().find(|line| line.starts_with("error: "));
    error.unwrap_or_else(|| panic!("no error: {said}")).to_owned()
}

/// All files of a folder with their content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            files.extend(content(&path));
        } else {
            files.insert(path.clone(), fs::read(&path).expect("read"));
        }
    }
    files
}

/// A folder in which a broker has accepted a job before it was killed.
async fn with_a_job(folder: &Path) -> Launch {
    let launch = Launch::on(&folder.join("data"), &folder.join("log"));
    let (broker, url) = launch.start().await;
    let spec = serde_json::json!({
        "name": "before",
        "task": { "kernel": Fate::Once.kernel() },
        "workunits": { "count": 3 },
    });
    let spec = serde_json::from_value(spec).expect("a job");
    Api::at(&client(), &url).submit(&spec).await.expect("accepted");
    broker.kill().await;
    launch
}

/// Says that the job is still there.
async fn has_the_job(launch: &Launch) {
    let (broker, url) = launch.start().await;
    let jobs = Api::at(&client(), &url).jobs().await.expect("an answer");
    assert_eq!(jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["before"]);
    broker.kill().await;
}

#[test]
fn a_folder_in_use_is_named_with_the_process_that_uses_it() {
    block_on(async {
        let folder = scratch();
        let launch = with_a_job(folder.path()).await;
        let (broker, _) = launch.start().await;
        let pid = fs::read_to_string(launch.data_dir.join("lock")).expect("it names its process");
        let error = error_of(&launch.start_in_vain().await);
        assert!(error.contains("is in use by another broker"), "{error}");
        assert!(error.contains(&format!("process {}", pid.trim())), "{error}");
        assert!(error.contains(&launch.data_dir.display().to_string()), "{error}");
        broker.kill().await;
        has_the_job(&launch).await;
    });
}

#[test]
fn a_port_in_use_leaves_the_store_untouched() {
    block_on(async {
        let folder = scratch();
        let sound = with_a_job(folder.path()).await;
        let before = content(&sound.data_dir);
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("bound").to_string();
        let mut launch = Launch { listen: address.clone(), ..sound.clone() };
        let error = error_of(&launch.start_in_vain().await);
        assert!(error.contains(&address), "{error}");
        assert!(content(&sound.data_dir) == before, "the store was touched");
        launch.data_dir = folder.path().join("never");
        error_of(&launch.start_in_vain().await);
        assert!(!launch.data_dir.exists(), "a folder was made in vain");
        has_the_job(&sound).await;
    });
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    block_on(async {
        let folder = scratch();
        let sound = with_a_job(folder.path()).await;
        let before = content(&sound.data_dir);
        let mut launch = sound.clone();
        let mode = |mode| fs::set_permissions(&sound.data_dir, fs::Permissions::from_mode(mode));
        if rustix::process::geteuid().is_root() {
            // Nothing is forbidden to root, but writing where nobody can.
            let script =
                "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
            let data = sound.data_dir.display().to_string();
            launch.wrapper =
                ["unshare", "-m", "sh", "-c", script, &data].map(String::from).to_vec();
        } else {
            mode(0o500).expect("our own folder");
            let lock = sound.data_dir.join("lock");
            fs::set_permissions(lock, fs::Permissions::from_mode(0o400)).expect("our own file");
        }
        let ended = launch.start_in_vain().await;
        if ended.1.contains("mount:") || ended.1.contains("unshare:") {
            eprintln!("no right to mount a folder read-only here: not tested: {}", ended.1);
            return;
        }
        let error = error_of(&ended);
        assert!(error.contains(&sound.data_dir.display().to_string()), "{error}");
        mode(0o700).expect("our own folder");
        assert!(content(&sound.data_dir) == before, "the store was touched");
    });
}

#[test]
fn a_folder_below_a_file_and_a_file_as_folder_are_named() {
    block_on(async {
        let folder = scratch();
        let file = folder.path().join("file");
        fs::write(&file, "not ours").expect("written");
        for data in [file.clone(), file.join("data")] {
            let launch = Launch::on(&data, &folder.path().join("log"));
            let error = error_of(&launch.start_in_vain().await);
            assert!(error.contains(&data.display().to_string()), "{error}");
        }
        assert_eq!(fs::read(&file).expect("read"), b"not ours");
    });
}

#[test]
fn a_folder_of_garbage_is_refused_and_nothing_in_it_is_lost() {
    let garbage = |bytes: usize| -> Vec<u8> {
        (0..bytes as u64).map(|byte| crate::draw::mix(byte) as u8).collect()
    };
    block_on(async {
        let places =
            ["meta", "sled", "sled/db", "sled/conf", "mark", "snapshots", "outputs", "blobs"];
        for place in places {
            for bytes in [1, 100, 70_000] {
                let folder = scratch();
                let data = folder.path().join("data");
                let file = data.join(place);
                fs::create_dir_all(file.parent().expect("below a folder")).expect("made");
                fs::write(&file, garbage(bytes)).expect("written");
                fs::write(data.join("letter.txt"), "not ours").expect("written");
                let launch = Launch::on(&data, &folder.path().join("log"));
                let error = error_of(&launch.start_in_vain().await);
                let named = data.display().to_string();
                assert!(error.contains(&named), "{place}, {bytes} bytes: {error}");
                assert_eq!(fs::read(data.join("letter.txt")).expect("read"), b"not ours");
                assert_eq!(fs::read(&file).expect("read"), garbage(bytes), "{place}: {error}");
            }
        }
    });
}
