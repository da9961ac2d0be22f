//! What `gleaner doctor` says of this host, and measures.

use gleaner_protocol::Span;
use serde_json::Value;

use crate::program::{gleaner, run};

fn doctor(arguments: &[&str]) -> Value {
    run(gleaner(["doctor"]).args(arguments)).json()
}

#[test]
fn each_ability_is_granted_by_something_or_missing_with_a_reason() {
    for (way, backends) in [
        ("auto", &["cgroup2", "cgroup1", "hybrid", "process-groups"][..]),
        ("cgroup2", &["cgroup2", "process-groups"]),
        ("cgroup1", &["cgroup1", "process-groups"]),
        ("process-groups", &["process-groups"]),
    ] {
        let report = doctor(&["--isolation", way, "--format", "json"]);
        assert!(backends.contains(&report["backend"].as_str().expect("a name")), "{report}");
        let abilities = report["abilities"].as_array().expect("a list");
        assert_eq!(abilities.len(), 9, "{report}");
        for one in abilities {
            let is_missing = one["provider"].is_null();
            assert_eq!(one["why"].is_string(), is_missing, "{one}");
            assert_eq!(one["cost"].is_string(), is_missing, "{one}");
        }
    }
}

#[test]
fn a_release_is_measured_from_outside_for_each_way_of_isolation() {
    for way in ["auto", "process-groups"] {
        let asked = ["release", "--replicas", "2", "--trials", "3", "--memory-mib", "16"];
        let mut asked = asked.to_vec();
        asked.extend(["--isolation", way, "--format", "json"]);
        let figures = doctor(&asked);
        assert_eq!((&figures["replicas"], &figures["trials"]), (&2.into(), &3.into()));
        let ms = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("{name}: {figures}"));
        assert!(ms("p50_ms") > 0.0 && ms("p50_ms") <= ms("p99_ms"), "{figures}");
        assert!(ms("p99_ms") <= ms("max_ms"), "{figures}");
        assert!(ms("max_ms") < Span::from_secs(2).as_millis() as f64, "{figures}");
        assert!(ms("memory_return_ms") > 0.0, "{figures}");
    }
}

#[test]
fn a_way_that_there_is_not_is_refused_with_those_that_there_are() {
    let said = run(gleaner(["doctor"]).args(["--isolation", "cgroups"]));
    said.refused(2, &["cgroups", "process-groups"]);
}
