//! `gleaner usage`: what jobs took and what is charged, also of those that are forgotten by now, and
//! after the broker was killed.

use std::collections::BTreeMap;

use gleaner_protocol::api::{ReplicaOutcome, UsageRow};
use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{JobId, ProjectName};
use reqwest::Method;

use crate::cluster::{Cluster, Plan};
use crate::patience::eventually;

fn usage(cluster: &Cluster, more: &[&str]) -> Vec<UsageRow> {
    let mut words = vec!["usage", "--format", "json"];
    words.extend(more);
    cluster.cli(&words).json()
}

/// What is shown by owner, by job, by host and by outcome.
fn all(cluster: &Cluster) -> Vec<Vec<UsageRow>> {
    ["owner", "job", "host", "outcome"].map(|by| usage(cluster, &["--by", by])).into()
}

#[tokio::test]
async fn what_jobs_took_is_charged_as_far_as_it_was_accepted_and_is_never_forgotten() {
    let mut cluster = Plan::new().farm(2).start().await;
    cluster.are_connected().await;
    let nothing = cluster.cli(&["usage"]);
    assert!(nothing.stderr.contains("no replica is recorded"), "{}", nothing.stderr);
    nothing.ok();

    // Each workunit twice, as was asked for.
    let submit = ["submit", "gametree", "--depth", "2", "--owner", "eve"];
    let twice = [&submit[..], &["--replication", "2", "--quorum", "2"]].concat();
    let eves: JobId = cluster.cli(&twice).ok().trim_end().parse().expect("a job's id");
    cluster.cli(&["wait", &eves.to_string(), "--timeout", "300"]).ok();

    // One that is cancelled while it runs. What it took its host says when it has ended it.
    let mut marks = cluster.marks();
    let spec = JobSpec { owner: "bob".parse().expect("a plain name"), ..marks.job(1, 1) };
    let bobs = cluster.api.submit(&spec).await;
    marks.next();
    const ENDED: &str = "gleaner_releases_total{reason=\"aborted\"}";
    let before = cluster.api.metric(ENDED).await;
    cluster.cli(&["cancel", &bobs.to_string()]).ok();
    eventually("its host has ended it", async || {
        (cluster.api.metric(ENDED).await > before).then_some(())
    })
    .await;

    // A project answers for its people.
    let lit = ["submit", "gametree", "--depth", "1", "--owner", "eve", "--project", "lighting"];
    let lit: JobId = cluster.cli(&lit).ok().trim_end().parse().expect("a job's id");
    cluster.cli(&["wait", &lit.to_string(), "--timeout", "300"]).ok();
    let shown = usage(&cluster, &["--by", "project"]);
    let shown: Vec<_> = shown
        .iter()
        .map(|row| (row.project.as_ref().map(ProjectName::as_str), row.accepted))
        .collect();
    assert_eq!(shown, [(None, 40), (Some("lighting"), 20)]);

    let shown = all(&cluster);
    let [bob, eve] = &shown[0][..] else { panic!("two owners: {shown:?}") };
    assert_eq!(bob.owner.as_ref().map(ToString::to_string).as_deref(), Some("bob"));
    assert_eq!((bob.accepted, bob.charged_s), (0, 0.0), "{bob:?}");
    assert!(bob.slot_s > 0.0, "it took their cores all the same: {bob:?}");
    assert_eq!(eve.owner.as_ref().map(ToString::to_string).as_deref(), Some("eve"));
    assert_eq!(eve.accepted, 60, "{eve:?}");
    assert!(eve.charged_s > 0.0 && eve.cpu_s > 0.0, "{eve:?}");
    let jobs: Vec<_> = shown[1].iter().map(|row| (row.job, row.accepted)).collect();
    assert_eq!(jobs, [(Some(eves), 40), (Some(bobs), 0), (Some(lit), 20)]);
    assert!(shown[1].iter().all(|row| row.owner.is_none() && row.project.is_none()), "{shown:?}");
    let hosts: Vec<_> = shown[2].iter().map(|row| row.accepted).collect();
    assert_eq!(hosts.iter().sum::<u64>(), 60, "{shown:?}");
    assert!(hosts.iter().all(|of| *of >= 20), "one replica of each on each: {shown:?}");
    let outcomes: BTreeMap<_, _> =
        shown[3].iter().map(|row| (row.outcome.expect("asked by"), row)).collect();
    let counted = outcomes[&ReplicaOutcome::Counted];
    assert_eq!((counted.replicas, counted.accepted, counted.slot_s), (60, 60, eve.charged_s));
    assert_eq!(outcomes[&ReplicaOutcome::Cancelled].replicas, 1, "{shown:?}");
    let replicas = |rows: &[UsageRow]| rows.iter().map(|row| row.replicas).sum::<u64>();
    assert!(shown.iter().all(|rows| replicas(rows) == bob.replicas + eve.replicas), "{shown:?}");

    for job in [eves, lit, bobs] {
        cluster.cli(&["forget", &job.to_string()]).ok();
    }
    assert_eq!(all(&cluster), shown, "they are forgotten");
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.are_connected().await;
    assert_eq!(all(&cluster), shown, "it was killed");

    let table = cluster.cli(&["usage"]).ok();
    assert!(["eve", "bob", "charged hours"].iter().all(|word| table.contains(word)), "{table}");
    let csv = cluster.cli(&["usage", "--by", "job", "--format", "csv"]).ok();
    assert!(csv.starts_with("start_ms,project,owner,job,") && csv.lines().count() == 4, "{csv}");
    let days = usage(&cluster, &["--each", "day"]);
    assert!(days.iter().all(|row| row.start_ms.is_some_and(|ms| ms % 86_400_000 == 0)), "{days:?}");
    let replicas = |rows: &[UsageRow]| rows.iter().map(|row| row.replicas).sum::<u64>();
    assert_eq!(replicas(&days), replicas(&shown[0]));
    assert_eq!(usage(&cluster, &["--to", "2020-01-01"]), []);
    assert_eq!(usage(&cluster, &["--from", "2020-01-01"]), shown[0]);
    let asked = cluster.api.request(Method::GET, "/v1/usage?by=weather");
    let refusal = cluster.api.refused(asked, 400).await;
    assert_eq!(refusal.code, "malformed", "{refusal:?}");
    let turned = ["usage", "--from", "2026-11-02", "--to", "2026-11-01"];
    cluster.cli(&turned).refused(2, &["--from 2026-11-02 is after --to 2026-11-01"]);
}

#[tokio::test]
async fn a_project_whose_budget_is_used_up_gets_no_further_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("broker.toml");
    let text = "[shares]\nbob = 2\n[projects.rotor-7]\nbudget_core_h = 1e-9\n";
    std::fs::write(&config, text).expect("written");
    let config = config.to_str().expect("a plain path");
    let mut cluster = Plan::new().broker(&["--config", config]).desktops(1).start().await;
    cluster.are_connected().await;
    let submit = ["submit", "gametree", "--depth", "2", "--project", "rotor-7"];
    let job: JobId = cluster.cli(&submit).ok().trim_end().parse().expect("a job's id");
    cluster.cli(&["wait", &job.to_string(), "--timeout", "300"]).ok();
    eventually("a look finds it used up", async || {
        let said = cluster.cli(&submit);
        said.stderr.contains("project rotor-7 has used").then(|| {
            said.refused(5, &["budget_core_h of [projects.rotor-7]"]);
        })
    })
    .await;
    let shares = cluster.cli(&["shares"]).ok();
    assert!(shares.contains("of 0.000000001 core hours"), "{shares}");
    cluster.cli(&["submit", "gametree", "--depth", "1", "--project", "comp"]).ok();
}
