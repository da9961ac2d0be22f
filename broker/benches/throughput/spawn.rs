//! Processes per second through broker and agent, against `xargs`: as free as its own, and confined
//! as agents do it unless their owner says otherwise.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};

use futures_util::StreamExt;
use gleaner_agent::Confine;
use gleaner_protocol::boottime;
use gleaner_protocol::job::{CommandTask, JobSpec, Task};
use serde::Serialize;

use super::parts::{Part, client, noop_job, status, submit};

const ROUNDS: usize = 5;
const TASKS: u32 = 4_000;
const CONFINED_TASKS: u32 = 500;

#[derive(Debug, Serialize)]
pub(crate) struct Spawned {
    tasks_per_round: u32,
    gleaner_per_s: f64,
    xargs_per_s: f64,
    /// Median over the rounds of one rate over the other.
    ratio: f64,
    confined_per_s: f64,
    /// Likewise.
    confined_ratio: f64,
}

pub(crate) async fn measure() -> Spawned {
    let free = rounds(Confine::Off, TASKS).await;
    let confined = rounds(Confine::Available, CONFINED_TASKS).await;
    Spawned {
        tasks_per_round: TASKS,
        gleaner_per_s: free.ours,
        xargs_per_s: free.xargs,
        ratio: free.ratio,
        confined_per_s: confined.ours,
        confined_ratio: confined.ratio,
    }
}

/// Rates a second, and one over the other.
struct Round {
    ratio: f64,
    ours: f64,
    xargs: f64,
}

/// The round of the median ratio.
async fn rounds(confine: Confine, tasks: u32) -> Round {
    let broker = Part::broker();
    let _agent = Part::agent(&broker.line, confine);
    ours(&broker.line, 200).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let xargs = xargs(tasks);
        let ours = ours(&broker.line, tasks).await;
        rounds.push(Round { ratio: ours / xargs, ours, xargs });
    }
    rounds.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    rounds.swap_remove(ROUNDS / 2)
}

async fn ours(broker: &str, tasks: u32) -> f64 {
    let command = CommandTask {
        argv: vec!["/bin/true".into()],
        inputs: Vec::new(),
        outputs: Vec::new(),
        memory_mib: None,
    };
    let spec = JobSpec { task: Task::Command(command), ..noop_job(tasks) };
    let events = client().get(format!("{broker}/v1/events")).send().await.expect("a stream");
    let mut events = events.bytes_stream();
    let begun = boottime();
    let job = submit(broker, &spec).await;
    while !status(broker, job).await.state.is_final() {
        events.next().await.expect("the broker lives").expect("the broker lives");
    }
    let rate = f64::from(tasks) / (boottime() - begun).as_secs_f64();
    let ended = status(broker, job).await;
    assert_eq!(ended.decided, tasks, "{ended:?}");
    rate
}

fn xargs(tasks: u32) -> f64 {
    let begun = boottime();
    let mut xargs = Command::new("xargs")
        .args(["-P2", "-n1", "/bin/true"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("xargs is installed");
    let lines: String = (0..tasks).map(|number| format!("{number}\n")).collect();
    let mut stdin = xargs.stdin.take().expect("it is piped");
    stdin.write_all(lines.as_bytes()).expect("xargs reads");
    drop(stdin);
    assert!(xargs.wait().expect("xargs ends").success());
    f64::from(tasks) / (boottime() - begun).as_secs_f64()
}

impl fmt::Display for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "true    {} a round: {:.0}/s through broker and agent, {:.0}/s by xargs -P2: ratio {:.2}\n\
             true    confined: {:.0}/s, ratio {:.2}",
            self.tasks_per_round,
            self.gleaner_per_s,
            self.xargs_per_s,
            self.ratio,
            self.confined_per_s,
            self.confined_ratio,
        )
    }
}
