//! `gleaner simulate`: what it lists, what it refuses, and that a seed gives the same bytes.

use std::collections::BTreeSet;
use std::fs;

use gleaner_calm::Turn;
use serde_json::Value;

use crate::program::{Said, gleaner, run};

/// A scenario that takes no time.
const SCENARIO: &str = "deadline-clinic";

fn simulate(arguments: &[&str]) -> Said {
    run(&mut gleaner(["simulate"].into_iter().chain(arguments.iter().copied())))
}

/// A machine of eight processors, half of which are used for half of each of two days.
fn two_days() -> tempfile::NamedTempFile {
    let mut log = String::from("; MaxNodes: 2\n; MaxProcs: 8\n");
    for hour in (0..48).filter(|hour| hour % 24 < 12) {
        let job = format!("{hour} {} 0 3500 4 -1 -1 4 -1 -1 1 1 1 1 1 1 -1 -1\n", 3600 * hour);
        log.push_str(&job);
    }
    log.push_str("99 172790 0 10 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n");
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), log).expect("written");
    file
}

#[test]
fn promises_are_made_on_a_log_and_judged() {
    let _turn = Turn::shared();
    let log = two_days();
    let path = log.path().to_str().expect("a plain path");
    let promises = |more: &[&str]| {
        let arguments = ["promises", "--log", path].into_iter().chain(more.iter().copied());
        simulate(&arguments.collect::<Vec<_>>())
    };
    let report: Value = promises(&["--format", "json"]).json();
    for key in [
        "accepted",
        "in_time_share",
        "worst_week_share",
        "calibration_error",
        "calibration_error_by_chance",
        "brier",
        "brier_climatology",
        "of_clairvoyant",
    ] {
        assert!(report.get(key).is_some(), "no {key} in {report}");
    }
    for decider in ["as_now", "climatology"] {
        let share = &report["baselines"][decider]["in_time_share"];
        assert!(share.is_number() || share.is_null(), "{report}");
    }
    let text = promises(&[]).ok();
    assert!(text.contains("clairvoyant") && text.contains("gleaner"), "{text}");
    promises(&["--confidence", "2"]).refused(2, &["\"2\" is no number from 0.5 to 0.99"]);
    promises(&["--log", "/no/such/log"]).refused(2, &["cannot open /no/such/log"]);
    simulate(&["promises"]).refused(2, &["--log"]);
}

/// The page of [`SCENARIO`].
fn page() -> Value {
    let mut pages: Vec<Value> = simulate(&["--list", SCENARIO, "--format", "json"]).json();
    assert_eq!(pages.len(), 1);
    pages.pop().expect("one")
}

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|entry| entry[key].as_str().expect("text")).collect()
}

fn keys(map: &Value) -> BTreeSet<&str> {
    map.as_object().expect("a map").keys().map(String::as_str).collect()
}

#[test]
fn every_scenario_is_listed_with_its_parameters_policies_and_metrics() {
    let _turn = Turn::shared();
    let pages: Value = simulate(&["--list", "--format", "json"]).json();
    let names = texts(&pages, "scenario");
    for family in ["fragment-", "visualization-", "mixed-", "deadline-", "replay"] {
        assert!(names.iter().any(|name| name.starts_with(family)), "no {family} in {names:?}");
    }
    assert!(names.contains(&"storm"), "{names:?}");
    let text = simulate(&["--list"]).ok();
    for page in pages.as_array().expect("a list") {
        let name = page["scenario"].as_str().expect("a name");
        assert!(text.contains(&format!("\n{name}: ")) || text.starts_with(name), "{name}");
        for policy in page["policies"].as_array().expect("policies") {
            assert!(text.contains(policy.as_str().expect("text")), "{name}: {policy}");
        }
        for parameter in page["parameters"].as_array().expect("parameters") {
            for key in ["name", "kind", "expected", "about", "source"] {
                let said = parameter[key].as_str().unwrap_or_default();
                assert!(!said.is_empty(), "{name}: no {key} of {parameter}");
            }
            assert!(!parameter["default"].is_null(), "{name}: {parameter}");
            assert!(text.contains(parameter["name"].as_str().expect("text")), "{parameter}");
        }
        for metric in page["metrics"].as_array().expect("metrics") {
            let better = metric["better"].as_str().expect("text");
            assert!(["higher", "lower", "neither"].contains(&better), "{name}: {metric}");
        }
    }
    // One alone is listed alone.
    assert_eq!(page()["scenario"], SCENARIO);
    simulate(&["--list", "deadline-clinik"]).refused(2, &["nearest: deadline-clinic"]);
}

#[test]
fn a_run_compares_all_policies_and_the_same_seed_gives_the_same_bytes() {
    let _turn = Turn::shared();
    let arguments = [SCENARIO, "--seed", "7", "--format", "json"];
    let first = simulate(&arguments).ok();
    assert_eq!(first, simulate(&arguments).ok());

    let of: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(keys(&of), BTreeSet::from(["bound", "parameters", "policies", "scenario", "seed"]));
    assert_eq!((&of["scenario"], &of["seed"]), (&Value::from(SCENARIO), &Value::from(7)));
    let page = page();
    let policies = page["policies"].as_array().expect("a list");
    let policies: Vec<&str> = policies.iter().map(|name| name.as_str().expect("text")).collect();
    assert_eq!(keys(&of["policies"]), policies.iter().copied().collect());
    let parameters = texts(&page["parameters"], "name");
    assert_eq!(keys(&of["parameters"]), parameters.into_iter().collect());
    let metrics: BTreeSet<&str> = texts(&page["metrics"], "name").into_iter().collect();
    assert!(keys(&of["bound"]).is_subset(&metrics) && !keys(&of["bound"]).is_empty());
    for policy in &policies {
        let numbers = &of["policies"][policy];
        assert!(keys(numbers).is_subset(&metrics), "{policy}: {numbers}");
        let all = numbers.as_object().expect("a map").values();
        assert!(all.clone().count() > 0 && all.clone().all(Value::is_number), "{numbers}");
    }

    let table = simulate(&[SCENARIO, "--seed", "7"]).ok();
    assert_eq!(table, simulate(&[SCENARIO, "--seed", "7"]).ok());
    for word in policies.into_iter().chain(["bound", "seed 7"]) {
        assert!(table.contains(word), "no {word} in {table}");
    }
}

#[test]
fn chosen_policies_are_run_and_several_seeds_give_their_spread() {
    let _turn = Turn::shared();
    let arguments = [SCENARIO, "--policy", "gleaner", "--policy", "eladur", "--format", "json"];
    let one: Value = simulate(&arguments).json();
    assert_eq!(keys(&one["policies"]), BTreeSet::from(["eladur", "gleaner"]));

    let several = |threads: &str| {
        let seeds = ["--seeds", "1..4", "--threads", threads];
        simulate(&arguments.into_iter().chain(seeds).collect::<Vec<_>>()).ok()
    };
    let text = several("1");
    assert_eq!(text, several("3"), "threads change nothing");
    let of: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&of["seeds"], of.get("seed")), (&Value::from("1..4"), None));
    let spread = &of["policies"]["gleaner"]["jobs_in_time"];
    assert_eq!(keys(spread), BTreeSet::from(["ci95", "count", "max", "mean", "min"]));
    let number = |key: &str| spread[key].as_f64().expect("a number");
    assert!(number("min") <= number("mean") && number("mean") <= number("max"), "{spread}");
    assert_eq!(number("count"), 3.0);
}

#[test]
fn names_that_nothing_has_are_refused_with_the_nearest_ones() {
    let _turn = Turn::shared();
    for (arguments, words) in [
        (&["deadline-klinic"][..], ["no scenario \"deadline-klinic\"", SCENARIO, "--list"]),
        (&["strom"], ["no scenario \"strom\"", "storm", "--list"]),
        (&[SCENARIO, "--policy", "eladour"], ["no policy", "in deadline-clinic", "eladur"]),
        (&[SCENARIO, "--set", "no-such=1"], ["no parameter \"no-such\"", SCENARIO, "nearest: "]),
        (&[SCENARIO, "--log", "x"], ["no parameter \"log\"", SCENARIO, "nearest: "]),
    ] {
        simulate(arguments).refused(2, &words);
    }
    simulate(&[]).refused(2, &["<SCENARIO>"]);
}

#[test]
fn values_that_cannot_be_are_refused_with_what_can() {
    let _turn = Turn::shared();
    let page = page();
    let parameters = page["parameters"].as_array().expect("a list");
    let numbers: Vec<&Value> = parameters.iter().filter(|one| one["max"].is_number()).collect();
    assert!(!numbers.is_empty(), "{SCENARIO} has numbers to set");
    for parameter in numbers {
        let name = parameter["name"].as_str().expect("text");
        let over = format!("{}", parameter["max"].as_f64().expect("a number") * 2.0 + 1.0);
        for value in ["NaN", "inf", "-inf", "1e999", "many", "", "-1e300", over.as_str()] {
            let set = format!("{name}={value}");
            let expected = parameter["expected"].as_str().expect("text");
            simulate(&[SCENARIO, "--set", &set]).refused(2, &[name, "expected", expected]);
        }
        let set = format!("{name}={}", parameter["default"]);
        simulate(&[SCENARIO, "--set", &set, "--set", &set]).refused(2, &["is set twice"]);
    }
    simulate(&[SCENARIO, "--set", "nothing"]).refused(2, &["expected KEY=VALUE"]);
    for seeds in ["3", "a..b", "4..4", "5..1", "0..99999999999"] {
        simulate(&[SCENARIO, "--seeds", seeds]).refused(2, &["--seeds", seeds]);
    }
    simulate(&[SCENARIO, "--seed=-1"]).refused(2, &["--seed"]);
    simulate(&[SCENARIO, "--seed", "1", "--seeds", "0..2"]).refused(2, &["--seeds"]);
    simulate(&["mixed-etc", "--set", "file=/nowhere"]).refused(2, &["/nowhere"]);
    simulate(&["replay", "--log", "/nowhere"]).refused(2, &["/nowhere"]);
}

#[test]
fn a_plot_is_an_svg_that_is_there_when_all_of_it_is() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plot.svg");
    let name = path.to_str().expect("a plain path");
    simulate(&[SCENARIO, "--plot", name]).ok();
    let svg = fs::read_to_string(&path).expect("written");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for word in [SCENARIO, "gleaner", "jobs_in_time", "bound"] {
        assert!(svg.contains(word), "no {word} in {svg}");
    }
    simulate(&[SCENARIO, "--plot", name]).ok();
    assert_eq!(fs::read_to_string(&path).expect("written again"), svg, "the same seed");
    // Where it cannot be written is said before anything runs.
    for path in [folder.path().join("none/plot.svg"), folder.path().to_owned()] {
        let path = path.to_str().expect("a plain path");
        let said = simulate(&[SCENARIO, "--plot", path]);
        said.refused(1, &["cannot write the plot to", path]);
        assert_eq!(said.stdout, "");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
}
