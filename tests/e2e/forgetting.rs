//! Jobs that have ended are forgotten: by hand, or by the broker after a while; and stay so.

use gleaner_protocol::JobId;
use gleaner_protocol::api::JobStatus;

use crate::cluster::{Cluster, Plan};

/// A job that has ended, and its result.
async fn job(cluster: &Cluster, depth: &str) -> (JobId, String) {
    let id = cluster.cli(&["submit", "gametree", "--depth", depth]).ok();
    let id: JobId = id.trim_end().parse().expect("a job's id");
    cluster.cli(&["wait", &id.to_string(), "--timeout", "60"]).ok();
    (id, sum(cluster, id))
}

fn sum(cluster: &Cluster, id: JobId) -> String {
    cluster.cli(&["fetch", &id.to_string(), "--sum"]).ok()
}

#[tokio::test]
async fn a_forgotten_job_stays_forgotten_and_the_others_keep_their_results() {
    let mut cluster = Plan::new().desktops(1).start().await;
    // The second's outputs are those of the first, and of half of the third.
    let (first, _) = job(&cluster, "2").await;
    let (second, of_second) = job(&cluster, "2").await;
    let (third, of_third) = job(&cluster, "3").await;
    cluster.cli(&["submit", "command", "--", "/nowhere"]).ok();
    cluster.cli(&["forget", "job-4"]).refused(5, &["job-4 has not ended", "gleaner cancel job-4"]);
    cluster.cli(&["forget", "job-99"]).refused(4, &["job-99"]);
    let id = first.to_string();
    let last: JobStatus = cluster.cli(&["forget", &id, "--format", "json"]).json();
    assert_eq!((last.job, last.decided), (first, 20));
    cluster.broker.kill();
    cluster.restart_broker();
    cluster.cli(&["status", &id]).refused(4, &[&id]);
    cluster.cli(&["forget", &id]).refused(4, &[&id]);
    assert_eq!((sum(&cluster, second), sum(&cluster, third)), (of_second, of_third));
    let (fifth, _) = job(&cluster, "1").await;
    assert_eq!(fifth.get(), 5, "ids are not used again");
}

#[tokio::test]
async fn the_broker_forgets_by_itself_what_ended_long_ago() {
    // Less than a second.
    let mut cluster = Plan::new().desktops(1).broker(&["--retention-days", "1e-5"]).start().await;
    cluster.cli(&["submit", "gametree", "--depth", "1"]).ok();
    cluster.cli(&["submit", "command", "--", "/nowhere"]).ok();
    let is_gone = async |cluster: &Cluster, count: usize| {
        let gone = async || {
            let jobs: Vec<JobStatus> = cluster.api.get("/v1/jobs").await;
            (jobs.len() == count).then_some(())
        };
        cluster.api.until("the job to be forgotten", gone).await;
    };
    is_gone(&cluster, 1).await;
    // What ended in an earlier life, too.
    cluster.cli(&["cancel", "job-2"]).ok();
    cluster.broker.kill();
    cluster.restart_broker();
    is_gone(&cluster, 0).await;
}
