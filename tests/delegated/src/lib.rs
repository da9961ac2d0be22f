//! A test program once more, as an ordinary user who was given control groups: what a volunteer has
//! whose system delegates them, and what a farm's agent has that does not run as root.

mod groups;
mod program;

pub use groups::{Delegated, USER};
pub use program::EverybodysProgram;
