//! The clock on the wall, for what people mean by it: when a farm was stopped, and the hours that
//! its administrator names.

use jiff::Timestamp;

/// Now, by a clock that may jump.
pub(crate) fn wall_clock() -> Timestamp {
    Timestamp::now()
}
