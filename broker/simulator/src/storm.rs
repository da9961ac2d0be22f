//! Storms: everything that can go wrong does, from a seed.
//!
//! The very code of every part is driven, wherever it is pure:
//!
//! | part | its own code | modelled |
//! |---|---|---|
//! | broker | the scheduling core; the driver's [`Dispatcher`](gleaner_broker::Dispatcher) (commands into inputs, effects into messages), its records, its recovery, the seals of journal entries | threads, sockets, the disk under the journal, its committer |
//! | monitor | [`Monitor`](gleaner_monitor::Monitor) and its outbox | HTTP, polling |
//! | agent | [`Harvest`](gleaner_agent::harvest::Harvest) and the gate of its slots | processes, the loop around it |
//! | hooks | the rule of bookings | the run folder's files, sockets, killing |
//!
//! # Invariants
//! - The same seed and settings give the same storm on any machine.
//! - Everything that an event can have touched is checked after it.

mod breach;
mod broker;
mod bug;
mod chances;
mod config;
mod disk;
mod folder;
mod machine;
mod report;
mod rules;
mod watcher;
mod wires;
mod world;

pub use breach::{Breach, StormFailure};
pub use bug::Bug;
pub use config::StormConfig;
pub use report::StormReport;

/// In a storm with more hosts than everything is checked for after each event, everything is
/// checked at each so-manieth turn of the broker.
pub const FULL_CHECK_TURNS: u64 = 64;

/// Runs a storm, then a calm in which all work has to end. `told` hears from time to time which
/// part of the storm is over, of a million.
///
/// # Errors
/// The first thing that must never happen, with what replays it.
pub fn storm_told(
    seed: u64,
    config: &StormConfig,
    told: &dyn Fn(u32),
) -> Result<StormReport, Box<StormFailure>> {
    world::World::new(seed, config).run(told)
}

/// Runs a storm, then a calm in which all work has to end.
///
/// # Errors
/// The first thing that must never happen, with what replays it.
pub fn storm(seed: u64, config: &StormConfig) -> Result<StormReport, Box<StormFailure>> {
    storm_told(seed, config, &|_| {})
}
