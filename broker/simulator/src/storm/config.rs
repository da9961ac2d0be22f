//! What a storm is made of.

use gleaner_agent::harvest::Harvest;
use gleaner_monitor::Monitor;
use gleaner_protocol::Span;
use gleaner_scheduling::{Policy, PolicyName};

use super::{Bug, STORM_HOSTS, STORM_HOURS, span_of_hours};

/// What a storm is made of.
#[derive(Debug, Clone)]
pub struct StormConfig {
    /// The policy of the background lane.
    pub policy: PolicyName,
    /// Hosts; three of five are render hosts, the others desktops.
    pub hosts: u32,
    /// How long faults happen. Afterwards all work has to end.
    pub lasts: Span,
    /// How many times as often as usual faults happen.
    pub fury: u64,
    /// How long after the last fault all work must have ended.
    pub calm: Span,
    /// The broker dies at exactly this step of writing, counted from 1, besides whatever else it
    /// dies of.
    pub dies_at_write: Option<u64>,
    /// Up to how many hosts everything is checked after every event. In a larger storm it is
    /// everything that the event could have touched, and everything at every
    /// [`FULL_CHECK_TURNS`](super::FULL_CHECK_TURNS)th turn of the broker, every restart and the end.
    pub full_checks_up_to: u32,
    /// For tests: what is built wrong around the core.
    pub bug: Option<Bug>,
    /// For tests: a policy in the place of the named one.
    pub saboteur: Option<fn() -> Box<dyn Policy>>,
    /// For tests: what is done to an agent's state after it decided.
    pub agent_saboteur: Option<fn(&mut Harvest)>,
    /// For tests: what is done to the monitor's state after it decided.
    pub monitor_saboteur: Option<fn(&mut Monitor)>,
}

impl Default for StormConfig {
    fn default() -> Self {
        Self {
            policy: PolicyName::FragmentAware,
            hosts: STORM_HOSTS,
            lasts: span_of_hours(STORM_HOURS),
            fury: 1,
            calm: Span::from_secs(12 * 3600),
            dies_at_write: None,
            full_checks_up_to: 100,
            bug: None,
            saboteur: None,
            agent_saboteur: None,
            monitor_saboteur: None,
        }
    }
}
