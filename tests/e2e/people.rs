//! People and machines who are told apart: invited, enrolled, revoked; what each of them may, and
//! what they say of themselves that counts for nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use gleaner_calm::assert_within;
use gleaner_protocol::api::{HostStatus, JobStatus, ShareStatus, Submitted, UsageRow};
use gleaner_protocol::control::AgentMessage;
use gleaner_protocol::farm::FarmEvent;
use gleaner_protocol::people::PrincipalStatus;
use gleaner_protocol::{HostName, OwnerName, ProjectName, boottime};
use reqwest::Client;
use serde_json::Value;

use crate::bad_link::{Rogue, hello};
use crate::cluster::{Cluster, Plan};
use crate::part::Part;
use crate::patience::eventually;
use crate::program::{Said, gleaner, run};

/// A broker that asks for keys, and people who have none.
struct Farm {
    cluster: Cluster,
}

impl Farm {
    async fn new() -> Self {
        Self { cluster: Plan::new().keys().start().await }
    }

    /// Whoever runs it says this.
    fn says(&self, words: &[&str]) -> Said {
        let token_file = self.cluster.keys().token_file();
        let token_file = token_file.to_str().expect("plain");
        self.cluster.cli(&[words, &["--token-file", token_file]].concat())
    }

    /// An invitation, as it is to be pasted.
    fn invites(&self, role: &str, owner: &str) -> String {
        self.cluster.keys().invites(role, owner)
    }

    /// Somebody with a folder of their own, and nothing else.
    fn somebody(&self, name: &str) -> Somebody {
        let folder = self.cluster.folder().join(name);
        fs::create_dir(&folder).expect("a folder");
        Somebody { folder }
    }

    /// Somebody who has joined.
    fn joined(&self, role: &str, owner: &str) -> Somebody {
        let somebody = self.somebody(&format!("{owner}-{role}"));
        somebody.says(&["join", &self.invites(role, owner)]).ok();
        somebody
    }
}

struct Somebody {
    folder: PathBuf,
}

impl Somebody {
    /// Says this at a terminal of their own, where nothing is set.
    fn says(&self, words: &[&str]) -> Said {
        run(gleaner(words.iter().copied()).env("XDG_CONFIG_HOME", &self.folder))
    }

    /// The only key that they have.
    fn key_file(&self) -> PathBuf {
        let all = fs::read_dir(self.folder.join("gleaner")).expect("it was made");
        let mut all = all.map(|entry| entry.expect("listed").path());
        all.find(|path| path.extension().is_some_and(|of| of == "key")).expect("a key")
    }

    fn submits(&self, words: &[&str]) -> String {
        let words = [&["submit", "gametree", "--depth", "2", "--format", "json"], words].concat();
        self.says(&words).json::<Submitted>().job.to_string()
    }

    fn jobs(&self) -> Vec<String> {
        let jobs: Vec<JobStatus> = self.says(&["jobs", "--format", "json"]).json();
        jobs.iter().map(|job| format!("{} of {}", job.job, job.owner)).collect()
    }
}

#[tokio::test]
async fn a_project_answers_for_the_jobs_of_its_people_and_shows_them_to_its_viewers() {
    let farm = Farm::new().await;
    let of_project = |role: &str, more: &[&str]| {
        let words = [&["invite", "--role", role, "--project", "lighting"], more].concat();
        let said = farm.says(&words).ok();
        let line = said.trim_end().strip_prefix("gleaner join '").expect("a command");
        let somebody = farm.somebody(&format!("{role}{}", more.len()));
        somebody.says(&["join", line.strip_suffix('\'').expect("in quotes")]).ok();
        somebody
    };
    let (anna, light) =
        (of_project("submitter", &["--owner", "anna"]), of_project("submitter", &[]));
    let bob = farm.joined("submitter", "bob");
    anna.submits(&["--project", "lighting"]);
    light.submits(&[]);
    bob.submits(&[]);
    for (who, project, works_on) in
        [(&anna, "comp", "project lighting"), (&bob, "lighting", "no project")]
    {
        let submit = ["submit", "gametree", "--depth", "2", "--project", project];
        who.says(&submit).refused(5, &[works_on, "leave --project out"]);
    }
    let viewer = of_project("viewer", &["--owner", "carl"]);
    assert_eq!(viewer.jobs(), ["job-1 of anna", "job-2 of lighting"]);
    viewer.says(&["status", "job-3"]).refused(4, &["there is no job-3"]);
    let shares: Vec<ShareStatus> = farm.says(&["shares", "--format", "json"]).json();
    let mut shares: Vec<_> = shares
        .iter()
        .map(|of| {
            (of.project.as_ref().map(ProjectName::as_str), of.owner.as_ref().map(OwnerName::as_str))
        })
        .collect();
    shares.sort_unstable();
    assert_eq!(shares, [(None, Some("bob")), (Some("lighting"), None)]);
    farm.says(&["invite", "--role", "agent", "--owner", "eve", "--project", "lighting"])
        .refused(5, &["agents work on no project"]);
    farm.says(&["invite", "--role", "submitter"]).refused(2, &["--owner"]);
}

#[tokio::test]
async fn a_submitter_has_their_own_jobs_whatever_they_say() {
    let farm = Farm::new().await;
    let (anna, bob) = (farm.joined("submitter", "anna"), farm.joined("submitter", "bob"));
    let one = anna.submits(&["--owner", "bob"]);
    assert_eq!(anna.jobs(), ["job-1 of anna"]);
    let empty: [&str; 0] = [];
    assert_eq!(bob.jobs(), empty);
    for words in
        [vec!["status", &one], vec!["cancel", &one], vec!["explain", &one], vec!["forget", &one]]
    {
        bob.says(&words).refused(4, &["there is no job-1"]);
    }
    bob.submits(&[]);
    assert_eq!(bob.jobs(), ["job-2 of bob"]);
    anna.says(&["cancel", &one]).ok();
    anna.says(&["forget", &one]).ok();
    // Whoever looks sees all, and may nothing else.
    let viewer = farm.joined("viewer", "carl");
    assert_eq!(viewer.jobs(), ["job-2 of bob"]);
    viewer.says(&["cancel", "job-2"]).refused(5, &["not for a viewer", "gleaner invite"]);
    viewer.says(&["submit", "gametree", "--depth", "2"]).refused(5, &["not for a viewer"]);
    for words in [vec!["people"], vec!["invite", "--role", "admin", "--owner", "bob"]] {
        bob.says(&words).refused(5, &["not for a submitter"]);
    }
    // Another administrator may all that the first one may.
    let admin = farm.joined("admin", "root");
    let people: Vec<PrincipalStatus> = admin.says(&["people", "--format", "json"]).json();
    assert_eq!(people.len(), 5);
    admin.says(&["cancel", "job-2"]).ok();
}

#[tokio::test]
async fn an_invitation_is_good_once_and_says_what_is_wrong_with_it() {
    let farm = Farm::new().await;
    let line = farm.invites("submitter", "anna");
    let anna = farm.somebody("anna");
    anna.says(&["join", &line[..line.len() - 4]]).refused(2, &["a part of one"]);
    let mistyped = format!("{}{}", &line[..line.len() - 4], "0000");
    anna.says(&["join", &mistyped]).refused(5, &["no such invitation"]);
    anna.says(&["jobs"]).refused(3, &["cannot reach"]);
    anna.says(&["join", &line]).ok();
    let bob = farm.somebody("bob");
    bob.says(&["join", &line]).refused(5, &["used as often", "ask admin ("]);
    // A key that others can read is none.
    let keys = fs::read_dir(anna.folder.join("gleaner")).expect("a folder");
    let keys = keys.map(|entry| entry.expect("an entry").path());
    let key = keys.into_iter().find(|path| path.extension().is_some_and(|end| end == "key"));
    let key = key.expect("it has a key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("ours");
    anna.says(&["jobs"]).refused(2, &["can be read by others", "chmod 600"]);
    farm.says(&["invite", "--role", "root", "--owner", "x"]).refused(2, &["no role"]);
    farm.says(&["invite", "--role", "viewer", "--owner", "x", "--uses", "0"])
        .refused(5, &["uses is 0"]);
}

/// An agent that has joined, with the configuration that was written for it.
fn agent(farm: &Farm, somebody: &Somebody) -> Part {
    agent_with(farm, somebody, "desk7", &[])
}

fn agent_with(farm: &Farm, somebody: &Somebody, name: &str, options: &[&str]) -> Part {
    let config = somebody.folder.join("gleaner/agent.toml");
    let mut command = gleaner(["agent", "--give-way", "false", "--cores", "1", "--config"]);
    command.arg(config).arg("--work-dir").arg(somebody.folder.join("work"));
    command.arg("--run-dir").arg(somebody.folder.join("run")).args(options);
    Part::start(name, command, &farm.cluster.folder().join(format!("logs/{name}.log")))
}

#[tokio::test]
async fn hosts_read_each_others_copies_by_the_keys_that_they_joined_with() {
    let farm = Farm::new().await;
    let mut agents = Vec::new();
    for name in ["desk7", "desk8"] {
        let host = farm.somebody(name);
        host.says(&["join", &farm.invites("agent", name), "--name", name]).ok();
        let metrics = host.folder.join("it.prom");
        let listens = ["--chunk-disk-mib", "64", "--chunk-listen", "127.0.0.1:0"];
        let counts = ["--metrics-file", metrics.to_str().expect("plain")];
        let mut agent = agent_with(&farm, &host, name, &[&listens[..], &counts].concat());
        assert_eq!(agent.ready(), "ready");
        agents.push((agent, metrics));
    }
    let data = farm.cluster.folder().join("data.bin");
    fs::write(&data, vec![7; 700_000]).expect("written");
    let data = data.to_str().expect("plain");
    let submitter = farm.joined("submitter", "bob");
    submitter.says(&["dataset", "add", data, "--name", "data", "--copies", "2"]).ok();
    let bytes = |way: &str| -> u64 {
        let name = format!("gleaner_agent_chunk_bytes_total{{way=\"{way}\"}} ");
        let texts = agents.iter().map(|(_, file)| fs::read_to_string(file).unwrap_or_default());
        texts
            .filter_map(|text| {
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok())
            })
            .sum::<u64>()
    };
    let both = || (bytes("from_broker"), bytes("from_agents"));
    eventually("two copies", async || (both().0 + both().1 == 1_400_000).then_some(())).await;
    assert_eq!(both(), (700_000, 700_000));
}

#[tokio::test]
async fn a_host_is_whose_its_key_says_and_is_gone_when_that_is_revoked() {
    let mut farm = Farm::new().await;
    let volunteer = farm.somebody("volunteer");
    let first = farm.invites("agent", "anna");
    volunteer.says(&["join", &first, "--name", "desk7"]).ok();
    let mut agent = agent(&farm, &volunteer);
    assert_eq!(agent.ready(), "ready");
    let submitter = farm.joined("submitter", "bob");
    let job = submitter.submits(&["--replication", "1"]);
    submitter.says(&["wait", &job, "--timeout", "60"]).ok();
    let hosts: Vec<HostStatus> = submitter.says(&["hosts", "--format", "json"]).json();
    let of =
        |host: &HostStatus| (host.host.to_string(), host.owner.as_ref().map(ToString::to_string));
    assert_eq!(of(&hosts[0]), ("desk7".into(), Some("anna".into())));
    // What it took is accounted, for its owner and whoever runs the farm.
    let usage: Vec<UsageRow> = submitter.says(&["usage", "--format", "json"]).json();
    let of_bob: Vec<_> =
        usage.iter().map(|row| row.owner.as_ref().map(OwnerName::as_str)).collect();
    assert_eq!(of_bob, [Some("bob")]);
    let stranger = farm.joined("submitter", "carl");
    let usage: Vec<UsageRow> = stranger.says(&["usage", "--format", "json"]).json();
    assert_eq!(usage, []);
    // Its owner sees what it has done for others, and not for whom.
    let anna = farm.joined("viewer", "anna");
    let mine: Vec<UsageRow> = anna.says(&["usage", "--mine", "--format", "json"]).json();
    assert_eq!(mine[0].host.as_ref().map(HostName::as_str), Some("desk7"));
    assert!(mine[0].credit_s > 0.0 && mine[0].credit_s <= mine[0].cpu_s, "{mine:?}");
    let hosts = anna.says(&["hosts", "--mine"]).ok();
    assert!(hosts.contains("desk7") && hosts.contains("credit hours"), "{hosts}");
    anna.says(&["usage", "--mine", "--by", "job"]).refused(5, &["ask by host"]);
    anna.says(&["usage"]).refused(5, &["usage --mine"]);
    let none: Vec<UsageRow> = stranger.says(&["usage", "--mine", "--format", "json"]).json();
    assert_eq!(none, []);
    let shares: Vec<ShareStatus> = farm.says(&["shares", "--format", "json"]).json();
    assert!(
        shares[0].owner.as_ref().is_some_and(|of| of.as_str() == "bob") && shares[0].used_s > 0.0,
        "{shares:?}"
    );
    // Nobody else has its name: not who may do all, and not with another key.
    let token = farm.cluster.keys().token();
    let mut rogue = Rogue::connect_with(&farm.cluster, Some(&token)).await;
    rogue.send(&[AgentMessage::Hello(hello("desk7", 1, 1))]).await;
    let why = rogue.is_refused().await.expect("it says why");
    assert!(why.contains("the name desk7 belongs to a host with a key"), "{why}");
    // And who has no key has no vote of their own, whatever owner they invent.
    let mut invented = hello("invented", 1, 1);
    invented.host.owner = Some("mallory".parse().expect("a plain name"));
    let mut rogue = Rogue::connect_with(&farm.cluster, Some(&token)).await;
    rogue.send(&[AgentMessage::Hello(invented)]).await;
    let owner = eventually("the host without a key", async || {
        let hosts: Vec<HostStatus> = farm.cluster.api.get("/v1/hosts").await;
        hosts.into_iter().find(|host| host.host.as_str() == "invented").map(|host| host.owner)
    })
    .await;
    assert_eq!(owner, None);
    drop(rogue);
    let second = farm.somebody("second");
    let line = farm.invites("agent", "anna");
    let refused = second.says(&["join", &line, "--name", "desk7"]);
    refused.refused(5, &["a host named desk7 is connected"]);
    // Who only looks may sit at that machine.
    farm.somebody("dan").says(&["join", &farm.invites("viewer", "dan"), "--name", "desk7"]).ok();
    // Its link outlives the broker's restart, and ends with its key.
    farm.cluster.restart_broker();
    let is_connected = |hosts: &[HostStatus]| {
        hosts.iter().any(|host| host.connected && host.host.as_str() == "desk7")
    };
    eventually("the agent is back", async || {
        let hosts: Vec<HostStatus> = farm.cluster.api.get("/v1/hosts").await;
        is_connected(&hosts).then_some(())
    })
    .await;
    assert_eq!(submitter.jobs().len(), 1, "a session outlives it as well");
    eventually("what owners have used is known again", async || {
        let shares: Vec<ShareStatus> = farm.cluster.api.get("/v1/shares").await;
        shares
            .iter()
            .any(|of| of.owner.as_ref().is_some_and(|of| of.as_str() == "bob") && of.used_s > 0.0)
            .then_some(())
    })
    .await;
    let people: Vec<PrincipalStatus> = farm.says(&["people", "--format", "json"]).json();
    let key = people.iter().find(|of| of.host.is_some()).expect("the agent's").id.to_string();
    let began = boottime();
    let revoked: Value = farm.says(&["revoke", &key, "--format", "json"]).json();
    assert_eq!(revoked[0]["host"], "desk7");
    eventually("the agent is gone", async || {
        let hosts: Vec<HostStatus> = farm.cluster.api.get("/v1/hosts").await;
        (!is_connected(&hosts)).then_some(())
    })
    .await;
    let took = boottime().since(began).as_secs_f64();
    assert_within("seconds from revoking a key to its link's end", took, 1.0);
    let refused = second.says(&["join", &first, "--name", "desk7"]);
    refused.refused(5, &["used as often"]);
    farm.says(&["revoke", &key]).refused(5, &["was revoked"]);
    let audit: Vec<Value> = farm.says(&["audit", "--format", "json"]).json();
    let last = audit.last().expect("a revocation");
    assert_eq!(last["what"], "revoke");
    assert!(last["on"].as_str().is_some_and(|on| on.contains(&key)), "{last}");
    assert!(farm.says(&["audit", "--verify"]).ok().contains("each as it was written"));
    submitter.says(&["audit"]).refused(5, &["not for a submitter"]);
    // Its name is free; with what it was invited itself nobody joins any more.
    second.says(&["join", &line, "--name", "desk7"]).ok();
}

#[tokio::test]
async fn whoever_takes_the_broker_over_opens_no_host_of_the_farm() {
    let farm = Farm::new().await;
    let (watcher, render) = (farm.somebody("watcher"), farm.somebody("render"));
    watcher.says(&["join", &farm.invites("monitor", "farm")]).ok();
    render.says(&["join", &farm.invites("agent", "farm"), "--name", "render1"]).ok();
    let key = watcher.key_file();
    let url = &farm.cluster.api.url;
    let mut command = gleaner(["monitor", "--broker", url, "--listen", "127.0.0.1:0"]);
    command.args(["--quiet-period-s", "0.1", "--fragment-valid-s", "3"]);
    command.arg("--broker-key-file").arg(&key);
    let log = farm.cluster.folder().join("logs/monitor.log");
    let mut monitor = Part::start("monitor", command, &log);
    let monitor_url = monitor.listening();
    let options = ["--origin", "farm", "--monitor", &monitor_url, "--sample-interval-s", "1"];
    let mut agent = agent_with(&farm, &render, "render1", &options);
    assert_eq!(agent.ready(), "ready");
    farm.cluster.api.until_cores("render1", 1).await;

    // With the monitor gone nothing confirms what it gave, and nobody else does.
    monitor.kill();
    farm.cluster.api.until_cores("render1", 0).await;
    let host = farm.cluster.api.host("render1").await.expect("known");
    let event = FarmEvent::FragmentOpened {
        host: host.host,
        epoch: host.epoch,
        cores: 1,
        memory_mib: 1_000,
        booked_cores: 0,
        gpus: Some(0),
        valid_ms: 60_000,
        ended: Vec::new(),
        seal: None,
    };
    assert_eq!(farm.cluster.api.farm_event(&event).await.delivered, 1);
    let alarm = eventually("the host says what came", async || {
        farm.cluster.api.host("render1").await.expect("known").alarm
    })
    .await;
    assert!(alarm.contains("that the farm's monitor has not signed"), "{alarm}");
    assert_eq!(farm.cluster.api.host("render1").await.expect("known").cores_given, 0);
}

#[tokio::test]
async fn an_operator_stops_harvest_and_changes_nothing_else() {
    let farm = Farm::new().await;
    let operator = farm.joined("operator", "olga");
    let anna = farm.joined("submitter", "anna");
    let job = anna.submits(&[]);
    assert_eq!(operator.jobs(), [format!("{job} of anna")], "an operator looks");
    let url = &farm.cluster.api.url;
    operator.says(&["farm", "stop", "--broker", url, "--reason", "renders are late"]).ok();
    let stop: Value = farm.cluster.api.get("/v1/farm/stop").await;
    let stop = stop.to_string();
    assert!(stop.contains("renders are late") && stop.contains("olga"), "{stop}");
    operator.says(&["farm", "resume", "--broker", url]).ok();
    let refused = anna.says(&["farm", "stop", "--broker", url, "--reason", "mine"]);
    refused.refused(5, &["not for a submitter"]);
    for words in
        [&["cancel", &job][..], &["submit", "gametree", "--depth", "2"], &["people"], &["audit"]]
    {
        operator.says(words).refused(5, &["not for an operator"]);
    }
    let audit: Vec<Value> = farm.says(&["audit", "--format", "json"]).json();
    let orders =
        audit.iter().filter(|of| of["who"].as_str().is_some_and(|who| who.contains("olga")));
    assert!(orders.count() >= 3, "it enrolled, stopped and resumed: {audit:?}");
}

#[tokio::test]
async fn who_is_revoked_is_told_so() {
    let farm = Farm::new().await;
    let anna = farm.joined("submitter", "anna");
    anna.submits(&[]);
    let people: Vec<PrincipalStatus> = farm.says(&["people", "--format", "json"]).json();
    let hers = people.iter().find(|of| of.owner.as_str() == "anna").expect("she has joined");
    farm.says(&["revoke", &hers.id.to_string()]).ok();
    anna.says(&["jobs"]).refused(5, &["was revoked", "ask whoever runs this broker"]);
    farm.says(&["revoke", "0123456789abcdef"]).refused(4, &["no principal"]);
    farm.says(&["revoke", "everybody"]).refused(2, &["names nobody"]);
}

#[tokio::test]
async fn a_monitor_knows_hosts_hooks_and_operators_by_their_keys_while_the_broker_is_away() {
    let mut farm = Farm::new().await;
    let olga = farm.joined("operator", "olga");
    let vera = farm.joined("viewer", "vera");
    let [watcher, render, hooks] = ["watcher", "render", "hooks"].map(|name| farm.somebody(name));
    watcher.says(&["join", &farm.invites("monitor", "farm")]).ok();
    render.says(&["join", &farm.invites("agent", "farm"), "--name", "render1"]).ok();
    let said = hooks.says(&["join", &farm.invites("hook", "farm"), "--name", "render1"]);
    let settings = said.stderr.split("--token-file ").nth(1).expect("what to set");
    let hook_token = PathBuf::from(settings.split([';', ' ']).next().expect("a path"));
    let shown = fs::read_to_string(&hook_token).expect("it is there");

    let state = farm.cluster.folder().join("monitor");
    let (broker, log) =
        (farm.cluster.api.url.clone(), farm.cluster.folder().join("logs/monitor.log"));
    let starts = |listen: &str| {
        let mut command = gleaner(["monitor", "--broker", &broker, "--listen", listen]);
        command.args(["--quiet-period-s", "0.1", "--fragment-valid-s", "5"]);
        command.arg("--broker-key-file").arg(watcher.key_file());
        command.arg("--require-keys").arg("--state-dir").arg(&state);
        let mut monitor = Part::start("monitor", command, &log);
        let url = monitor.listening();
        (monitor, url)
    };
    let (mut monitor, url) = starts("127.0.0.1:0");
    let options = ["--origin", "farm", "--monitor", &url, "--sample-interval-s", "1"];
    let mut agent = agent_with(&farm, &render, "render1", &options);
    assert_eq!(agent.ready(), "ready");
    farm.cluster.api.until_cores("render1", 1).await;

    // A real hook tells of its own host.
    let run_dir = render.folder.join("run");
    let hook = |kind: &str, booking: &str| {
        let mut command = gleaner(["hook", kind, "--host", "render1", "--monitor", &url]);
        command.arg("--run-dir").arg(&run_dir).arg("--token-file");
        command.arg(hook_token.file_name().expect("a file"));
        let at = hook_token.parent().expect("a folder");
        run(command.current_dir(at).env("GLEANER_BOOKING", booking)).ok();
    };
    let client = Client::new();
    let view = async || -> Value {
        let asked = client.get(format!("{url}/v1/hosts")).bearer_auth(shown.trim_end());
        let Ok(answer) = asked.send().await else { return Value::Null };
        let hosts: Vec<Value> = answer.json().await.unwrap_or_default();
        hosts.into_iter().find(|host| host["host"] == "render1").unwrap_or_default()
    };
    let renders = async |is_so: &dyn Fn(&str) -> bool| {
        eventually("what the hook told", async || {
            Some(view().await["bookings"].to_string()).filter(|told| is_so(told))
        })
        .await
    };
    hook("preflight", "shot:1");
    let told = renders(&|told| told.contains("\"hook\"")).await;
    assert!(told.contains("shot:1"), "{told}");
    hook("postflight", "shot:1");
    farm.cluster.api.until_cores("render1", 1).await;

    // It says nothing of another host, and a stranger's key says nothing at all.
    let tells = async |token: String, host: &str| {
        let event = serde_json::json!({
            "host": host, "kind": "postflight", "booking": "shot:2", "epoch": { "incarnation": 1, "count": 1 },
        });
        let request = client.post(format!("{url}/v1/events")).bearer_auth(token).json(&event);
        let answer = request.send().await.expect("the monitor answers");
        (answer.status().as_u16(), answer.text().await.unwrap_or_default())
    };
    let (status, why) = tells(shown.trim_end().to_owned(), "render2").await;
    assert!(status == 403 && why.contains("says nothing of render2"), "{status} {why}");
    let stranger = gleaner_identity::KeyPair::generate().expect("made").token();
    assert_eq!(tells(stranger, "render1").await.0, 401);
    let agents = fs::read_to_string(render.key_file()).expect("it is there");
    let agents = agents.trim_end().replace("gleaner-key-1 ", "gleaner-token-1.");
    assert_eq!(tells(agents, "render1").await.0, 401, "an agent's key is no hook's");

    // The broker is away, and the monitor starts again: all of it goes on.
    farm.cluster.broker.kill();
    let said = |somebody: &Somebody, words: &[&str]| {
        let key_file = somebody.key_file();
        let key_file = ["--monitor", &url, "--key-file", key_file.to_str().expect("plain")];
        somebody.says(&[&["farm"], words, &key_file[..]].concat())
    };
    let stop = ["stop", "--reason", "renders are late", "--by", "root"];
    said(&vera, &stop).refused(5, &["not for a viewer"]);
    said(&olga, &stop).ok();
    let status: Value = said(&vera, &["status", "--format", "json"]).json();
    let by = status["stop"]["by"].as_str().expect("it is stopped");
    assert!(by.starts_with("olga ("), "who has a key is not who they say: {by}");
    monitor.kill();
    let listen = url.strip_prefix("http://").expect("an address");
    let (_monitor, _) = starts(listen);
    said(&olga, &["resume"]).ok();
    hook("preflight", "shot:3");
    renders(&|told| told.contains("shot:3") && told.contains("\"hook\"")).await;
    eventually("the agent speaks to it", async || view().await["sample_age_ms"].as_u64()).await;

    // Who is revoked is nobody here, as soon as the broker is back.
    farm.cluster.restart_broker();
    farm.cluster.api.until_cores("render1", 0).await;
    let people: Vec<PrincipalStatus> = farm.says(&["people", "--format", "json"]).json();
    let id = people.iter().find(|of| of.role.name() == "hook").expect("the hook's").id.to_string();
    let began = boottime();
    farm.says(&["revoke", &id]).ok();
    eventually("its key is nobody's", async || {
        let (status, why) = tells(shown.trim_end().to_owned(), "render1").await;
        (status == 401 && why.contains("was revoked")).then_some(())
    })
    .await;
    let took = boottime().since(began).as_secs_f64();
    assert_within("seconds from revoking a key until the monitor refuses it", took, 2.0);
}
