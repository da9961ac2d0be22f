//! The broker is killed again and again under load, and each time counted anew.

use std::collections::BTreeSet;
use std::time::Duration;

use gleaner_protocol::{Span, boottime};
use tokio::time::timeout;

use crate::api::Api;
use crate::broker::Launch;
use crate::crew::{Crew, Load};
use crate::drafts::Drafts;
use crate::draw::Draw;
use crate::ledger::{Kind, Known, Ledger};
use crate::plan::{Fate, Mix};
use crate::recount::{Depth, recount};
use crate::stage::Stage;

/// After how long work that nobody disturbs counts as stuck: far longer than a slow machine takes.
const LIVENESS: Duration = Duration::from_secs(240);

/// Kills of one data folder.
struct Round {
    kills: u32,
    load: Load,
    options: &'static [&'static str],
}

/// What came of one or more rounds.
#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    /// Of these, before the broker listened.
    in_recovery: u32,
    /// Of these, soon after a snapshot was begun.
    upon_snapshot: u32,
    /// Snapshots that were never finished.
    unfinished: usize,
    snapshots: usize,
    jobs: usize,
    acknowledged: u64,
    lost: usize,
    wrong: usize,
}

#[test]
fn two_hundred_kills_lose_nothing_that_was_acknowledged() {
    let seed = std::env::var("GLEANER_TEST_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let quiet = Mix { item_bytes: 400, large_one_in: 10 };
    // Some 500 KB a job, so that a snapshot is due every few starts.
    let heavy = Mix { item_bytes: 48_000, large_one_in: 6 };
    let load = Load { seed, submitters: 2, cores: 4, work_ms_max: 30, mix: quiet };
    let rounds = [
        Round { kills: 50, load, options: &[] },
        Round {
            kills: 50,
            load: Load { seed: seed + 1, mix: heavy, ..load },
            options: &["--snapshot-after-mib", "1"],
        },
        Round {
            kills: 50,
            load: Load { seed: seed + 2, ..load },
            options: &["--lane", "background=plain"],
        },
        Round {
            kills: 50,
            load: Load { seed: seed + 3, mix: heavy, ..load },
            options: &["--snapshot-after-mib", "1"],
        },
    ];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let begun = boottime();
    let mut total = Tally::default();
    let mut faults = Vec::new();
    for round in rounds {
        let (tally, ledger) = runtime.block_on(play(&round));
        total.add(&tally);
        faults.extend(ledger.faults);
    }
    println!(
        "kills={} acknowledged={} lost={} wrong={} ({} during recovery, {} upon snapshots, {} snapshots and {} unfinished, {} jobs, {:.0} s, seed {seed})",
        total.kills,
        total.acknowledged,
        total.lost,
        total.wrong,
        total.in_recovery,
        total.upon_snapshot,
        total.snapshots,
        total.unfinished,
        total.jobs,
        (boottime() - begun).as_secs_f64(),
    );
    for fault in faults.iter().take(20) {
        println!("{:?}: {}", fault.kind, fault.what);
    }
    assert_eq!((total.kills, total.lost, total.wrong), (200, 0, 0), "GLEANER_TEST_SEED={seed}");
    assert!(total.snapshots > 0, "the journal was never shortened");
    assert!(total.in_recovery > 0 && total.upon_snapshot > 0);
}

async fn play(round: &Round) -> (Tally, Ledger) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let data = folder.path().join("data");
    let launch = Launch::on(&data, &folder.path().join("log")).with(round.options);
    let stage = Stage::new(Ledger::default());
    let mut crew = Crew::hire(&stage, round.load);
    let mut draw = Draw::new(round.load.seed, 0);
    let mut tally = Tally::default();
    let (mut drafts, mut snapshots): (Option<Drafts>, _) = (None, BTreeSet::new());
    // How long the last start took until it listened.
    let mut recovery = Span::from_millis(100);
    for start in 1..=round.kills {
        let spawned = boottime();
        let mut broker = launch.spawn();
        if start > 1 && draw.one_in(4) {
            let life = draw.millis(0..recovery.as_millis().max(1));
            if timeout(life, broker.ready()).await.is_err() {
                tally.in_recovery += 1;
            }
        } else {
            let url = broker.ready().await.unwrap_or_else(|ended| {
                panic!("start {start} ended with {ended}:\n{}", launch.said())
            });
            recovery = boottime() - spawned;
            let kill_at = boottime() + Span::from(draw.millis(20..150));
            let api = stage.enter(url, start);
            if !draw.one_in(4) {
                let counted = recount(&stage, &api, Depth::News { jobs_max: 8 }).await;
                if let Err(error) = counted {
                    stage.write(|ledger| ledger.fault(Kind::Lost, error.to_string()));
                }
            }
            let snapshot = async {
                match &mut drafts {
                    Some(drafts) => drafts.begun().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(kill_at.since(boottime()).into()) => {}
                () = snapshot => {
                    tally.upon_snapshot += 1;
                    // Amid its writing, or what follows: it is put to use, old entries are removed.
                    let longest = if start % 2 == 0 { 3 } else { 40 };
                    tokio::time::sleep(draw.millis(0..longest)).await;
                }
            }
        }
        broker.kill().await;
        stage.leave();
        tally.kills += 1;
        if let Some(drafts) = &mut drafts {
            let (unfinished, finished): (Vec<_>, Vec<_>) =
                drafts.files().into_iter().partition(|name| is_unfinished(name));
            tally.unfinished += unfinished.len();
            snapshots.extend(finished);
            drafts.forget();
        }
        drafts = drafts.or_else(|| Drafts::watch(&data));
    }
    settle(round, &launch, &stage, &mut crew).await;
    // Where the disk is slow each kill may come before one is finished.
    if let Some(drafts) = &drafts {
        snapshots.extend(drafts.files().into_iter().filter(|name| !is_unfinished(name)));
    }
    crew.dismiss().await;
    tally.snapshots = snapshots.len();
    let ledger = stage.ledger().clone();
    tally.close(&ledger);
    println!("{tally:?}; the last start took {recovery}");
    (tally, ledger)
}

/// Whether a snapshot is still being written, by its file's name.
fn is_unfinished(name: &str) -> bool {
    name.ends_with(".draft")
}

/// Undisturbed, everything comes to its end; and it still has after one more start.
async fn settle(round: &Round, launch: &Launch, stage: &Stage, crew: &mut Crew) {
    let (broker, url) = launch.start().await;
    let api = stage.enter(url, round.kills + 1);
    stage.close();
    let ended = timeout(LIVENESS, async {
        crew.submitters_done().await;
        loop {
            recount(stage, &api, Depth::All).await.expect("an answer");
            cancel_endless(stage, &api).await;
            if stage.ledger().all_ended() {
                break;
            }
            stage.until(Ledger::all_ended).await;
        }
    });
    if ended.await.is_err() {
        let stuck = stage.ledger().jobs().find(|(_, known)| !known.has_ended()).map(|(id, _)| id);
        let why = match stuck {
            Some(job) => format!("{job}: {:?}", api.explain(job).await),
            None => "a submitter waits".into(),
        };
        stage.write(|ledger| ledger.fault(Kind::Lost, format!("work does not end: {why}")));
    }
    recount(stage, &api, Depth::All).await.expect("an answer");
    stage.leave();
    assert!(broker.stop().await.success(), "it ends when it is told to");
    let (broker, url) = launch.start().await;
    let api = stage.enter(url, round.kills + 2);
    recount(stage, &api, Depth::All).await.expect("an answer");
    stage.leave();
    broker.kill().await;
    if launch.said().contains("panicked") {
        stage.write(|ledger| ledger.fault(Kind::Wrong, format!("a panic: {}", launch.said())));
    }
}

/// Cancels what nobody else does: jobs that were accepted and whose submitters never heard of it.
async fn cancel_endless(stage: &Stage, api: &Api) {
    let is_endless = |known: &Known| {
        known.spec.as_ref().is_some_and(|spec| Fate::of(&spec.task) == Fate::Endless)
    };
    let open: Vec<_> = {
        let ledger = stage.ledger();
        let open = ledger.jobs().filter(|(_, known)| !known.has_ended() && is_endless(known));
        open.map(|(id, _)| id).collect()
    };
    for job in open {
        let status = api.cancel(job).await.expect("an answer");
        stage.write(|ledger| ledger.judge(None, &status));
    }
}

impl Tally {
    fn close(&mut self, ledger: &Ledger) {
        let count = |kind: Kind| ledger.faults.iter().filter(|fault| fault.kind == kind).count();
        self.acknowledged = ledger.acknowledged;
        self.jobs = ledger.jobs().count();
        self.lost = count(Kind::Lost);
        self.wrong = count(Kind::Wrong);
    }

    fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.in_recovery += other.in_recovery;
        self.upon_snapshot += other.upon_snapshot;
        self.unfinished += other.unfinished;
        self.snapshots += other.snapshots;
        self.jobs += other.jobs;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }
}
