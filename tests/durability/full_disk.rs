//! A disk that runs full under load, and has space again: a small file system of our own.
//!
//! Needs the right to mount in a namespace of its own; says so on stderr where there is none.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::job::JobSpec;
use gleaner_small_disk::{fill_but, run_with_one};
use tokio::time::timeout;

use crate::api::{Api, NoAnswer, client};
use crate::broker::Launch;
use crate::content::scratch;
use crate::crew::{Crew, Load};
use crate::ledger::Ledger;
use crate::plan::{Fate, Mix};
use crate::recount::{Depth, recount};
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(60);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

fn job(name: &str) -> JobSpec {
    let spec = serde_json::json!({
        "name": name,
        "task": { "kernel": Fate::Once.kernel() },
        "workunits": { "count": 40 },
    });
    serde_json::from_value(spec).expect("a job")
}

fn assert_full(answer: Result<(), NoAnswer>, folder: &Path) {
    let Err(NoAnswer::Refused(status, error)) = answer else {
        panic!("a full disk was not noticed: {answer:?}");
    };
    assert_eq!((status.as_u16(), error.code.as_str()), (503, "store_full"), "{error:?}");
    assert!(error.error.contains("is full"), "{error:?}");
    assert!(error.error.contains(&folder.display().to_string()), "{error:?}");
}

#[test]
fn without_space_nothing_is_accepted_and_the_reason_is_said() {
    block_on(async {
        let folder = scratch();
        let launch = Launch::on(&folder.path().join("data"), &folder.path().join("log"))
            .with(&["--min-free-mib", "1000000000"]);
        let (broker, url) = launch.start().await;
        let api = Api::at(&client(), &url);
        assert_full(api.submit(&job("refused")).await.map(drop), &launch.data_dir);
        assert_full(api.health().await, &launch.data_dir);
        assert!(api.jobs().await.expect("reading goes on").is_empty());
        assert!(broker.stop().await.success());
    });
}

/// Not a test by itself: runs where the small file system is mounted.
#[test]
fn on_a_small_disk() {
    let Some(mounted) = gleaner_small_disk::folder() else { return };
    block_on(async {
        let (data, filler) = (mounted.join("data"), mounted.join("filler"));
        let log = scratch();
        let launch = Launch::on(&data, &log.path().join("log")).with(&["--min-free-mib", "8"]);
        let stage = Stage::new(Ledger::default());
        let mix = Mix { item_bytes: 400, large_one_in: 5 };
        // Nobody submits but this test: agents only.
        let load = Load { seed: 4, submitters: 0, cores: 4, work_ms_max: 20, mix };
        let crew = Crew::hire(&stage, load);
        let (broker, url) = launch.start().await;
        let api = stage.enter(url, 1);
        for number in 0..60 {
            submit(&stage, &api, &format!("before{number}")).await;
        }
        stage.until(|ledger| ledger.acknowledged > 100).await;

        // Too little left for more: refused at once, and what runs goes on.
        fill_but(&filler, 6 << 20);
        assert_full(api.submit(&job("refused")).await.map(drop), &data);
        assert_full(api.health().await, &data);
        let known = stage.ledger().acknowledged;
        let goes_on = stage.until(|ledger| ledger.acknowledged > known + 20);
        let went_on = timeout(PATIENCE, goes_on).await.is_ok();
        let ended = stage.ledger().all_ended();
        assert!(went_on, "reports are not taken after {known}; all work had ended: {ended}");

        // Too little left for anything: no report is acknowledged, agents keep them.
        fill_but(&filler, 2 << 20);
        let quiet = timeout(PATIENCE, full(&stage, &api)).await.expect("the broker says so");
        assert!(!stage.ledger().all_ended(), "there was not enough work");
        assert_full(api.submit(&job("refused too")).await.map(drop), &data);
        // What is not on disk is not told: a question gets the reason at once, and does not wait.
        assert_full(api.jobs().await.map(drop), &data);
        assert_full(api.health().await, &data);
        assert_eq!(stage.ledger().acknowledged, quiet, "acknowledged on a full disk");

        // Space again: everything goes on, without a restart.
        fs::remove_file(&filler).expect("removed");
        timeout(PATIENCE, stage.until(|ledger| ledger.acknowledged > quiet + 20))
            .await
            .expect("reports are taken again");
        submit(&stage, &api, "after").await;
        timeout(PATIENCE, stage.until(Ledger::all_ended)).await.expect("all work ends");
        recount(&stage, &api, Depth::All).await.expect("an answer");

        // And killed on a disk that is full to the last byte it starts all the same.
        fill_but(&filler, 0);
        broker.kill().await;
        stage.leave();
        let (broker, url) = launch.start().await;
        let api = stage.enter(url, 2);
        recount(&stage, &api, Depth::All).await.expect("an answer");
        fill_but(&filler, 0);
        assert_full(api.submit(&job("refused as well")).await.map(drop), &data);
        fs::remove_file(&filler).expect("removed");
        submit(&stage, &api, "at last").await;
        timeout(PATIENCE, stage.until(Ledger::all_ended)).await.expect("all work ends");
        recount(&stage, &api, Depth::All).await.expect("an answer");
        let names: Vec<_> =
            api.jobs().await.expect("an answer").into_iter().map(|j| j.name).collect();
        assert!(names.iter().all(|name| !name.starts_with("refused")), "{names:?}");
        broker.kill().await;
        crew.dismiss().await;
        assert!(stage.ledger().faults.is_empty(), "{:?}", stage.ledger().faults);
        assert!(!launch.said().contains("panicked"), "{}", launch.said());
    });
}

async fn submit(stage: &Arc<Stage>, api: &Api, name: &str) {
    let spec = Arc::new(job(name));
    stage.write(|ledger| ledger.planned(Arc::clone(&spec)));
    let submitted = api.submit(&spec).await.expect("there is space");
    stage.write(|ledger| ledger.accepted(submitted.job, name));
}

/// Waits until the broker tells nobody anything more, and what it had told has arrived; returns
/// how much was acknowledged by then.
async fn full(stage: &Stage, api: &Api) -> u64 {
    // Each answer comes from the broker's one thread, behind what that said before.
    const ANSWERS: u32 = 20;
    let (mut known, mut refused) = (stage.ledger().acknowledged, 0);
    while refused < ANSWERS {
        let is_full = match api.jobs().await {
            Ok(_) => false,
            Err(NoAnswer::Refused(_, error)) => error.code == "store_full",
            Err(error) => panic!("{error}"),
        };
        let now = stage.ledger().acknowledged;
        refused = if is_full && now == known { refused + 1 } else { 0 };
        known = now;
    }
    known
}

#[test]
fn a_disk_that_runs_full_loses_nothing_and_needs_no_restart() {
    let _ = run_with_one(96 << 10, "full_disk::on_a_small_disk");
}
