//! The resource monitor: learns what a render farm has booked on each host, and tells the broker
//! which cores that leaves.
//!
//! Hooks tell it of renders as they start and end, agents send samples of their hosts, and the
//! farm's own record can be polled. What follows from all that is decided by one plain state
//! machine, the [`Monitor`]; the rest of the crate brings it news and carries its decisions to
//! the broker; what it heard and decided can be recorded, to be replayed. [`run()`] is the whole
//! service.

pub mod limits;

mod broker_link;
mod config;
mod counters;
mod driver;
mod json_source;
mod monitor;
mod outbox;
mod recording;
mod routes;
mod run;
mod source;

pub use config::{Config, ConfigError, DEFAULT_TOML};
pub use json_source::JsonSource;
pub use monitor::{
    BookingView, ContradictionView, Effect, FragmentView, HostAllocation, HostView, Input, Monitor,
    Occupied, Rules, TooManyHosts, Totals, Violation,
};
pub use outbox::{Decided, Outbox};
pub use recording::Scribe;
pub use run::{RunError, run};
pub use source::{FarmSource, SourceError};
