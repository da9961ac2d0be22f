//! The broker's pages, in a real browser: what people do on them, and what they must not see.
//!
//! `tests/pages/pages.js` is the one at the browser; here is the farm that it looks at.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::api::{FarmHistoryRow, FarmStopStatus, LoginLink, Me, Submitted};
use gleaner_protocol::{Origin, Span, boottime};
use reqwest::header::{COOKIE, ORIGIN, SET_COOKIE};
use reqwest::{Client, StatusCode};
use serde_json::json;

use crate::browser::{types_fit, visits};
use crate::cluster::{Cluster, Plan};
use crate::host::Host;
use crate::marks::SHELL;
use crate::part::Part;
use crate::patience::{LOOK_AGAIN, PATIENCE};
use crate::processes;
use crate::program::{Said, gleaner, run};

/// What nobody may take for anything but a name, and for anything but text.
const NAME: &str = "<img src=x onerror=alert(1)>\u{202e}live";
const TEXT: &str = "<script>window.hacked = 1; alert(2)</script>";

/// A script that prints a quarter of a mebibyte of hostile text, on a line, and something on standard error.
const PRINTS: &str = "echo the begin; printf '\\033[31m\\342\\200\\256'; head -c 262144 /dev/zero | tr '\\0' x; \
                      printf '\\033[31m\\342\\200\\256'; echo the end; echo on standard error >&2";

/// A script that writes a picture of one pixel.
const PICTURE: &str = "printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== | base64 -d > picture.png";

/// A picture of 20 by 18 pixels as OpenEXR has it, packed: red grows to the right, green downwards.
const LIGHT: &str = include_str!("../pages/light.exr.base64");

/// A NIfTI-1 volume that is bright in its middle slice alone.
fn brain() -> Vec<u8> {
    let (side, head) = (16_u16, 352);
    let mut file = vec![0; head];
    file[..4].copy_from_slice(&348_i32.to_le_bytes());
    for (at, size) in [3, side, side, side, 1, 1, 1, 1].into_iter().enumerate() {
        file[40 + 2 * at..42 + 2 * at].copy_from_slice(&size.to_le_bytes());
    }
    // Bytes, which begin behind the head.
    file[70..72].copy_from_slice(&2_u16.to_le_bytes());
    file[108..112].copy_from_slice(&(head as f32).to_le_bytes());
    file[344..348].copy_from_slice(b"n+1\0");
    for slice in 0..side {
        let shade = if slice == side / 2 { 200 } else { 10 };
        file.extend(std::iter::repeat_n(shade, usize::from(side * side)));
    }
    file
}

/// A farm whose broker asks for keys.
pub(crate) struct Farm {
    pub(crate) cluster: Cluster,
}

impl Farm {
    pub(crate) async fn new(desktops: usize) -> Self {
        Self { cluster: Plan::new().desktops(desktops).keys().start().await }
    }

    pub(crate) fn says(&self, words: &[&str]) -> Said {
        let token_file = self.cluster.keys().token_file();
        let token_file = token_file.to_str().expect("plain");
        self.cluster.cli(&[words, &["--token-file", token_file]].concat())
    }

    /// Submits a job; its number.
    fn submits(&self, words: &[&str]) -> u64 {
        let token_file = self.cluster.keys().token_file();
        let token_file = token_file.to_str().expect("plain");
        let options = ["submit", "command", "--format", "json", "--token-file", token_file];
        self.cluster.cli(&[&options[..], words].concat()).json::<Submitted>().job.get()
    }

    /// A job whose files no browser shows by itself; its number.
    fn drawn(&self) -> u64 {
        let folder = self.cluster.folder();
        let map = folder.join("map.nii");
        fs::write(&map, brain()).expect("written");
        let input = format!("--input={}", map.display());
        let script = format!(
            "cp map.nii of.nii && head -c 500 map.nii >cut.nii && printf '%s' {LIGHT} | base64 -d >light.exr \
             && head -c 700 light.exr >cut.exr && echo 1,2 >'a table, wide.csv'"
        );
        let outputs = ["of.nii", "cut.nii", "light.exr", "cut.exr", "a table, wide.csv"]
            .map(|name| ["--output", name]);
        let options = [&[input.as_str()][..], outputs.as_flattened()].concat();
        let job = self.submits(&[&options[..], &["--", SHELL, "-c", &script]].concat());
        self.says(&["wait", &job.to_string(), "--timeout", "60"]).ok();
        job
    }

    /// Somebody who has joined; the folder of what is theirs.
    pub(crate) fn joined(&self, role: &str, owner: &str) -> PathBuf {
        let said = self.says(&["invite", "--role", role, "--owner", owner]).ok();
        let line = said.trim_end().strip_prefix("gleaner join '").expect("a command");
        let folder = self.cluster.folder().join(owner);
        fs::create_dir(&folder).expect("a folder");
        own(&folder, &["join", line.trim_end_matches('\'')]).ok();
        folder
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.cluster.api.url)
    }
}

/// Whether a host's agent runs nothing any more, as it says in time.
fn runs_nothing(host: &Host) -> bool {
    let runs = || match host.ask(&SocketRequest::Status) {
        SocketAnswer::Status { running, .. } => running > 0,
        other => panic!("{other:?}"),
    };
    let end = boottime() + PATIENCE.into();
    while runs() && boottime() < end {
        thread::sleep(LOOK_AGAIN);
    }
    !runs()
}

/// Somebody says this at a terminal of their own.
pub(crate) fn own(folder: &Path, words: &[&str]) -> Said {
    run(gleaner(words.iter().copied()).env("XDG_CONFIG_HOME", folder))
}

#[tokio::test]
async fn people_use_the_pages() {
    let mut farm = Farm::new(2).await;
    farm.cluster.add_host("desk3", Origin::Desktop, &["--owner", "anna"]);
    farm.cluster.are_connected().await;
    let run = ["--", SHELL, "-c"];
    let hostile =
        farm.submits(&[&["--name", NAME][..], &run, &[&format!("printf '%s' '{TEXT}'")]].concat());
    let picture = farm.submits(&[&["--output", "picture.png"][..], &run, &[PICTURE]].concat());
    for job in [hostile, picture] {
        farm.says(&["wait", &job.to_string(), "--timeout", "60"]).ok();
    }
    let drawn = farm.drawn();
    let printed = farm.submits(&[&["--output", "stderr"][..], &run, &[PRINTS]].concat());
    farm.says(&["wait", &printed.to_string(), "--timeout", "60"]).ok();
    let failed = farm.submits(&[&run[..], &["echo no such scene >&2; exit 3"]].concat());
    farm.says(&["wait", &failed.to_string(), "--timeout", "60"]).refused(1, &[]);
    // It fails once, and then goes on for long.
    let once = farm.cluster.folder().join("once");
    let once = format!("mkdir {} || sleep 600; echo try again >&2; exit 4", once.display());
    let failing = farm.submits(&[&run[..], &[&once]].concat());
    let waiting = farm.submits(&[&["--count", "50"][..], &run, &["sleep 600"]].concat());
    let anna = farm.joined("submitter", "anna");
    let submitted = own(&anna, &["submit", "gametree", "--depth", "2", "--format", "json"]);
    let link = |said: Said| said.ok().trim_end().to_owned();
    let compared = farm.cluster.api.request(reqwest::Method::POST, "/v1/farm/comparison");
    let compared = compared.json(&json!({
        "held_out_permille": 100, "time_zone": "UTC", "day": "2026-11-28", "held_out": ["desk1"], "harvested": 2,
        "metrics": [
            { "name": "render hours per host and day", "more_is_better": true, "days": 9,
              "harvested": { "host_days": 18, "mean": 11.5 }, "held_out": { "host_days": 9, "mean": 11.75 },
              "difference": { "estimate": -0.25, "low": -0.4, "high": -0.1 } },
            { "name": NAME, "more_is_better": false, "days": 2, "harvested": null, "held_out": null,
              "difference": null },
        ],
    }));
    assert_eq!(compared.send().await.expect("an answer").status(), StatusCode::NO_CONTENT);
    let reported = farm.cluster.api.request(reqwest::Method::POST, "/v1/farm/report");
    let reported = reported.json(&json!({
        "poll": { "source": "slurm", "polls": 9, "failed": 2, "answered_age_ms": 90_000, "hosts": 12, "not_understood": 1,
                  "notes": [NAME], "failing": { "since_ms": 60_000, "polls": 2, "error": "`squeue` did not answer within 10 s",
                                                "cure": TEXT } },
        "farm_events": { "url": "mqtt://farm", "is_connected": false, "trouble": "no such host", "heard": 3 },
        "contradictions": [{ "host": "desk1", "text": NAME, "times": 4, "age_ms": 5_000 }],
        "contradictions_total": 4,
    }));
    assert_eq!(reported.send().await.expect("an answer").status(), StatusCode::NO_CONTENT);
    let given = json!({
        "admin": link(farm.says(&["login"])),
        "submitter": link(own(&anna, &["login"])),
        "token": farm.cluster.keys().token(),
        "hosts": 3,
        "search": "desk2",
        "hostile": hostile,
        "picture": picture,
        "drawn": drawn,
        "printed": printed,
        "failed": failed,
        "failing": failing,
        "waiting": waiting,
        "own": submitted.json::<Submitted>().job.get(),
    });
    visits("pages.js", given, |word| match word {
        "stop" => farm.cluster.broker.kill(),
        "start" => farm.cluster.restart_broker(),
        "is stopped" => {
            let said = farm.says(&["hosts"]).ok();
            assert!(said.contains("harvest was stopped by admin ("), "{said}");
            for host in farm.cluster.hosts() {
                assert!(runs_nothing(host), "{} goes on", host.name);
            }
        }
        _ => panic!("{word}"),
    });
}

#[tokio::test]
async fn an_owner_sees_their_host_and_pauses_it_by_clicks() {
    let mut cluster = Plan::new().start().await;
    let file = cluster.folder().join("desk.toml");
    fs::write(&file, "[preferences]\nkeep_frozen_s = 600\n").expect("written");
    let config = file.to_str().expect("plain").to_owned();
    cluster.add_host("desk", Origin::Desktop, &["--config", &config]);
    cluster.are_connected().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(1, 1)).await;
    let mark = marks.next();
    let mut command = gleaner(["agent", "page"]);
    command.arg("--run-dir").arg(cluster["desk"].run_dir());
    let mut page = Part::start("page", command, &cluster.folder().join("page.log"));
    let said = page.ready();
    let link = said.strip_prefix("page: ").expect("a link");
    let (url, _) = link.split_once("/#login=").expect("a secret");
    is_for_its_owner_alone(url).await;
    let given = json!({ "link": link, "host": "desk", "runs": SHELL, "file": config });
    visits("agent.js", given, |word| match word {
        "paused" => assert!(processes::is_frozen(mark.pid)),
        "runs" => assert!(!processes::is_frozen(mark.pid)),
        "end the work" => marks.go(),
        "stop the agent" => assert!(cluster["desk"].agent.stop().success()),
        "stop the page" => assert!(page.stop().success()),
        _ => panic!("{word}"),
    });
    let ended = cluster.api.until_ended(job).await;
    assert_eq!(ended.replicas.leased, 1, "nothing was begun again: {ended:?}");
    let mut alone = gleaner(["agent", "page", "--run-dir", "/nowhere"]);
    run(&mut alone).refused(1, &["no agent answers in /nowhere", "--run-dir"]);
}

/// Nobody without the cookie is told of a host or tells it anything, whatever address they ask for.
async fn is_for_its_owner_alone(url: &str) {
    let http = Client::new();
    let status =
        async |request: reqwest::RequestBuilder| request.send().await.expect("an answer").status();
    for path in ["/v1/host", "/v1/me", "/pages/farm.js", "/pages/../v1/host"] {
        assert_eq!(status(http.get(format!("{url}{path}"))).await, StatusCode::UNAUTHORIZED);
    }
    for path in ["/v1/host/pause", "/v1/host/finish", "/v1/host/resume"] {
        let told = http.post(format!("{url}{path}")).header(ORIGIN, url).body("{}");
        assert_eq!(status(told).await, StatusCode::UNAUTHORIZED, "{path}");
    }
    let elsewhere = http.get(format!("{url}/")).header("host", "evil.example");
    assert_eq!(status(elsewhere).await, StatusCode::FORBIDDEN, "a name that was pointed here");
    let guess = json!({ "secret": "0123456789abcdef0123456789abcdef" });
    let login = || http.post(format!("{url}/v1/login")).json(&guess);
    assert_eq!(status(login()).await, StatusCode::FORBIDDEN);
    let foreign = login().header(ORIGIN, "http://evil.example");
    assert_eq!(status(foreign).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn whoever_runs_a_broker_stops_all_its_hosts_from_a_command_line_too() {
    let mut cluster = Plan::new().desktops(1).start().await;
    let mut marks = cluster.marks();
    let job = cluster.api.submit(&marks.job(1, 1)).await;
    let mark = marks.next();
    let url = cluster.api.url.clone();
    let orders = |cluster: &Cluster, words: &[&str]| {
        cluster.cli(&[&["farm"], words, &["--broker", &url]].concat())
    };
    let stop = ["stop", "--reason", "renders are late"];
    let said = orders(&cluster, &stop).ok();
    assert!(
        said.contains("STOPPED: the harvest of all hosts of this broker was stopped by"),
        "{said}"
    );
    assert!(processes::dies(mark.pid), "what ran has ended");
    let again = orders(&cluster, &["stop", "--reason", "another", "--format", "json"]);
    assert_eq!(again.json::<FarmStopStatus>().stopped.expect("a stop").reason, "renders are late");
    orders(&cluster, &["stop", "--reason", ""]).refused(5, &["reason must be a line of text"]);
    let explained = cluster.cli(&["explain", &job.to_string()]).ok();
    assert!(explained.contains("renders are late"), "{explained}");
    // It holds over a restart, and for whoever comes then.
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.add_host("desk2", Origin::Desktop, &[]);
    cluster.are_connected().await;
    assert_eq!(marks.within(Span::from_millis(500)), []);
    let said = orders(&cluster, &["resume"]).ok();
    assert!(
        said.contains("harvested again; lifted: ") && said.contains("renders are late"),
        "{said}"
    );
    assert!(orders(&cluster, &["resume"]).ok().contains("no harvest was stopped"));
    marks.next();
    marks.go();
    let ended = cluster.api.until_ended(job).await;
    assert_eq!(ended.replicas.failed + ended.replicas.expired, 0, "it was no attempt: {ended:?}");
}

#[test]
fn the_pages_are_what_their_comments_say() {
    types_fit();
}

#[tokio::test]
async fn a_cookie_is_good_for_the_brokers_own_pages_alone() {
    let farm = Farm::new(2).await;
    let http = Client::new();
    let bare = |path: &str| http.get(farm.url(path)).send();
    // What holds nobody's data is there for all.
    let page = bare("/").await.expect("an answer");
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()["content-security-policy"].to_str().expect("text").to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(page.headers()["referrer-policy"], "no-referrer");
    let tag = page.headers()["etag"].clone();
    let again = http.get(farm.url("/")).header("if-none-match", tag).send().await;
    assert_eq!(again.expect("an answer").status(), StatusCode::NOT_MODIFIED);
    for path in ["/v1/me", "/v1/jobs", "/v1/watch", "/v1/farm/history", "/pages", "/pages/../v1/me"]
    {
        let refused = bare(path).await.expect("an answer").status();
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{path}");
    }
    // A link gives a cookie, once.
    let asked = farm.cluster.api.request(reqwest::Method::POST, "/v1/logins");
    let link: LoginLink = farm.cluster.api.good(asked).await;
    let body = json!({ "secret": link.secret });
    let follow = || http.post(farm.url("/v1/login")).json(&body).send();
    let followed = follow().await.expect("an answer");
    assert_eq!(followed.status(), StatusCode::NO_CONTENT);
    let cookie = followed.headers()[SET_COOKIE].to_str().expect("text").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().expect("a value").to_owned();
    assert_eq!(follow().await.expect("an answer").status(), StatusCode::FORBIDDEN);
    let origin = farm.cluster.api.url.clone();
    let get = |path: &str| http.get(farm.url(path)).header(COOKIE, &cookie);
    let me: Me = get("/v1/me").send().await.expect("an answer").json().await.expect("JSON");
    assert!(me.is_admin && me.renew_s.is_some(), "{me:?}");
    // Where something is changed, the page itself has to say that it asks.
    let renew = || http.post(farm.url("/v1/logins/page")).header(COOKIE, &cookie);
    let status =
        async |request: reqwest::RequestBuilder| request.send().await.expect("an answer").status();
    assert_eq!(status(renew()).await, StatusCode::FORBIDDEN);
    assert_eq!(status(renew().header(ORIGIN, "http://evil.example")).await, StatusCode::FORBIDDEN);
    assert_eq!(status(renew().header(ORIGIN, &origin)).await, StatusCode::OK);
    assert_eq!(status(renew().header("sec-fetch-site", "same-origin")).await, StatusCode::OK);
    let elsewhere = get("/v1/jobs").header("sec-fetch-site", "cross-site");
    assert_eq!(status(elsewhere).await, StatusCode::FORBIDDEN);
    let socket = get("/v1/watch")
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let unsaid = socket.try_clone().expect("no body");
    assert_eq!(status(unsaid).await, StatusCode::FORBIDDEN);
    let foreign = socket.try_clone().expect("no body").header(ORIGIN, "http://evil.example");
    assert_eq!(status(foreign).await, StatusCode::FORBIDDEN);
    let ours = socket.header(ORIGIN, &origin);
    assert_eq!(status(ours).await, StatusCode::SWITCHING_PROTOCOLS);
    // Outputs are files to a browser, never pages.
    let run = ["--", SHELL, "-c", "printf '<h1>a page</h1>'"];
    let job = farm.submits(&run);
    farm.says(&["wait", &job.to_string(), "--timeout", "60"]).ok();
    let output = get(&format!("/v1/jobs/{job}/results/0/stdout")).send().await.expect("an answer");
    assert_eq!(output.headers()["content-type"], "application/octet-stream");
    assert_eq!(output.headers()["content-disposition"], "attachment");
    assert_eq!(output.headers()["x-content-type-options"], "nosniff");
    let forged = format!("{}x", &cookie[..cookie.len() - 1]);
    let shown = http.get(farm.url("/v1/me")).header(COOKIE, forged);
    assert_eq!(status(shown).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_broker_of_this_machine_asks_for_nothing_and_remembers_what_the_farm_did() {
    let mut cluster = Plan::new().desktops(1).start().await;
    let link = cluster.cli(&["login"]).ok();
    assert_eq!(link.trim_end(), format!("{}/", cluster.api.url));
    let me: Me = cluster.api.get("/v1/me").await;
    assert!(me.is_admin && me.submits && me.renew_s.is_none(), "{me:?}");
    let history = |cluster: &Cluster| -> Vec<FarmHistoryRow> {
        cluster.cli(&["farm", "history", "--by", "day", "--format", "json"]).json()
    };
    let before = cluster
        .api
        .until("a row", async || history(&cluster).into_iter().find(|row| row.hosts > 0.0))
        .await;
    assert_eq!(cluster.broker.stop().code(), Some(0));
    cluster.restart_broker();
    let after = history(&cluster);
    assert!(after.first().is_some_and(|row| row.seen_s >= before.seen_s), "{after:?}");
    let csv = cluster.cli(&["farm", "history", "--format", "csv"]).ok();
    assert!(csv.starts_with("start_ms,seen_s,hosts,rendered,harvested,"), "{csv}");
    cluster.cli(&["farm", "history", "--last", "yesterday"]).refused(2, &["a duration like"]);
}
