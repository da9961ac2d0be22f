//! What is known of the farm as a whole, for people and programs to look at.

use gleaner_protocol::api::{FarmEventsStatus, PollStatus};
use serde::Serialize;

use crate::{HostView, LearnedView, ReleaseView, Stop, Totals};

/// The monitor's `GET /v1/farm`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FarmView {
    /// Nothing is harvested anywhere, by this order.
    pub stop: Option<Stop>,
    /// Whether a stop is kept over a restart of the monitor.
    pub is_stop_kept: bool,
    /// Sums over all hosts.
    pub totals: Totals,
    /// How long the newest preflights took until the render had its cores; none where none said.
    pub release: Option<ReleaseView>,
    /// The quiet periods that are learned.
    pub learned: Vec<LearnedView>,
    /// What becomes of the farm's messages that something changed; none where nobody listens.
    pub farm_events: Option<FarmEventsStatus>,
    /// How its polls go; none where it is not polled.
    pub poll: Option<PollStatus>,
    /// All hosts, in order of their names.
    pub hosts: Vec<HostView>,
}
