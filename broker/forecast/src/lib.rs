//! How many cores will be harvested in the next hours, and what can be promised on them.
//!
//! Harvested cores are revocable: the farm takes them back when renders come. So a promise is a
//! probability. [`CapacityRecord`] keeps how many cores were idle and open. [`Futures`] samples
//! what may come: past hours that were like this one, corrected so that they begin with what is
//! open now. [`ask`] runs a job on each sampled future beside what is promised already, and says
//! how likely it is done by its due time, when it is expected to end, and the earliest due time
//! that can be promised. [`Forecaster`] holds all of it for one farm, and learns from what became
//! of its earlier forecasts.
//!
//! # Where the constants come from
//! The shape of the kernel (`limits.rs`) was chosen among a dozen on the first half of each of three
//! logs, NASA iPSC/860 1993 (days 0 to 45), HPC2N 2002 (days 0 to 30) and the Zewura/Zegox clusters
//! of MetaCentrum 2013 (days 0 to 40), and on ten days of PlanetLab 2011. The floor below which no
//! promise is cut, and how modestly a new farm begins, were set after replays of these and of LCG
//! 2005 as a whole. Nothing is fitted to a farm beforehand: what is learned, is learned on line from
//! its own past. Whoever tests should leave out these days, or take another log.
//!
//! # Invariants
//! - Nothing here reads a clock or a file, and all randomness comes from a seed that is passed in:
//!   the same calls give the same answers on every machine.
//! - Everything that grows has a bound in `limits.rs`.

mod calibration;
mod chance;
mod chances;
mod claim;
mod forecaster;
mod futures;
mod grid;
mod limits;
mod list;
mod past;
mod record;
mod scale;

pub use calibration::Calibration;
pub use chance::{Answer, Ask, Offer, ask, largest};
pub use claim::{Claim, Left, Work};
pub use forecaster::Forecaster;
pub use futures::Futures;
pub use limits::{HORIZON_MAX_S, STEP_S, STEPS_MAX};
pub use record::{CapacityRecord, Sample};
pub use scale::Scale;
