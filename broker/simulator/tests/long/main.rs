//! What takes minutes: published figures over many seeds, large farms, long storms.
//!
//! `tests/run --long` runs them in release mode; a module for each family of scenarios. Without the
//! feature `long` there are none.
#![cfg(feature = "long")]

mod deadline;
mod fragment;
mod mixed;
mod pages;
mod replay;
mod replication;
#[cfg(feature = "storm")]
mod storm;
mod visualization;

/// CPU time of this thread, in seconds.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
