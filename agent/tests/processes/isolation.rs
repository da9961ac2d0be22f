//! What tries to get away from its slot, judged from outside, for each way of isolation that this
//! host grants.

use gleaner_agent::Isolation;
use gleaner_hooks::{ProcessStat, SocketAnswer};
use gleaner_isolation::{Ability, Enclosure, Topology};
use gleaner_protocol::control::AgentMessage;
use rustix::process::{Pid, Signal, kill_process};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, failure, script};
use crate::releases::wait_until_busy;
use crate::watch::{wait_for_end, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_release_stops_what_has_left_its_session", a_release_stops_what_has_left_its_session),
    ("nothing_is_left_behind_by_a_killed_agent", nothing_is_left_behind_by_a_killed_agent),
    ("a_hook_stops_runaways_of_an_agent_that_hangs", a_hook_stops_runaways),
    ("what_goes_on_beside_a_render_is_kept_off_its_cores", what_goes_on_is_kept_off),
    ("a_fork_bomb_ends_at_its_limit", a_fork_bomb_ends_at_its_limit),
];

/// Ways that reach what leaves its process group.
fn enclosing() -> Vec<Isolation> {
    let all = [Isolation::Auto, Isolation::Cgroup2, Isolation::Cgroup1];
    let all: Vec<_> = all.into_iter().filter(|way| grants(*way, Ability::Freeze)).collect();
    println!("ways that enclose here: {all:?}");
    all
}

fn grants(way: Isolation, ability: Ability) -> bool {
    let trial = Enclosure::open(way, &format!("trial-{}", std::process::id()));
    let report = trial.report();
    trial.remove().expect("it is empty");
    report.abilities.iter().any(|one| one.ability == ability && one.provider.is_some())
}

/// Forks twice, begins a session of its own and computes for ever; notes its number in a file.
fn runaway(folders: &Folders) -> String {
    let file = folders.path("runaway");
    let inner = format!("echo $$ > {0}.new; mv {0}.new {0}; while :; do :; done", file.display());
    format!("(setsid sh -c '{inner}' &) ; sleep 1000")
}

fn wait_for_runaway(folders: &Folders) -> i32 {
    let read = || std::fs::read_to_string(folders.path("runaway")).ok();
    wait_until("the runaway", || read().is_some());
    let pid = read().and_then(|text| text.trim().parse().ok()).expect("a number");
    let stat = ProcessStat::of(pid).expect("alive");
    assert_eq!((stat.session, stat.pgid), (pid, pid), "it has left its group and session");
    pid
}

fn a_release_stops_what_has_left_its_session() {
    for isolation in enclosing() {
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
                AgentMessage::Fragment(fragment) if fragment.slots == 2 => Some(()),
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
            agent.child.kill().expect("ours");
            agent.child.wait().expect("ours");
            wait_for_end(runaway);
            wait_until("its groups to go", || groups.iter().all(|group| !group.exists()));
            let tasks = folders.path("work").join("tasks");
            let is_empty = || tasks.read_dir().is_ok_and(|mut left| left.next().is_none());
            wait_until("its folders to go", is_empty);
        });
    }
}

fn a_hook_stops_runaways() {
    for isolation in enclosing() {
        block_on(async {
            let folders = Folders::new();
            let mut broker = Broker::start().await;
            let config = folders.config(&broker.address, 2);
            let config = gleaner_agent::Config { isolation, ..config };
            let agent = AgentProcess::start(&config, &folders);
            let (mut session, _) = broker.welcome().await;
            session.give(script(&runaway(&folders)), &[None]).await;
            let runaway = wait_for_runaway(&folders);
            let pid = Pid::from_raw(agent.pid()).expect("a number");
            kill_process(pid, Signal::STOP).expect("ours");
            let report = folders.run_dir().stop_groups();
            assert_eq!(report.troubles, [""; 0]);
            wait_for_end(runaway);
        });
    }
}

fn what_goes_on_is_kept_off() {
    let machine = Topology::of_this_machine();
    let beside = |booked| {
        let mut cpus = machine.beside(booked);
        cpus.sort_unstable();
        cpus
    };
    let left = beside(1);
    if left.is_empty() || !grants(Isolation::Auto, Ability::Cpus) {
        println!("work cannot be kept off a core here");
        return;
    }
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, machine.cpus()));
        let (mut session, _) = broker.welcome().await;
        session.give(script("while :; do :; done"), &[None]).await;
        let runner = wait_until_busy(&folders, 1)[0];
        assert_eq!(cpus_of(runner), beside(0));
        folders.preflight("render", Some(1));
        wait_until("it to be kept off", || cpus_of(runner) == left);
        folders.postflight("render");
        wait_until("it to have all again", || cpus_of(runner) == beside(0));
    });
}

/// The CPUs that a process may run on, in order.
fn cpus_of(pid: i32) -> Vec<u32> {
    let mask = rustix::thread::sched_getaffinity(Pid::from_raw(pid)).expect("alive");
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).expect("small");
    (0..most).filter(|cpu| mask.is_set(*cpu as usize)).collect()
}

fn a_fork_bomb_ends_at_its_limit() {
    if !grants(Isolation::Auto, Ability::Processes) {
        println!("nothing counts processes here");
        return;
    }
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        let bomb = "i=0; while [ $i -lt 1100 ]; do sleep 1000 & i=$((i+1)); done; echo all";
        session.give(script(bomb), &[None]).await;
        let report = session.hear_report().await;
        let said = failure(&report);
        assert!(said.contains("fork"), "{said}");
        // Neither the slot nor the host is harmed.
        session.perform(script("true"), None).await;
    });
}

/// The control groups of ours that a process is in.
pub(crate) fn groups_of(pid: i32) -> Vec<std::path::PathBuf> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("alive");
    let ours = text.lines().filter_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        path.contains("/gleaner-").then(|| path.trim_start_matches('/').to_owned())
    });
    let below: Vec<String> = ours.collect();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there");
    let points = mounts.lines().filter(|line| line.contains(" cgroup"));
    let points = points.filter_map(|line| line.split(' ').nth(1));
    let all = points.flat_map(|point| below.iter().map(move |path| format!("{point}/{path}")));
    all.map(Into::into).filter(|path: &std::path::PathBuf| path.exists()).collect()
}
