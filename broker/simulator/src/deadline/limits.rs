//! Bounds of the deadline scenarios.

/// Recorded runs in a table.
pub(super) const DEADLINE_ROWS_MAX: usize = 10_000;
/// Jobs of a workload; the bound looks at sets of them.
pub(super) const DEADLINE_JOBS_MAX: usize = 64;
/// Tasks of a job.
pub(super) const DEADLINE_TASKS_MAX: u32 = 1_000;
/// Events of one workload.
pub(super) const DEADLINE_EVENTS_MAX: usize = 2_000_000;
/// Largest table, in bytes.
pub(super) const DEADLINE_FILE_BYTES_MAX: u64 = 4 << 20;
/// Sets of jobs that the search for the bound of one workload looks at.
pub(super) const DEADLINE_BOUND_SETS_MAX: usize = 5_000;
