//! Named bounds of everything that grows in an agent.

/// Reports that may wait for their verdict; beyond, the agent asks for no more work.
pub(crate) const UNACKED_REPORTS_MAX: usize = 4096;
/// Bytes of output that they may hold together.
pub(crate) const UNACKED_BYTES_MAX: u64 = 64 << 20;
/// Jobs whose tasks are remembered for one link.
pub(crate) const TASKS_MAX: usize = 4096;
/// Events that may wait for the main loop.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Inputs that are handled before what they caused is sent.
pub(crate) const BATCH_MAX: usize = 256;
/// Connections that the local socket serves at once; a further one replaces the oldest.
pub(crate) const SOCKET_CONNECTIONS_MAX: usize = 64;
/// How long a client of the local socket may take for its request, in milliseconds.
pub(crate) const SOCKET_REQUEST_MS_MAX: u64 = 1_000;
/// How long what was frozen for a render gets to stop before it is killed, in milliseconds.
pub(crate) const FROZEN_MS: u64 = 5;
/// Longest frame between an agent and one of its runners, in bytes.
pub(crate) const RUNNER_FRAME_BYTES_MAX: usize = 4 << 20;
/// Progress of one replica is told at most once in this many milliseconds.
pub(crate) const PROGRESS_INTERVAL_MS: u64 = 1_000;
/// Rounds of ending the processes that a command left behind.
pub(crate) const SWEEP_ROUNDS_MAX: u32 = 64;
/// Deepest game tree that the `gametree` kernel counts, in plies.
pub(crate) const GAMETREE_DEPTH_MAX: u8 = 12;
/// Plies that a game tree is split over at most.
pub(crate) const GAMETREE_SPLIT_PLIES_MAX: u8 = 4;
/// Shortest wait before the broker is called again, in milliseconds.
pub(crate) const RECONNECT_MS_MIN: u64 = 100;
/// Longest wait before the broker is called again, in milliseconds.
pub(crate) const RECONNECT_MS_MAX: u64 = 10_000;
/// How long opening a link may take, in milliseconds.
pub(crate) const CONNECT_MS_MAX: u64 = 10_000;
/// How often a quiet link is tested, in milliseconds.
pub(crate) const PING_INTERVAL_MS: u64 = 10_000;
/// Silence after which a link counts as dead, in milliseconds.
pub(crate) const LINK_SILENCE_MS_MAX: u64 = 30_000;
/// How long one transfer of a blob may stand still, in milliseconds.
pub(crate) const TRANSFER_STALL_MS_MAX: u64 = 30_000;
/// Tries to fetch or store one blob before the replica is given up.
pub(crate) const TRANSFER_TRIES_MAX: u32 = 8;
/// How long posting one host sample may take, in milliseconds.
pub(crate) const SAMPLE_POST_MS_MAX: u64 = 5_000;
/// How long the farewell to the broker may take at shutdown, in milliseconds.
pub(crate) const FAREWELL_MS_MAX: u64 = 500;
/// How long the last runners may take to die at shutdown, in milliseconds.
pub(crate) const LAST_RUNNERS_MS_MAX: u64 = 5_000;
/// Longest token file, in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 4096;
/// Tries to put a runner's session last; with the pause below, some seconds.
pub(crate) const AUTOGROUP_TRIES_MAX: u32 = 50;
/// Pause between two of these tries, in milliseconds: the kernel allows one every 100 ms.
pub(crate) const AUTOGROUP_PAUSE_MS: u64 = 101;
/// How long new hooks wait where their connections cannot be accepted, in milliseconds.
pub(crate) const ACCEPT_REST_MS: u64 = 10;
/// Most open files that an agent asks for. Some systems would allow a billion, and there are
/// programs that close every number up to the limit when they start.
pub(crate) const OPEN_FILES_MAX: u64 = 64 << 10;
