//! Limits of time, which tests assert by hand alone.
//!
//! A machine that others use makes anything take long, so a time that is too long says nothing of
//! the code. A test of the gate prints what something took; `tests/run --timing` asserts it.

use std::fmt::Display;

/// Says to this process and its children that limits of time are asserted.
const ASKED: &str = "GLEANER_TIMING";

/// Whether limits of time are asserted.
pub(crate) fn is_timing() -> bool {
    std::env::var_os(ASKED).is_some()
}

/// How often to do what is measured: `times` where limits of time are asserted. Else twice: nobody
/// reads what is printed then, and it is seen to work.
#[must_use]
pub fn repeats(times: usize) -> usize {
    if is_timing() { times } else { times.min(2) }
}

/// Prints what something took. Above `limit` it is an error where limits of time are asserted.
///
/// # Errors
/// It took longer, and limits of time are asserted.
pub fn within<T: Display + PartialOrd>(what: &str, took: T, limit: T) -> Result<(), String> {
    let said = format!("{what}: {took}, with a limit of {limit}");
    println!("{said}");
    if took <= limit { Ok(()) } else { too_slow(said) }
}

/// As [`within`].
///
/// # Panics
/// Where that is an error.
#[track_caller]
pub fn assert_within<T: Display + PartialOrd>(what: &str, took: T, limit: T) {
    if let Err(said) = within(what, took, limit) {
        panic!("{said}");
    }
}

/// What only a machine that is too slow makes happen: an error where limits of time are asserted.
///
/// # Errors
/// Limits of time are asserted.
pub fn too_slow(said: String) -> Result<(), String> {
    if is_timing() {
        return Err(said);
    }
    println!("this machine is busy: {said}");
    Ok(())
}
