//! Named bounds of what the core keeps in memory, and of how long it holds hosts back.

use gleaner_protocol::Span;

/// Most jobs that are known at once, ended ones included.
pub const JOBS_MAX: usize = 1_000_000;
/// Most workunits that are begun and not ended, over all jobs.
pub const OPEN_WORKUNITS_MAX: usize = 4_000_000;
/// Most hosts that are known at once, disconnected ones included.
pub const HOSTS_MAX: usize = 1_000_000;
/// Most hosts without a link that are remembered although nothing open speaks of them. Of more, those
/// that never gave an output are forgotten first, and of each kind those that left longest ago.
pub const GONE_HOSTS_MAX: usize = 20_000;
/// Hosts that are forgotten at most when one leaves.
pub const FORGOTTEN_HOSTS_MAX: usize = 2;
/// Most owners of hosts that are known at once, those of the past included: a host may name
/// another one each time that it connects.
pub const OWNERS_MAX: usize = HOSTS_MAX;
/// Most different kernels and programs that jobs may ask for.
pub const ABILITIES_MAX: usize = 4_096;
/// Most that the different reasons together may hold that are kept of one job's workunits, in bytes.
pub const FAILURE_REASON_BYTES_MAX: usize = 512 << 10;
/// Most different words that are kept of one job's failed attempts.
pub const ATTEMPT_WORDS_MAX: usize = 256;
/// Longest words that are kept of one failed attempt, in bytes.
pub const ATTEMPT_WORDS_BYTES_MAX: usize = 256;
/// Most attempts of a workunit that its history tells apart.
pub const HISTORY_MAX: usize = 16;
/// Hosts of which is known that they refused a workunit, the last ones.
pub const REFUSALS_KEPT_MAX: usize = 16;
/// How long a host backs off from an ability after its first failure.
pub const BACKOFF_FIRST: Span = Span::from_secs(1);
/// The longest that a host backs off.
pub const BACKOFF_MOST: Span = Span::from_secs(3_600);
/// Replicas that a host may be given in a [`QUOTA_WINDOW`] after its first error; half as many after each
/// further one.
pub const QUOTA_FIRST: u32 = 64;
/// In this time a host with a quota may be given as many.
pub const QUOTA_WINDOW: Span = Span::from_secs(3_600);
/// A host that has closed is awaited for so long by what others have tried.
pub const AWAITED: Span = Span::from_secs(86_400);
/// A job that so many hosts in a row failed or refused, and nobody did, is held to be at fault
/// itself; so is one that all awaited hosts failed or refused that could run it, if they are fewer.
pub const SUSPECT_AFTER_HOSTS: usize = 8;
/// Workunits that are looked at again when a host leaves or closes: others may have them now that
/// waited for it.
pub const LOOKED_AT_AGAIN_MAX: usize = 256;
/// States of a workunit that are kept for replicas that wait; more of them begin anew.
pub const FREE_STATES_MAX: usize = 4;
/// Most hosts that may have a say in one state, or one more goes on from it.
pub const PARTIES_MAX: usize = 16;
/// Hosts that are looked at for whether others are left to vote, where one goes on from what another
/// saved: a lease is not to take the longer the more hosts there are.
pub const OTHERS_LOOKED_AT_MAX: usize = 1024;
/// Different reasons why workunits of one job failed that its explanation tells.
pub const FAILURES_TOLD_MAX: usize = 8;
/// Workunits that failed for one reason that its explanation names.
pub const INDEXES_TOLD_MAX: usize = 10;
/// Programs that hosts offer in the place of a missing one that an explanation names.
pub const OFFERS_TOLD_MAX: usize = 5;
/// Longest queue that is looked through for a host that may not take its head; in a longer one
/// it is remembered how far each voter has come.
pub const LIST_SCANNED_MAX: usize = 32;
/// Most entries before a voter's mark that are remembered one by one.
pub const MARK_RETURNED_MAX: usize = 64;
/// Most chunks of datasets that a policy for visualization tells apart.
pub const CHUNKS_MAX: usize = 1 << 20;
/// Most waiting replicas that are mapped at once; the next ones are mapped when these run.
pub const BATCH_REPLICAS_MAX: usize = 8_192;
/// Most slots of hosts that a batch is mapped onto: those that would end something of it first.
pub const BATCH_MACHINES_MAX: usize = 1_024;
/// Slots that it is mapped onto at least, where there are as many: fewer replicas are mapped instead.
pub const BATCH_MACHINES_LEAST: usize = 256;
/// Applications of batches whose run times are kept; of more, the one goes that was asked for longest
/// ago.
pub const BATCH_APPLICATIONS_MAX: usize = 256;
/// Kinds of hosts that their run times are told apart on; of more, the last ones are one.
pub const BATCH_KINDS_MAX: usize = 32;
/// Open workunits of a job that are looked at for a host that has nothing planned.
pub const BATCH_OPEN_LOOKED_AT: usize = 64;
/// Jobs whose times tell which slots would end something first.
pub const BATCH_JOBS_COMPARED: usize = 8;
/// Most machines for which the linear relaxation is solved while scheduling.
pub const RELAXED_MACHINES_MAX: usize = 256;

/// Latest due time of a job after its submission, in milliseconds: a year.
pub const DUE_MS_MAX: u64 = 365 * 86_400_000;
/// Most workunits of a job of the deadline lane: each is watched by itself.
pub const DUE_WORKUNITS_MAX: u32 = 10_000;
/// After this time, in seconds, what an owner has used of the farm counts half.
pub const USAGE_HALF_LIFE_S: f64 = 7.0 * 86_400.0;
/// How often the lanes are asked after one input: each time something took the place of smaller
/// replicas, which is the last time where nothing smaller runs.
pub(crate) const PLAN_PASSES_MAX: usize = 16;
/// Hosts that are asked at once whether they take what a limited account may hold again.
pub(crate) const FREED_WOKEN_MAX: usize = 32;
