//! Named bounds of what the core keeps in memory.

/// Most jobs that are known at once, ended ones included.
pub const JOBS_MAX: usize = 100_000;
/// Most workunits that are begun and not ended, over all jobs.
pub const OPEN_WORKUNITS_MAX: usize = 4_000_000;
/// Most hosts that are known at once, disconnected ones included.
pub const HOSTS_MAX: usize = 1_000_000;
/// Most different kernels and programs that jobs may ask for.
pub const ABILITIES_MAX: usize = 4_096;
/// How many queue heads are looked at one by one before the rest is searched in one pass.
pub const HEADS_LOOKED_AT: usize = 8;
