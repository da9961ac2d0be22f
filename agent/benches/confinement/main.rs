//! What confinement adds to the start of a command, of a kernel and of a module.
//!
//! Two agents stand side by side, one that confines its work and one that does not, and are given the
//! same work in turns; each has one slot. What is timed is the whole way of a replica, from its lease
//! to its report, so that nothing that confinement costs is left out; what both have in common is in
//! both. It is timed with a warm runner, and with one that has to be started first. `/bin/true`
//! started by this program says what a process costs here at all.
//!
//! Harvested work runs last: on a machine that does something else, what is timed is how long that
//! has the cores, and only the fastest tenth says what a start costs.
//!
//! `cargo bench -p gleaner-agent [-- ROUNDS]`

#[expect(dead_code, reason = "stories need more of it")]
#[path = "../../tests/processes/agent.rs"]
mod agent;
#[expect(dead_code, reason = "stories need more of it")]
#[path = "../../tests/processes/broker.rs"]
mod broker;
#[expect(dead_code, reason = "stories need more of it")]
#[path = "../../tests/processes/wat.rs"]
mod wat;
#[expect(dead_code, reason = "stories need more of it")]
#[path = "../../tests/processes/watch.rs"]
mod watch;

use std::process::Command;

use gleaner_agent::{CommandRules, Config, Confine};
use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::job::{Task, WasmTask};
use gleaner_protocol::{Span, boottime};

use agent::{AgentThread, Folders, block_on};
use broker::{Broker, Session, command, kernel, output};
use wat::program;
use watch::wait_until;

const PROGRAM: &str = "/bin/true";
const ROUNDS: usize = 500;

fn main() {
    gleaner_agent::run_as_runner_if_asked();
    let asked = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    block_on(compare(asked.unwrap_or(ROUNDS)));
}

/// An agent and the link to it.
struct Host {
    session: Session,
    folders: Folders,
    _agent: AgentThread,
    broker: Broker,
}

impl Host {
    async fn start(confine: Confine) -> Self {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let commands = CommandRules { confine, ..CommandRules::default() };
        let agent = AgentThread::start(Config { commands, ..config });
        let (session, _) = broker.welcome().await;
        Self { session, folders, _agent: agent, broker }
    }

    /// What its agent says of commands.
    fn says(&self) -> String {
        match self.folders.ask(&SocketRequest::Standing) {
            SocketAnswer::Standing(standing) => standing.commands.expect("some are listed"),
            other => panic!("{other:?}"),
        }
    }

    /// From lease to report.
    async fn time(&mut self, work: Work) -> Span {
        let task = work.task(&self.broker);
        let start = boottime();
        let report = self.session.perform(task, None).await;
        let took = boottime() - start;
        output(&report);
        took
    }

    /// The same, with a runner that is started for it.
    async fn time_start(&mut self, work: Work) -> Span {
        for group in self.folders.groups() {
            gleaner_hooks::kill(group).expect("a runner");
        }
        wait_until("its runner to be gone", || self.folders.groups().is_empty());
        self.time(work).await
    }
}

/// What is run.
#[derive(Debug, Clone, Copy)]
enum Work {
    Command,
    Kernel,
    Module,
}

impl Work {
    fn task(self, broker: &Broker) -> Task {
        match self {
            Self::Command => command(&[PROGRAM]),
            Self::Kernel => kernel("noop"),
            Self::Module => Task::Wasm(WasmTask::new(broker.put(&program("", "")))),
        }
    }
}

async fn compare(rounds: usize) {
    let mut free = Host::start(Confine::Off).await;
    let mut confined = Host::start(Confine::Required).await;
    let says = confined.says();
    println!("commands are {says}; {rounds} times each, in turns; 1 of 10 with a runner's start");
    if !says.starts_with("confined by ") {
        return;
    }
    let mut bare = Vec::new();
    for _ in 0..rounds {
        let start = boottime();
        assert!(Command::new(PROGRAM).status().expect("it starts").success());
        bare.push(boottime() - start);
    }
    print("/bin/true, by this program", tenths(&mut bare));
    for work in [Work::Command, Work::Kernel, Work::Module] {
        // The first ones start the runners, and compile the module.
        free.time(work).await;
        confined.time(work).await;
        let mut times: [Vec<Span>; 4] = Default::default();
        for _ in 0..rounds {
            times[0].push(free.time(work).await);
            times[1].push(confined.time(work).await);
        }
        for _ in 0..rounds.div_ceil(10).max(10) {
            times[2].push(free.time_start(work).await);
            times[3].push(confined.time_start(work).await);
        }
        let [free_warm, confined_warm, free_cold, confined_cold] =
            times.map(|mut times| tenths(&mut times));
        println!("{work:?}, from lease to report");
        print("  warm runner, free", free_warm);
        print("  warm runner, confined", confined_warm);
        print("  new runner, free", free_cold);
        print("  new runner, confined", confined_cold);
        print("  what its start costs more", [0, 1, 2].map(|at| confined_cold[at] - free_cold[at]));
    }
}

fn print(what: &str, [p10, p50, p90]: [f64; 3]) {
    println!("{what:28} p10 {p10:6.2} ms, p50 {p50:6.2} ms, p90 {p90:6.2} ms");
}

/// What one, five and nine of ten did not exceed, in ms.
fn tenths(times: &mut [Span]) -> [f64; 3] {
    times.sort_unstable();
    [1, 5, 9].map(|tenth| times[times.len() * tenth / 10].as_secs_f64() * 1_000.0)
}
