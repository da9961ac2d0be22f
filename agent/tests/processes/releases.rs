//! Getting out of the way: hooks, freezing, killing, judged from outside.

use gleaner_hooks::{ProcessStat, SocketAnswer, SocketRequest};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Fragment, Opening, ReleaseReason};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, Origin, Span, boottime};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, kernel, script};
use crate::figures::is_at_rest;
use crate::watch::{members, wait_for_end_of_group, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("a_render_on_the_whole_host_ends_everything", a_render_on_the_whole_host_ends_everything),
    ("a_render_on_some_cores_leaves_the_rest_running", a_render_on_some_cores),
    ("a_farm_host_runs_only_what_the_monitor_left_it", a_farm_host_runs_only_what_is_left),
    ("an_epoch_that_a_hook_could_not_raise_is_raised_by_the_agent", an_epoch_is_raised),
    ("a_hook_that_gave_the_agent_up_is_obeyed_when_it_wakes", a_hook_that_gave_the_agent_up),
];

/// An item that keeps a core busy for longer than any story takes.
pub(crate) const ENDLESS: &str =
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1;depth=12";

/// Waits until each of `count` runners is busy; returns their groups.
pub(crate) fn wait_until_busy(folders: &Folders, count: usize) -> Vec<i32> {
    wait_until("the runners", || folders.groups().len() == count);
    let groups = folders.groups();
    let before: Vec<u64> = groups.iter().map(|group| nanos_run(*group)).collect();
    for (group, before) in groups.iter().zip(before) {
        wait_until("it to compute", || nanos_run(*group) > before + 200_000);
    }
    groups
}

/// CPU time of a runner and its command, in nanoseconds.
pub(crate) fn nanos_run(group: i32) -> u64 {
    let of_one = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    // A kernel computes in the runner itself, a command in its child.
    let children = std::fs::read_to_string(format!("/proc/{group}/task/{group}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| of_one(pid.parse().ok()?));
    of_one(group).unwrap_or(0) + children.sum::<u64>()
}

pub(crate) async fn hear_fragment(session: &mut Session) -> Fragment {
    session
        .hear_of(|message| match message {
            AgentMessage::Fragment(fragment) => Some(*fragment),
            _ => None,
        })
        .await
}

async fn hear_released(session: &mut Session, count: usize) -> Vec<ReleaseReason> {
    let mut reasons = Vec::new();
    while reasons.len() < count {
        reasons.push(
            session
                .hear_of(|message| match message {
                    AgentMessage::Released(released) => Some(released.reason.clone()),
                    _ => None,
                })
                .await,
        );
    }
    reasons
}

fn a_render_on_the_whole_host_ends_everything() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 4));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS); 2]).await;
        session.give(script("sleep 1000 & while :; do :; done"), &[None; 2]).await;
        let groups = wait_until_busy(&folders, 4);
        let answer = folders.preflight("r1", None);
        assert_eq!(answer, SocketAnswer::Released { frozen: 4, slots_left: 0 });
        for group in groups {
            // From the answer on nothing of it may run any more: it is stopped, or dead.
            for member in members(group) {
                wait_until("it to stop", || is_at_rest(member.pid));
            }
            wait_for_end_of_group(group);
        }
        assert_eq!(hear_released(&mut session, 4).await, vec![ReleaseReason::Preempted; 4]);
        assert_eq!(hear_fragment(&mut session).await.slots, 0);
        wait_until("the run folder to be clear", || folders.groups().is_empty());
        folders.postflight("r1");
        assert_eq!(hear_fragment(&mut session).await.slots, 4, "a desktop opens again");
    });
}

fn a_render_on_some_cores() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 4));
        let (mut session, _) = broker.welcome().await;
        let old = session.give(kernel("gametree"), &[Some(ENDLESS); 2]).await;
        wait_until_busy(&folders, 2);
        let young = session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        wait_until_busy(&folders, 3);
        let answer = folders.preflight("r1", Some(2));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 2 });
        let released = session
            .hear_of(|message| match message {
                AgentMessage::Released(released) => Some(released.token),
                _ => None,
            })
            .await;
        assert_eq!(released, young[0], "the one that loses least");
        assert_eq!(hear_fragment(&mut session).await.slots, 2);
        wait_until("it to be gone", || folders.groups().len() == 2);
        let answer = folders.preflight("r2", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 1 });
        assert_eq!(hear_fragment(&mut session).await.slots, 1);
        let answer = folders.preflight("r3", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
        drop(old);
    });
}

fn a_farm_host_runs_only_what_is_left() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 4);
        config.origin = Origin::Farm;
        let _agent = AgentThread::start(config);
        let (mut session, hello) = broker.welcome().await;
        assert_eq!(hello.fragment.slots, 0);
        session.give(kernel("noop"), &[None]).await;
        assert_eq!(hear_released(&mut session, 1).await, [ReleaseReason::FragmentClosed]);
        let opening = |epoch| {
            let valid_ms = 3_600_000;
            let ended = Vec::new();
            BrokerMessage::Opening(Opening { epoch, cores: 3, memory_mib: 0, valid_ms, ended })
        };
        session.say(&[opening(hello.fragment.epoch)]).await;
        assert_eq!(hear_fragment(&mut session).await.slots, 3);
        session.give(kernel("gametree"), &[Some(ENDLESS); 3]).await;
        wait_until_busy(&folders, 3);
        folders.preflight("r1", Some(2));
        let fragment = hear_fragment(&mut session).await;
        assert_eq!((fragment.slots, fragment.epoch.count), (2, 1));
        // Late news of the time before.
        session.say(&[opening(hello.fragment.epoch)]).await;
        let refused = session
            .hear_of(|message| match message {
                AgentMessage::OpeningRefused { decided_on, current } => {
                    Some((*decided_on, *current))
                }
                _ => None,
            })
            .await;
        assert_eq!(refused, (hello.fragment.epoch, fragment.epoch));
        session
            .say(&[BrokerMessage::Opening(Opening {
                epoch: fragment.epoch,
                cores: 2,
                memory_mib: 0,
                valid_ms: 50,
                ended: Vec::new(),
            })])
            .await;
        let before = boottime();
        assert_eq!(hear_fragment(&mut session).await.slots, 0, "nobody confirms it");
        assert!(boottime() - before < Span::from_secs(30));
    });
}

fn an_epoch_is_raised() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 2);
        config.origin = Origin::Farm;
        let _agent = AgentThread::start(config);
        let (mut session, hello) = broker.welcome().await;
        let epoch = hello.fragment.epoch;
        let opening =
            Opening { epoch, cores: 2, memory_mib: 0, valid_ms: 3_600_000, ended: Vec::new() };
        session.say(&[BrokerMessage::Opening(opening.clone())]).await;
        assert_eq!(hear_fragment(&mut session).await.slots, 2);
        let booking = BookingId::new("r1").expect("plain");
        let booked = Booked::default();
        folders.ask(&SocketRequest::Preflight { booking, booked, epoch: None });
        // No hook has left a trace in the run folder; the agent does it in its stead.
        let closed = hear_fragment(&mut session).await;
        assert_eq!(closed.epoch.count, epoch.count + 1);
        session.say(&[BrokerMessage::Opening(opening)]).await;
        let refused = session
            .hear_of(|message| match message {
                AgentMessage::OpeningRefused { current, .. } => Some(*current),
                _ => None,
            })
            .await;
        assert_eq!(refused, closed.epoch);
    });
}

fn a_hook_that_gave_the_agent_up() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 2);
        config.origin = Origin::Farm;
        let agent = AgentProcess::start(&config, &folders);
        let (mut session, hello) = broker.welcome().await;
        let opening = Opening {
            epoch: hello.fragment.epoch,
            cores: 2,
            memory_mib: 0,
            valid_ms: 3_600_000,
            ended: Vec::new(),
        };
        session.say(&[BrokerMessage::Opening(opening.clone())]).await;
        assert_eq!(hear_fragment(&mut session).await.slots, 2);
        session.give(kernel("gametree"), &[Some(ENDLESS); 2]).await;
        let groups = wait_until_busy(&folders, 2);
        let pid = rustix::process::Pid::from_raw(agent.pid()).expect("a process number");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("ours");
        wait_until("the agent to hang", || {
            ProcessStat::of(agent.pid()).is_ok_and(|stat| stat.state == 'T')
        });
        // What the hook does by itself.
        let run_dir = folders.run_dir();
        run_dir.raise_epoch().expect("there");
        assert_eq!(run_dir.stop_groups().stopped, 2);
        for group in groups {
            wait_until("its end", || members(group).is_empty());
        }
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("ours");
        assert_eq!(hear_released(&mut session, 2).await, vec![ReleaseReason::Preempted; 2]);
        // The opening stands, but no longer on this epoch: it is only told where it is.
        session.say(&[BrokerMessage::Opening(opening)]).await;
        let current = session
            .hear_of(|message| match message {
                AgentMessage::OpeningRefused { current, .. } => Some(*current),
                _ => None,
            })
            .await;
        assert_eq!(current.count, hello.fragment.epoch.count + 1);
    });
}
