//! Named bounds of the hook.

use gleaner_protocol::Span;

/// How long a hook waits for the agent's answer, unless told otherwise.
pub const AGENT_TIMEOUT: Span = Span::from_millis(30);
/// After how long a hook process ends whatever hangs, unless told otherwise.
pub const DEADLINE: Span = Span::from_millis(500);
/// Longest deadline that can be set.
pub const DEADLINE_MAX: Span = Span::from_secs(30);
/// Longest deadline that the environment can set: a job may have part in it.
pub const DEADLINE_OF_ENVIRONMENT_MAX: Span = Span::from_secs(2);
/// How long a hook that hangs has, after its deadline, to stop the work all the same.
pub const LAST_STOP: Span = Span::from_millis(100);
/// How long a hook waits for killed process groups to be gone.
pub const STOP_WAIT: Span = Span::from_millis(20);
/// For how long a postflight that came first takes the sting out of its preflight.
pub const LATE_PREFLIGHT: Span = Span::from_secs(60);
/// Most ended bookings that a run folder remembers.
pub const ENDED_BOOKINGS_MAX: usize = 64;
/// Most entries that are read of one folder.
pub const FOLDER_ENTRIES_MAX: usize = 16 << 10;
/// Longest file of a run folder, in bytes.
pub const RUN_FILE_BYTES_MAX: u64 = 4 << 10;
/// As far as a process's line in `/proc` is read, in bytes.
pub const STAT_BYTES_MAX: usize = 1 << 10;
/// Longest path of a Unix socket, in bytes.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Tries to tell the monitor of an event.
pub const NOTIFY_TRIES: u32 = 5;
/// After how long telling the monitor is given up.
pub const NOTIFY_DEADLINE: Span = Span::from_secs(10);
/// Pause before the second try; it doubles with each further one.
pub const NOTIFY_PAUSE: Span = Span::from_millis(200);
/// Longest single try.
pub const NOTIFY_TRY: Span = Span::from_secs(2);
/// How much of the monitor's answer is read, in bytes.
pub const NOTIFY_ANSWER_BYTES_MAX: u64 = 16 << 10;
/// Longest token file, in bytes.
pub const TOKEN_BYTES_MAX: u64 = 4 << 10;
/// Most nodes of a Slurm node list that are looked through.
pub const SLURM_NODES_MAX: usize = 1 << 17;
/// Most GPUs of one host.
pub const GPUS_MAX: u32 = 1024;
/// How much of a file of Grid Engine's hosts is read, in bytes.
pub const HOST_FILE_BYTES_MAX: u64 = 1 << 20;
/// How often a process is looked at whose end the kernel does not tell.
pub const LOOK_AGAIN: Span = Span::from_secs(1);
/// How much of what a farm manager writes to a hook's input is read, in bytes.
pub const INPUT_BYTES_MAX: usize = 1 << 20;
/// How long a hook waits for that input to end.
pub const INPUT_WAIT: Span = Span::from_millis(100);
/// Longest configuration file of a farm manager that is read, in bytes.
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// How much of what a farm manager's program prints is read, in bytes.
pub const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// How deep files that include each other are followed.
pub const INCLUDES_MAX: usize = 8;
/// How long a farm manager's program may take to answer an installation.
pub const MANAGER_WAIT: Span = Span::from_secs(20);
/// How long a program of ours may take to say its version.
pub const VERSION_WAIT: Span = Span::from_secs(5);
/// How long an agent may take to say how it stands, where a person waits for it.
pub const STANDING_TIMEOUT: Span = Span::from_secs(5);
/// How long a probe job may take until its submitter takes it away again, in seconds.
pub const PROBE_JOB_S: u64 = 50;
/// How long a probe job may take, from its submission to its end, its being taken away included.
pub const PROBE_WAIT: Span = Span::from_secs(60);
/// How long after a probe job its booking may stand.
pub const PROBE_END_WAIT: Span = Span::from_secs(10);
/// Most processes that descend from one task group's leader that are looked for: more than it may have,
/// by its agent's limits.
pub const FAMILY_MAX: usize = 4_096;
/// Threads that one walk over such families looks at.
pub const FAMILY_THREADS_MAX: usize = 16 << 10;
/// How long such a walk takes at most.
pub const FAMILY_WALK: Span = Span::from_secs(1);
/// How long it takes where a render waits, over all groups together: once to stop what has left
/// them, and once to let them die in time.
pub const STOP_WALK: Span = Span::from_millis(10);
/// Rounds of stopping what a task group started elsewhere while it was being stopped.
pub const STRAY_ROUNDS_MAX: u32 = 8;
/// Linux cuts the names of processes to so many bytes.
pub const PROCESS_NAME_BYTES_MAX: usize = 15;
/// Stack that a hook has, in bytes: more than any of it needs, and little of the 16 MiB of address space that
/// a hook gets along with.
pub const STACK_BYTES: u64 = 1 << 20;
/// Stack of the thread that watches a hook's deadline, in bytes.
pub const WATCHER_STACK_BYTES: usize = 256 << 10;
