//! Getting out of the way: hooks, freezing, killing, judged from outside.

use gleaner_agent::Config;
use gleaner_hooks::{ProcessStat, SocketAnswer, SocketRequest};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Fragment, Opening, ReleaseReason};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::job::OnRelease;
use gleaner_protocol::{BookingId, LeaseToken, Origin, Span, boottime};

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
    ("what_a_job_wants_kept_goes_on_after_the_render", what_is_kept_goes_on_after_the_render),
    ("what_is_kept_for_longer_than_the_host_allows_is_killed", what_is_kept_too_long_is_killed),
    ("a_hook_that_gave_the_agent_up_is_obeyed_when_it_wakes", a_hook_that_gave_the_agent_up),
];

/// An item that keeps a core busy for longer than any story takes.
pub(crate) const ENDLESS: &str =
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1;depth=12";

/// CPU time after which a replica computes for certain. A slot looks once more whether a render
/// has come when it has handed one over: who lets a render start before it has looked finds that
/// replica given up.
const COMPUTES_NS: u64 = 20_000_000;

/// Waits until each of `count` runners is busy; returns their groups.
pub(crate) fn wait_until_busy(folders: &Folders, count: usize) -> Vec<i32> {
    wait_until("the runners", || folders.groups().len() == count);
    // A runner computes as it starts, too.
    let running = || match folders.ask(&SocketRequest::Standing) {
        SocketAnswer::Standing(standing) => standing.running as usize,
        other => panic!("{other:?}"),
    };
    wait_until("the replicas", || running() == count);
    let groups = folders.groups();
    let before: Vec<u64> = groups.iter().map(|group| nanos_run(*group)).collect();
    for (group, before) in groups.iter().zip(before) {
        wait_until("it to compute", || nanos_run(*group) > before + COMPUTES_NS);
    }
    groups
}

/// CPU time of the first threads of a runner and of its descendants that run, in nanoseconds.
pub(crate) fn nanos_run(group: i32) -> u64 {
    let of_one = |pid: i32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    let children = |pid: i32| -> Vec<i32> {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    // A kernel computes in the runner itself, a command in a process that is some generations away.
    let (mut all, mut seen) = (vec![group], 0);
    while let Some(pid) = all.get(seen) {
        all.extend(children(*pid));
        seen += 1;
    }
    all.into_iter().filter_map(of_one).sum()
}

pub(crate) async fn hear_fragment(session: &mut Session) -> Fragment {
    session
        .hear_of(|message| match message {
            AgentMessage::Fragment(fragment) => Some(*fragment),
            _ => None,
        })
        .await
}

/// Waits until so many cores are given; that a farm leaves less memory is told before.
async fn hear_cores(session: &mut Session, cores: u32) {
    while hear_fragment(session).await.cores != cores {}
}

async fn hear_released(session: &mut Session, count: usize) -> Vec<ReleaseReason> {
    let mut reasons = Vec::new();
    while reasons.len() < count {
        reasons.push(session.hear_release().await);
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
        assert_eq!(hear_fragment(&mut session).await.cores, 0);
        wait_until("the run folder to be clear", || folders.groups().is_empty());
        folders.postflight("r1");
        assert_eq!(hear_fragment(&mut session).await.cores, 4, "a desktop opens again");
    });
}

fn a_render_on_some_cores() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 4));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS); 3]).await;
        wait_until_busy(&folders, 3);
        let answer = folders.preflight("r1", Some(2));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 2 });
        // Which one loses least is a matter of CPU time, that a busy machine shares out as it likes:
        // the slot table's own tests say it.
        session.hear_of(|message| matches!(message, AgentMessage::Released(_)).then_some(())).await;
        assert_eq!(hear_fragment(&mut session).await.cores, 2);
        wait_until("it to be gone", || folders.groups().len() == 2);
        let answer = folders.preflight("r2", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 1 });
        assert_eq!(hear_fragment(&mut session).await.cores, 1);
        let answer = folders.preflight("r3", Some(1));
        assert_eq!(answer, SocketAnswer::Released { frozen: 1, slots_left: 0 });
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
        assert_eq!(hello.fragment.cores, 0);
        session.give(kernel("noop"), &[None]).await;
        assert_eq!(hear_released(&mut session, 1).await, [ReleaseReason::FragmentClosed]);
        let opening = |epoch| {
            let valid_ms = 3_600_000;
            let ended = Vec::new();
            BrokerMessage::Opening(Opening {
                epoch,
                cores: 3,
                memory_mib: 4_096,
                booked_cores: 0,
                gpus: None,
                valid_ms,
                ended,
                seal: None,
            })
        };
        session.say(&[opening(hello.fragment.epoch)]).await;
        hear_cores(&mut session, 3).await;
        session.give(kernel("gametree"), &[Some(ENDLESS); 3]).await;
        wait_until_busy(&folders, 3);
        folders.preflight("r1", Some(2));
        let fragment = hear_fragment(&mut session).await;
        assert_eq!((fragment.cores, fragment.epoch.count), (2, 1));
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
                memory_mib: 4_096,
                booked_cores: 0,
                gpus: None,
                valid_ms: 50,
                ended: Vec::new(),
                seal: None,
            })])
            .await;
        let before = boottime();
        assert_eq!(hear_fragment(&mut session).await.cores, 0, "nobody confirms it");
        gleaner_calm::assert_within("it closes", boottime() - before, Span::from_secs(30));
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
        let opening = Opening {
            epoch,
            cores: 2,
            memory_mib: 4_096,
            booked_cores: 0,
            gpus: None,
            valid_ms: 3_600_000,
            ended: Vec::new(),
            seal: None,
        };
        session.say(&[BrokerMessage::Opening(opening.clone())]).await;
        hear_cores(&mut session, 2).await;
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

async fn hear_frozen(session: &mut Session) -> (LeaseToken, bool) {
    session
        .hear_of(|message| match message {
            AgentMessage::Frozen { token, frozen } => Some((*token, *frozen)),
            _ => None,
        })
        .await
}

fn what_is_kept_goes_on_after_the_render() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        session.on_release = OnRelease::Keep { for_s: 600 };
        let kept = session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        let kept = [kept, session.give(script("while :; do :; done"), &[None]).await].concat();
        let groups = wait_until_busy(&folders, 2);
        let answer = folders.preflight("r1", None);
        assert_eq!(answer, SocketAnswer::Released { frozen: 2, slots_left: 0 });
        for token in &kept {
            assert_eq!(hear_frozen(&mut session).await, (*token, true));
        }
        assert_eq!(hear_fragment(&mut session).await.cores, 0);
        for group in &groups {
            for member in members(*group) {
                wait_until("it to stop", || is_at_rest(member.pid));
            }
        }
        assert_eq!(folders.groups(), groups, "frozen and not killed");
        folders.postflight("r1");
        assert_eq!(hear_fragment(&mut session).await.cores, 2);
        for token in &kept {
            assert_eq!(hear_frozen(&mut session).await, (*token, false));
        }
        assert_eq!(wait_until_busy(&folders, 2), groups, "the same as before");
    });
}

fn what_is_kept_too_long_is_killed() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = Config { keep_s_max: 1, ..folders.config(&broker.address, 1) };
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        session.on_release = OnRelease::Keep { for_s: 600 };
        let kept = session.give(kernel("gametree"), &[Some(ENDLESS)]).await;
        wait_until_busy(&folders, 1);
        let begun = boottime();
        folders.preflight("r1", None);
        assert_eq!(hear_frozen(&mut session).await, (kept[0], true));
        assert_eq!(hear_released(&mut session, 1).await, [ReleaseReason::Preempted]);
        let kept_for = boottime() - begun;
        assert!(kept_for > Span::from_millis(900), "it was kept for a second, not for {kept_for}");
        wait_until("its end", || folders.groups().is_empty());
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
            memory_mib: 4_096,
            booked_cores: 0,
            gpus: None,
            valid_ms: 3_600_000,
            ended: Vec::new(),
            seal: None,
        };
        session.say(&[BrokerMessage::Opening(opening.clone())]).await;
        hear_cores(&mut session, 2).await;
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
