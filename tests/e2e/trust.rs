//! Who decides: hosts that the farm's admin trusts, hosts of volunteers who have yet to earn it, and what
//! a volunteer sees with the agent's key.

use std::fs;
use std::path::PathBuf;

use gleaner_protocol::api::{Explanation, HostStatus, Submitted, VoiceStatus};
use gleaner_protocol::people::PrincipalStatus;

use crate::part::Part;
use crate::patience::eventually;
use crate::program::{Said, gleaner, run};

/// A broker that other machines reach, and folders of people.
struct Head {
    _broker: Part,
    url: String,
    folder: tempfile::TempDir,
}

impl Head {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("broker.toml");
        fs::write(&file, config).expect("written");
        let mut command = gleaner(["broker", "--listen", "0.0.0.0:0", "--config"]);
        command.arg(file).arg("--data-dir").arg(folder.path().join("data"));
        let mut broker = Part::start("broker", command, &folder.path().join("broker.log"));
        let url = broker.listening().replace("0.0.0.0", "127.0.0.1");
        let head = Self { _broker: broker, url, folder };
        let first = fs::read_to_string(head.path("data/admin-invitation")).expect("made");
        head.says("admin", &["join", &first]).ok();
        head
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Somebody says this, who has a folder and nothing else.
    fn says(&self, who: &str, words: &[&str]) -> Said {
        run(gleaner(words.iter().copied()).env("XDG_CONFIG_HOME", self.path(who)))
    }

    /// Somebody joins who was invited by these words.
    fn joins(&self, who: &str, words: &[&str]) {
        let said = self.says("admin", &[&["invite", "--address", &self.url], words].concat()).ok();
        let line = said.trim_end().strip_prefix("gleaner join '").expect("a command");
        self.says(who, &["join", line.strip_suffix('\'').expect("in quotes"), "--name", who]).ok();
    }

    /// The agent of whoever has joined with one.
    fn runs_agent(&self, who: &str) -> Part {
        let mut command = gleaner(["agent", "--give-way", "false", "--cores", "1", "--config"]);
        command.arg(self.path(who).join("gleaner/agent.toml"));
        command.arg("--work-dir").arg(self.path(&format!("{who}-work")));
        command.arg("--run-dir").arg(self.path(&format!("{who}-run")));
        Part::start(who, command, &self.path(&format!("{who}.log")))
    }

    fn submits(&self, words: &[&str]) -> String {
        let words = [&["submit", "gametree", "--format", "json"], words].concat();
        self.says("admin", &words).json::<Submitted>().job.to_string()
    }

    fn hosts(&self, who: &str, words: &[&str]) -> Vec<HostStatus> {
        self.says(who, &[&["hosts", "--format", "json"], words].concat()).json()
    }

    /// Waits until `explain` gives this reason.
    async fn tells(&self, what: &str, code: &str) {
        eventually(code, async || {
            let told: Explanation =
                self.says("admin", &["explain", what, "--format", "json"]).json();
            told.reasons.iter().any(|reason| reason.code == code).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn volunteers_decide_nothing_without_a_trusted_host_and_earn_their_voice() {
    let head = Head::new("");
    head.joins("f1", &["--role", "agent", "--owner", "farm", "--trusted"]);
    for who in ["ann", "bob"] {
        head.joins(who, &["--role", "agent", "--owner", who]);
    }
    let people: Vec<PrincipalStatus> = head.says("admin", &["people", "--format", "json"]).json();
    let trusted: Vec<_> =
        people.iter().filter(|of| of.trusted).map(|of| of.owner.as_str()).collect();
    assert_eq!(trusted, ["farm"]);
    head.says("admin", &["invite", "--role", "viewer", "--owner", "eve", "--trusted"])
        .refused(5, &["compute nothing that could be trusted"]);

    let volunteers = ["ann", "bob"].map(|who| head.runs_agent(who));
    let job = head.submits(&["--depth", "1", "--replication", "3"]);
    head.tells(&job, "too-few-voices").await;
    head.tells(&format!("{job}/0"), "awaits-voice").await;
    let farm = head.runs_agent("f1");
    head.says("admin", &["wait", &job, "--timeout", "120"]).ok();

    // Ten agreements make a voice.
    let job = head.submits(&["--depth", "2", "--replication", "3", "--quorum", "3"]);
    head.says("admin", &["wait", &job, "--timeout", "120"]).ok();
    let voices = head.hosts("admin", &[]).into_iter().map(|host| host.voice);
    let voices: Vec<_> = voices.collect();
    assert_eq!(
        voices,
        [Some(VoiceStatus::Earned), Some(VoiceStatus::Earned), Some(VoiceStatus::Trusted)]
    );
    let table = head.says("admin", &["hosts"]).ok();
    assert!(table.contains("earned") && table.contains("trusted"), "{table}");
    // Two who have earned theirs decide without the farm.
    drop(farm);
    let job = head.submits(&["--depth", "1", "--replication", "2"]);
    head.says("admin", &["wait", &job, "--timeout", "120"]).ok();

    // With the key of the agent its owner sees their own hosts, and nothing else.
    let mine = head.hosts("ann", &["--mine"]);
    assert_eq!(mine.iter().map(|host| host.host.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert_eq!(head.hosts("ann", &[]), head.hosts("ann", &["--mine"]));
    let table = head.says("ann", &["hosts", "--mine"]).ok();
    assert!(table.contains("credit hours"), "{table}");
    head.says("ann", &["usage", "--mine"]).ok();
    head.says("ann", &["usage"]).refused(5, &["--mine"]);
    for words in [&["jobs"][..], &["people"], &["shares"], &["explain", &job]] {
        assert_eq!(head.says("ann", words).code, Some(5), "{words:?}");
    }

    // Trust belongs to a key: whoever has the name next has yet to earn it.
    let of_ann = people.iter().find(|of| of.owner.as_str() == "ann").expect("joined");
    head.says("admin", &["revoke", &of_ann.id.to_string()]).ok();
    eventually("the trust is gone", async || {
        let hosts = head.hosts("admin", &[]);
        (hosts[0].voice == Some(VoiceStatus::New { agreed: 0 })).then_some(())
    })
    .await;
    drop(volunteers);
}

#[tokio::test]
async fn caps_and_limits_of_owners_are_told_where_they_hold() {
    let head = Head::new(
        "[limits]\nworkunits = 100\ndataset_mib = 1\nupload_mib_a_day = 3\ncores = 7\n\
         [projects.lit]\ncap_cores = 1\n",
    );
    head.joins("f1", &["--role", "agent", "--owner", "farm"]);
    head.joins("lit", &["--role", "submitter", "--project", "lit"]);
    head.joins("bob", &["--role", "submitter", "--owner", "bob"]);
    let _agent = head.runs_agent("f1");
    let submit = |who: &str, count: &str| {
        head.says(who, &["submit", "command", "--count", count, "--", "/bin/true"])
    };
    submit("bob", "101").refused(5, &["the job has 101 workunits", "0 of 100 that may be"]);
    submit("bob", "60").ok();
    submit("bob", "60").refused(5, &["60 of 100 that may be"]);
    submit("lit", "60").ok();
    let shares = head.says("admin", &["shares"]).ok();
    assert!(shares.contains("may hold"), "{shares}");
    let told = head.says("admin", &["shares", "--format", "json"]).ok();
    assert!(told.contains("\"cap_cores\": 7") && told.contains("\"cap_cores\": 1"), "{told}");

    // A dataset that is too large is refused before any of it is sent.
    let large = head.path("large.bin");
    let content: Vec<u8> = (0..(5_u32 << 18)).flat_map(u32::to_le_bytes).collect();
    fs::write(&large, &content[..5 << 20]).expect("written");
    let small = head.path("small.bin");
    fs::write(&small, &content[..700 << 10]).expect("written");
    let add = |who: &str, file: &PathBuf, name: &str| {
        head.says(who, &["dataset", "add", file.to_str().expect("plain"), "--name", name])
    };
    add("bob", &large, "large").refused(5, &["your datasets have 0 of 1 MiB"]);
    add("bob", &small, "small").ok();
    add("bob", &small, "more").refused(5, &["your datasets have 1 of 1 MiB"]);
    // What is uploaded a day is counted as it comes.
    let submit = |who: &str, file: &PathBuf| {
        let file = file.to_str().expect("plain");
        head.says(who, &["submit", "command", "--count", "1", "--input", file, "--", "/bin/true"])
    };
    submit("lit", &large).refused(5, &["lit may upload 3 MiB a day"]);
    submit("lit", &small).refused(5, &["lit may upload 3 MiB a day"]);
}
