//! Processes per second through broker and agent, against `xargs`.

use std::fmt;
use std::io::Write;
use std::process::{Command, Stdio};

use futures_util::StreamExt;
use gleaner_protocol::boottime;
use gleaner_protocol::job::{CommandTask, JobSpec, Task};
use serde::Serialize;

use super::parts::{Part, client, noop_job, status, submit};

const ROUNDS: usize = 5;
const TASKS: u32 = 4_000;

#[derive(Debug, Serialize)]
pub(crate) struct Spawned {
    tasks_per_round: u32,
    gleaner_per_s: f64,
    xargs_per_s: f64,
    /// Median over the rounds of one rate over the other.
    ratio: f64,
}

pub(crate) async fn measure() -> Spawned {
    let broker = Part::broker();
    let _agent = Part::agent(&broker.line);
    ours(&broker.line, 200).await;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let xargs = xargs(TASKS);
        let ours = ours(&broker.line, TASKS).await;
        rounds.push((ours / xargs, ours, xargs));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, gleaner_per_s, xargs_per_s) = rounds[ROUNDS / 2];
    Spawned { tasks_per_round: TASKS, gleaner_per_s, xargs_per_s, ratio }
}

async fn ours(broker: &str, tasks: u32) -> f64 {
    let command =
        CommandTask { argv: vec!["/bin/true".into()], inputs: Vec::new(), outputs: Vec::new() };
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
            "true    {} a round: {:.0}/s through broker and agent, {:.0}/s by xargs -P2: ratio {:.2}",
            self.tasks_per_round, self.gleaner_per_s, self.xargs_per_s, self.ratio
        )
    }
}
