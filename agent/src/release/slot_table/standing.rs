//! How a host stands: what a release did, what runs, how its link is.

use gleaner_protocol::LeaseToken;

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frozen {
    /// Replicas that were stopped, to be killed.
    pub(crate) tokens: Vec<LeaseToken>,
    /// All that are frozen for renders and not to be killed, by slots.
    pub(crate) parked: Vec<LeaseToken>,
    /// How many of all these it has frozen.
    pub(crate) count: u32,
    /// Replicas that may still run.
    pub(crate) slots_left: u32,
    /// There was no time to look for all that has left its group:
    /// `SlotTable::stop_stragglers` is to.
    pub(crate) has_stragglers: bool,
}

/// How the host is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// Replicas that may run.
    pub(crate) slots: u32,
    /// Replicas that run.
    pub(crate) running: u32,
    /// Replicas that are kept frozen.
    pub(crate) frozen: u32,
    /// Those of them that a render's disk is kept from.
    pub(crate) off_disk: u32,
    /// Replicas that the owner allows.
    pub(crate) allowed: u32,
    /// Whether the broker is linked.
    pub(crate) connected: bool,
}

/// How the link to the broker stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkStanding {
    /// The broker has not answered yet.
    Waiting,
    /// It has.
    Up,
    /// There is no link, for this reason.
    Down(String),
}
