//! A test of a program once more, with a small file system of its own, which nobody else sees and
//! which it may fill.

mod disk;
mod fill;

pub use disk::{folder, run_with_one};
pub use fill::{fill, fill_but};
