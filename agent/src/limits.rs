//! Named bounds of everything that grows in an agent.

use std::time::Duration;

use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{PIECE_BYTES, Span};

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
/// How long what was killed may take to die before a person is told, in milliseconds.
pub(crate) const DIE_MS_MAX: u64 = 1_000;
/// After how long what was killed gets a turn to die in, in milliseconds, and after each turn again …
pub(crate) const DYING_WAIT_MS: u64 = 50;
/// … and how long that is.
pub(crate) const DYING_TURN_MS: u64 = 5;
/// Pause between two looks at whether it has, in milliseconds.
pub(crate) const DIE_PAUSE_MS: u64 = 2;
/// CPU time that what is frozen may be seen to use before it is ended, in milliseconds: what it is in
/// the middle of in the kernel, to give back much memory say, it comes to the end of.
pub(crate) const FROZEN_CPU_MS_MAX: u64 = 500;
/// After how long what was in somebody else's hand is tried to be killed again, in milliseconds.
pub(crate) const KILL_AGAIN_MS: u64 = 1;
/// How long a part of a frame that nobody wants any more may go on before its runner is killed, in
/// milliseconds: most end sooner, and what the runner has decoded is worth more than that.
pub(crate) const FRAME_STOP_MS_MAX: u64 = 100;
/// How long an idle runner keeps decoded bricks, in seconds.
pub(crate) const BRICKS_KEPT_S: u64 = 300;
/// How long one keeps what it has on a GPU, in seconds: no other replica has that meanwhile.
pub(crate) const GPU_KEPT_S: u64 = 60;
/// How often it is looked whether it may keep them, in seconds.
pub(crate) const BRICKS_LOOK_S: u64 = 1;
/// Chunks of which is known which slot drew them last.
pub(crate) const DRAWN_MAX: usize = 4_096;
/// Longest frame between an agent and one of its runners, in bytes.
pub(crate) const RUNNER_FRAME_BYTES_MAX: usize = 4 << 20;
/// Progress of one replica is told at most once in this many milliseconds.
pub(crate) const PROGRESS_INTERVAL_MS: u64 = 1_000;
/// Rounds of ending the processes that a command left behind; each takes note of one.
pub(crate) const SWEEP_ROUNDS_MAX: u32 = 4 * TASK_PROCESSES_MAX;
/// Times of one kind that were measured and wait for the broker to be told; more are in the agent's
/// own metrics only.
pub(crate) const UNSENT_TIMES_MAX: usize = 1_024;
/// How often the broker is told what was counted, where there is something to tell.
pub(crate) const METRICS_INTERVAL: Span = Span::from_secs(10);
/// How often the file of metrics is written, where it has changed.
pub(crate) const METRICS_FILE_INTERVAL: Duration = Duration::from_secs(5);
/// Deepest game tree that the `gametree` kernel counts, in plies.
pub(crate) const GAMETREE_DEPTH_MAX: u8 = 12;
/// Plies that a game tree is split over at most.
pub(crate) const GAMETREE_SPLIT_PLIES_MAX: u8 = 4;
/// Shortest wait before the broker is called again, in milliseconds.
pub(crate) const RECONNECT_MS_MIN: u64 = 100;
/// Longest wait before the broker is called again, in milliseconds.
pub(crate) const RECONNECT_MS_MAX: u64 = 10_000;
/// Shortest wait before a broker that refused this agent is called again, in milliseconds.
pub(crate) const REFUSED_MS_MIN: u64 = 1_000;
/// Longest wait before a broker that refused this agent is called again, in milliseconds.
pub(crate) const REFUSED_MS_MAX: u64 = 60_000;
/// How long opening a link may take, in milliseconds.
pub(crate) const CONNECT_MS_MAX: u64 = 10_000;
/// How often a quiet link is tested, in milliseconds.
pub(crate) const PING_INTERVAL_MS: u64 = 10_000;
/// Silence after which a link counts as dead, in milliseconds.
pub(crate) const LINK_SILENCE_MS_MAX: u64 = 30_000;
/// How long one transfer of a blob may stand still, in milliseconds.
pub(crate) const TRANSFER_STALL_MS_MAX: u64 = 30_000;
/// Readers of copies that a host has at once, and those that are about to show who they are.
pub(crate) const CHUNK_READERS_MAX: usize = 16;
/// Copies that may be read at one time, one for each who may.
pub(crate) const CHUNK_GRANTS_MAX: usize = 4_096;
/// How long a copy may be read at most, whatever the broker says, in milliseconds.
pub(crate) const CHUNK_GRANT_MS_MAX: u64 = 3_600_000;
/// How long a reader may take to show who it is, in milliseconds.
pub(crate) const CHUNK_HANDSHAKE_MS_MAX: u64 = 5_000;
/// Hosts that are awaited at one time: they call with a chunk, for nobody can call them.
pub(crate) const CHUNK_AWAITED_MAX: usize = 64;
/// How long one that was refused keeps its place, in milliseconds: so many may try a second at most.
pub(crate) const CHUNK_REFUSED_MS: u64 = 100;
/// How long a reader may ask for nothing, or not take what it asked for, in milliseconds.
pub(crate) const CHUNK_READER_MS_MAX: u64 = 15_000;
/// Bytes that are sent to a reader between two looks at what the owner allows.
pub(crate) const CHUNK_SLICE_BYTES: usize = 32 << 10;
/// Sources that failed and of which the broker is yet to hear.
pub(crate) const FAILED_SOURCES_MAX: usize = 64;
/// Sources that one copy is fetched from at once.
pub(crate) const CHUNK_SOURCES_MAX: usize = 4;
/// Pieces that a source is asked for at a time, so that it never waits for the next request.
pub(crate) const CHUNK_PIECES_ASKED_MAX: usize = 2;
/// How long connecting to a source may take, in milliseconds, and until one calls that nobody can call.
pub(crate) const CHUNK_CONNECT_MS_MAX: u64 = 3_000;
/// Tries to connect to one.
pub(crate) const CHUNK_CONNECT_TRIES_MAX: u32 = 4;
/// Pause before the second of these, in milliseconds; each further one is three times as long.
pub(crate) const CHUNK_CONNECT_PAUSE_MS: u64 = 50;
/// How long a source may be silent that was asked for something, in milliseconds.
pub(crate) const CHUNK_SILENCE_MS_MAX: u64 = 5_000;
/// How long one piece may take, in milliseconds.
pub(crate) const CHUNK_PIECE_MS_MAX: u64 = 15_000;
/// How long sources may take for one copy at least, in milliseconds; the broker gives the rest …
pub(crate) const CHUNK_PULL_MS_MIN: u64 = 60_000;
/// … and beyond that a millisecond for so many bytes.
pub(crate) const CHUNK_PULL_BYTES_PER_MS: u64 = 1_024;
/// Memory for layers of frames that this host drew and others join, in bytes.
pub(crate) const LAYERS_KEPT_BYTES_MAX: u64 = 64 << 20;
/// How many these are.
pub(crate) const LAYERS_KEPT_MAX: usize = 4_096;
/// How long one is kept that nobody fetches, in milliseconds: other hosts may have to load their bricks first.
pub(crate) const LAYER_KEPT_MS: u64 = 30_000;
/// How long the layers of a frame may take to come from a host at least, in milliseconds: then it is drawn
/// again …
pub(crate) const LAYERS_MS_MIN: u64 = 2_000;
/// … and beyond that a millisecond for so many bytes of all of them.
pub(crate) const LAYER_BYTES_PER_MS: u64 = 8_192;
/// Pause before a host is asked for a layer again that does not know yet who may fetch it, in milliseconds …
pub(crate) const LAYER_PAUSE_MS: u64 = 1;
/// … twice as long each time, up to so many.
pub(crate) const LAYER_PAUSE_MS_MAX: u64 = 50;
/// How long a connection waits for the layers of the next frame, in milliseconds.
pub(crate) const LAYER_CALL_IDLE_MS: u64 = 300;
/// Longest list of where the layers of a frame are, in bytes.
pub(crate) const LAYER_PLACES_BYTES_MAX: u64 = 8 << 20;
/// How often it is looked whether a source is late, in milliseconds.
pub(crate) const CHUNK_LOOK_MS: u64 = 20;
/// Longest list of the hashes of a chunk's pieces, in bytes: of the largest content.
pub(crate) const CHUNK_LIST_BYTES_MAX: usize = 64 + 33 * (BLOB_BYTES_MAX as usize / PIECE_BYTES);
/// Tries to fetch or store one blob before the replica is given up.
pub(crate) const TRANSFER_TRIES_MAX: u32 = 8;
/// How long posting one host sample may take, in milliseconds. The answer tells of a stop of the farm,
/// which has five seconds: two until the next sample, and this where that is lost, before another.
pub(crate) const SAMPLE_POST_MS_MAX: u64 = 2_500;
/// How long a sample waits for a preflight that has raised the epoch and has not booked yet, in
/// milliseconds.
pub(crate) const HALF_BOOKED_MS_MAX: u64 = 250;
/// How long the farewell to the broker may take at shutdown, in milliseconds.
pub(crate) const FAREWELL_MS_MAX: u64 = 500;
/// How long the last runners may take to die at shutdown, in milliseconds.
pub(crate) const LAST_RUNNERS_MS_MAX: u64 = 5_000;
/// Runners that may wait to be started.
pub(crate) const SPAWNS_MAX: usize = 64;
/// Open files that one of them is given at most.
pub(crate) const RUNNER_FILES_MAX: usize = 24;
/// How long the process that starts runners may take for one, in milliseconds. It runs last, beside
/// whatever renders.
pub(crate) const SPAWN_MS_MAX: u64 = 10_000;
/// Sessions of runners that there may be at one time: of a process that starts them, and of those
/// before it that have ended.
pub(crate) const SPAWNERS_MAX: usize = 8;
/// How long one may take to end that was killed, in milliseconds.
pub(crate) const SPAWNER_END_MS_MAX: u64 = 500;
/// How long one that was too slow may take to tell of the runners that it started all the same, in milliseconds.
pub(crate) const LATE_SPAWN_MS_MAX: u64 = 1_000;
/// Tries to put the runners' session last; with the pause below, some seconds.
pub(crate) const AUTOGROUP_TRIES_MAX: u32 = 50;
/// Pause between two of these tries, in milliseconds: the kernel allows one every 100 ms.
pub(crate) const AUTOGROUP_PAUSE_MS: u64 = 101;
/// How long new hooks wait where their connections cannot be accepted, in milliseconds.
pub(crate) const ACCEPT_REST_MS: u64 = 10;
/// Most open files that an agent asks for. Some systems would allow a billion, and there are
/// programs that close every number up to the limit when they start.
pub(crate) const OPEN_FILES_MAX: u64 = 64 << 10;
/// How long a host takes nothing after its own trouble (a full disk) kept a replica from running,
/// in milliseconds.
pub(crate) const TROUBLE_REST_MS: u64 = 60_000;
/// Open files that an agent needs for each slot: its control group, and the pipes of its runner.
pub(crate) const OPEN_FILES_PER_SLOT: u64 = 8;
/// Open files that an agent needs beside those: sockets, logs, folders, and what hooks open.
pub(crate) const OPEN_FILES_OF_AGENT: u64 = 128;
/// How long a load that comes and goes must stay away before harvest comes back, in milliseconds.
pub(crate) const CALM_MS_MIN: u64 = 10_000;
/// The same, where it came again and again, in milliseconds.
pub(crate) const CALM_MS_MAX: u64 = 320_000;
/// After how long away it is forgotten that it came before, in milliseconds.
pub(crate) const CALM_FORGOTTEN_MS: u64 = 600_000;
/// Over how long the load of others is judged, in milliseconds.
pub(crate) const LOAD_WINDOW_MS: u64 = 1_000;
/// Looks at the load of others that are remembered.
pub(crate) const LOAD_SAMPLES_MAX: usize = 64;
/// Load of others that counts as none, in thousandths of a core.
pub(crate) const OTHERS_MILLICORES_MIN: u32 = 250;
/// Load of others that does not cost one core more, in thousandths of a core.
pub(crate) const OTHERS_MILLICORES_SPARE: u32 = 150;
/// The least part of a core that is given up for others, where less than a core can be, in
/// thousandths.
pub(crate) const PART_PERMILLE: u32 = 250;
/// What a replica may read from and write to disks beside a render all the time, in KiB a second …
pub(crate) const DISK_LEAK_KIB_S: u64 = 256;
/// … and beyond that, in KiB: its program, its libraries and an input.
pub(crate) const DISK_BUCKET_KIB: u64 = 64 << 10;
/// How far apart two looks at that are at least, in milliseconds.
pub(crate) const DISK_LOOKS_MS: u64 = 300;
/// How often one that was seen to do more than that may try again beside a render, in milliseconds.
pub(crate) const DISK_TRY_MS: u64 = 20_000;
/// How much of the time programs may wait for memory, in thousandths.
pub(crate) const MEMORY_STALL_PERMILLE_MAX: u32 = 100;
/// How much of the time others may wait for a disk, in thousandths.
pub(crate) const DISK_STALL_PERMILLE_MAX: u32 = 200;
/// Free memory below which harvest gives its own back, in thousandths of the host's …
pub(crate) const MEMORY_FREE_PERMILLE_MIN: u64 = 50;
/// … and in MiB, whichever is less.
pub(crate) const MEMORY_FREE_MIB_MIN: u64 = 1_024;
/// How much cooler than the ceiling a machine that was too hot must be, in degrees Celsius.
pub(crate) const COOLER_C: i32 = 5;
/// Longest absence of the user that can be asked for, in minutes.
pub(crate) const USER_AWAY_MIN_MAX: u32 = 7 * 24 * 60;
/// Spans of hours in a week.
pub(crate) const WEEK_SPANS_MAX: usize = 64;
/// Programs that pause everything.
pub(crate) const PAUSING_PROGRAMS_MAX: usize = 64;
/// Longest name of a program, in bytes; the kernel keeps fifteen.
pub(crate) const PROGRAM_NAME_BYTES_MAX: usize = 255;
/// Replicas that one answer names.
pub(crate) const TASK_LINES_MAX: usize = 128;
/// Bookings that one answer names.
pub(crate) const BOOKING_LINES_MAX: usize = 32;
/// How often it is looked for what of the agent hangs, in milliseconds: no part of it is in the middle of
/// one turn for so long.
pub(crate) const TURN_MS_MAX: u64 = 10_000;
/// How often the host is looked at, in milliseconds.
pub(crate) const LOOK_MS: u64 = 1_000;
/// How often where something may be in our way, in milliseconds.
pub(crate) const ALERT_LOOK_MS: u64 = 100;
/// For how long after the kernel told of pressure, in milliseconds.
pub(crate) const ALERT_MS: u64 = 300;
/// How often while something runs, in milliseconds.
pub(crate) const BUSY_LOOK_MS: u64 = 400;
/// A look may take one part in so many of the time …
pub(crate) const LOOK_SHARE: u64 = 20;
/// … but looks are no further apart for that than so many milliseconds.
pub(crate) const SPACED_LOOK_MS_MAX: u64 = 2_000;
/// Threads of one group that a look goes over: more than its control group lets it have.
pub(crate) const TREE_THREADS_MAX: usize = 2_048;
/// How often it is looked for who is bound to a part of the machine, in milliseconds.
pub(crate) const BOUND_LOOK_MS: u64 = 900;
/// How soon after the last look another one follows where what is booked has changed, in milliseconds.
pub(crate) const BOUND_NEWS_MS: u64 = 300;
/// After so many of these looks it is found anew which threads are the kernel's own.
pub(crate) const BOUND_FORGET_LOOKS: u32 = 64;
/// Threads of one process that are asked what they are bound to.
pub(crate) const BOUND_THREADS_MAX: usize = 256;
/// Ancestors of a process that are gone through: deeper ones are a fork bomb's.
pub(crate) const ANCESTORS_MAX: u32 = 64;
/// Load of others at which the host is looked at more often, in thousandths of a core.
pub(crate) const BUSY_MILLICORES: u32 = 150;
/// After how long a process is believed to stay the program that it is, in milliseconds.
pub(crate) const PROGRAM_SETTLED_MS: u64 = 3_000;
/// How often all processes are asked anew what they are, in milliseconds.
pub(crate) const PROGRAMS_ANEW_MS: u64 = 30_000;
/// Bytes of a program's name that the kernel keeps.
pub(crate) const COMM_BYTES: usize = 15;
/// How often the size of the work folder is taken, in milliseconds.
pub(crate) const DISK_LOOK_MS: u64 = 30_000;
/// How often the day's counters are written, in milliseconds.
pub(crate) const USAGE_SAVE_MS: u64 = 30_000;
/// Files of the work folder whose sizes are added up.
pub(crate) const WORK_FILES_MAX: u32 = 200_000;
/// How often the login manager is asked, in milliseconds.
pub(crate) const LOGIND_LOOK_MS: u64 = 5_000;
/// Terminals that are looked at.
pub(crate) const TERMINALS_MAX: usize = 4_096;
/// How long it may take to bring to the broker what a module saved beside a render, in milliseconds.
pub(crate) const LAST_SAVE_MS_MAX: u64 = 2_000;
/// How long a module that is to stop may take before its runner is killed, in milliseconds.
pub(crate) const WASM_STOP_MS_MAX: u64 = 4;
/// Checkpoints that the agent keeps, in bytes; what was saved longest ago goes first.
pub(crate) const CHECKPOINTS_BYTES_MAX: u64 = 256 << 20;
/// Compiled modules whose place in the cache is remembered.
pub(crate) const COMPILED_MAX: usize = 4_096;
/// How long an agent waits for what clears up after an earlier one, in milliseconds.
pub(crate) const CLEAR_UP_MS_MAX: u64 = 2_000;
/// Pause between two looks at whether it has ended, in milliseconds.
pub(crate) const CLEAR_UP_PAUSE_MS: u64 = 10;
/// How long the login manager may take to answer, in milliseconds.
pub(crate) const LOGIND_ANSWER_MS_MAX: u64 = 500;
/// How long the answer to a hook waits for what is frozen to come to rest, in milliseconds.
pub(crate) const FREEZE_WAIT_MS_MAX: u64 = 4;
/// How long the answer to a hook waits until what has left its group is found, in milliseconds:
/// where there is no freezer, over all groups together.
pub(crate) const HURRY_MS_MAX: u64 = 2;
/// Pause between two looks at whether what is frozen has come to rest, in microseconds.
pub(crate) const FREEZE_WAIT_PAUSE_US: u64 = 100;
/// After how long what has not come to rest by then is put before all others to do so, in
/// microseconds: who leads a group was when it was told to stop.
pub(crate) const FREEZE_WAIT_URGE_US: u64 = 1_000;
/// Processes and threads of one command, and of one slot where its control group counts them.
pub(crate) const TASK_PROCESSES_MAX: u32 = 1_024;
/// Memory of a runner beside that of the command that it runs, in MiB.
pub(crate) const RUNNER_MEMORY_MIB: u64 = 64;
/// Memory of a runner beside that of the module that it compiles and runs, in MiB.
pub(crate) const COMPILER_MEMORY_MIB: u64 = 1_024;
/// Memory of a GPU's driver in a runner, beside that of what it computes, in MiB.
pub(crate) const DRIVER_MEMORY_MIB: u32 = 1_024;
/// For how long a GPU is left alone after something went wrong with it, in milliseconds.
pub(crate) const GPU_REST_MS: u64 = 60_000;
/// Jobs that are remembered to have failed on a GPU by their own fault.
pub(crate) const GPU_REFUSED_JOBS_MAX: usize = 64;
/// Memory of a GPU that stays free for others where the owner says nothing, in MiB: a desktop and a
/// browser grow by some hundred when somebody comes back to them.
pub(crate) const GPU_RESERVE_MIB: u64 = 512;
/// What the file of a volume has at least whose surface is cut on a GPU where the owner says nothing,
/// in MiB: of a smaller one a processor is done about when a driver has opened the device.
pub(crate) const GPU_SURFACE_MIB_MIN: u64 = 128;
/// Memory of a GPU that has to be free beside that before a task begins there, in MiB: with less a
/// processor is as fast.
pub(crate) const GPU_TASK_MIB_MIN: u64 = 256;
/// For how much of the time somebody who renders keeps a GPU busy, in percent: a window that is drawn
/// now and then is below.
pub(crate) const GPU_BUSY_PERCENT: u32 = 10;
/// Programs that may have the GPU open beside harvested work.
pub(crate) const GPU_BESIDE_MAX: usize = 64;
/// How often it is asked who else uses a GPU, in milliseconds.
pub(crate) const GPU_WATCH_MS: u64 = 1_000;
/// How long the answer may take before what it was last does not hold any more, in milliseconds.
pub(crate) const GPU_WATCH_ANSWER_MS: u64 = 2_000;
/// How long the answer may take, in milliseconds: the first of them has the driver loaded.
pub(crate) const GPU_WATCH_ANSWER_MS_MAX: u64 = 10_000;
/// Others that one answer names.
#[cfg(feature = "gpu")]
pub(crate) const GPU_USERS_MAX: usize = 64;
/// Parents that are looked through for the agent, from one of its processes.
#[cfg(feature = "gpu")]
pub(crate) const GPU_PARENTS_MAX: usize = 64;
/// How long a runner may take to open a GPU, in milliseconds: it may have to wait for a core.
pub(crate) const GPU_OPEN_MS_MAX: u64 = 30_000;
/// How long what computes on a GPU may be silent before its driver is taken to hang, in milliseconds:
/// it speaks after each short piece of work, for which it may have to wait for a core too.
pub(crate) const GPU_SILENCE_MS_MAX: u64 = 600_000;
/// Of how much of the time it uses the processor who is silent and works there, in thousandths: one
/// that hangs looks up at times.
pub(crate) const GPU_SILENT_CPU_PERMILLE: u64 = 10;
/// How many times as long one is waited for who is silent and works there all the time.
pub(crate) const GPU_SILENCE_TIMES_MAX: u64 = 6;
/// How long one try to confine something may take when an agent starts, in milliseconds.
pub(crate) const TRIAL_MS_MAX: u64 = 10_000;
/// How long it may then take to find the files that listed programs are, in milliseconds.
pub(crate) const RESOLVE_MS_MAX: u64 = 5_000;
/// How long a GPU may take to be opened when an agent starts, in milliseconds.
pub(crate) const GPU_LOOK_MS_MAX: u64 = 10_000;
/// Longest answer of a process that looks for a GPU, or at one, in bytes.
pub(crate) const GPU_ANSWER_BYTES_MAX: u64 = 16 << 10;
/// Longest part of a GPU's name that an owner may ask for, in bytes.
pub(crate) const GPU_NAME_BYTES_MAX: usize = 256;
/// Most events of processes that are heard before anything else is looked at.
pub(crate) const PROCESS_EVENTS_MAX: usize = 256;
/// How long the kernel may take to accept that it is asked about processes, in milliseconds.
pub(crate) const ACCEPT_MS_MAX: u64 = 1_000;
/// Days for which it is remembered how much memory renders had booked.
pub(crate) const BOOKED_MEMORY_DAYS: u64 = 30;
/// Memory that harvested work gets however much renders book, in thousandths of the host's.
pub(crate) const HARVEST_MEMORY_PERMILLE_MIN: u64 = 100;
/// How long the limit of the memory of all harvested work is left alone where it was refused, in
/// milliseconds.
pub(crate) const MEMORY_LIMIT_REST_MS: u64 = 10_000;
/// Memory that all harvested work leaves to the rest of the host, in thousandths of it.
pub(crate) const MEMORY_LEFT_PERMILLE: u64 = 100;
/// Most that the files of one command may hold together, in MiB, where the owner says nothing.
pub(crate) const COMMAND_DISK_MIB: u64 = 8_192;
/// Files and folders of one command, where the owner says nothing.
pub(crate) const COMMAND_FILES: u64 = 100_000;
/// Free space of a file system below which commands that write to it are ended, in MiB, or the
/// thousandth of it below, whichever is less.
pub(crate) const DISK_FREE_MIB_MIN: u64 = 512;
/// The same in thousandths of the file system.
pub(crate) const DISK_FREE_PERMILLE_MIN: u64 = 20;
/// Deepest folder of a command, below its own.
pub(crate) const COMMAND_DEPTH_MAX: usize = 128;
/// How soon after its start a command's files are first counted, in milliseconds.
pub(crate) const COMMAND_LOOK_MS_MIN: u64 = 100;
/// How long between two counts, in milliseconds.
pub(crate) const COMMAND_LOOK_MS_MAX: u64 = 2_000;
/// A count may take one part in so many of the time.
pub(crate) const COMMAND_LOOK_SHARE: u64 = 20;
/// First of the users that commands of a root agent run as; systemd's table of users leaves these
/// to nobody.
pub(crate) const COMMAND_USERS_FIRST: u32 = 60_800;
/// How many of them there are.
pub(crate) const COMMAND_USERS: u32 = 384;
/// How far apart the clocks of a host and of its farm's monitor may be: certificates and sessions are as
/// strict.
pub(crate) const OPENING_CLOCKS_APART_MAX: Span = Span::from_secs(120);
