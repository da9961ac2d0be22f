//! What harvest costs the farm's renders, measured for as long as the farm runs.
//!
//! Each day a lottery holds some hosts out of harvest ([`HoldOut`]). What renders do on them and on
//! the others is added up, host by host and day by day ([`Ledger`]), and the two are compared: the
//! same day, the same jobs, another draw tomorrow ([`ComparisonView`]).
//!
//! ```text
//! Plan ──HoldOut──► Orders ──► Monitor ──Rendering──► Ledger ──► ComparisonView
//!                                hooks ──delays, failures──┘
//! ```
//!
//! # Invariants
//! - Who is held out is decided by the lottery alone, before the day begins, whatever happens on it.
//! - A host counts only while harvest has nothing else against it: a stop, a schedule or a group that
//!   is never harvested says nothing about harvest.
//! - Being held out only ever takes away: it is one of the [orders](crate::Orders).

mod estimate;
mod hold_out;
mod ledger;

use serde::Serialize;

pub use estimate::{ArmView, DifferenceView, MetricView};
pub use hold_out::{Arm, HoldOut, HoldOutError, HoldOutSettings, Lottery};
pub(crate) use ledger::{Ledger, LedgerFile};

/// The monitor's `GET /v1/farm/comparison`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonView {
    /// Thousandths of the hosts that are held out.
    pub held_out_permille: u16,
    /// The time zone in which a day begins at midnight.
    pub time_zone: String,
    /// The day, as `2026-11-22`.
    pub day: String,
    /// Hosts that are held out now, in order of their names.
    pub held_out: Vec<String>,
    /// Hosts that may be harvested and are compared with them.
    pub harvested: u64,
    /// What is compared.
    pub metrics: Vec<MetricView>,
}
