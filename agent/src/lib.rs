//! The agent: what Gleaner runs on every host that gives cores.
//!
//! It announces to the broker which cores of its host are free, runs the replicas that it is
//! given in processes of their own, reports what they produced, and is out of the way of a
//! render within milliseconds.
//!
//! ```text
//! hook ─unix socket─► releaser ──freezes, kills──► runner groups ◄── slots ◄─┐
//!                        │ tells                     (one per slot)          │ starts, stops
//!                        └────────────► driver ── harvest (pure decisions) ──┘
//! broker ◄──WebSocket── link ◄────────────┘
//! ```
//!
//! All decisions are made by one plain state machine, [`harvest::Harvest`], which needs neither
//! runtime nor host, so that a simulator drives the very same one.
//!
//! The root executable, and every other that calls [`run`], calls [`run_as_runner_if_asked`]
//! first in its `main`: runners are started out of the same executable.

pub mod harvest;

mod agent;
mod blobs;
mod booked_memory;
mod checkpoints;
mod config;
mod gate;
mod gpu;
mod keeper;
mod kernels;
mod lacks;
mod limits;
mod link;
mod modules;
mod nursery;
mod observer;
mod owner;
mod pulse;
mod releaser;
mod replace_file;
mod runner;
mod sampler;
mod scheduling_class;
mod slot;
mod slot_table;
mod tls;
mod wishes;
mod worker_watch;

pub use agent::{RunError, WorkDirError, confinement, run};
pub use config::{Config, ConfigError, DEFAULT_TOML};
pub use gate::Gate;
pub use gleaner_isolation::Choice as Isolation;
pub use gpu::find_gpu;
pub use kernels::{Kernel, KernelError, gametree, kernel, kernel_names};
pub use lacks::{Lack, lacks};
pub use link::{Link, LinkError, LinkReceiver, LinkSender, LinkTarget, Received};
pub use pulse::Vitals;
pub use releaser::{SocketError, booked_cores};
pub use runner::sandbox::{CommandRules, Confine, Confinement, Finding, Layer, Promise, RuleError};
pub use runner::{RUNNER_ARGUMENT, run_as_runner_if_asked, runner_main};
pub use tls::{TlsError, Trust, client_config};
pub use wishes::{Gpus, PreferenceError, Preferences};
pub use worker_watch::WorkerWatchError;
