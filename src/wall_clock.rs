//! The clock on the wall, for what people mean by it: when a job is due.

use jiff::Zoned;

/// Now, here, by a clock that may jump.
pub(crate) fn now() -> Zoned {
    Zoned::now()
}
