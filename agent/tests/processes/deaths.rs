//! Ends of agents and of runners, orderly and not.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use gleaner_agent::{Liveness, RUNNER_ARGUMENT, run};
use gleaner_hooks::{ProcessStat, TaskGroup};
use gleaner_protocol::control::{AgentMessage, ReleaseReason};
use gleaner_protocol::{Span, boottime};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, command, failure, kernel, script};
use crate::isolation::groups_of;
use crate::releases::{ENDLESS, wait_until_busy};
use crate::watch::{
    LONG, members, name_of, spawner_of, wait_for_end, wait_for_end_of_group, wait_until,
};

pub(crate) const STORIES: &[Story] = &[
    ("no_work_outlives_a_killed_agent", no_work_outlives_a_killed_agent),
    ("an_orderly_end_gives_everything_back", an_orderly_end_gives_everything_back),
    ("a_runner_that_dies_is_a_failure_and_is_replaced", a_runner_that_dies_is_replaced),
    ("an_idle_runner_that_dies_is_replaced_unnoticed", an_idle_runner_that_dies_is_replaced),
    ("a_spawner_that_dies_is_replaced_unnoticed", a_spawner_that_dies_is_replaced),
    ("a_spawner_that_stands_still_is_replaced", a_spawner_that_stands_still_is_replaced),
    ("an_agent_stops_what_an_earlier_one_left", an_agent_stops_what_an_earlier_one_left),
    ("a_second_agent_on_the_same_folders_is_refused", a_second_agent_is_refused),
    ("a_runner_without_an_agent_does_nothing", a_runner_without_an_agent_does_nothing),
    ("what_must_not_hang_is_seen_to_go_on", what_must_not_hang_is_seen_to_go_on),
];

fn no_work_outlives_a_killed_agent() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut agent = AgentProcess::start(&folders.config(&broker.address, 3), &folders);
        let (mut session, first) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let stubborn = "trap '' TERM HUP INT; sleep 1000 & while :; do :; done";
        session.give(script(stubborn), &[None]).await;
        session.perform(kernel("noop"), None).await;
        let groups = wait_until_busy_but_idle_ones(&folders);
        let spawner = spawner_of(groups[0]);
        agent.child.kill().expect("ours");
        agent.child.wait().expect("ours");
        groups.iter().copied().for_each(wait_for_end_of_group);
        wait_for_end(spawner);
        // Another agent comes up in its place, and says that it holds nothing.
        let _agent = AgentThread::start(folders.config(&broker.address, 3));
        let (_session, second) = broker.welcome().await;
        assert_ne!(first.incarnation, second.incarnation);
        assert_eq!(second.held, []);
        assert_eq!(folders.groups(), [0; 0]);
    });
}

fn wait_until_busy_but_idle_ones(folders: &Folders) -> Vec<i32> {
    wait_until("the runners", || folders.groups().len() == 3);
    let groups = folders.groups();
    wait_until("the command", || groups.iter().any(|group| members(*group).len() >= 3));
    groups
}

fn an_orderly_end_gives_everything_back() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        let tokens = session.give(kernel("gametree"), &[Some(ENDLESS); 2]).await;
        let groups = wait_until_busy(&folders, 2);
        let enclosures = groups_of(groups[0]);
        let stopping = std::thread::spawn(move || agent.stop());
        let mut given_back = Vec::new();
        while given_back.len() < 2 {
            if let AgentMessage::Released(released) = session.hear().await {
                assert_eq!(released.reason, ReleaseReason::FragmentClosed);
                given_back.push(released.token);
            }
        }
        given_back.sort();
        assert_eq!(given_back, tokens);
        session.hear_end().await;
        stopping.join().expect("an orderly end");
        assert!(groups.iter().all(|group| members(*group).is_empty()));
        assert!(enclosures.iter().all(|group| !group.exists()));
        assert_eq!(folders.groups(), [0; 0]);
        assert!(!folders.run_dir().socket_path().exists());
    });
}

fn a_runner_that_dies_is_replaced() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let group = wait_until_busy(&folders, 1)[0];
        gleaner_hooks::kill(group).expect("there");
        let report = session.hear_report().await;
        assert!(failure(&report).contains("ended from outside"), "{report:?}");
        assert!(failure(&report).contains("signal: 9"), "{report:?}");
        session.perform(kernel("noop"), None).await;
        assert_ne!(folders.groups(), [group]);
    });
}

fn an_idle_runner_that_dies_is_replaced() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        for _ in 0..5 {
            session.perform(kernel("noop"), None).await;
            let group = folders.groups()[0];
            gleaner_hooks::kill(group).expect("there");
            wait_until("it to be forgotten", || folders.groups().is_empty());
        }
    });
}

fn a_spawner_that_dies_is_replaced() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let first = wait_until_busy(&folders, 1)[0];
        let spawner = spawner_of(first);
        assert_eq!(name_of(spawner).as_deref(), Some("gleaner-spawner"));
        gleaner_hooks::kill(spawner).expect("there");
        session.perform(kernel("noop"), None).await;
        let groups = folders.groups();
        let second = *groups.iter().find(|group| **group != first).expect("another runner");
        assert_ne!(spawner_of(second), spawner);
        // What was started in the first one is none the worse for it.
        assert!(!members(first).is_empty());
        let path = |pid: i32| format!("/proc/{pid}/autogroup");
        let is_last = |pid: i32| {
            fs::read_to_string(path(pid)).map_or(true, |text| text.trim_end().ends_with("nice 19"))
        };
        // As a hook does that stops all by itself. Not there where the kernel weighs no sessions.
        [first, second].iter().for_each(|pid| drop(fs::write(path(*pid), "0")));
        let (mut newest, end) = (second, boottime() + Span::from(LONG));
        while ![first, newest].into_iter().all(is_last) {
            assert!(boottime() < end, "they are never last again");
            // Whenever a runner is started the agent says so, unless it has just done.
            gleaner_hooks::kill(newest).expect("there");
            wait_until("it to be forgotten", || folders.groups() == [first]);
            session.perform(kernel("noop"), None).await;
            newest = *folders.groups().iter().find(|group| **group != first).expect("another");
        }
        let second = newest;
        let spawner = spawner_of(second);
        agent.stop();
        assert!([first, second].iter().all(|group| members(*group).is_empty()));
        assert!(ProcessStat::of(spawner).is_err(), "it was ended, and waited for");
    });
}

fn a_spawner_that_stands_still_is_replaced() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let first = wait_until_busy(&folders, 1)[0];
        let spawner = spawner_of(first);
        gleaner_hooks::freeze(spawner).expect("there");
        // It takes some seconds until it is given up; the replica is none the worse for that.
        session.perform(kernel("noop"), None).await;
        let groups = folders.groups();
        let second = *groups.iter().find(|group| **group != first).expect("another runner");
        assert_ne!(spawner_of(second), spawner);
        wait_until("the first one to be killed", || {
            ProcessStat::of(spawner).map_or(true, |stat| stat.is_dead())
        });
    });
}

fn an_agent_stops_what_an_earlier_one_left() {
    block_on(async {
        let folders = Folders::new();
        let broker = Broker::start().await;
        let mut left = Command::new("/bin/sleep")
            .arg("1000")
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .expect("starts");
        let pid = i32::try_from(left.id()).expect("a process number");
        let group = TaskGroup::of_leader(pid).expect("leads");
        folders.run_dir().register_group(&group).expect("there");
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        wait_for_end(pid);
        assert_eq!(folders.groups(), [0; 0]);
        left.wait().expect("ours");
    });
}

fn a_second_agent_is_refused() {
    block_on(async {
        let (folders, others) = (Folders::new(), Folders::new());
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let _agent = AgentThread::start(config.clone());
        let (mut session, _) = broker.welcome().await;
        session.perform(kernel("noop"), None).await;
        let groups = folders.groups();
        let never = |_: Liveness| panic!("it must not come up");
        let error = run(config.clone(), never, std::future::pending()).await.expect_err("refused");
        assert!(error.to_string().contains("another agent"), "{error}");
        let mut same_run_dir = others.config(&broker.address, 1);
        same_run_dir.run_dir = config.run_dir;
        let error = run(same_run_dir, never, std::future::pending()).await.expect_err("refused");
        assert!(error.to_string().contains("another agent"), "{error}");
        session.perform(kernel("noop"), None).await;
        assert_eq!(folders.groups(), groups, "the first was not disturbed");
    });
}

fn a_runner_without_an_agent_does_nothing() {
    let status = Command::new(std::env::current_exe().expect("there"))
        .arg(RUNNER_ARGUMENT)
        .stdin(Stdio::null())
        .status()
        .expect("starts");
    assert_eq!(status.code(), Some(2));
    block_on(async {
        // A task cannot make itself one either: it leads no group.
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let own = std::env::current_exe().expect("there");
        let own = own.to_str().expect("plain").to_owned();
        let mut config = folders.config(&broker.address, 1);
        config.allow_commands.push(own.clone().into());
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        let task = command(&[&own, RUNNER_ARGUMENT]);
        assert_eq!(failure(&session.perform(task, None).await), "it ended with exit code 2");
    });
}

fn what_must_not_hang_is_seen_to_go_on() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 1));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        wait_until_busy(&folders, 1);
        let turns = |part: &str| {
            let turns = agent.turns().into_iter().find(|(name, _)| name.contains(part));
            turns.expect("one of its parts").1
        };
        // The first two go on when there is something to do.
        let parts = ["answers hooks", "kills", "looks at the host"];
        let before = parts.map(turns);
        folders.preflight("render", None);
        let goes_on = |(part, before): (&&str, &u64)| turns(part) > *before;
        wait_until("a turn of each", || parts.iter().zip(&before).all(goes_on));
        assert_eq!(turns("workers"), 0, "none are watched");
    });
}
