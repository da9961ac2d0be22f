//! The resource monitor: learns what a render farm has booked on each host, and tells the broker
//! which cores that leaves.
//!
//! Hooks tell it of renders as they start and end, agents send samples of their hosts, and the
//! farm's own record can be polled. What follows from all that is decided by one plain state
//! machine, the [`Monitor`]; the rest of the crate brings it news and carries its decisions to
//! the broker; what it heard and decided can be recorded, to be replayed. An administrator's orders
//! come in the same way, as [`Orders`], and only ever take away. [`run()`] is the whole
//! service.

pub mod limits;
mod metrics;

mod booking_names;
mod broker_link;
mod comparison;
mod config;
mod driver;
mod farm_events;
mod farm_view;
mod monitor;
mod orders;
mod outbox;
mod people;
mod people_link;
mod poll_board;
mod recording;
mod release_times;
mod report_link;
mod routes;
mod run;
mod source;
mod sources;
mod state_folder;
mod wall_clock;

pub use booking_names::BookingNames;
pub use comparison::{
    Arm, ArmView, ComparisonView, DifferenceView, HoldOut, HoldOutError, HoldOutSettings, Lottery,
    MetricView,
};
pub use config::{Config, ConfigError, DEFAULT_TOML};
pub use farm_events::{EventsAddressError, TrustError};
pub use farm_view::FarmView;
pub use monitor::{
    BookingView, Effect, FarmAnswer, FragmentView, HostAllocation, HostView, Input, LearnedView,
    Monitor, Occupied, Polling, Remembered, RememberedGaps, Rendering, Rules, TooManyHosts, Totals,
    Violation,
};
pub use orders::{
    GroupSettings, Orders, PatternError, Plan, PlanError, ScheduleSettings, Stop, StopError,
};
pub use outbox::{Decided, Outbox};
pub use recording::Scribe;
pub use release_times::ReleaseView;
pub use run::{RunError, run};
pub use source::{FarmSource, SourceError};
pub use sources::{Farm, FarmError, Manager, UnknownManager};
pub use state_folder::StateError;
