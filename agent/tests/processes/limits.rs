//! What a replica may use while it runs, by the word of its owner and of the broker, and where others
//! have a part of a core.

use std::process::{Child, Command};
use std::time::Duration;

use gleaner_agent::{CommandRules, Confine, Isolation};
use gleaner_calm::{assert_within, in_some_awaited_round};
use gleaner_hooks::{ProcessIo, SocketAnswer, SocketRequest, TaskLine};
use gleaner_isolation::Ability;
use gleaner_protocol::control::{BrokerMessage, Opening};
use gleaner_protocol::{LeaseToken, Limit, LimitsChange, Origin, Share, Span, boottime};
use tempfile::TempDir;

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, kernel, script, text};
use crate::figures::is_at_rest;
use crate::isolation::{enclosing, grants, groups_in, groups_of};
use crate::module_lives::abort;
use crate::releases::{hear_fragment, nanos_run, wait_until_busy};
use crate::watch::{marked, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("what_runs_is_limited_until_it_ends", what_runs_is_limited),
    ("all_of_it_takes_no_more_memory_than_is_left_to_it", no_more_memory_than_is_left),
    ("the_broker_limits_a_replica_before_and_while_it_runs", the_broker_limits),
    ("beside_a_render_what_keeps_a_disk_busy_stands_still", a_disk_is_left_to_a_render),
];

/// What is the same whoever the agent runs as.
pub(crate) const BESIDE_OTHERS: &[Story] =
    &[("who_takes_a_part_of_a_core_leaves_the_rest_of_it", a_part_of_a_core_is_left)];

/// What the kernel says of a group's share.
const SHARES: [&str; 2] = ["cpu.max", "cpu.cfs_quota_us"];
/// Of its memory.
const MEMORY: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];
/// How long an agent is left alone between two questions.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A program for ever.
const BUSY: &str = "while :; do :; done";

/// The limit of the memory of all that holds this runner, in MiB.
fn memory_mib_of_all(runner: i32) -> Option<u64> {
    let all = groups_of(runner).into_iter().filter_map(|leaf| Some(leaf.parent()?.to_owned()));
    let mut files = all.flat_map(|whole| MEMORY.map(|name| whole.join(name)));
    let text = files.find_map(|file| std::fs::read_to_string(file).ok())?;
    Some(text.trim().parse::<u64>().ok()? >> 20)
}

/// By its owner, and by what the farm says that it leaves now.
fn no_more_memory_than_is_left() {
    for isolation in enclosing().into_iter().filter(|way| grants(*way, Ability::Memory)) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = folders.config(&broker.address, 1);
            config.origin = Origin::Farm;
            config.preferences.memory_mib_max = 600;
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, hello) = broker.welcome().await;
            let epoch = hello.fragment.epoch;
            for (memory_mib, held_to) in [(4_096, 600), (300, 300), (500, 500)] {
                session
                    .say(&[BrokerMessage::Opening(Opening {
                        epoch,
                        cores: 1,
                        memory_mib,
                        booked_cores: 0,
                        gpus: None,
                        valid_ms: 3_600_000,
                        ended: Vec::new(),
                        seal: None,
                    })])
                    .await;
                if folders.groups().is_empty() {
                    assert_eq!(hear_fragment(&mut session).await.cores, 1);
                    session.perform(kernel("noop"), None).await;
                }
                let runner = folders.groups()[0];
                let holds = || memory_mib_of_all(runner) == Some(held_to);
                wait_until(&format!("{isolation:?}: a limit of {held_to} MiB"), holds);
            }
        });
    }
}

fn what_runs_is_limited() {
    let limit = |slot, limits| SocketRequest::Limit { slot, limits };
    let share = LimitsChange::to_share(Share::percent(20));
    for isolation in enclosing().into_iter().filter(|way| grants(*way, Ability::Share)) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = folders.config(&broker.address, 1);
            // A confined command does not see which groups it is in.
            config.commands = CommandRules { confine: Confine::Off, ..CommandRules::default() };
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            let refused = |slot| match folders.ask(&limit(slot, share)) {
                SocketAnswer::Error { reason } => reason,
                other => panic!("{other:?}"),
            };
            assert!(refused(0).contains("nothing runs in slot 0"));
            assert!(refused(7).contains("nothing runs in slot 7"));
            let tokens = session.give(script(BUSY), &[None]).await;
            let group = wait_until_busy(&folders, 1)[0];
            assert_eq!(folders.ask(&limit(0, share)), SocketAnswer::Noted);
            // In a second it gets two tenths of one, and what is left of the first period.
            let (began, before) = (boottime(), nanos_run(group));
            std::thread::sleep(Duration::from_secs(1));
            let used = nanos_run(group) - before;
            let most = boottime().since(began).as_micros() * 1_000 * 35 / 100;
            assert_within("ns of CPU time that a share of two tenths takes", used, most);
            // Not because the machine is busy.
            let listed = std::fs::read_to_string(format!("/proc/{group}/cgroup")).expect("alive");
            wait_until("it to be held back", || {
                let said = groups_files(&listed, &["cpu.stat"]);
                let lines = said.iter().flat_map(|text| text.lines());
                let mut counts = lines.filter_map(|line| line.strip_prefix("nr_throttled "));
                counts.any(|count| count != "0")
            });
            abort(&mut session, tokens[0]).await;
            // The next one has its own limits.
            let listed = session.perform(script("cat /proc/$$/cgroup"), None).await;
            let files = groups_files(&text(&listed, "stdout"), &SHARES);
            assert!(!files.is_empty(), "{listed:?}");
            assert!(files.iter().all(|text| is_whole(text)), "{files:?}");
        });
    }
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let isolation = Isolation::ProcessGroups;
        let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
        let (mut session, _) = broker.welcome().await;
        session.give(script(BUSY), &[None]).await;
        wait_until_busy(&folders, 1);
        let SocketAnswer::Error { reason } = folders.ask(&limit(0, share)) else {
            panic!("there is nothing that could limit it")
        };
        assert!(reason.contains("no control groups"), "{reason}");
    });
}

fn the_broker_limits() {
    for isolation in enclosing().into_iter().filter(|way| grants(*way, Ability::Share)) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 1);
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.limits = LimitsChange::to_share(Share::percent(20));
            let tokens = session.give(script(BUSY), &[None]).await;
            let group = wait_until_busy(&folders, 1)[0];
            let listed = std::fs::read_to_string(format!("/proc/{group}/cgroup")).expect("alive");
            let said = |files: &[&str]| groups_files(&listed, files);
            let has_share = |percent| said(&SHARES).iter().any(|text| is_share(text, percent));
            wait_until("its first share", || has_share(20));
            limit(&mut session, tokens[0], LimitsChange::to_share(Share::percent(50))).await;
            wait_until("another share", || has_share(50));
            assert_eq!(tasks(&folders)[0].share_percent, Some(50));
            if grants(isolation, Ability::Memory) {
                let memory_mib = Some(Limit::At(64));
                let change = LimitsChange { memory_mib, ..LimitsChange::NONE };
                limit(&mut session, tokens[0], change).await;
                let mib = (64_u64 << 20).to_string();
                wait_until("less memory", || groups_files(&listed, &MEMORY).concat().trim() == mib);
                assert!(has_share(50), "the rest stays as it is");
            }
            let lifted = LimitsChange::to_no_share();
            limit(&mut session, tokens[0], lifted).await;
            wait_until("no share", || said(&SHARES).iter().all(|text| is_whole(text)));
            // Nobody has one of these: nothing comes of it.
            limit(&mut session, LeaseToken::new(7_777), lifted).await;
            abort(&mut session, tokens[0]).await;
        });
    }
}

fn a_part_of_a_core_is_left() {
    // How a replica is held to its part is told for each way; who has one is decided in the same way.
    let mut ways = enclosing().into_iter().filter(|way| grants(*way, Ability::Share));
    let Some(isolation) = ways.next() else { return };
    block_on(in_some_awaited_round(async || {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        // More than the machine has: whatever else computes on it, some of them are left.
        let config = folders.config(&broker.address, 4);
        let mut config = gleaner_agent::Config { isolation, ..config };
        config.preferences.give_way = true;
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        session.give(script(BUSY), &[None; 4]).await;
        let _others = Others::start();
        let end = boottime() + Span::from_secs(30);
        while boottime() < end {
            let tasks = tasks(&folders);
            let shares: Vec<_> =
                tasks.iter().filter(|task| !task.frozen).map(|task| task.share_percent).collect();
            if let Some((Some(25 | 50 | 75), older)) = shares.split_last() {
                assert!(older.iter().all(Option::is_none), "one has a part: {tasks:?}");
                return Ok(());
            }
            // Whoever asks keeps the machine busy too.
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Err(format!("{isolation:?}: others have half a core, and {:?}", tasks(&folders)))
    }));
}

fn a_disk_is_left_to_a_render() {
    // Confined as well, as far as this host can: who watches has to see what a task does.
    let ways = [(Isolation::Auto, Confine::Off), (Isolation::ProcessGroups, Confine::Off)];
    for (isolation, confine) in ways.into_iter().chain([(Isolation::Auto, Confine::Available)]) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = folders.config(&broker.address, 3);
            config.commands = CommandRules { confine, ..CommandRules::default() };
            // What is frozen for its owner would end at once.
            config.preferences.keep_frozen_s = 0;
            let folder = folder_on_disk();
            config.work_dir = Some(folder.path().join("work"));
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(script(BUSY), &[None]).await;
            wait_until_busy(&folders, 1);
            let writes = "while :; do dd if=/dev/zero of=hog bs=1M count=125 oflag=dsync; done";
            session.give(script(writes), &[None]).await;
            wait_until("it to write", || written() > 1 << 20);
            let frozen = || tasks(&folders).iter().filter(|task| task.frozen).count();
            assert_eq!(frozen(), 0, "nobody renders");
            folders.preflight("render", Some(1));
            wait_until("it to stand still", || frozen() == 1);
            let SocketAnswer::Standing(standing) = folders.ask(&SocketRequest::Standing) else {
                panic!("it is asked how it stands")
            };
            assert!(standing.reasons.iter().any(|reason| reason.kind == "disk_beside_render"));
            assert_eq!((standing.running, standing.frozen), (1, 1), "what only computes goes on");
            wait_until("its last write to end", || hogs().into_iter().all(is_at_rest));
            let at_rest = written();
            folders.postflight("render");
            wait_until("it to go on", || frozen() == 0 && written() > at_rest);
        });
    }
}

/// A folder where files are on a disk, as a rule.
fn folder_on_disk() -> TempDir {
    let places = [env!("CARGO_TARGET_TMPDIR"), "/var/tmp"];
    places.into_iter().find_map(|place| tempfile::tempdir_in(place).ok()).expect("a folder")
}

/// What the hog of that story has written that goes to disks, in bytes.
fn written() -> u64 {
    let written = |pid| ProcessIo::of(pid).written_bytes;
    hogs().into_iter().map(written).max().unwrap_or(0)
}

fn hogs() -> Vec<i32> {
    marked("of=hog")
}

/// Somebody who computes half of the time.
struct Others(Child);

impl Others {
    fn start() -> Self {
        let half = "import time\n\
                    while True:\n\
                    \tend = time.monotonic() + .02\n\
                    \twhile time.monotonic() < end: pass\n\
                    \ttime.sleep(.02)";
        Self(Command::new("python3").args(["-c", half]).spawn().expect("it is there"))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn limit(session: &mut Session, token: LeaseToken, limits: LimitsChange) {
    session.say(&[BrokerMessage::Limit { token, limits }]).await;
}

/// What the agent says that it runs, by slots.
fn tasks(folders: &Folders) -> Vec<TaskLine> {
    let SocketAnswer::Tasks { tasks, .. } = folders.ask(&SocketRequest::Tasks) else {
        panic!("it is asked what it runs")
    };
    tasks
}

/// Whether a file of [`SHARES`] says so many hundredths of a core.
fn is_share(text: &str, percent: u32) -> bool {
    text.split_whitespace().next() == Some(&(percent * 1_000).to_string())
}

/// Whether it says that there is no limit.
fn is_whole(text: &str) -> bool {
    text.starts_with("max") || text == "-1\n"
}

/// What files of a replica's groups say, which are listed as the kernel has them of a process.
fn groups_files(listed: &str, names: &[&str]) -> Vec<String> {
    let groups = groups_in(listed);
    assert!(!groups.is_empty(), "{listed}");
    let files = groups.iter().flat_map(|group| names.iter().map(move |name| group.join(name)));
    files.filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}
