//! The simulator: modelled farms that drive the very code of the broker's scheduling core.
//!
//! No rule of the core is copied here. The model has what is around the core: hosts whose
//! fragments renders open and close, desktops that leave and return, nodes with caches, networks
//! that take their time, links that break, replicas that lie, a store that keeps a prefix of what
//! it was given, and a broker that dies and restores itself from that.
//!
//! A [`Scenario`] is such a world with parameters; it is run under the published policies, those
//! they were measured against and ours, and beside them stands the bound that no policy can
//! beat. [`scenarios()`] lists them all.
//!
//! [`storm()`] runs a farm of everything from one seed under faults, checks every invariant after
//! every event, and then lets the faults stop: all work has to finish. The same seed gives the
//! same run on any machine.

mod ability;
mod calendar;
mod catalogue;
mod comparison;
mod deadline;
mod dice;
mod experiment;
mod fragment;
mod input_file;
mod limits;
mod mixed;
mod nearest;
mod parameters;
mod plot;
mod promises;
mod replay;
mod replication;
mod scenario;
mod seeds;
mod setting;
mod spread;
mod stage;
#[cfg(feature = "storm")]
mod storm;
mod studio;
mod view_recording;
mod visualization;

pub use catalogue::{MetricPage, ParameterPage, ScenarioPage, scenario_named, scenarios, unit_of};
pub use comparison::{Comparison, Spreads};
pub use experiment::{Experiment, ExperimentError, policies};
pub use nearest::UnknownName;
pub use parameters::{Parameter, Settings, Value};
pub use plot::plot;
pub use promises::{Baseline, PromisesConfig, PromisesReport, promises, promises_page};
pub use scenario::{Better, Metric, Numbers, Order, Outcome, Progress, Quiet, Scenario};
pub use seeds::{Seeds, SeedsError};
pub use setting::{SettingError, settings};
pub use spread::Spread;
#[cfg(feature = "storm")]
pub use storm::{
    Breach, Bug, FULL_CHECK_TURNS, STORM_FURY_MAX, STORM_HOSTS, STORM_HOSTS_RANGE, STORM_HOURS,
    STORM_HOURS_RANGE, StormConfig, StormFailure, StormReport, span_of_hours, storm, storm_page,
    storm_told,
};
pub use view_recording::{RecordedView, ViewRecording};
