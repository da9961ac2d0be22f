//! What the owner of a host wishes, and how much may run by it: plain decisions without I/O.
//!
//! [`Preferences`] are what the owner wrote, an [`Observation`] is what the host looks like now,
//! and [`Wishes::decide`] makes an [`Allowance`] of both, with the reasons in words.
//!
//! # Invariants
//! - What a wish forbids is forbidden at once; what it allows again, where the cause is a load that
//!   comes and goes, only after a calm that grows with each time it did (no flapping).
//! - What cannot be observed counts as forbidding: a wish is never passed over in silence.

mod allowance;
mod brake;
mod gpu;
mod load_window;
mod observation;
mod preferences;
mod reason;
mod strangers;

#[cfg(test)]
mod tests;

pub(crate) use allowance::{Allowance, Wishes};
pub(crate) use gleaner_protocol::LocalTime;
#[cfg(feature = "gpu")]
pub(crate) use gpu::GpuUser;
pub(crate) use gpu::{GpuSight, GpuWishes};
pub(crate) use load_window::LoadWindow;
pub(crate) use observation::{Observation, UserIdle};
pub(crate) use preferences::cut_to_comm;
pub use preferences::{Gpus, PreferenceError, Preferences};
pub(crate) use reason::Reason;
