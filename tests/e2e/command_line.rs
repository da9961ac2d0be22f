//! The command line: every subcommand for programs and for people, and its exit codes as
//! `gleaner --help` has them.

use std::collections::BTreeMap;
use std::fs;

use gleaner_calm::Turn;
use gleaner_protocol::api::{Explanation, HostStatus, JobState, JobStatus, Submitted};
use serde_json::{Value, json};

use crate::cluster::Plan;
use crate::ports::free_port;
use crate::program::{gleaner, run};

#[tokio::test]
async fn every_subcommand_speaks_json_and_to_people() {
    let cluster = Plan::new().desktops(2).start().await;
    let submitted: Submitted = cluster
        .cli(&["submit", "gametree", "--depth", "3", "--name", "chess", "--format", "json"])
        .json();
    let id = submitted.job.to_string();
    assert_eq!((id.as_str(), submitted.workunits), ("job-1", 20));
    let waited: Vec<JobStatus> =
        cluster.cli(&["wait", &id, "--timeout", "60", "--format", "json"]).json();
    assert_eq!((waited.len(), waited[0].state), (1, JobState::Completed));

    // The number alone will do as well.
    let status: JobStatus = cluster.cli(&["status", "1", "--format", "json"]).json();
    assert_eq!((status.decided, status.failed, status.name.as_str()), (20, 0, "chess"));
    assert_eq!(status, waited[0]);
    let jobs: Vec<JobStatus> = cluster.cli(&["jobs", "--format", "json"]).json();
    assert_eq!(jobs, waited);
    let results: Vec<Value> = cluster.cli(&["fetch", &id, "--format", "json"]).json();
    assert_eq!(results.len(), 20);
    let sum: Value = cluster.cli(&["fetch", &id, "--sum", "--format", "json"]).json();
    assert_eq!(sum, json!({"job": 1, "sum": "8902", "complete": true}));
    let job: Explanation = cluster.cli(&["explain", &id, "--format", "json"]).json();
    assert_eq!((job.subject.as_str(), job.reasons[0].code.as_str()), ("job-1", "ended"));
    let one: Explanation = cluster.cli(&["explain", "job-1/3", "--format", "json"]).json();
    assert_eq!((one.subject.as_str(), one.reasons[0].code.as_str()), ("job-1/3", "decided"));
    let hosts: Vec<HostStatus> = cluster.cli(&["hosts", "--format", "json"]).json();
    let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, ["desk1", "desk2"]);
    // What has ended stays as it ended.
    let cancelled: JobStatus = cluster.cli(&["cancel", &id, "--format", "json"]).json();
    assert_eq!(cancelled.state, JobState::Completed);

    let tables: [(&[&str], &[&str]); 8] = [
        (&["jobs"], &["job-1", "chess", "completed", "20/20"]),
        (&["status", "job-1"], &["job-1", "20/20"]),
        (&["wait", "job-1"], &["completed"]),
        (&["fetch", "job-1"], &["workunit", "result", "400", "600"]),
        (&["fetch", "job-1", "--sum"], &["8902\n"]),
        (&["explain", "job-1"], &["job-1: completed", "ended"]),
        (&["hosts"], &["desk1", "desk2", "desktop", "yes"]),
        (&["submit", "gametree", "--depth", "1"], &["job-2\n"]),
    ];
    for (arguments, words) in tables {
        let text = cluster.cli(arguments).ok();
        for word in words {
            assert!(text.contains(word), "no {word:?} in {arguments:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_job_may_come_from_a_file_or_from_a_pipe() {
    let cluster = Plan::new().desktops(1).start().await;
    let file = cluster.folder().join("job.json");
    let spec = json!({
        "task": {"kernel": "gametree"},
        "workunits": {"items": ["rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3;depth=3"]},
    });
    fs::write(&file, spec.to_string()).expect("written");
    let path = file.to_str().expect("a plain path");
    assert_eq!(cluster.cli(&["submit", "job", path]).ok(), "job-1\n");
    let mut command = gleaner(["submit", "job", "-", "--format", "json"]);
    command.env("GLEANER_BROKER", &cluster.api.url).stdin(fs::File::open(&file).expect("there"));
    let submitted: Submitted = run(&mut command).json();
    assert_eq!(submitted.job.to_string(), "job-2");
    cluster.cli(&["wait", "job-1", "job-2", "--timeout", "60"]).ok();
    // That king is mated: no path leads anywhere.
    assert_eq!(cluster.cli(&["fetch", "job-1", "--sum"]).ok(), "0\n");

    for (text, words) in [
        ("{", "is no job"),
        (r#"{"task":{"kernel":"gametree"},"workunits":{"count":0}}"#, "workunits is 0"),
        (r#"{"task":{"kernel":"a b"},"workunits":{"count":1}}"#, "kernel name"),
        (r#"{"task":{"kernel":"x"},"workunits":{"count":1},"prio":1}"#, "unknown field `prio`"),
    ] {
        fs::write(&file, text).expect("written");
        cluster.cli(&["submit", "job", path]).refused(2, &[words]);
    }
    cluster.cli(&["submit", "job", "/nowhere"]).refused(2, &["/nowhere"]);
}

#[tokio::test]
async fn exit_codes_are_those_of_the_help() {
    let help = run(&mut gleaner(["--help"])).ok();
    let documented: BTreeMap<i32, &str> = help
        .lines()
        .filter_map(|line| {
            let (code, meaning) = line.trim_start().split_once("  ")?;
            Some((code.parse().ok()?, meaning))
        })
        .collect();
    assert_eq!(documented.keys().copied().collect::<Vec<_>>(), (0..=8).collect::<Vec<_>>());

    let cluster = Plan::new().start().await;
    // 2: the command line or a file is wrong.
    let fen = ["submit", "gametree", "--depth", "3", "--fen"];
    for (position, words) in [
        ("nonsense", "no FEN"),
        ("8/8/8/8/8/8/8 w - - 0 1", "7 ranks"),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "no chess position"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQ1BNR w KQkq - 0 1", "no chess position"),
    ] {
        let arguments: Vec<&str> = fen.into_iter().chain([position]).collect();
        cluster.cli(&arguments).refused(2, &[words]);
    }
    cluster.cli(&["submit", "gametree", "--depth", "13"]).refused(2, &["depth is 13"]);
    cluster.cli(&["submit", "gametree", "--depth", "x"]).refused(2, &["--depth"]);
    let on_release = ["submit", "gametree", "--depth", "1", "--on-release"];
    for (choice, words) in [
        ("freeze", "keep:SECONDS"),
        ("keep:0", "keep:SECONDS"),
        ("keep:86401", "1 to 86400 seconds"),
        ("checkpoint", "only modules"),
    ] {
        cluster.cli(&[&on_release[..], &[choice]].concat()).refused(2, &[words]);
    }
    cluster.cli(&["submit", "command", "--", "true"]).refused(2, &["absolute path"]);
    cluster.cli(&["status", "host-1"]).refused(2, &["expected job-NUMBER"]);
    cluster.cli(&["explain", "job-1/x"]).refused(2, &["index"]);
    cluster.cli(&["wait", "1", "--timeout=-1"]).refused(2, &["--timeout"]);
    cluster.cli(&["jobs", "--format", "xml"]).refused(2, &["xml", "json"]);
    cluster.cli(&["jbos"]).refused(2, &["jbos", "jobs"]);
    cluster.cli(&["jobs", "--broker", "localhost"]).refused(2, &["localhost"]);
    // 4: no such thing.
    for arguments in [
        &["status", "job-99"][..],
        &["fetch", "99"],
        &["cancel", "job-99"],
        &["explain", "job-99"],
        &["explain", "job-99/1"],
        &["wait", "job-99"],
    ] {
        cluster.cli(arguments).refused(4, &["job-99"]);
    }
    cluster.cli(&["submit", "gametree", "--depth", "1"]).ok();
    cluster.cli(&["explain", "job-1/20"]).refused(4, &["job-1/20"]);
    // 5: the broker refused.
    let rendering = json!({
        "task": {"kernel": "gametree"}, "workunits": {"count": 1}, "lane": "rendering",
    });
    let file = cluster.folder().join("job.json");
    fs::write(&file, rendering.to_string()).expect("written");
    cluster
        .cli(&["submit", "job", file.to_str().expect("plain")])
        .refused(5, &["400", "rendering"]);
    // 8: it cannot be promised.
    let due = ["submit", "gametree", "--depth", "1", "--due", "1h", "--cpu-s", "60"];
    cluster.cli(&due).refused(8, &["declined", "0 cores are given now"]);
    // 6: time is over, for there is no agent.
    cluster.cli(&["wait", "job-1", "--timeout", "0.3"]).refused(6, &["0.3 s"]);
    // 1: cancelled is not completed.
    let job: JobStatus = cluster.cli(&["cancel", "job-1", "--format", "json"]).json();
    assert_eq!(job.state, JobState::Cancelled);
    assert_eq!(cluster.cli(&["wait", "job-1"]).code, Some(1));
    // 3: nobody there.
    let gone = format!("http://127.0.0.1:{}", free_port());
    for command in ["jobs", "hosts"] {
        let said = run(&mut gleaner([command, "--broker", &gone]));
        said.refused(3, &["cannot reach the broker", &gone, "GLEANER_BROKER"]);
    }
    run(&mut gleaner(["wait", "1", "--broker", &gone])).refused(3, &[&gone]);
}

#[tokio::test]
async fn a_job_that_waits_says_for_what() {
    let mut cluster = Plan::new().start().await;
    cluster.cli(&["submit", "gametree", "--depth", "2", "--replication", "3"]).ok();
    let why: Explanation = cluster.cli(&["explain", "job-1", "--format", "json"]).json();
    assert!(why.reasons.iter().any(|reason| reason.code == "no-hosts"), "{why:?}");
    let status: JobStatus = cluster.cli(&["status", "job-1", "--format", "json"]).json();
    assert_eq!(status.state, JobState::Queued);

    cluster.add_host("desk1", gleaner_protocol::Origin::Desktop, &[]);
    cluster.are_connected().await;
    cluster
        .api
        .until("one vote on each", async || {
            (cluster.api.metric("gleaner_reports_total{verdict=\"counted\"}").await >= 20.0)
                .then_some(())
        })
        .await;
    // One host has one vote, and three hosts are wanted.
    let why: Explanation = cluster.cli(&["explain", "job-1/0", "--format", "json"]).json();
    let codes: Vec<&str> = why.reasons.iter().map(|reason| reason.code.as_str()).collect();
    assert!(codes.contains(&"awaits-votes") && codes.contains(&"stays-on-side"), "{why:?}");
    for name in ["desk2", "desk3"] {
        cluster.add_host(name, gleaner_protocol::Origin::Desktop, &[]);
    }
    cluster.are_connected().await;
    cluster.cli(&["wait", "job-1", "--timeout", "60"]).ok();
    assert_eq!(cluster.cli(&["fetch", "job-1", "--sum"]).ok(), "400\n");
}

#[test]
fn each_subcommand_helps() {
    let _turn = Turn::shared();
    let help = run(&mut gleaner(["--help"])).ok();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert_eq!(
        names,
        [
            "broker",
            "monitor",
            "agent",
            "hook",
            "farm",
            "stop",
            "submit",
            "dataset",
            "view",
            "jobs",
            "status",
            "wait",
            "fetch",
            "cancel",
            "forget",
            "explain",
            "hosts",
            "lanes",
            "history",
            "invite",
            "join",
            "login",
            "people",
            "revoke",
            "key",
            "audit",
            "usage",
            "shares",
            "kernel",
            "simulate",
            "doctor",
            "bench",
            "demo",
            "completions",
            "man"
        ]
    );
    for name in names {
        let text = run(&mut gleaner([name, "--help"])).ok();
        assert!(text.contains("Usage: gleaner"), "{text}");
    }
    for part in ["broker", "monitor", "agent"] {
        let text = run(&mut gleaner([part, "--print-config"])).ok();
        assert!(text.contains("\n# ") && text.contains(" = "), "{text}");
    }
}

#[test]
fn a_stop_that_cannot_be_put_to_last_says_what_stands() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let (run_dir, in_the_way) = (folder.path().join("run"), folder.path().join("file"));
    fs::create_dir(&run_dir).expect("made");
    fs::write(&in_the_way, "").expect("written");
    let stop = |more: &[&str]| {
        let mut stop = gleaner(["stop"]);
        stop.args(more).env("GLEANER_RUN_DIR", &run_dir);
        run(stop.env("GLEANER_STATE_DIR", in_the_way.join("state")))
    };
    let said = stop(&[]);
    said.refused(1, &["cannot put", "file/state/stopped"]);
    let mark = run_dir.join("stopped");
    assert!(said.stdout.contains(&format!("while {} is there", mark.display())), "{said}");
    assert!(said.stdout.contains("it will not outlive a boot"), "{said}");
    assert!(mark.exists());
    let outcome = stop(&["--format", "json"]).stdout;
    let outcome: Value = serde_json::from_str(&outcome).expect("JSON");
    assert_eq!((&outcome["outlives_boot"], &outcome["marks"]), (&json!(false), &json!([mark])));
}
