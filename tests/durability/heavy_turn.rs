//! Jobs so long that several of them together are more than one record of the journal may hold.

use gleaner_protocol::job::{JobSpec, Workunits};
use gleaner_protocol::limits::ARGUMENT_BYTES_MAX;
use tokio::task::JoinSet;

use crate::api::{Api, client};
use crate::broker::Launch;
use crate::content::scratch;
use crate::plan::Fate;

const JOBS: usize = 6;
const ITEMS: usize = 230;

#[test]
fn the_longest_jobs_at_once_are_all_kept() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let folder = scratch();
        let launch = Launch::on(&folder.path().join("data"), &folder.path().join("log"));
        let (broker, url) = launch.start().await;
        let api = Api::at(&client(), &url);
        let mut submissions = JoinSet::new();
        for number in 0..JOBS {
            let (api, spec) = (api.clone(), long_job(number));
            submissions.spawn(async move { api.submit(&spec).await.expect("it is kept") });
        }
        assert_eq!(submissions.join_all().await.len(), JOBS);
        api.health().await.expect("nothing is wrong");
        broker.kill().await;

        let (broker, url) = launch.start().await;
        let mut jobs = Api::at(&client(), &url).jobs().await.expect("an answer");
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<_> = jobs.iter().map(|job| (job.name.clone(), job.workunits)).collect();
        let sent = (0..JOBS).map(|number| (format!("long{number}"), ITEMS as u32));
        assert_eq!(found, sent.collect::<Vec<_>>());
        broker.kill().await;
    });
}

fn long_job(number: usize) -> JobSpec {
    let spec = serde_json::json!({
        "name": format!("long{number}"),
        "task": { "kernel": Fate::Once.kernel() },
        "workunits": { "count": 1 },
    });
    let spec: JobSpec = serde_json::from_value(spec).expect("a job");
    JobSpec {
        workunits: Workunits::Items(vec!["x".repeat(ARGUMENT_BYTES_MAX); ITEMS].into()),
        ..spec
    }
}
