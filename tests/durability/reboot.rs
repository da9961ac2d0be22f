//! The machine's clock since boot begins anew, or is far ahead: what is in the folder means the
//! same.
//!
//! Needs the right to make a time namespace; says so on stderr where there is none.

use std::process::Command;
use std::time::Duration;

use tokio::time::timeout;

use crate::broker::Launch;
use crate::content::scratch;
use crate::crew::{Crew, Load};
use crate::ledger::Ledger;
use crate::plan::Mix;
use crate::recount::{Depth, recount};
use crate::stage::Stage;

const DAY_S: i64 = 86_400;

/// Seconds that the clock is ahead at each start, or behind.
const OFFSETS_S: [i64; 6] = [0, 400 * DAY_S, 0, 20_000 * DAY_S, 30 * DAY_S, 0];

const SOME: Depth = Depth::News { jobs_max: 50 };

#[test]
fn a_clock_that_begins_anew_changes_nothing() {
    let trial = Command::new("unshare").args(["--time", "--boottime", "1", "true"]).status();
    if !trial.is_ok_and(|status| status.success()) {
        eprintln!("no right to make a time namespace here: not tested");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let folder = scratch();
        let launch = Launch::on(&folder.path().join("data"), &folder.path().join("log"));
        let stage = Stage::new(Ledger::default());
        let mix = Mix { item_bytes: 400, large_one_in: 5 };
        let load = Load { seed: 3, submitters: 2, cores: 4, work_ms_max: 20, mix };
        let crew = Crew::hire(&stage, load);
        for (start, offset) in (1..).zip(OFFSETS_S) {
            let offset = offset.to_string();
            let wrapper = ["unshare", "--time", "--monotonic", &offset, "--boottime", &offset];
            let launch = Launch { wrapper: wrapper.map(String::from).to_vec(), ..launch.clone() };
            let (broker, url) = launch.start().await;
            let api = stage.enter(url, start);
            // Of every job, and the results of some: the work goes on meanwhile, and all of it would
            // be more at each start.
            recount(&stage, &api, SOME).await.expect("an answer");
            let known = stage.ledger().acknowledged;
            let goes_on = stage.until(|ledger| ledger.acknowledged > known + 200);
            timeout(Duration::from_secs(60), goes_on).await.expect("the work goes on");
            let is_last = usize::try_from(start) == Ok(OFFSETS_S.len());
            let depth = if is_last { Depth::All } else { SOME };
            recount(&stage, &api, depth).await.expect("an answer");
            broker.kill().await;
            stage.leave();
        }
        crew.dismiss().await;
        assert!(stage.ledger().faults.is_empty(), "{:?}", stage.ledger().faults);
        assert!(!launch.said().contains("panicked"), "{}", launch.said());
    });
}
