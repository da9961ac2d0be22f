//! A broker that other machines reach and that was given nothing: no certificate, no token. Whoever can
//! read its folder joins as its administrator, and invites everybody else, who copy no file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gleaner_calm::assert_within;
use gleaner_protocol::api::{HostStatus, Submitted};
use gleaner_protocol::boottime;
use reqwest::StatusCode;

use crate::part::Part;
use crate::program::{Said, gleaner, run};

/// The broker, and folders of people.
struct Head {
    broker: Part,
    /// Where people on this machine reach it.
    url: String,
    folder: tempfile::TempDir,
}

fn start(folder: &Path, port: &str) -> (Part, String) {
    let mut command = gleaner(["broker", "--listen", &format!("0.0.0.0:{port}"), "--data-dir"]);
    command.arg(folder.join("data"));
    let mut broker = Part::start("broker", command, &folder.join("broker.log"));
    let url = broker.listening();
    let port = url.strip_prefix("https://0.0.0.0:").expect("TLS, and where").to_owned();
    (broker, format!("https://127.0.0.1:{port}"))
}

impl Head {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (broker, url) = start(folder.path(), "0");
        Self { broker, url, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Somebody says this, who has a folder and nothing else.
    fn says(&self, who: &str, words: &[&str]) -> Said {
        run(gleaner(words.iter().copied()).env("XDG_CONFIG_HOME", self.path(who)))
    }

    /// The administrator invites: what is to be pasted.
    fn invites(&self, words: &[&str]) -> String {
        let said = self.says("admin", &[&["invite", "--address", &self.url], words].concat()).ok();
        let line = said.trim_end().strip_prefix("gleaner join '").expect("a command");
        line.strip_suffix('\'').expect("in quotes").to_owned()
    }
}

#[tokio::test]
async fn a_broker_that_was_given_nothing_lets_in_who_is_invited_and_nobody_else() {
    let mut head = Head::new();
    // Nobody may anything, and the way in is said.
    let stranger = reqwest::Client::builder().tls_danger_accept_invalid_certs(true);
    let stranger = stranger.build().expect("a client");
    let answer = stranger.get(format!("{}/v1/jobs", head.url)).send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let said = answer.text().await.expect("a body");
    assert!(said.contains("gleaner join"), "{said}");
    assert!(head.broker.said().contains("gleaner join \"$(cat "), "{}", head.broker.said());
    let first = fs::read_to_string(head.path("data/admin-invitation")).expect("made");
    head.says("admin", &["join", &first]).ok();
    head.says("other", &["join", &first]).refused(5, &["has been used as often as it may be"]);

    // From the pasted line to the first replica.
    let line = head.invites(&["--role", "agent", "--owner", "anna"]);
    let bob = head.invites(&["--role", "submitter", "--owner", "bob"]);
    head.says("bob", &["join", &bob]).ok();
    let submit = ["submit", "gametree", "--depth", "1", "--format", "json"];
    let job = head.says("bob", &submit).json::<Submitted>().job.to_string();
    let began = boottime();
    head.says("anna", &["join", &line, "--name", "desk7"]).ok();
    let mut command = gleaner(["agent", "--give-way", "false", "--cores", "1", "--config"]);
    command.arg(head.path("anna/gleaner/agent.toml"));
    command.arg("--work-dir").arg(head.path("work")).arg("--run-dir").arg(head.path("run"));
    let agent = Part::start("desk7", command, &head.path("agent.log"));
    head.says("bob", &["wait", &job, "--timeout", "120"]).ok();
    let took = boottime().since(began).as_secs_f64();
    assert_within("seconds from the pasted line to a job's end", took, 10.0);
    let hosts: Vec<HostStatus> = head.says("bob", &["hosts", "--format", "json"]).json();
    assert_eq!(hosts[0].owner.as_ref().map(ToString::to_string).as_deref(), Some("anna"));
    let of_bob: Vec<HostStatus> = head.says("bob", &["hosts", "--mine", "--format", "json"]).json();
    assert_eq!(of_bob, []);
    head.says("anna", &["join", &head.invites(&["--role", "viewer", "--owner", "anna"])]).ok();
    let of_anna = head.says("anna", &["hosts", "--mine"]).ok();
    assert!(of_anna.contains("desk7"), "{of_anna}");

    // Of whoever has systemd, the agent is its service with the same command.
    let line = head.invites(&["--role", "agent", "--owner", "carl"]);
    let told = head.path("told");
    let script = format!("#!/bin/sh\necho \"$*\" >> {}\n", told.display());
    let programs = head.path("programs");
    fs::create_dir(&programs).expect("ours");
    fs::write(programs.join("systemctl"), script).expect("ours");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(programs.join("systemctl"), mode).expect("ours");
    let mut join = gleaner(["join", &line, "--name", "desk8", "--service"]);
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let said = run(join.env("XDG_CONFIG_HOME", head.path("carl")).env("PATH", path));
    assert!(said.stderr.contains("the agent runs"), "{said}");
    let told = fs::read_to_string(told).expect("told");
    assert_eq!(told, "--user daemon-reload\n--user enable --now gleaner-agent.service\n");
    let unit = head.path("carl/systemd/user/gleaner-agent.service");
    let unit = fs::read_to_string(unit).expect("written");
    assert!(unit.contains("carl/gleaner/agent.toml"), "{unit}");

    // Another server in its place is not spoken to, whatever it shows.
    let (id_and_secret, pin) = line.rsplit_once('.').expect("a pin at its end");
    let other = pin.replace(['0', '1', '2', '3'], "4");
    let wrong = format!("{id_and_secret}.{other}");
    head.says("eve", &["join", &wrong]).refused(3, &["somebody may be in between"]);

    // All of it outlives a restart, and nobody is invited once more.
    fs::remove_file(head.path("data/admin-invitation")).expect("ours");
    head.broker.kill();
    let port = head.url.rsplit_once(':').expect("a port").1.to_owned();
    (head.broker, head.url) = start(head.folder.path(), &port);
    assert!(!head.path("data/admin-invitation").exists());
    let job = head.says("bob", &submit).json::<Submitted>().job.to_string();
    head.says("bob", &["wait", &job, "--timeout", "120"]).ok();
    drop(agent);
}
