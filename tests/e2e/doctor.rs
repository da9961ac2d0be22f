//! What `gleaner doctor` says of this host, and measures.

use gleaner_calm::{Turn, in_some_round, within};
use serde_json::Value;

use crate::cluster::Plan;
use crate::program::{gleaner, run};

fn doctor(arguments: &[&str]) -> Value {
    run(gleaner(["doctor"]).args(arguments)).json()
}

#[test]
fn each_ability_is_granted_by_something_or_missing_with_a_reason() {
    let _turn = Turn::shared();
    for (way, backends) in [
        ("auto", &["cgroup2", "cgroup1", "hybrid", "process-groups"][..]),
        ("cgroup2", &["cgroup2", "process-groups"]),
        ("cgroup1", &["cgroup1", "process-groups"]),
        ("process-groups", &["process-groups"]),
    ] {
        let report = doctor(&["--isolation", way, "--format", "json"]);
        assert!(backends.contains(&report["backend"].as_str().expect("a name")), "{report}");
        let told = report["pressure"]["told"].as_bool().expect("a word on pressure");
        assert_eq!(report["pressure"]["mend"].is_string(), !told, "{report}");
        for missing in report["missing_abilities"].as_array().expect("a list") {
            let is_said = |key: &str| missing[key].as_str().is_some_and(|text| !text.is_empty());
            assert!(["kind", "what", "cost", "mend"].into_iter().all(is_said), "{missing}");
        }
        let abilities = report["abilities"].as_array().expect("a list");
        assert_eq!(abilities.len(), 9, "{report}");
        for one in abilities {
            let is_missing = one["provider"].is_null();
            assert_eq!(one["why"].is_string(), is_missing, "{one}");
            assert_eq!(one["cost"].is_string(), is_missing, "{one}");
            // What is granted needs no mending, and what is mended is mended for agents: the
            // group of this very look is gone when it has been printed.
            let mend = one["mend"].as_str();
            assert!(
                mend.is_none_or(|mend| is_missing && !mend.contains("gleaner-doctor")),
                "{one}"
            );
        }
    }
}

#[test]
fn what_confines_each_kind_of_work_is_found_by_some_of_that_kind() {
    let _turn = Turn::shared();
    let report = doctor(&["confinement", "--format", "json"]);
    let runners = report["runners"].as_array().expect("a list");
    for kind in ["command", "wasm", "kernel", "application"] {
        let one = runners.iter().find(|one| one["kind"] == kind).expect("each kind was tried");
        let seen = &one["seen"];
        if one["refused"].is_string() {
            println!("{one}");
            continue;
        }
        for (what, is_so) in [
            ("filter", true),
            ("no_new_privs", true),
            ("has_capabilities", false),
            ("network_sockets", false),
            ("reads_host_files", false),
        ] {
            assert_eq!(seen[what], is_so, "{what}: {one}");
        }
        assert_ne!(seen["uid"], 0, "{one}");
        assert!(seen["process_limit"].is_u64(), "{one}");
        assert!(kind != "application" || seen["memory_limit_mib"].is_u64(), "{one}");
        assert!(one["own_root"] == true || one["landlock"] == true, "{one}");
    }
}

#[tokio::test]
async fn what_isolates_the_agent_that_runs_is_said_before_what_one_from_here_would_have() {
    let cluster = Plan::new().desktops(1).start().await;
    let run_dir = cluster.folder().join("desk1/run");
    let said = run(gleaner(["doctor"]).env("GLEANER_RUN_DIR", &run_dir)).ok();
    let first = said.lines().next().expect("a line");
    assert!(first.starts_with("the work of the agent that runs is isolated by "), "{said}");
    let said = run(gleaner(["doctor"]).env("GLEANER_RUN_DIR", "/nowhere")).ok();
    assert!(said.starts_with("harvested work is isolated by "), "{said}");
}

#[test]
fn a_release_is_measured_from_outside_for_each_way_of_isolation() {
    let _turn = Turn::measuring();
    let measures = |way: &str| {
        let asked = ["release", "--replicas", "2", "--trials", "3", "--memory-mib", "16"];
        let mut asked = asked.to_vec();
        asked.extend(["--isolation", way, "--format", "json"]);
        let figures = doctor(&asked);
        assert_eq!((&figures["replicas"], &figures["trials"]), (&2.into(), &3.into()));
        // The agent says what it uses, which is what a trial of the doctor's own would find.
        let backend = doctor(&["--isolation", way, "--format", "json"])["backend"].clone();
        assert_eq!(figures["backend"], backend, "{figures}");
        let ms = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {figures}"));
        assert!(ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p99_ms"), "{figures}");
        assert!(ms("p99_ms") <= ms("max_ms"), "{figures}");
        assert!(0.0 < ms("limit_p50_ms") && ms("limit_p50_ms") <= ms("limit_max_ms"), "{figures}");
        assert!(ms("memory_return_ms") > 0.0, "{figures}");
        within("ms of the longest release", ms("max_ms"), 2_000.0)
    };
    for way in ["auto", "process-groups"] {
        in_some_round(|| measures(way));
    }
}

#[test]
fn what_an_agent_takes_while_it_is_idle_is_measured() {
    let _turn = Turn::measuring();
    let figures = doctor(&["idle", "--slots", "4", "--seconds", "2", "--format", "json"]);
    assert_eq!((&figures["slots"], &figures["seconds"]), (&4.into(), &2.into()));
    let [agent, together] = ["agent", "together"].map(|whose| {
        ["cpu_percent", "memory_mib"].map(|what| figures[whose][what].as_f64().expect("a number"))
    });
    // It looks at its host now and then, which takes it some, and not nearly a core.
    assert!(agent[0] > 0.0 && agent[0] < 50.0 && agent[1] > 1.0, "{figures}");
    assert!(together[0] >= agent[0] && together[1] >= agent[1], "{figures}");
}

#[test]
fn interference_is_measured_beside_what_there_is_without_us() {
    let _turn = Turn::measuring();
    let asked = ["interference", "--seconds", "1", "--rounds", "1", "--probe", "cpu"];
    let mut asked = asked.to_vec();
    // Whatever else this machine does, before which an agent would give way.
    asked.extend(["--case", "announced", "--case", "half", "--give-way", "false"]);
    asked.extend(["--format", "json"]);
    in_some_round(|| {
        let figures = doctor(&asked);
        let rows = figures["rows"].as_array().expect("a list");
        let cases: Vec<&Value> = rows.iter().map(|row| &row["case"]).collect();
        assert_eq!(cases, ["announced", "half"]);
        for row in rows {
            assert_eq!(row["probe"], "cpu");
            for name in ["slowdown", "noise", "nice19", "sched_idle"] {
                let percent = row[format!("{name}_percent")].as_f64();
                assert!(percent.is_some_and(|percent| percent > -100.0), "{name}: {row}");
            }
        }
        let harvested = |index: usize| rows[index]["harvested_cores"].as_f64().expect("a number");
        let cores = figures["cores"].as_u64().expect("a number");
        // The render has all cores, and the other half works on. What has been killed uses a little,
        // until nothing is left of it.
        let is_so = harvested(0) < 0.05 && (cores == 1 || harvested(1) > 0.0);
        is_so.then_some(()).ok_or_else(|| figures.to_string())
    });
    let refused = run(gleaner(["doctor", "interference"]).args(["--probe", "gpu"]));
    refused.refused(2, &["gpu", "memory"]);
}

#[test]
fn a_way_that_there_is_not_is_refused_with_those_that_there_are() {
    let _turn = Turn::shared();
    let said = run(gleaner(["doctor"]).args(["--isolation", "cgroups"]));
    said.refused(2, &["cgroups", "process-groups"]);
}

#[test]
fn the_help_says_what_the_published_figures_of_a_release_were_taken_with() {
    let _turn = Turn::shared();
    let readme = include_str!("../README.md");
    let (_, asked) = readme.split_once("`gleaner doctor release --").expect("its command");
    let asked = format!("--{}", asked.split('`').next().expect("its end"));
    let help = run(gleaner(["doctor", "release"]).arg("--help")).ok();
    let help: Vec<&str> = help.split_whitespace().collect();
    assert!(help.join(" ").contains(&asked), "{asked}: {help:?}");
}
