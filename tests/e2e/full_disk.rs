//! Hooks whose run folder is on a disk that is really full.

use std::fs;

use gleaner_calm::{Turn, in_some_round, repeats};
use gleaner_protocol::Span;
use gleaner_small_disk::{fill, run_with_one};

use crate::calm::Measured;
use crate::cluster::Plan;
use crate::processes;

/// Not a test by itself: runs where the small file system is mounted.
#[tokio::test]
async fn on_a_small_disk() {
    let Some(small) = gleaner_small_disk::folder() else { return };
    let mut cluster = Plan::new().farm(1).desktops(1).start().await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(100, 1)).await;
    marks.take(4);
    // A second farm host whose run folder is on the small disk.
    let run_dir = small.join("run");
    let option = run_dir.to_str().expect("a plain path").to_owned();
    cluster.add_host("farm2", gleaner_protocol::Origin::Farm, &["--run-dir", &option]);
    cluster.are_connected().await;
    let begun = marks.take(2);
    assert!(begun.iter().all(|mark| mark.host == "farm2"), "{begun:?}");
    let filler = small.join("filler");
    fill(&filler);

    let monitor = cluster.monitor_api().url;
    let hook = |kind: &str, booking: &str| {
        crate::hook::Hook::new(kind, &run_dir)
            .with(&["--host", "farm2", "--monitor", &monitor])
            .env("GLEANER_BOOKING", booking)
    };
    let first = hook("preflight", "shot:0").patient().run();
    assert!(first.said.contains("No space left"), "{}", first.said);
    assert!(
        begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()),
        "the work is stopped all the same: {}",
        first.said
    );
    cluster.api.until_cores("farm2", 0).await;
    in_some_round(|| {
        let mut measured = Measured::default();
        for number in 0..repeats(11) {
            measured.add(hook("preflight", &format!("shot:{number}")).run().took);
        }
        measured.is_at_most(Span::from_millis(60), "hook on a full disk")
    });
    assert_eq!(marks.within(cluster.quiet().times(3)), [], "an epoch that nobody could raise");

    // There is space again: the agent raises the epoch itself, and the next render counts.
    fs::remove_file(&filler).expect("removed");
    for n in 0..11 {
        hook("postflight", &format!("shot:{n}")).patient().run();
    }
    cluster.api.until_cores("farm2", 2).await;
    let begun = marks.take(2);
    assert_eq!(hook("preflight", "shot:99").patient().run().said, "");
    assert!(begun.iter().all(|mark| processes::computing(&[mark.pid]).is_empty()));
}

#[test]
fn hooks_on_a_full_disk_stop_the_work_and_fail_nothing() {
    let _turn = Turn::measuring();
    let _ = run_with_one(256, "full_disk::on_a_small_disk");
}
