//! What the policies of partitioned datasets can be told.

use gleaner_protocol::Span;

/// How long a move is not tried again that did not end in time.
pub(crate) const GIVEN_UP_FOR: Span = Span::from_secs(600);

/// Parameters of the policies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplicationConfig {
    /// How far out of order workunits may end: the task window w.
    pub window: u32,
    /// How much a new measurement counts against those before it: ρ, above 0 and at most 1.
    pub rho: f64,
    /// The part of a chunk that is moved on trial, in thousandths: p.
    pub first_permille: u16,
}

impl Default for ReplicationConfig {
    /// No window, and the constants that land on the published figures.
    fn default() -> Self {
        Self { window: u32::MAX, rho: 0.43, first_permille: 30 }
    }
}
