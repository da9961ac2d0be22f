//! What one broker carries: `cargo bench -p gleaner-broker`.
//!
//! - `accept`: a job of 1,000,000 workunits, from the request to the answer, and the broker's
//!   resident memory after it.
//! - `noop`: replicas per second through a real broker process over real sockets, 16 agents with
//!   32 slots each whose kernel does nothing, every report on disk before its verdict.
//! - `true`: `/bin/true` as a process per replica through a real agent with two slots, against
//!   what `xargs -P2` spawns, by turns in the same run.
//!
//! The broker and the agent are processes of their own: this executable under another argument.
//! `-- --format json` prints one object.

#[path = "throughput/accept.rs"]
mod accept;
#[path = "throughput/noop.rs"]
mod noop;
#[path = "throughput/parts.rs"]
mod parts;
#[path = "throughput/spawn.rs"]
mod spawn;

use std::process::ExitCode;

fn main() -> ExitCode {
    gleaner_agent::run_as_runner_if_asked();
    gleaner_broker::run_as_comparer_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = parts::run_as_part_if_asked(&arguments) {
        return code;
    }
    let json = arguments.windows(2).any(|pair| pair == ["--format", "json"]);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (accepted, noop, spawned) = runtime.block_on(async {
        (accept::measure().await, noop::measure().await, spawn::measure().await)
    });
    if json {
        let all = serde_json::json!({ "accept": accepted, "noop": noop, "true": spawned });
        println!("{all:#}");
    } else {
        println!("{accepted}\n{noop}\n{spawned}");
    }
    ExitCode::SUCCESS
}
