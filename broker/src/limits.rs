//! Named bounds of the broker's own queues, files and connections. Those of what crosses a
//! process boundary stand in [`gleaner_protocol::limits`].

use std::num::NonZeroU32;
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
/// Longest blob that lies in a segment of small blobs and not in a file of its own, in bytes: a
/// manifest with all its files inline.
pub const SMALL_BLOB_BYTES_MAX: usize = 512 << 10;
/// Longest chunk of a snapshot, in bytes.
pub const SNAPSHOT_CHUNK_BYTES_MAX: usize = RECORD_BYTES_MAX;
/// Old parts of the journal's entries that are removed between two commits.
pub const PRUNE_STEP_PARTS: usize = 256;
/// Memory that the journal's engine may use as cache, in bytes.
pub const STORE_CACHE_BYTES: u64 = 2 << 20;
/// How long opening the store waits for an instance in the same process that was closed just now.
pub const STORE_LOCK_TIME_MAX: Duration = Duration::from_secs(10);
/// A file of small blobs takes no further commit once it has this many bytes.
pub const OUTPUTS_SEGMENT_BYTES: u64 = 32 << 20;
/// File that is given up so that a store on a full disk can be opened, in bytes.
pub const BALLAST_BYTES: u64 = 16 << 20;
/// How long a commit that waits for free space waits between two looks.
pub const FULL_RECHECK: Duration = Duration::from_millis(200);

/// Piece in which blobs are read, written and hashed, in bytes.
pub const BLOB_PIECE_BYTES: usize = 256 << 10;
/// How long a blob that nobody refers to is kept after it was uploaded.
pub const UNUSED_BLOB_KEPT: Duration = Duration::from_secs(7 * 86_400);
/// How long a broker waits before it looks again whether there is something that nobody names.
pub const COLLECT_INTERVAL: Span = Span::from_secs(60);
/// So many times as long as a round took passes before the next one.
pub const COLLECT_RESTS: u64 = 20;
/// A round is done after this time even where no job was forgotten: for uploads that no job named.
pub const COLLECT_UNASKED_AFTER: Span = Span::from_secs(86_400);
/// Names that one turn of the driver tells a round, and jobs and workunits that it looks at for them.
pub const COLLECT_PAGE: usize = 4_096;
/// Memory of a round for what is named, in bytes: of more names more are taken for others.
pub const COLLECT_FILTER_BYTES_MAX: usize = 64 << 20;
/// Files that a round removes at once, and the pause after them.
pub const COLLECT_STEP_FILES: usize = 256;
/// See [`COLLECT_STEP_FILES`].
pub const COLLECT_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of outputs that a round writes anew at once.
pub const COLLECT_COPY_BYTES: usize = 1 << 20;
/// What replicas saved on the way that is kept for others, in bytes; what came longest ago goes
/// first.
pub const STATES_BYTES_MAX: u64 = 1 << 30;
/// Parts in which a long blob goes to a bucket, in bytes: a store takes 10,000 of one.
pub const BUCKET_PART_BYTES: u64 = 8 << 20;
/// Blobs that go to a bucket at once, each with a part in memory.
pub const BUCKET_UPLOADS_MAX: usize = 8;
/// How long a request to a bucket is tried again.
pub const BUCKET_RETRY_TIME: Duration = Duration::from_secs(30);
/// How long an old blob stays in a bucket that somebody said to name soon.
pub const BUCKET_BLOB_NAMED_WITHIN: Span = Span::from_secs(3_600);
/// So many of these are known one by one. More of them, and all blobs stay for that long.
pub const BUCKET_KEPT_MAX: usize = 1 << 18;
/// Hosts that a turn looks at for copies that make room for others.
pub const TURN_DISPLACING_HOSTS_MAX: usize = 8;
/// Copies of each that it looks at.
pub const DISPLACING_COPIES_MAX: usize = 2_048;
/// How long it takes until it is looked again for room for what jobs read.
pub const SHORT_LOOK_AFTER: Span = Span::from_millis(250);
/// After a start the core is told anew of keys that were revoked so long ago at most, in milliseconds.
pub const REVOKED_LATELY_MS: u64 = 3_600_000;
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

/// Requests for replicas of one host that are timed at once.
pub const REQUESTS_TIMED_MAX: usize = 64;

/// How long a comparison that this machine has no room for waits.
pub const COMPARISON_PAUSE: Duration = Duration::from_secs(1);

/// Longest profile of how long kernels take, in bytes: some hundred thousand replicas.
pub const KERNEL_TIMES_BYTES_MAX: u64 = 8 << 20;
/// Turns whose measured times of kernels may wait for the disk; those of more are let go.
pub const KERNEL_TIMES_QUEUED_MAX: usize = 1_024;

/// Turns whose recorded runs may wait to be taken into the history; those of more are let go.
pub const HISTORY_QUEUED_MAX: usize = 1_024;

/// Turns whose ended replicas may wait to be written down; those of more are let go, and that is said.
pub const USAGE_QUEUED_MAX: usize = 4_096;
/// Records of ended replicas that are kept for a disk that cannot be written; those of more are let
/// go, and that is said.
pub const USAGE_WAITING_MAX: usize = 65_536;
/// A segment of these records takes no further one once it has this many bytes.
pub const USAGE_SEGMENT_BYTES: u64 = 16 << 20;
/// Segments that are kept, some 2.5 million records in all; of more, the oldest go.
pub const USAGE_SEGMENTS_MAX: usize = 32;
/// Longest line of a segment, in bytes; a longer one is damage.
pub const USAGE_LINE_BYTES_MAX: usize = 4 << 10;
/// Rows in one answer of usage.
pub const USAGE_ROWS_MAX: usize = 100_000;
/// Leases of hosts that are away are compared with what the core knows of them this often.
pub const AWAY_LOOK: Span = Span::from_secs(10);

/// Datasets of one broker.
pub const DATASETS_MAX: usize = 10_000;
/// Chunks in one answer, and those that one turn of the driver looks at for an answer.
pub const CHUNKS_PAGE_MAX: usize = 2_048;

/// Copies of one host that are known; of more, the rest is not.
pub const HOST_COPIES_MAX: usize = 1 << 18;
/// Chunks that one host fetches at once because the broker told it to keep a copy.
pub const FETCHES_OF_HOST_MAX: usize = 2;
/// Within so long of a broker's start those come back that had a link to it: agents try every ten seconds.
pub const COPIES_BACK_AFTER: Span = Span::from_secs(15);
/// A host to which a copy did not come is told of no other for so long.
pub const COPY_RETRY_AFTER: Span = Span::from_secs(10);
/// Hosts that one is told of to fetch a copy from.
pub const SOURCES_MAX: usize = 4;
/// How long a host may read a copy of another's at least …
pub const SERVE_TIME_MIN: Span = Span::from_secs(60);
/// … and beyond that as long as it takes at so many bytes a second.
pub const COPY_RATE_MIN: u64 = 1 << 20;
/// A host from which another got no copy, or a wrong one, is not named to it for so long.
pub const SOURCE_RESTS: Span = Span::from_secs(600);
/// How long whoever joins a frame may read its layers where they were drawn.
pub const LAYER_SERVE_TIME: Span = Span::from_secs(5);
/// Hosts whose layers did not come bring them to the broker for so long …
pub const LAYERS_REST: Span = Span::from_secs(5);
/// … and twice as long each time that it happens again, so many times.
pub const LAYERS_REST_DOUBLES_MAX: u32 = 7;
/// Hosts that have to say so for it not to be named to anybody.
pub const ACCUSERS_MIN: usize = 2;
/// Hosts whose word of another's copies is kept.
pub const ACCUSERS_MAX: usize = 16;
/// Chunks that lack copies and that one turn of the driver looks at.
pub const TURN_CHUNKS_MAX: usize = 512;
/// Copies of a host whose link is gone for so long are no copies any more.
pub const COPIES_LOST_AFTER: Span = Span::from_secs(900);

/// Inputs of a job whose sizes are features of their own, the first ones.
pub const INPUT_FEATURES_MAX: usize = 4;
/// Commands that one turn of the driver takes at most.
pub const TURN_COMMANDS_MAX: usize = 256;
/// Jobs that one turn of the driver forgets at most because their time has come.
pub const TURN_FORGETS_MAX: usize = 16;
/// Most bytes of what a replica has printed that a log has: the last ones.
pub(crate) const LOG_BYTES_MAX: u64 = 64 << 10;
/// Most outputs of one workunit whose logs are told.
pub(crate) const LOG_OUTPUTS_MAX: usize = 8;
/// Most notes on polls that a monitor tells, and most contradictions.
pub(crate) const REPORT_LINES_MAX: usize = 1_000;
/// Most measures of renders that a monitor compares.
pub(crate) const COMPARED_METRICS_MAX: usize = 64;
/// Hosts that one turn of the driver stops at most, or lets go on, where harvest is stopped or resumed.
pub const TURN_HALTS_MAX: usize = 64;
/// Most characters of the reason for which harvest is stopped.
pub(crate) const STOP_REASON_CHARS_MAX: usize = 200;
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
/// Jobs in one answer, which one turn of the driver reads.
pub const JOBS_PAGE_MAX: usize = 1_000;
/// Hosts in one answer, which one turn of the driver reads.
pub const HOSTS_PAGE_MAX: usize = 1_000;
/// Workunits that have not ended in one answer, which one turn of the driver reads.
pub const WORKUNITS_PAGE_MAX: usize = 200;
/// Results in one answer.
pub const RESULTS_PAGE_MAX: u32 = 10_000;
/// Longest line of an export, in bytes.
pub const EXPORT_LINE_BYTES_MAX: u64 = 4 << 10;
/// Longest list of facts in an export, in bytes: a record as JSON, escapes counted.
pub const EXPORT_FACTS_BYTES_MAX: u64 = 512 << 20;
/// Workunits of a job whose results are looked up at once for its archive.
pub(crate) const ARCHIVE_PAGE: u32 = 256;
/// Pieces of an archive that wait for whoever reads it.
pub(crate) const ARCHIVE_PIECES_MAX: usize = 8;
/// Pieces of a backup that wait for whoever reads it.
pub const BACKUP_PIECES_MAX: usize = 16;
/// About how long the list of results in one answer may grow, in bytes.
pub const RESULTS_PAGE_BYTES_MAX: usize = 8 << 20;
/// Abilities that a host is said to back off from.
pub(crate) const BACKOFFS_TOLD_MAX: usize = 8;
/// For how long a monitor that knows who is known waits for news of them.
pub(crate) const FARM_PEOPLE_WAIT: Span = Span::from_secs(20);
/// Revocations that a slow listener may miss before it looks for itself.
pub(crate) const SESSIONS_TOLD_MAX: usize = 64;
/// Invitations that are remembered.
pub(crate) const INVITATIONS_MAX: usize = 1_000;
/// How often at most it is looked at what projects have used of their budgets.
pub(crate) const BUDGETS_LOOK: Span = Span::from_secs(10);
/// So many times as long as a look took passes before the next one, where that is longer.
pub(crate) const BUDGETS_REST: u64 = 20;
/// For how long the first administrator may join with the file of a broker's start, in seconds: the next
/// start makes another one.
pub(crate) const FIRST_INVITATION_S: u64 = 86_400;
/// Keys that may be enrolled with one invitation.
pub(crate) const INVITATION_USES_MAX: u32 = 10_000;
/// Longest time for which an invitation is good, in seconds.
pub(crate) const INVITATION_S_MAX: u64 = 30 * 86_400;
/// Principals that a broker knows, revoked ones included.
pub(crate) const PRINCIPALS_MAX: usize = 20_000;
/// For how long a broker remembers invitations that have ended, and principals that were revoked, in
/// seconds.
pub(crate) const REMEMBERED_S: u64 = 30 * 86_400;
/// So many seconds' worth of an owner's requests may come at once.
pub(crate) const REQUESTS_AT_ONCE_S: NonZeroU32 = NonZeroU32::new(10).expect("not 0");
/// Owners whose requests are counted before those are forgotten who have not asked lately.
pub(crate) const OWNERS_PACED: usize = 1_000;
/// In this time an owner may upload so much.
pub(crate) const UPLOADS_WINDOW: Span = Span::from_secs(86_400);
/// Longest body of a request that anybody may make, in bytes.
pub(crate) const OPEN_BODY_BYTES_MAX: u64 = 8 << 10;
/// Jobs of which a listener to events remembers whether they are there for it.
pub(crate) const EVENT_JOBS_REMEMBERED: usize = 4_096;
/// Seconds for which a link to the pages is good.
pub(crate) const LOGIN_S: u64 = 5 * 60;
/// Links to the pages that wait to be used.
pub(crate) const LOGINS_MAX: usize = 1_000;
/// Of these, so many at most are of one key.
pub(crate) const LOGINS_OF_ONE_MAX: usize = 10;
/// Streams that one key may have open.
pub(crate) const STREAMS_OF_ONE_MAX: usize = 64;
/// Seconds for which the cookie of a page is good.
pub(crate) const PAGE_S: u64 = 12 * 3_600;
/// Seconds after which an open page asks for another cookie.
pub(crate) const PAGE_RENEW_S: u64 = 3_600;
/// Shortest time between two pictures of the farm for whoever watches.
pub(crate) const PICTURE_INTERVAL: Span = Span::from_millis(250);
/// So many times as long as a picture kept the driver passes before the next one.
pub(crate) const PICTURE_RESTS: u64 = 20;
/// Changes between pictures that are kept for those who missed some; who missed more gets all of it.
pub(crate) const PICTURE_CHANGES_KEPT: usize = 16;
/// How long a picture may take to be taken by who watches.
pub(crate) const PICTURE_WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// How often who watches is asked whether they are there.
pub(crate) const WATCHER_PING: Duration = Duration::from_secs(20);
/// How long one watches with one connection: then who it is is looked up again.
pub(crate) const WATCH_TIME_MAX: Duration = Duration::from_secs(3_600);
/// Longest message of a watcher, in bytes: they have nothing to say.
pub(crate) const WATCHER_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// How often the farm is looked at for its history.
pub(crate) const FARM_LOOK: Duration = Duration::from_secs(5);
/// Rows of the farm's history that are kept: minutes, hours, days.
pub(crate) const FARM_ROWS_MAX: [usize; 3] = [2 * 1_440, 90 * 24, 10 * 366];
/// Longest line of the farm's history, in bytes; a longer one is damage.
pub(crate) const FARM_LINE_BYTES_MAX: usize = 1 << 10;
/// Longest file of the farm's history, in bytes.
pub(crate) const FARM_HISTORY_BYTES_MAX: u64 = 32 << 20;
/// Views that a broker keeps.
pub(crate) const VIEWS_MAX: usize = 10_000;
/// Of these, so many at most are of one owner.
pub(crate) const VIEWS_OF_ONE_MAX: usize = 64;
/// How long a view is kept that nobody uses, in milliseconds.
pub(crate) const VIEW_KEPT_MS: u64 = 7 * 86_400_000;
/// States that wait for whoever follows a view, until some are missed.
pub(crate) const FOLLOWED_STATES_MAX: usize = 256;
/// How often states of views are written down.
pub(crate) const VIEW_SAVE: Duration = Duration::from_secs(1);
/// How long a part of a frame may take, in seconds, bricks that are loaded for it included.
pub(crate) const FRAME_LEASE_S: u64 = 120;
/// After so long the coarse level is shown in the place of bricks.
pub(crate) const FRAME_LATE: Span = Span::from_millis(150);
/// After so long it is told why nothing is drawn.
pub(crate) const FRAME_WAITS: Span = Span::from_secs(1);
/// After so long a state that stays is drawn without a loss.
pub(crate) const FRAME_SETTLES: Span = Span::from_millis(300);
/// How long it rests before what was lost is tried again.
pub(crate) const FRAME_RESTS: Span = Span::from_millis(200);
/// Bytes of parts of frames that are on their way between agents and views, of all views together.
pub(crate) const FRAMES_BYTES_MAX: u64 = 1 << 30;
/// How long a picture may take to be taken by a client.
pub(crate) const FRAME_SEND_TIME_MAX: Duration = Duration::from_secs(30);
/// Replicas that the broker has ended, of which it waits to hear what they took.
pub const UNTOLD_MAX: usize = 4_096;
