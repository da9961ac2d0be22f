//! Compute kernels that stop at once.
//!
//! A kernel is an application that is built in. For one workunit it makes a [`Plan`]: a number of
//! units of work (tiles of a picture, rows of cells, blocks of columns) that are done in order,
//! some at a time. What is done in one go is a [`Slice`]. [`run`] sizes slices by measurement, so
//! that each takes a few milliseconds, and looks at a [`Preempt`] token before each: release never
//! waits for more than the slice at hand.
//!
//! ```text
//! item ── Kernel::plan ──► Plan ◄── slice ── run ◄── Pace (how many units fit in a slice)
//!                            │                ▲
//!                            ▼                └── Preempt (release was asked for)
//!                       output files
//! ```
//!
//! A plan does not know where it is computed. On a CPU a slice is a loop over its units; on a
//! device it is one dispatch that is waited for, at depth one, so that no more than one slice is
//! ever beyond recall. What is sized, stopped, measured and tested is the same.

pub mod application;
pub mod composite;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod image;
pub mod isosurface;
pub mod npairs;
pub mod pca;
pub mod raycast;
pub mod view;
pub mod volume;

mod dice;
mod kernel;
mod limits;
mod memory;
mod pace;
mod plain_file;
mod plan;
mod preempt;
mod threads;

pub use kernel::{Kernel, KernelError};
pub use memory::{MemoryError, allowed_bytes, free_bytes};
pub use pace::Pace;
pub use plan::{Outcome, Plan, Slice, Stretch, run};
pub use preempt::Preempt;
pub use threads::{Threads, ThreadsError};
