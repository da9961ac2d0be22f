//! The simulator: a modelled farm that drives the very code of the broker's scheduling core.
//!
//! No rule of the core is copied here. The model has what is around the core: hosts whose
//! fragments renders open and close, desktops that leave and return, links that break, replicas
//! that take their time or lie, a store that keeps a prefix of what it was given, and a broker
//! that dies and restores itself from that.
//!
//! [`storm()`] runs all of this from one seed, checks every invariant after every event, and then
//! lets the faults stop: all work has to finish. The same seed gives the same run on any machine.

mod calendar;
mod dice;
mod storm;

pub use storm::{Breach, StormConfig, StormFailure, StormReport, storm};
