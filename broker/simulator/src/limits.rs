//! Bounds of the simulator.

/// Seeds in one command.
pub(crate) const SEEDS_MAX: u64 = 1_000_000;

/// Hosts that the broker of a storm remembers when they have left and nothing open speaks of them: so
/// few that some are forgotten in each storm.
pub(crate) const STORM_GONE_HOSTS_MAX: usize = 2;

/// Longest line of a log that is replayed, in bytes.
pub(crate) const REPLAY_LINE_BYTES_MAX: u64 = 1 << 20;
/// Characters of a wrong line that an error shows.
pub(crate) const REPLAY_QUOTED_CHARS_MAX: usize = 80;
/// Hosts in a log that is replayed.
pub(crate) const REPLAY_HOSTS_MAX: usize = 200_000;
/// Beginnings and ends of work in a log that is replayed.
pub(crate) const REPLAY_CHANGES_MAX: usize = 50_000_000;
/// Workunits of each of the jobs that fill a replayed farm.
pub(crate) const REPLAY_JOB_WORKUNITS: u32 = 10_000;

/// Events of one run of a studio.
pub(crate) const STUDIO_EVENTS_MAX: u64 = 200_000_000;

/// Largest file of expected times to compute, in bytes.
pub(crate) const ETC_BYTES_MAX: u64 = 256 << 20;
/// Largest file of measured times of kernels, in bytes.
pub(crate) const PROFILE_BYTES_MAX: u64 = 16 << 20;
/// Longest trace of loads, in bytes, packed and after unpacking.
pub(crate) const TRACE_BYTES_MAX: u64 = 64 << 20;
/// Largest file of servers that are given, in bytes.
pub(crate) const SERVERS_BYTES_MAX: u64 = 16 << 20;
