//! What confinement adds to the start of a command.
//!
//! Two agents stand side by side, one that confines its commands and one that does not, and are
//! given `/bin/true` in turns; each has one slot, whose runner is warm. What is timed is the whole
//! way of a replica, from its lease to its report, so that nothing that confinement costs is left
//! out; what both have in common is in both. The same program started by this one says what a
//! process costs here at all.
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
#[path = "../../tests/processes/watch.rs"]
mod watch;

use std::process::Command;

use gleaner_agent::{CommandRules, Config, Confine};
use gleaner_hooks::{SocketAnswer, SocketRequest};
use gleaner_protocol::{Span, boottime};

use agent::{AgentThread, Folders, block_on};
use broker::{Broker, Session, command, output};

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
    _broker: Broker,
}

impl Host {
    async fn start(confine: Confine) -> Self {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let config = folders.config(&broker.address, 1);
        let commands = CommandRules { confine, ..CommandRules::default() };
        let agent = AgentThread::start(Config { commands, ..config });
        let (session, _) = broker.welcome().await;
        Self { session, folders, _agent: agent, _broker: broker }
    }

    /// What its agent says of commands.
    fn says(&self) -> String {
        match self.folders.ask(&SocketRequest::Standing) {
            SocketAnswer::Standing(standing) => standing.commands.expect("some are listed"),
            other => panic!("{other:?}"),
        }
    }

    /// From lease to report.
    async fn time(&mut self) -> Span {
        let start = boottime();
        let report = self.session.perform(command(&[PROGRAM]), None).await;
        let took = boottime() - start;
        output(&report);
        took
    }
}

async fn compare(rounds: usize) {
    let mut free = Host::start(Confine::Off).await;
    let mut confined = Host::start(Confine::Required).await;
    let says = confined.says();
    println!("{PROGRAM}, {rounds} times each, in turns; commands are {says}");
    if !says.starts_with("confined by ") {
        return;
    }
    let (mut bare_times, mut free_times, mut confined_times) = (Vec::new(), Vec::new(), Vec::new());
    // The first ones start the runners.
    free.time().await;
    confined.time().await;
    for _ in 0..rounds {
        let start = boottime();
        assert!(Command::new(PROGRAM).status().expect("it starts").success());
        bare_times.push(boottime() - start);
        free_times.push(free.time().await);
        confined_times.push(confined.time().await);
    }
    let bare = tenths(&mut bare_times);
    let free = tenths(&mut free_times);
    let confined = tenths(&mut confined_times);
    let added = [0, 1, 2].map(|column| confined[column] - free[column]);
    for (what, [p10, p50, p90]) in [
        ("started by this program", bare),
        ("lease to report, free", free),
        ("lease to report, confined", confined),
        ("what confinement adds", added),
    ] {
        println!("{what:26} p10 {p10:6.2} ms, p50 {p50:6.2} ms, p90 {p90:6.2} ms");
    }
}

/// What one, five and nine of ten did not exceed, in ms.
fn tenths(times: &mut [Span]) -> [f64; 3] {
    times.sort_unstable();
    [1, 5, 9].map(|tenth| times[times.len() * tenth / 10].as_secs_f64() * 1_000.0)
}
