//! What is observed of the machine and of those who use it.
//!
//! - [`observer`] looks at the load, the memory, the power supply and the users about once a second.
//! - [`gpu`] finds the GPU and watches who uses it.
//! - [`worker_watch`] sees renders that no hook announces.
//! - [`run_folder`], [`booked_memory`] and [`bound_renders`] say what renders have booked, [`missed_postflights`]
//!   ends bookings whose end no hook told.
//! - [`trouble`] is what of the host itself keeps replicas from running.
//! - [`sampler`] tells the resource monitor how this host is.
//! - [`cores`], [`missing_abilities`], [`open_files`] and [`remote_programs`] find out what the host grants an agent.

pub(crate) mod booked_memory;
pub(crate) mod bound_renders;
pub(crate) mod cores;
pub(crate) mod gpu;
pub(crate) mod missed_postflights;
pub(crate) mod missing_abilities;
pub(crate) mod observer;
pub(crate) mod open_files;
pub(crate) mod remote_programs;
pub(crate) mod run_folder;
pub(crate) mod sampler;
pub(crate) mod trouble;
pub(crate) mod worker_watch;
