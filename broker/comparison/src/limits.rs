//! Named bounds of comparisons.

use std::time::Duration;

/// Comparisons that run at once in one process.
pub const COMPARISONS_AT_ONCE_MAX: usize = 2;
/// Largest file that is compared by what is in it, in bytes; larger ones are compared by their
/// hash.
pub const COMPARED_BYTES_MAX: u64 = 128 << 20;
/// How long a comparison may take, feeding and waiting included. It is bounded by its processor
/// time long before; this is for one that is held up.
pub const COMPARISON_TIME_MAX: Duration = Duration::from_secs(120);

/// Most that a file may unpack to, in bytes.
pub(crate) const UNPACKED_BYTES_MAX: usize = 192 << 20;
/// Longest field of a table that is a number, in bytes.
pub(crate) const NUMBER_BYTES_MAX: usize = 64;
/// Columns of a table.
pub(crate) const TABLE_COLUMNS_MAX: usize = 1 << 20;
/// Address space of a comparer, in bytes: both files, what they unpack to, and room to do so.
pub(crate) const ADDRESS_SPACE_BYTES_MAX: u64 = 1280 << 20;
/// Processor time of a comparer, in seconds.
pub(crate) const CPU_S_MAX: u64 = 20;
/// How much others go before a comparer, in steps of `nice`.
pub(crate) const NICE: i32 = 10;
