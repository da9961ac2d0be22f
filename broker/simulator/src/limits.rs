//! Bounds of the simulator.

/// Seeds in one command.
pub(crate) const SEEDS_MAX: u64 = 1_000_000;
