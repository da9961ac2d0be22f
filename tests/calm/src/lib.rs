//! Measuring times on a machine that does other things as well, for the tests of all crates.
//!
//! Limits of time are asserted by `tests/run --timing` alone: see [`within`].
//!
//! The tests of one program run side by side, except those that would disturb, and where limits of
//! time are asserted those that measure: each of these waits until it is alone, and holds the others
//! off. Against what else runs on the machine
//! a measurement has several rounds, of which one must do: it makes things take longer, and never
//! shorter.

mod limit;
mod rounds;
mod turn;

pub use limit::{assert_within, repeats, too_slow, within};
pub use rounds::{in_some_awaited_round, in_some_round};
pub use turn::Turn;
