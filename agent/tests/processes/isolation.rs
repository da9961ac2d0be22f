//! What tries to get away from its slot, judged from outside, for each way of isolation that this
//! host grants.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gleaner_agent::{CommandRules, Confine, Isolation};
use gleaner_calm::{in_some_awaited_round, too_slow};
use gleaner_hooks::{ProcessStat, SocketAnswer, SocketRequest};
use gleaner_isolation::{Ability, Enclosure, Report, Topology};
use gleaner_protocol::control::{AgentMessage, ReleaseReason};
use gleaner_protocol::job::{CommandTask, OnRelease, Task};
use gleaner_protocol::{LeaseToken, Span, boottime};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, command, failure, kernel, script, text};
use crate::figures::is_at_rest;
use crate::module_lives::{give, hear_progress};
use crate::modules::task;
use crate::probe::{PROBE_ARGUMENT, THREADS};
use crate::releases::{ENDLESS, nanos_run, wait_until_busy};
use crate::wat::program;
use crate::watch::{LONG, marked, spawner_of, wait_for_end, wait_until};

/// How often what resumes itself is given to an agent on a busy machine.
const TRIES: usize = 5;
/// How long the agent is listened to between two looks at its groups.
const MOMENT: Duration = Duration::from_millis(1);

pub(crate) const STORIES: &[Story] = &[
    ("a_release_stops_what_has_left_its_session", a_release_stops_what_has_left_its_session),
    ("nothing_is_left_behind_by_a_killed_agent", nothing_is_left_behind_by_a_killed_agent),
    ("a_runner_that_freezes_as_it_starts_dies_with_its_agent", a_frozen_start_dies),
    ("a_hook_stops_runaways_of_an_agent_that_hangs", a_hook_stops_runaways),
    ("a_module_saves_beside_a_render_before_it_goes", a_module_saves_before_it_goes),
    ("a_module_is_asked_to_save_before_it_goes", a_module_is_asked_to_save),
    ("a_fork_bomb_ends_at_its_limit", a_fork_bomb_ends_at_its_limit),
    ("a_memory_hog_is_killed_at_the_limit_of_its_job", a_memory_hog_is_killed),
    ("a_memory_hog_without_a_group_is_refused_its_memory", a_memory_hog_is_refused),
    ("a_pause_holds_what_has_left_its_session_too", a_pause_holds_runaways),
    ("what_resumes_itself_is_ended", what_resumes_itself_is_ended),
];

/// `required` or `absent`: whether this host has control groups that we may write. Where it is
/// not set they are required of root, who has them everywhere but in containers.
pub(crate) const EXPECTED: &str = "GLEANER_TEST_CGROUPS";

/// The same of them as of root's, whatever these can do.
pub(crate) const ENCLOSING: &str = "enclosing";

/// Whether the host has to have them.
pub(crate) fn are_required() -> bool {
    match std::env::var(EXPECTED).as_deref() {
        Ok(word) => ["required", ENCLOSING].contains(&word),
        Err(_) => rustix::process::geteuid().is_root(),
    }
}

/// Whether it is said to have all that there is.
fn has_all() -> bool {
    std::env::var(EXPECTED).as_deref() == Ok("required")
}

/// Ways that reach what leaves its process group, and it is an error where there have to be some and
/// are none: a story that is told of nothing is none.
pub(crate) fn enclosing() -> Vec<Isolation> {
    let all = [Isolation::Auto, Isolation::Cgroup2, Isolation::Cgroup1];
    // Where `auto` is another's way, its stories would be told twice.
    let is_another = |way| way == Isolation::Auto && report(way).backend != "hybrid";
    let tells = |way: &Isolation| grants(*way, Ability::Freeze) && !is_another(*way);
    let all: Vec<_> = all.into_iter().filter(tells).collect();
    println!("ways that enclose here: {all:?}");
    assert!(!are_required() || !all.is_empty(), "no control groups can be written here");
    all
}

/// Those, and the walk over what descends from a runner, which needs the runner alive.
fn all_ways() -> Vec<Isolation> {
    let mut all = enclosing();
    all.push(Isolation::ProcessGroups);
    all
}

/// What a way gives on this host.
fn report(way: Isolation) -> Report {
    let trial = Enclosure::open(way, &format!("trial-{}", std::process::id()));
    let report = trial.report();
    trial.remove().expect("it is empty");
    report
}

pub(crate) fn grants(way: Isolation, ability: Ability) -> bool {
    report(way).abilities.iter().any(|one| one.ability == ability && one.provider.is_some())
}

/// Whether this host can keep work off a core. One that is said to have all that there is has to.
pub(crate) fn keeps_work_off() -> bool {
    let has_room = !Topology::of_this_machine().beside(1, &BTreeSet::new()).is_empty();
    let keeps = has_room && grants(Isolation::Auto, Ability::Cpus);
    if !keeps {
        assert!(!has_all(), "work cannot be kept off a core here");
        println!("work cannot be kept off a core here");
    }
    keeps
}

/// Forks twice, begins a session of its own and computes for ever; marked by the host's folder.
pub(crate) fn runaway(folders: &Folders) -> String {
    let marker = folders.path("runaway");
    format!("(setsid sh -c 'while :; do :; done; : {}' &) ; sleep 1000", marker.display())
}

/// Waits until it has left its group and session.
pub(crate) fn wait_for_runaway(folders: &Folders) -> i32 {
    let marker = folders.path("runaway");
    let has_left = |pid: &i32| {
        let leads = |stat: ProcessStat| (stat.session, stat.pgid) == (*pid, *pid);
        ProcessStat::of(*pid).is_ok_and(leads)
    };
    let mut found = None;
    wait_until("the runaway", || {
        found = marked(marker.to_str().expect("plain")).into_iter().find(has_left);
        found.is_some()
    });
    found.expect("it was waited for")
}

fn a_release_stops_what_has_left_its_session() {
    for isolation in all_ways() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 2);
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(script(&runaway(&folders)), &[None]).await;
            let runaway = wait_for_runaway(&folders);
            let answer = folders.preflight("render", None);
            assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
            wait_for_end(runaway);
            // The slot is as good as new afterwards.
            wait_until("its end", || folders.groups().is_empty());
            folders.postflight("render");
            let reopened = |message: &AgentMessage| match message {
                AgentMessage::Fragment(fragment) if fragment.cores == 2 => Some(()),
                _ => None,
            };
            session.hear_of(reopened).await;
            session.perform(script("true"), None).await;
        });
    }
}

fn nothing_is_left_behind_by_a_killed_agent() {
    for isolation in enclosing() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 2);
            let config = gleaner_agent::Config { isolation, ..config };
            let mut agent = AgentProcess::start(&config, &folders);
            let (mut session, _) = broker.welcome().await;
            session.give(script(&runaway(&folders)), &[None]).await;
            let runaway = wait_for_runaway(&folders);
            let groups = groups_of(runaway);
            assert!(!groups.is_empty(), "it is in a group of ours");
            let load = folders.path("run").join("loadavg");
            wait_until("its load average", || load.is_file());
            let left = folders.path("work/spool").join("1-left");
            std::fs::write(left, "an output that nobody asks for").expect("written");
            agent.child.kill().expect("ours");
            agent.child.wait().expect("ours");
            wait_for_end(runaway);
            wait_until("its groups to go", || groups.iter().all(|group| !group.exists()));
            for folder in ["tasks", "spool"].map(|name| folders.path("work").join(name)) {
                let is_empty = || folder.read_dir().is_ok_and(|mut left| left.next().is_none());
                wait_until("its folders to go", is_empty);
            }
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
            let folder = folders.path("work");
            let folder = folder.parent().expect("of all").to_str().expect("plain");
            assert!(!mounts.contains(folder), "nothing is mounted there: {mounts}");
            // A manager that reads it is not misled by what an agent wrote last.
            let is_link = || load.is_symlink();
            wait_until("the load average to be the kernel's", is_link);
        });
    }
}

/// A hook freezes all groups while the agent starts a runner in one of them. In the freezer of
/// version 1 nothing dies before it is thawed, so that is another story.
fn a_frozen_start_dies() {
    for isolation in enclosing().into_iter().filter(|way| *way != Isolation::Cgroup1) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 1);
            let config = gleaner_agent::Config { isolation, ..config };
            let mut agent = AgentProcess::start(&config, &folders);
            let (mut session, _) = broker.welcome().await;
            session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
            let runner = wait_until_busy(&folders, 1)[0];
            let (spawner, groups) = (spawner_of(runner), groups_of(runner));
            let freezes = |group: &&PathBuf| group.join("cgroup.freeze").exists();
            let of_runner = groups.iter().find(freezes).expect("a group that freezes");
            let enclosure = of_runner.parent().expect("of all leaves");
            // It thaws all before it starts a runner: a hook is faster.
            let (freeze, ends) =
                (enclosure.join("cgroup.freeze"), Arc::new(AtomicBool::new(false)));
            let ended = Arc::clone(&ends);
            let hook = std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) && std::fs::write(&freeze, "1").is_ok() {}
            });
            let events =
                || std::fs::read_to_string(of_runner.join("cgroup.events")).expect("its leaf");
            let members =
                || std::fs::read_to_string(of_runner.join("cgroup.procs")).expect("its leaf");
            let line = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).expect("alive");
            let (mut is_copy, end) = (false, boottime() + Span::from(LONG));
            // It may be faster, and be the runner when it freezes.
            while !is_copy {
                let old = members();
                std::fs::write(of_runner.join("cgroup.kill"), "1").expect("allowed");
                while members() == old
                    || members().lines().count() != 1
                    || !events().contains("frozen 1")
                {
                    assert!(boottime() < end, "it is always faster");
                    let Ok(said) = timeout(MOMENT, session.hear()).await else { continue };
                    // The one that was killed had begun with it.
                    if matches!(said, AgentMessage::Report(_) | AgentMessage::Released(_)) {
                        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
                    }
                }
                // Then it has not executed the runner yet.
                is_copy = line(members().trim()) == line(&spawner.to_string());
            }
            agent.child.kill().expect("ours");
            agent.child.wait().expect("ours");
            ends.store(true, Ordering::Relaxed);
            hook.join().expect("a thread");
            wait_until("all groups to go", || groups.iter().all(|group| !group.exists()));
            // Nobody has the lock any more.
            let _agent = AgentThread::start(folders.config(&broker.address, 2));
            broker.welcome().await;
        });
    }
}

fn a_hook_stops_runaways() {
    for isolation in all_ways() {
        block_on(async {
            in_some_awaited_round(async || {
                let folders = Folders::new();
                let mut broker = Broker::start().await;
                let config = folders.config(&broker.address, 2);
                let config = gleaner_agent::Config { isolation, ..config };
                let agent = AgentProcess::start(&config, &folders);
                let (mut session, _) = broker.welcome().await;
                session.give(script(&runaway(&folders)), &[None]).await;
                let runaway = wait_for_runaway(&folders);
                kill_process(number(agent.pid()), Signal::STOP).expect("ours");
                let mut report = folders.run_dir().stop_groups();
                // A machine that is busy may leave too little time to look for what has left its
                // group. Only where nothing encloses that is it by looking that it is found.
                let is_too_slow = |trouble: &mut String| trouble.contains("was looked for within");
                let late: Vec<_> = report.troubles.extract_if(.., is_too_slow).collect();
                assert_eq!(report.troubles, [""; 0]);
                if isolation == Isolation::ProcessGroups && !late.is_empty() {
                    // It may be gone all the same.
                    let _ = kill_process(number(runaway), Signal::KILL);
                    return too_slow(late.join("; "));
                }
                wait_for_end(runaway);
                Ok(())
            })
            .await;
        });
    }
}

fn number(pid: i32) -> Pid {
    Pid::from_raw(pid).expect("a number")
}

/// Counts, and saves how far it is each time.
const SAVING: &str = "
    (call $progress (i32.const 500))
    (loop $again
      (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
      (drop (call $checkpoint_save (i32.const 2048) (i32.const 4)))
      (br $again))";

/// A module beside other work on two slots, of which a render books one; none where this host cannot
/// keep work off a core.
struct ModuleBesideWork {
    folders: Folders,
    session: Session,
    token: LeaseToken,
    /// The other work's group.
    other: i32,
    _broker: Broker,
    _agent: AgentThread,
}

impl ModuleBesideWork {
    async fn start(body: &str) -> Option<Self> {
        if !keeps_work_off() {
            return None;
        }
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let other = wait_until_busy(&folders, 1)[0];
        session.on_release = OnRelease::Checkpoint { within_s: 60 };
        let module = task(&broker, &program("", body));
        let token = give(&mut session, &module, 1).await;
        assert_eq!(hear_progress(&mut session).await, 500);
        Some(Self { folders, session, token, other, _broker: broker, _agent: agent })
    }

    /// What it saved; none before.
    fn saved(&self) -> Option<Vec<u8>> {
        let all = std::fs::read_dir(self.folders.path("work/checkpoints")).ok()?.flatten();
        // What is being written has a name of its own.
        let whole = all.map(|one| one.path()).find(|path| path.extension().is_none());
        std::fs::read(whole?).ok()
    }

    /// A render books one of the two cores: the module goes on beside it, for a while.
    async fn is_driven_out(&mut self) {
        let answer = self.folders.preflight("render", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 1 });
        let frozen = self.session.hear_of(|message| match message {
            AgentMessage::Frozen { token, frozen } => Some((*token, *frozen)),
            _ => None,
        });
        assert_eq!(frozen.await, (self.token, true));
        let released = self.session.hear_released().await;
        assert_eq!((released.token, released.reason), (self.token, ReleaseReason::Preempted));
    }
}

fn a_module_saves_before_it_goes() {
    block_on(async {
        let Some(mut host) = ModuleBesideWork::start(SAVING).await else { return };
        // What was handed over when it began. Then it counts on, and hands nothing over for a while.
        wait_until("it to save", || host.saved().is_some());
        let before_it_went = host.saved();
        let groups = host.folders.groups();
        let runner = groups.into_iter().find(|group| *group != host.other).expect("its own");
        let before = nanos_run(runner);
        wait_until("it to count", || nanos_run(runner) > before + 5_000_000);
        host.is_driven_out().await;
        // By chance as it also is each second, in one of many runs.
        assert_ne!(host.saved(), before_it_went, "it was saved after it was driven out");
    });
}

/// Counts, and saves how far it is when it is asked to.
const SAVING_WHEN_ASKED: &str = "
    (call $progress (i32.const 500))
    (loop $again
      (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
      (if (call $checkpoint_wanted)
        (then (drop (call $checkpoint_save (i32.const 2048) (i32.const 4)))))
      (br $again))";

fn a_module_is_asked_to_save() {
    block_on(async {
        let Some(mut host) = ModuleBesideWork::start(SAVING_WHEN_ASKED).await else { return };
        assert_eq!(host.saved(), None, "nobody has asked yet");
        host.is_driven_out().await;
        assert!(host.saved().is_some());
    });
}

/// Starts more than a command may have, and waits for that.
pub(crate) fn bomb(folders: &Folders) -> Task {
    let probe = folders.path("probe");
    let processes = (1_100 / THREADS + 1).to_string();
    command(&[probe.to_str().expect("plain"), PROBE_ARGUMENT, "crowd", &processes])
}

/// Processes of this host's probe that have not ended.
pub(crate) fn probes(folders: &Folders) -> Vec<i32> {
    marked(&format!("{}\0{PROBE_ARGUMENT}", folders.path("probe").display()))
}

/// Where nothing encloses it: [`crate::confinement`].
fn a_fork_bomb_ends_at_its_limit() {
    for isolation in enclosing() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = folders.config(&broker.address, 1);
            config.allow_commands.push(folders.probe());
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            let report = session.perform(bomb(&folders), None).await;
            let said = failure(&report);
            assert!(said.contains("no more threads"), "{isolation:?}: {said}");
            wait_until("its end", || probes(&folders).is_empty());
            // Neither the slot nor the host is harmed.
            session.perform(script("true"), None).await;
        });
    }
}

/// A script that may have so much memory, in MiB.
fn limited(text: &str, mib: u32) -> Task {
    match script(text) {
        Task::Command(task) => Task::Command(CommandTask { memory_mib: Some(mib), ..task }),
        other => panic!("{other:?}"),
    }
}

fn a_memory_hog_is_killed() {
    for isolation in enclosing().into_iter().filter(|way| grants(*way, Ability::Memory)) {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 1);
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            // What it starts counts too, and its buffer is larger than the limit.
            let hog = "dd if=/dev/zero of=/dev/null bs=512M count=1 || exit 7";
            let report = session.perform(limited(hog, 128), None).await;
            let said = failure(&report);
            assert!(said.contains("more than the 128 MiB of memory"), "{said}");
            session.perform(limited("true", 16), None).await;
            // The limit was that job's alone.
            session.perform(script(hog), None).await;
        });
    }
}

fn a_memory_hog_is_refused() {
    // Within walls, whatever this host has of them, and without any.
    for confine in [Confine::Available, Confine::Off] {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let mut config = folders.config(&broker.address, 1);
            config.isolation = Isolation::ProcessGroups;
            config.commands = CommandRules { confine, ..CommandRules::default() };
            let _agent = AgentThread::start(config);
            let (mut session, _) = broker.welcome().await;
            let hog = "dd if=/dev/zero of=/dev/null bs=512M count=1 || exit 7";
            let report = session.perform(limited(hog, 128), None).await;
            let said = failure(&report);
            assert!(said.contains("exit code 7") && said.contains("memory"), "{confine:?}: {said}");
            session.perform(limited("true", 16), None).await;
            // The limit was that job's alone; this one has what all harvested work may take.
            session.perform(script(hog), None).await;
            let most = session.perform(script("ulimit -d"), None).await;
            let most = text(&most, "stdout").trim().parse::<u64>();
            assert!(most.is_ok_and(|kib| kib > 512 << 10), "{confine:?}: no limit at all");
        });
    }
}

fn a_pause_holds_runaways() {
    for isolation in all_ways() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 1);
            let _agent = AgentThread::start(gleaner_agent::Config { isolation, ..config });
            let (mut session, _) = broker.welcome().await;
            session.give(script(&runaway(&folders)), &[None]).await;
            let runaway = wait_for_runaway(&folders);
            let has_run = || nanos_run(runaway);
            for _ in 0..2 {
                let before = has_run();
                wait_until("it to compute", || has_run() > before + 1_000_000);
                let answer = folders.ask(&SocketRequest::Pause { for_ms: None });
                assert_eq!(answer, SocketAnswer::Paused { frozen: 1 });
                wait_until("it to rest", || is_at_rest(runaway));
                let at_rest = has_run();
                std::thread::sleep(Duration::from_millis(100));
                assert_eq!(has_run(), at_rest, "{isolation:?}: paused and yet at work");
                assert_eq!(folders.ask(&SocketRequest::Resume), SocketAnswer::Noted);
            }
            let before = has_run();
            wait_until("it to go on", || has_run() > before + 1_000_000);
        });
    }
}

/// Stopped by a signal, it has another one sent to itself.
fn what_resumes_itself_is_ended() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 1);
        config.isolation = Isolation::ProcessGroups;
        let probe = folders.probe();
        config.allow_commands.push(probe.clone());
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        let probe = probe.to_str().expect("plain");
        // One that does not even come to rest when it is stopped is given back, and is tried again.
        let mut report = None;
        for _ in 0..TRIES {
            session.give(command(&[probe, PROBE_ARGUMENT, "resume", "for ever"]), &[None]).await;
            wait_until("it to compute", || {
                probes(&folders).iter().any(|pid| nanos_run(*pid) > 50_000_000)
            });
            let answer = folders.ask(&SocketRequest::Pause { for_ms: None });
            assert_eq!(answer, SocketAnswer::Paused { frozen: 1 });
            let ended = session.hear_of(|message| match message {
                AgentMessage::Report(report) => Some(Some(report.clone())),
                AgentMessage::Released(_) => Some(None),
                _ => None,
            });
            report = ended.await;
            if report.is_some() {
                break;
            }
            wait_until("it to be gone", || probes(&folders).is_empty());
            assert_eq!(folders.ask(&SocketRequest::Resume), SocketAnswer::Noted);
        }
        let report = report.expect("it is ended for that in one of a few tries");
        assert!(failure(&report).contains("though it was stopped"), "{report:?}");
        wait_until("it to be gone", || probes(&folders).is_empty());
        assert_eq!(folders.ask(&SocketRequest::Resume), SocketAnswer::Noted);
        session.perform(script("true"), None).await;
    });
}

/// The control groups of ours that a process is in.
pub(crate) fn groups_of(pid: i32) -> Vec<PathBuf> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("alive");
    groups_in(&listed).into_iter().filter(|group| group.exists()).collect()
}

/// Those that are an agent's, of groups as the kernel lists them of a process.
pub(crate) fn groups_in(listed: &str) -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there");
    // A hierarchy of the first version is known by its controllers, the unified one by having none.
    let point_of = |controllers: &str| {
        mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words[..] else { return None };
            let is_it = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => controllers.split(',').all(|one| options.split(',').any(|o| o == one)),
                _ => false,
            };
            is_it.then(|| Path::new(point))
        })
    };
    let groups = listed.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_agents = path.contains("/gleaner-");
        is_agents.then_some(())?;
        Some(point_of(controllers)?.join(path.trim_start_matches('/')))
    });
    groups.collect()
}
