//! What takes minutes: published figures over many seeds, large farms, long storms.
//!
//! `tests/run --long` runs them in release mode; a module for each family of scenarios.

mod deadline;
mod fragment;
mod mixed;
mod pages;
mod replay;
mod replication;
#[cfg(feature = "storm")]
mod storm;
mod visualization;
