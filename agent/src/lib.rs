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
//! The folders are rooms: `agent` is the main loop, `release` gets out of a render's way, `run`
//! runs harvested work, `host` looks at the machine, `owner` has the owner's word, and `link`
//! speaks to the broker.
//!
//! The root executable, and every other that calls [`run()`], calls [`run_as_runner_if_asked`]
//! first in its `main`: runners are started out of the same executable.

pub mod harvest;

mod agent;
mod child_end;
mod config;
mod host;
mod limits;
mod link;
mod metrics;
mod owner;
mod release;
mod replace_file;
mod run;

pub use agent::liveness::Liveness;
pub use agent::{RunError, WorkDirError, confinement, confinement_of_each, run};
pub use config::{ChunkSettings, Config, ConfigError, DEFAULT_TOML};
pub use gleaner_identity::{Trust, TrustError, client_config};
pub use gleaner_isolation::Choice as Isolation;
pub use host::cores::machine_cores;
pub use host::gpu::find_gpu;
pub use host::missing_abilities::{MissingAbility, missing_abilities};
pub use host::open_files::TooFewFiles;
pub use host::worker_watch::WorkerWatchError;
pub use link::peers::{Manner, MeasuredSource, MoveFigure, Moving, measure_cut, measure_move};
pub use link::{Link, LinkError, LinkReceiver, LinkSender, LinkTarget, Received};
pub use owner::wishes::{Gpus, PreferenceError, Preferences};
pub use release::gate::Gate;
pub use release::releaser::{SocketError, booked_cores};
pub use run::kernels::{Kernel, KernelError, gametree, kernel, kernel_names};
#[cfg(feature = "wasm")]
pub use run::runner::check_module;
pub use run::runner::sandbox::{
    CommandRules, Confine, Confinement, Finding, Layer, Promise, RuleError, RunnerConfinement,
    WorkKind,
};
pub use run::runner::{RUNNER_ARGUMENT, Seen, run_as_runner_if_asked, runner_main};
