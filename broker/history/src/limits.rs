//! Named bounds of a history.

/// Runs of one application on one kind of host that are kept, the last ones.
pub const RUNS_MAX: usize = 256;
/// Applications that are kept; of more, the one whose last run is the oldest goes.
pub const APPLICATIONS_MAX: usize = 1_024;
/// Kinds of hosts of one application, likewise.
pub const KINDS_MAX: usize = 32;
/// Runs that are kept in all; of more, the series goes whose last run is the oldest.
pub const RUNS_ALL_MAX: usize = 32_768;
/// Features of one run; of more, the last ones by name are left out.
pub const FEATURES_MAX: usize = 16;
/// Features that a fit uses at most.
pub const FEATURES_USED_MAX: usize = 6;
/// Longest name of an application, in bytes.
pub const APPLICATION_BYTES_MAX: usize = 512;
/// Longest line of the file, in bytes; a longer one is damage.
pub const LINE_BYTES_MAX: usize = 16 << 10;
/// The file is not written anew before it has this many lines.
pub const LINES_MIN: usize = 1_024;
/// Of a longer file the rest is damage, in bytes.
pub const FILE_BYTES_MAX: u64 = 512 << 20;
