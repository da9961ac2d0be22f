//! What release and overhead cost here. Printed; limits are asserted by `tests/run --timing` alone,
//! and far wider than the targets.

use std::process::Command;

use gleaner_calm::{in_some_awaited_round, repeats, within};
use gleaner_hooks::{ProcessStat, SocketAnswer, SocketRequest};
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Verdict};
use gleaner_protocol::job::{Task, WasmTask};
use gleaner_protocol::{Span, boottime};

use crate::Story;
use crate::agent::{AgentProcess, AgentThread, Folders, block_on};
use crate::broker::{Broker, Session, command, kernel};
use crate::module_lives::{BUSY, abort, give, hear_progress};
use crate::releases::{ENDLESS, nanos_run, wait_until_busy};
use crate::wat::program;
use crate::watch::{pause, wait_until};

pub(crate) const STORIES: &[Story] = &[
    ("release_of_32_busy_kernels_takes_milliseconds", release_of_32_busy_kernels),
    ("a_pause_leaves_nothing_running_in_milliseconds", a_pause_leaves_nothing_running),
    ("an_idle_agent_with_64_slots_costs_next_to_nothing", an_idle_agent_costs_little),
    ("a_replica_in_a_warm_runner_costs_little", a_replica_in_a_warm_runner_costs_little),
    ("a_module_starts_and_stops_in_milliseconds", a_module_starts_and_stops_in_milliseconds),
];

/// `GLEANER_RELEASE_TRIALS` asks for more.
pub(crate) fn trials() -> usize {
    let asked = std::env::var("GLEANER_RELEASE_TRIALS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or_else(|| repeats(5))
}

fn release_of_32_busy_kernels() {
    const REPLICAS: usize = 32;
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let cores = u32::try_from(REPLICAS).expect("small");
        let _agent = AgentThread::start(folders.config(&broker.address, cores));
        let (mut session, _) = broker.welcome().await;
        let mut trial = 0;
        in_some_awaited_round(async || {
            let (mut answered, mut stopped) = (Vec::new(), Vec::new());
            for _ in 0..trials() {
                trial += 1;
                session.give(kernel("gametree"), &[Some(ENDLESS); REPLICAS]).await;
                wait_until("all runners", || folders.groups().len() == REPLICAS);
                let groups = wait_until_busy(&folders, REPLICAS);
                let booking = format!("r{trial}");
                let request = folders.book(&booking, None);
                let start = boottime();
                let answer = folders.ask(&request);
                answered.push(boottime() - start);
                assert_eq!(answer, SocketAnswer::Released { frozen: 32, slots_left: 0 });
                for group in groups {
                    wait_until("it to rest", || is_at_rest(group));
                }
                stopped.push(boottime() - start);
                wait_until("the end of all", || folders.groups().is_empty());
                folders.postflight(&booking);
                let reopened = |message: &AgentMessage| match message {
                    AgentMessage::Fragment(fragment) if fragment.cores == cores => Some(()),
                    _ => None,
                };
                session.hear_of(reopened).await;
            }
            println!("hook's question to its answer:          {}", summary(&mut answered));
            println!("hook's question to the last one stopped: {}", summary(&mut stopped));
            is_below("the last one stopped", &mut stopped, Span::from_millis(300))
        })
        .await;
    });
}

/// Looked at from outside: the moment in which the last of the runners is seen to be stopped.
fn a_pause_leaves_nothing_running() {
    const REPLICAS: usize = 2;
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        session.give(kernel("gametree"), &[Some(ENDLESS); REPLICAS]).await;
        let groups = wait_until_busy(&folders, REPLICAS);
        in_some_awaited_round(async || {
            let (mut answered, mut frozen) = (Vec::new(), Vec::new());
            for _ in 0..trials() * 4 {
                let start = boottime();
                let answer = folders.ask(&SocketRequest::Pause { for_ms: None });
                answered.push(boottime() - start);
                assert_eq!(answer, SocketAnswer::Paused { frozen: 2 });
                wait_until("it to rest", || groups.iter().copied().all(is_at_rest));
                frozen.push(boottime() - start);
                assert_eq!(folders.ask(&SocketRequest::Resume), SocketAnswer::Noted);
                // Each goes on where it was.
                assert_eq!(wait_until_busy(&folders, REPLICAS), groups);
            }
            println!("pause to its answer:                    {}", summary(&mut answered));
            println!("pause to the last replica stopped:      {}", summary(&mut frozen));
            is_below("the last replica stopped", &mut frozen, Span::from_millis(50))
        })
        .await;
    });
}

fn an_idle_agent_costs_little() {
    const SECONDS: u64 = 4;
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 64);
        config.preferences.give_way = true;
        let agent = AgentProcess::start(&config, &folders);
        broker.welcome().await;
        let ticks = || {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid()));
            let text = text.expect("it lives");
            let fields: Vec<&str> =
                text.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
            let number = |index: usize| fields[index].parse::<u64>().expect("a number");
            (number(11) + number(12), number(21) * 4 / 1024)
        };
        // In the first round it may still be busy with its own start.
        in_some_awaited_round(async || {
            let (begun, (before, _)) = (boottime(), ticks());
            std::thread::sleep(Span::from_secs(SECONDS).into());
            let ((after, mib), took) = (ticks(), boottime() - begun);
            let permille = (after - before) * 10_000 / took.as_millis();
            within("permille of a core that an idle agent with 64 slots takes", permille, 20)?;
            within("MiB that it takes", mib, 80)
        })
        .await;
    });
}

/// Stopped, dead, or in the freezer: without CPU time between two looks.
pub(crate) fn is_at_rest(pid: i32) -> bool {
    let Ok(stat) = ProcessStat::of(pid) else { return true };
    let before = nanos_run(pid);
    stat.is_dead() || stat.state == 'T' || {
        pause();
        stat.state != 'R' && nanos_run(pid) == before
    }
}

fn a_replica_in_a_warm_runner_costs_little() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        in_some_awaited_round(async || {
            let mut single = Vec::new();
            for _ in 0..repeats(200) {
                let start = boottime();
                session.perform(kernel("noop"), None).await;
                single.push(boottime() - start);
            }
            println!("a kernel replica, lease to report:       {}", summary(&mut single));
            is_below("a replica", &mut single, Span::from_millis(20))
        })
        .await;
        // Some dozens at least: each but the first two is asked for when another has ended.
        let [noops, commands] = [4_000, 2_000].map(|count| repeats(count).max(50));
        let noop = flood(&mut session, kernel("noop"), noops).await;
        println!("noop replicas, 2 slots:                  {noop:.0}/s");
        let truth = flood(&mut session, command(&["/bin/true"]), commands).await;
        let start = boottime();
        let xargs = format!("seq {commands} | xargs -P2 -n1 /bin/true");
        assert!(Command::new("/bin/sh").args(["-c", &xargs]).status().expect("runs").success());
        let bare = commands as f64 / (boottime() - start).as_secs_f64();
        println!(
            "/bin/true, 2 slots: {truth:.0}/s, xargs -P2: {bare:.0}/s, ratio {:.2}",
            truth / bare
        );
    });
}

/// A module that computes nothing, from lease to report, beside a kernel that computes nothing:
/// what is between them is the module's start. And one in a tight loop, from the broker's word to
/// the agent's, after which its core was given back.
fn a_module_starts_and_stops_in_milliseconds() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let agent = AgentThread::start(config.clone());
        let (mut session, _) = broker.welcome().await;
        let module = broker.put(&program("", ""));
        let start = boottime();
        session.perform(Task::Wasm(WasmTask::new(module)), None).await;
        let compiled = boottime() - start;
        let other = broker.put(&program("another", ""));
        session.perform(Task::Wasm(WasmTask::new(other)), None).await;
        agent.stop();
        // Another agent: its runner is cold, and the compiled module lies in the cache.
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        session.perform(kernel("noop"), None).await;
        let mut first = Vec::new();
        let start = boottime();
        session.perform(Task::Wasm(WasmTask::new(module)), None).await;
        first.push(boottime() - start);
        let start = boottime();
        session.perform(Task::Wasm(WasmTask::new(other)), None).await;
        let second = boottime() - start;
        println!("a module, compiled and run:              {}", summary(&mut [compiled]));
        println!("a cached module's first run in a runner: {}", summary(&mut first));
        println!("another one's first run in that runner:  {}", summary(&mut [second]));
        in_some_awaited_round(async || {
            let (mut empty, mut noop) = (Vec::new(), Vec::new());
            for _ in 0..repeats(200) {
                let start = boottime();
                session.perform(Task::Wasm(WasmTask::new(module)), None).await;
                empty.push(boottime() - start);
                let start = boottime();
                session.perform(kernel("noop"), None).await;
                noop.push(boottime() - start);
            }
            println!("a module replica, lease to report:       {}", summary(&mut empty));
            println!("a kernel replica between them:           {}", summary(&mut noop));
            let bound = percentiles(&mut noop).0 + Span::from_millis(20);
            is_below("a module", &mut empty, bound)
        })
        .await;
        let endless = WasmTask::new(broker.put(&program("", BUSY)));
        let mut attempt = 0;
        in_some_awaited_round(async || {
            let (mut stopped, mut warm) = (Vec::new(), 0);
            for _ in 0..trials() {
                attempt += 1;
                let token = give(&mut session, &endless, attempt).await;
                hear_progress(&mut session).await;
                let group = folders.groups();
                let start = boottime();
                abort(&mut session, token).await;
                stopped.push(boottime() - start);
                session.perform(kernel("noop"), None).await;
                warm += usize::from(folders.groups() == group);
            }
            println!("a module in a tight loop, word to end:   {}", summary(&mut stopped));
            println!("runners still warm: {warm} of {}", stopped.len());
            is_below("a module's stop", &mut stopped, Span::from_millis(100))
        })
        .await;
    });
}

/// Runs `count` replicas, always as many as are asked for; returns how many per second.
async fn flood(session: &mut Session, task: Task, count: usize) -> f64 {
    let start = boottime();
    let mut given = 2;
    session.give(task.clone(), &[None; 2]).await;
    for _ in 0..count {
        let report = session.hear_report().await;
        let verdict = Verdict::Counted;
        session.say(&[BrokerMessage::Verdict { token: report.token, verdict }]).await;
        if given < count {
            given += 1;
            session.give(task.clone(), &[None]).await;
        }
    }
    count as f64 / (boottime() - start).as_secs_f64()
}

/// The median, with its limit.
pub(crate) fn is_below(what: &str, spans: &mut [Span], bound: Span) -> Result<(), String> {
    let (p50, _) = percentiles(spans);
    within(what, p50, bound)
}

fn percentiles(spans: &mut [Span]) -> (Span, Span) {
    spans.sort_unstable();
    (spans[spans.len() / 2], spans[(spans.len() * 99 / 100).min(spans.len() - 1)])
}

pub(crate) fn summary(spans: &mut [Span]) -> String {
    let (p50, p99) = percentiles(spans);
    let max = spans.last().copied().unwrap_or_default();
    let ms = |span: Span| span.as_micros() as f64 / 1000.0;
    format!("p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms", ms(p50), ms(p99), ms(max))
}
