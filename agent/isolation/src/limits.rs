//! Named bounds.

/// Longest file of a control group that is read, in bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// Deepest tree of groups that is cleared away.
pub(crate) const DEPTH_MAX: u32 = 16;
/// Rounds of killing what forks while it is being killed.
pub(crate) const KILL_ROUNDS_MAX: u32 = 64;
/// Length of the period in which a share is measured out, in microseconds: the kernel's default.
pub(crate) const SHARE_PERIOD_US: u64 = 100_000;
/// Least quota that the kernel takes, in microseconds of a period.
pub(crate) const SHARE_QUOTA_US_MIN: u64 = 1_000;
/// Weight of harvested work beside harvested work, in thousandths of the usual.
pub(crate) const WEIGHT_USUAL: u32 = 1_000;
