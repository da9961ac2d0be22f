//! Measuring times on a machine that does other things as well, for the tests of all crates.
//!
//! Limits of time are asserted by `tests/run --timing` alone: see [`within`].
//!
//! The tests of one program run side by side. Alone are those that would disturb others or fail beside
//! them; where limits of time are asserted, also those that measure. A test that is to be alone waits
//! for the others to end, and holds new ones off. Other programs of the machine make things take longer,
//! never shorter: a measurement has several rounds, of which one must do.

mod limit;
mod rounds;
mod turn;

pub use limit::{assert_within, repeats, too_slow, within};
pub use rounds::{in_some_awaited_round, in_some_round};
pub use turn::Turn;
