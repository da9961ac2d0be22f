//! Copies of all that a broker keeps: what a broker on a copy answers, and what is no copy.

use std::fs;
use std::path::{Path, PathBuf};

use gleaner_protocol::api::{JobState, JobStatus};
use gleaner_protocol::limits::INLINE_BYTES_MAX;
use serde_json::Value;

use crate::cluster::{Cluster, Plan};
use crate::marks::SHELL;
use crate::part::Part;
use crate::program::{Said, gleaner, run};

/// What each workunit prints, and the large file that it makes.
const WORK: &str = "cat input > large; printf 'workunit %s' \"$GLEANER_INDEX\"";

/// A broker with a job whose results are fetched, and one that nobody can run.
struct Kept {
    cluster: Cluster,
    done: String,
    waiting: String,
    input: String,
}

impl Kept {
    async fn new() -> Self {
        let cluster = Plan::new().desktops(1).start().await;
        let input = "0123456789abcde\n".repeat(INLINE_BYTES_MAX / 8);
        let file = cluster.folder().join("input");
        fs::write(&file, &input).expect("written");
        let options = ["--count", "3", "--output", "large", "--name", "done", "--input"];
        let mut submit = vec!["submit", "command"];
        submit.extend(options);
        submit.extend([file.to_str().expect("plain"), "--", SHELL, "-c", WORK]);
        let done = cluster.cli(&submit).ok().trim_end().to_owned();
        cluster.cli(&["wait", &done, "--timeout", "60"]).ok();
        let submit = ["submit", "command", "--name", "waiting", "--", "/opt/nobody/has/it"];
        let waiting = cluster.cli(&submit).ok().trim_end().to_owned();
        Self { cluster, done, waiting, input }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.cluster.folder().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a plain path").to_owned()
    }

    /// That a broker on `data` knows both jobs, gives out the results, and takes new jobs.
    fn is_all_in(&self, data: &str) {
        let mut command = gleaner(["broker", "--listen", "127.0.0.1:0", "--data-dir", data]);
        command.args(["--ownerless-hosts-vote", "each"]);
        let mut broker = Part::start("copy", command, &self.path("logs/copy.log"));
        let url = broker.listening();
        let cli = |arguments: &[&str]| {
            run(gleaner(arguments.iter().copied()).env("GLEANER_BROKER", &url))
        };
        let status = |job: &str| cli(&["status", job, "--format", "json"]).json::<JobStatus>();
        let done = status(&self.done);
        assert_eq!((done.name.as_str(), done.state), ("done", JobState::Completed));
        let waiting = status(&self.waiting);
        assert_eq!((waiting.name.as_str(), waiting.state.is_final()), ("waiting", false));
        let folder = format!("{data}.results");
        cli(&["fetch", &self.done, "--output", &folder]).ok();
        for index in 0..3 {
            let read = |name: &str| fs::read_to_string(format!("{folder}/{index}/{name}"));
            assert_eq!(read("stdout").expect("there"), format!("workunit {index}"));
            assert_eq!(read("large").expect("there"), self.input);
        }
        let submit = ["submit", "command", "--input", &self.text("input"), "--", SHELL];
        let next = cli(&submit).ok().trim_end().to_owned();
        assert!(![&self.done, &self.waiting].contains(&&next), "{next}");
        let ended = broker.stop();
        assert!(ended.success(), "{ended}\n{}", broker.said());
        assert!(!broker.said().contains("panicked"), "{}", broker.said());
    }
}

/// The command line without a broker.
fn alone(arguments: &[&str]) -> Said {
    run(&mut gleaner(arguments.iter().copied()))
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("listed");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("plain");
    let mut entries: Vec<String> = entries.map(|entry| name(entry.expect("listed"))).collect();
    entries.sort();
    entries
}

#[tokio::test]
async fn a_broker_on_a_backup_has_all_that_the_running_one_had() {
    let kept = Kept::new().await;
    let copy = kept.text("copy");
    let told: Value = kept.cluster.cli(&["broker", "backup", &copy, "--format", "json"]).json();
    assert_eq!((told["to"].as_str(), told["outputs"].as_u64()), (Some(&copy[..]), Some(3)));
    // The input, and the output that is the same bytes.
    assert_eq!(told["blobs"].as_u64(), Some(1), "{told}");
    // The broker that was copied works on beside the copy.
    kept.is_all_in(&copy);
    let status = kept.cluster.cli(&["status", &kept.waiting, "--format", "json"]);
    assert!(!status.json::<JobStatus>().state.is_final());
    kept.cluster.api.is_well().await;
    let submit = ["submit", "command", "--", SHELL, "-c", "echo still"];
    let id = kept.cluster.cli(&submit).ok().trim_end().to_owned();
    kept.cluster.cli(&["wait", &id, "--timeout", "60"]).ok();
}

#[tokio::test]
async fn a_broker_on_an_import_has_all_that_was_exported() {
    let mut kept = Kept::new().await;
    let (file, copy, data) = (kept.text("all.export"), kept.text("copy"), kept.text("broker"));
    assert!(kept.cluster.broker.stop().success());
    let told = alone(&["broker", "export", &file, "--data-dir", &data]).ok();
    assert!(told.starts_with(&format!("{file}: ")) && told.contains("3 outputs"), "{told}");
    let told = alone(&["broker", "import", &file, "--data-dir", &copy]).ok();
    assert!(told.starts_with(&format!("{copy}: ")) && told.contains("3 outputs"), "{told}");
    kept.is_all_in(&copy);
    // An empty folder is as good as none; and the exported one is what it was.
    fs::create_dir(kept.path("empty")).expect("made");
    alone(&["broker", "import", &file, "--data-dir", &kept.text("empty")]).ok();
    kept.is_all_in(&kept.text("empty"));
    kept.cluster.restart_broker();
    let status = kept.cluster.cli(&["status", &kept.done, "--format", "json"]);
    assert_eq!(status.json::<JobStatus>().state, JobState::Completed);
}

#[tokio::test]
async fn what_cannot_be_copied_is_refused_with_the_place_and_the_way_out() {
    let kept = Kept::new().await;
    let (file, copy, data) = (kept.text("all.export"), kept.text("copy"), kept.text("broker"));
    fs::create_dir(kept.path("full")).expect("made");
    fs::write(kept.path("full/notes"), "mine").expect("written");
    let full = kept.text("full");

    // A broker that runs.
    let said = alone(&["broker", "export", &file, "--data-dir", &data]);
    let pid = kept.cluster.broker.pid().to_string();
    said.refused(1, &[&data, "a broker runs on it", &pid, "stop it", "gleaner broker backup DIR"]);
    assert!(!kept.path("all.export").exists());
    kept.cluster
        .cli(&["broker", "backup", &full])
        .refused(1, &[&full, "is there already", "empty"]);
    kept.cluster
        .cli(&["broker", "backup", &data])
        .refused(1, &[&data, "is there already", "empty"]);
    let mut nowhere = gleaner(["broker", "backup", &copy, "--broker", "http://127.0.0.1:1"]);
    run(&mut nowhere).refused(3, &["http://127.0.0.1:1", "is it running there?"]);
    assert!(!kept.path("copy").exists());

    // Its folder, where something should be imported.
    kept.cluster.cli(&["broker", "backup", &copy]).ok();
    alone(&["broker", "export", &file, "--data-dir", &copy]).ok();
    let whole = fs::read(&file).expect("read");
    let said = alone(&["broker", "import", &file, "--data-dir", &data]);
    said.refused(1, &[&file, &data, "is there already", "empty"]);
    let said = alone(&["broker", "import", &file, "--data-dir", &full]);
    said.refused(1, &[&file, &full, "is there already", "empty"]);
    assert_eq!(entries(&kept.path("full")), ["notes"]);
    let said = alone(&["broker", "export", &file, "--data-dir", &copy]);
    said.refused(1, &[&file, "is there already", "name another file"]);
    assert_eq!(fs::read(&file).expect("read"), whole);
    kept.cluster.api.is_well().await;

    // What holds no broker's data.
    let (other, new) = (kept.text("other.export"), kept.text("new"));
    for place in [&full, &kept.text("nowhere"), &file] {
        let said = alone(&["broker", "export", &other, "--data-dir", place]);
        said.refused(1, &[place, "no broker's data", "--data-dir"]);
    }
    let notes = format!("{full}/notes");
    let said = alone(&["broker", "import", &notes, "--data-dir", &new]);
    said.refused(1, &[&notes, "no whole export", "make it anew"]);
    let said = alone(&["broker", "import", &copy, "--data-dir", &new]);
    said.refused(1, &[&copy, "is a folder", "gleaner broker --data-dir"]);
    let said = alone(&["broker", "import", "/nowhere", "--data-dir", &new]);
    said.refused(1, &["/nowhere", "No such file"]);
    fs::write(kept.path("half.export"), &whole[..whole.len() / 2]).expect("written");
    let said = alone(&["broker", "import", &kept.text("half.export"), "--data-dir", &new]);
    said.refused(1, &["half.export", "no whole export", "it is cut off"]);
    // Nothing is left of what was refused.
    let left = entries(kept.cluster.folder());
    let left: Vec<&String> = left.iter().filter(|name| name.contains("partial")).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!kept.path("new").exists() && !kept.path("other.export").exists());
    assert!(!kept.path("nowhere").exists());
}
