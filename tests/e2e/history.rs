//! `gleaner history`: what a small job took is recorded, shown, and there after a restart.

use gleaner_protocol::Origin;

use crate::cluster::{Cluster, Plan};

/// The one row of the game tree's history.
fn row(cluster: &Cluster) -> serde_json::Value {
    let shown: serde_json::Value = cluster.cli(&["history", "gametree", "--format", "json"]).json();
    let rows = shown["kinds"].as_array().expect("a list");
    assert_eq!(rows.len(), 1, "{shown}");
    rows[0].clone()
}

#[tokio::test]
async fn what_a_kernels_runs_took_is_shown_and_outlives_the_broker() {
    let mut cluster = Plan::new().start().await;
    cluster.add_host("one", Origin::Desktop, &["--kind", "fat"]);
    cluster.are_connected().await;
    let nothing = cluster.cli(&["history"]);
    assert!(nothing.stderr.contains("no run is recorded yet"), "{}", nothing.stderr);
    nothing.ok();
    cluster.cli(&["history", "gametree"]).refused(4, &["no run of \"gametree\" is recorded"]);

    let id = cluster.cli(&["submit", "gametree", "--depth", "3", "--feature", "depth=3"]).ok();
    cluster.cli(&["wait", id.trim_end(), "--timeout", "300"]).ok();
    let before = row(&cluster);
    assert_eq!(
        (&before["kind"], &before["runs"], &before["ended"]),
        (&"fat".into(), &20.into(), &20.into())
    );
    for time in ["cpu_median_us", "wall_median_us"] {
        let microseconds = before[time].as_u64().expect("measured");
        assert!((1..60_000_000).contains(&microseconds), "{before}");
    }
    assert!(before["formula"].as_str().is_some_and(|formula| formula.contains(" s")), "{before}");
    assert_eq!(before["left_out"]["runs"], 20, "{before}");
    assert_eq!(before["quantiles"].as_array().map(Vec::len), Some(5));

    let table = cluster.cli(&["history", "gametree"]).ok();
    println!("{table}");
    assert!(["fat", "20", "median", "error"].iter().all(|word| table.contains(word)), "{table}");
    let list = cluster.cli(&["history"]).ok();
    assert!(list.contains("gametree") && list.contains("fat"), "{list}");

    let copy = cluster.folder().join("copy");
    cluster.cli(&["broker", "backup", copy.to_str().expect("plain")]).ok();
    let runs = std::fs::read_to_string(copy.join("runs.jsonl")).expect("it is in the backup");
    assert_eq!(runs.lines().count(), 20, "{runs}");

    cluster.restart_broker();
    cluster.are_connected().await;
    assert_eq!(row(&cluster), before);
}

#[tokio::test]
async fn a_feature_that_is_no_number_is_refused_in_words() {
    let cluster = Plan::new().start().await;
    for (feature, says) in [
        ("size=nan", "\"nan\" is no finite number"),
        ("size=1e999", "\"1e999\" is no finite number"),
        ("size=", "\"\" is no finite number"),
        ("size", "NAME=VALUE"),
        ("a b=1", "\"a b\" is no name of a feature"),
    ] {
        let submit = ["submit", "gametree", "--depth", "2", "--feature", feature];
        cluster.cli(&submit).refused(2, &[says]);
    }
}
