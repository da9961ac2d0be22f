//! Storms: everything that can go wrong does, from a seed.
//!
//! The very code of every part is driven, wherever it is pure:
//!
//! | part | its own code | modelled |
//! |---|---|---|
//! | broker | the scheduling core; the driver's [`Dispatcher`](gleaner_broker::Dispatcher) (commands into inputs, effects into messages), its records, its recovery, the seals of journal entries; what is drawn for each client of a view ([`Drawings`](gleaner_broker::Drawings)) and what there is of frames ([`FrameBoard`](gleaner_broker::FrameBoard)) | threads, sockets, the disk under the journal, its committer |
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
mod viewer;
mod watcher;
mod wires;
mod world;

pub use breach::{Breach, StormFailure, span_of_hours};
pub use bug::Bug;
pub use config::StormConfig;
pub use report::StormReport;

use gleaner_scheduling::PolicyName;

use crate::catalogue::{ParameterPage, ScenarioPage};
use crate::parameters::Parameter;

/// In a storm with more hosts than everything is checked for after each event, everything is
/// checked at each so-manieth turn of the broker.
pub const FULL_CHECK_TURNS: u64 = 64;

/// Modelled hours of a storm where nobody says.
pub const STORM_HOURS: f64 = 2.0;
/// Least and greatest number of modelled hours.
pub const STORM_HOURS_RANGE: (f64, f64) = (0.1, 1000.0);
/// Hosts of a storm where nobody says.
pub const STORM_HOSTS: u32 = 50;
/// Fewest and most hosts.
pub const STORM_HOSTS_RANGE: (u32, u32) = (2, 10_000);
/// Greatest fury.
pub const STORM_FURY_MAX: u64 = 100;

/// Storms as a scenario is listed. Its parameters are options of a command of its own.
#[must_use]
pub fn storm_page() -> ScenarioPage {
    const POLICIES: &[&str] = &["plain", "fragment-aware", "boinc-adaptive", "gleaner"];
    debug_assert!(PolicyName::ALL.iter().all(|policy| POLICIES.contains(&policy.as_str())));
    let hosts = (STORM_HOSTS_RANGE.0.into(), STORM_HOSTS_RANGE.1.into());
    let parameters = [
        Parameter::number(
            "hours",
            STORM_HOURS,
            STORM_HOURS_RANGE,
            "modelled hours that the faults last: --hours",
            "long enough for leases to run out and for every kind of fault",
        ),
        Parameter::count(
            "hosts",
            STORM_HOSTS.into(),
            hosts,
            "hosts, three of five of them render hosts: --hosts",
            "small enough to check everything after every event",
        ),
        Parameter::count(
            "fury",
            1,
            (1, STORM_FURY_MAX),
            "how many times as often as usual faults happen: --fury",
            "chosen: a few of each kind in an hour",
        ),
    ];
    ScenarioPage {
        scenario: "storm",
        about: "broker, monitor, agents and hooks while everything fails that can: gleaner simulate storm --help",
        policies: POLICIES,
        parameters: parameters.iter().map(ParameterPage::of).collect(),
        metrics: report::metrics(),
    }
}

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
