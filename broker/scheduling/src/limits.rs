//! Named bounds of what the core keeps in memory.

/// Most jobs that are known at once, ended ones included.
pub const JOBS_MAX: usize = 1_000_000;
/// Most workunits that are begun and not ended, over all jobs.
pub const OPEN_WORKUNITS_MAX: usize = 4_000_000;
/// Most hosts that are known at once, disconnected ones included.
pub const HOSTS_MAX: usize = 1_000_000;
/// Most owners of hosts that are known at once, those of the past included: a host may name
/// another one each time that it connects.
pub const OWNERS_MAX: usize = HOSTS_MAX;
/// Most different kernels and programs that jobs may ask for.
pub const ABILITIES_MAX: usize = 4_096;
/// Most different reasons that are kept why workunits of one job were given up.
pub const FAILURE_REASONS_MAX: usize = 256;
/// States of a workunit that are kept for replicas that wait; more of them begin anew.
pub const FREE_STATES_MAX: usize = 4;
/// Most hosts that may have a say in one state, or one more goes on from it.
pub const PARTIES_MAX: usize = 16;
/// Hosts that are looked at for whether others are left to vote, where one goes on from what another
/// saved: a lease is not to take the longer the more hosts there are.
pub const OTHERS_LOOKED_AT_MAX: usize = 1024;
/// Longest queue that is looked through for a host that may not take its head; in a longer one
/// it is remembered how far each voter has come.
pub const LIST_SCANNED_MAX: usize = 32;
/// Most entries before a voter's mark that are remembered one by one.
pub const MARK_RETURNED_MAX: usize = 64;
/// Most chunks of datasets that a policy for visualization tells apart.
pub const CHUNKS_MAX: usize = 1 << 20;
/// Most waiting replicas that are mapped at once; the next ones are mapped when these run.
pub const BATCH_REPLICAS_MAX: usize = 8_192;
/// Most slots of hosts that a batch is mapped onto.
pub const BATCH_MACHINES_MAX: usize = 1_024;
/// Most machines for which the linear relaxation is solved while scheduling.
pub const RELAXED_MACHINES_MAX: usize = 256;
