//! Harvesting a host of a real OpenCue RQD: its own frames, our wrapper around them, its report polled,
//! its children watched.

use std::thread;

use gleaner_calm::{in_some_awaited_round, repeats};
use gleaner_protocol::{Origin, Span};
use rustix::process::geteuid;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::calm::Measured;
use crate::cluster::{Cluster, Plan};
use crate::exec_times::ExecTimes;
use crate::processes;
use crate::rqd_farm::{CORES, RqdFarm};

/// An agent watches an RQD by the name of its process: it would book the frames of another test's RQD.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

async fn harvested(farm: &RqdFarm) -> Cluster {
    let hosts = format!("farm1={}", farm.address());
    // Three intervals without an answer close the host: long enough for a machine that is busy.
    let polled = ["--poll", "opencue", "--poll-hosts", &hosts, "--poll-interval-s", "1"];
    let cluster = Plan::new().farm(1).cores(CORES).monitor(&polled).start().await;
    cluster.are_open().await;
    cluster
}

/// The monitor's word on a booking.
fn booking<'a>(view: &'a Value, name: &str) -> Option<&'a Value> {
    let bookings = view["bookings"].as_array().expect("a list");
    bookings.iter().find(|booking| booking["booking"] == name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_no_hook_announces_is_found_by_polling_and_so_is_its_end() {
    let _one = ONE_AT_A_TIME.lock().await;
    let mut farm = RqdFarm::start("farm1");
    let cluster = harvested(&farm).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);

    let frame = farm.renders(1, None);
    frame.has_begun();
    cluster.api.until_cores("farm1", CORES - farm.threads).await;
    let view = cluster.monitor_api().view("farm1").await.expect("known");
    let booked = booking(&view, &frame.booking()).unwrap_or_else(|| panic!("{view}"));
    assert_eq!(booked["cores"], farm.threads, "{view}");
    assert!(cluster["farm1"].slots_computing() <= 3, "it has given way");
    farm.ends(frame);
    cluster.are_open().await;

    // Cores that an administrator locks.
    farm.locks_a_core();
    cluster.api.until_cores("farm1", CORES - farm.threads).await;
    farm.unlocks();
    cluster.are_open().await;

    // A host whose RQD is gone may render whatever it likes.
    farm.loses_its_rqd();
    cluster.api.until_cores("farm1", 0).await;
    farm.has_its_rqd_back();
    cluster.are_open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_wrapped_has_its_cores_before_its_command_runs() {
    let _one = ONE_AT_A_TIME.lock().await;
    let mut farm = RqdFarm::start("farm1");
    let cluster = harvested(&farm).await;
    let wrapper = farm.wrapper(&cluster["farm1"]);
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);

    let frame = farm.renders(1, Some(&wrapper));
    frame.has_begun();
    assert!(cluster["farm1"].slots_computing() <= 3, "harvested work runs beside the command");
    // What RQD answers and what the wrapper says is one booking, not two.
    let is_seen_by_both = |view: &Value| {
        let booking = booking(view, &frame.booking());
        let booking = booking.map(|booking| booking["seen_by"].to_string());
        booking.is_some_and(|by| by.contains("hook") && by.contains("poll"))
    };
    let monitor = cluster.monitor_api();
    let view = monitor.until_view("farm1", "both to tell of the frame", is_seen_by_both).await;
    let booked = booking(&view, &frame.booking()).expect("booked");
    assert_eq!(booked["cores"], farm.threads, "{view}");
    assert_eq!(view["contradictions"].as_array().map(Vec::len), Some(0), "{view}");
    cluster.api.until_cores("farm1", CORES - farm.threads).await;

    // All of them, one after the other, each before it begins.
    let frames: Vec<_> = (2..=CORES / farm.threads)
        .map(|number| {
            let frame = farm.renders(number as usize, Some(&wrapper));
            frame.has_begun();
            let left = (CORES - number) as usize;
            assert!(cluster["farm1"].slots_computing() <= left, "beside frame {number}");
            frame
        })
        .collect();
    cluster.api.until_cores("farm1", 0).await;
    for frame in frames {
        farm.ends(frame);
    }
    farm.ends(frame);
    cluster.are_open().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_a_watched_rqd_has_its_cores_within_ten_milliseconds_of_its_start() {
    const FRAMES: usize = 5;
    const RELEASE_MAX: Span = Span::from_millis(10);
    if !geteuid().is_root() {
        // What is said then is seen with other workers.
        eprintln!("the kernel tells only root of what others start: not tested");
        return;
    }
    let _one = ONE_AT_A_TIME.lock().await;
    // The Python one runs as `python3 -m rqd`.
    let mut farm = RqdFarm::start("watched");
    let mut cluster = Plan::new().farm(1).cores(CORES).measuring().start().await;
    cluster.add_host("watched", Origin::Farm, &["--watch-worker", RqdFarm::worker()]);
    cluster.api.until_cores("watched", CORES).await;
    let mut marks = cluster.marks();
    cluster.api.submit(&marks.job(1_000, 1)).await;
    marks.take(4);

    let frame = farm.renders(0, None);
    cluster.api.until_cores("watched", CORES - farm.threads).await;
    let view = cluster.monitor_api().view("watched").await.expect("known");
    assert_eq!(booking(&view, &frame.booking()).expect("booked")["cores"], 1, "{view}");
    assert_eq!(view["bookings"].as_array().map(Vec::len), Some(1), "none of its helpers: {view}");
    farm.ends(frame);
    cluster.api.until_cores("watched", CORES).await;

    let mut execs = ExecTimes::start();
    let mut number = 0;
    in_some_awaited_round(async || {
        let mut took = Measured::default();
        for _ in 0..repeats(FRAMES) {
            cluster["watched"].computes_in(CORES as usize).await;
            let working = cluster["watched"].computing();
            let working: Vec<i32> = working.iter().map(|process| process.pid).collect();
            number += 1;
            let stopped = thread::spawn(move || processes::stopped_at(&working));
            let mut frame = farm.renders_on(CORES / farm.threads, number, None);
            let stopped = stopped.join().expect("they stop");
            took.add(stopped - execs.first_of(frame.process()));
            farm.ends(frame);
            cluster.api.until_cores("watched", CORES).await;
        }
        let what =
            "from when a watched RQD's frame becomes a program to the last replica in its way";
        took.is_at_most(RELEASE_MAX, what)
    })
    .await;
}
