//! The clock on the wall, for what people mean by it: when a job is due, and when something was
//! recorded.

use gleaner_protocol::boottime;
use jiff::Timestamp;

/// Now in microseconds of UTC, by a clock that may jump.
fn utc_us() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0)
}

/// Now in milliseconds of UTC, likewise.
pub(crate) fn utc_ms() -> u64 {
    utc_us() / 1_000
}

/// Microseconds of UTC at [`Time::ZERO`](gleaner_protocol::Time::ZERO), by the clock as it is now.
pub(crate) fn zero_us() -> u64 {
    utc_us().saturating_sub(boottime().as_micros())
}
