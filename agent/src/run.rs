//! Running harvested work: from a lease to a report.
//!
//! - [`slot`] leads one replica at a time through its inputs, its runner and its outputs.
//! - [`spawner`] starts runner processes.
//! - [`runner`] is what runs in such a process: commands, modules, kernels, and their sandbox.
//! - [`kernels`] are applications that are built into the agent, [`modules`] compiled WebAssembly,
//!   [`checkpoints`] what modules saved.
//! - [`scheduling_class`] and [`memory_limit`] bound what all of it takes of the host.

pub(crate) mod checkpoints;
pub(crate) mod kernels;
pub(crate) mod memory_limit;
pub(crate) mod modules;
pub(crate) mod runner;
pub(crate) mod scheduling_class;
pub(crate) mod slot;
pub(crate) mod spawner;
