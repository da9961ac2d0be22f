//! Named bounds of the broker's own queues, files and connections. Those of what crosses a
//! process boundary stand in [`gleaner_protocol::limits`].

use std::time::Duration;

use gleaner_protocol::Span;

/// Longest single journal record, in bytes: twice the longest HTTP body, so that a submission
/// fits in whatever form it is recorded.
pub const RECORD_BYTES_MAX: usize = 32 << 20;
/// Most records that one commit takes together.
pub const COMMIT_RECORDS_MAX: usize = 16_384;
/// A commit takes no further batch once it has this many bytes.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// How long a commit that nobody waits for gathers others: a sync costs as much as a short task.
pub const COMMIT_GATHER_TIME: Span = Span::from_millis(5);
/// Batches that may wait for the committer before their senders do.
pub const COMMIT_QUEUE_MAX: usize = 4_096;
/// Longest blob that is kept in the journal's own file, in bytes: a manifest with all its files
/// inline.
pub const SMALL_BLOB_BYTES_MAX: usize = 512 << 10;
/// Longest chunk of a snapshot, in bytes.
pub const SNAPSHOT_CHUNK_BYTES_MAX: usize = RECORD_BYTES_MAX;
/// Old journal entries that are removed between two commits.
pub const PRUNE_STEP_ENTRIES: usize = 256;
/// Memory that the store may use as cache, in bytes.
pub const STORE_CACHE_BYTES: u64 = 2 << 20;
/// How long opening the store waits for an instance in the same process that was closed just now.
pub const STORE_LOCK_TIME_MAX: Duration = Duration::from_secs(10);
/// File that is given up so that a store on a full disk can be opened, in bytes.
pub const BALLAST_BYTES: u64 = 16 << 20;
/// How long a commit that waits for free space waits between two looks.
pub const FULL_RECHECK: Duration = Duration::from_millis(200);

/// Piece in which blobs are read, written and hashed, in bytes.
pub const BLOB_PIECE_BYTES: usize = 256 << 10;
/// How long a blob that nobody refers to is kept after it was uploaded.
pub const UNUSED_BLOB_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// What replicas saved on the way that is kept for others, in bytes; what came longest ago goes
/// first.
pub const STATES_BYTES_MAX: u64 = 1 << 30;
/// Slowest upload that is waited for, in bytes a second on average after its start.
pub const UPLOAD_BYTES_PER_S_MIN: u64 = 1 << 10;
/// How long an upload may take to get going.
pub const UPLOAD_START_MAX: Span = Span::from_secs(60);
/// Blob files that are read or written at once.
pub const BLOB_STREAMS_MAX: usize = 256;

/// Pairs of files that are compared within a tolerance for one report; more count as different.
pub const CLASS_COMPARISONS_MAX: usize = 16;
/// Reports of one control link whose outputs are compared, or wait for that; more hold up the link.
pub const REPORTS_ASIDE_MAX: usize = 64;
/// Jobs that a control link remembers as not compared.
pub const EXACT_JOBS_MAX: usize = 256;

/// How long a comparison that this machine has no room for waits.
pub const COMPARISON_PAUSE: Duration = Duration::from_secs(1);

/// Longest profile of how long kernels take, in bytes: some hundred thousand replicas.
pub const KERNEL_TIMES_BYTES_MAX: u64 = 8 << 20;
/// Turns whose measured times of kernels may wait for the disk; those of more are let go.
pub const KERNEL_TIMES_QUEUED_MAX: usize = 1_024;

/// Commands that one turn of the driver takes at most.
pub const TURN_COMMANDS_MAX: usize = 256;
/// Jobs that one turn of the driver forgets at most because their time has come.
pub const TURN_FORGETS_MAX: usize = 16;
/// Commands that wait for the driver at most; more hold up their senders.
pub const COMMANDS_QUEUED_MAX: usize = 1024;
/// Digests of outputs that are remembered as stored.
pub const RECENT_DIGESTS_MAX: usize = 4_096;
/// Shortest time between two progress events of a job.
pub const PROGRESS_INTERVAL: Span = Span::from_millis(100);
/// Facts in one record of the journal, or in a snapshot's chunk.
pub const RECORD_FACTS_MAX: usize = 4_096;
/// Events that a slow listener may be behind before it is told that it missed some.
pub const EVENTS_KEPT: usize = 1_024;
/// Batches of messages that wait for a control link at most.
pub const OUTBOX_BATCHES_MAX: usize = 1_024;
/// Messages in one frame to an agent.
pub const FRAME_MESSAGES_MAX: usize = 512;
/// How long a new control link may take to say hello.
pub const HELLO_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a control link may be silent. Agents ping more often.
pub const LINK_SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long writing one frame to an agent may take.
pub const FRAME_WRITE_TIME_MAX: Duration = Duration::from_secs(20);
/// Farm events in one request.
pub const FARM_EVENTS_MAX: usize = 10_000;
/// Results in one answer.
pub const RESULTS_PAGE_MAX: u32 = 10_000;
/// About how long the list of results in one answer may grow, in bytes.
pub const RESULTS_PAGE_BYTES_MAX: usize = 8 << 20;
/// Longest output that is shown as text in a list of results, in bytes.
pub const RESULT_TEXT_BYTES_MAX: usize = 256;
