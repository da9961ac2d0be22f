//! Named bounds of everything that grows around a module.

/// Files and folders that a module may have at once.
pub(super) const FILES_MAX: usize = 4_096;
/// Longest name of a module's file, in bytes.
pub(super) const FILE_NAME_BYTES_MAX: usize = 255;
/// A module's file up to this many bytes stays in memory.
pub(super) const FILE_IN_MEMORY_BYTES_MAX: usize = 64 << 10;
/// Descriptors that a module may have open.
pub(super) const DESCRIPTORS_MAX: usize = 128;
/// How much of a module's standard error is kept, in bytes.
pub(super) const STDERR_BYTES: usize = 1024;
/// The stack of a module's own calls, in bytes.
pub(super) const STACK_BYTES: usize = 1 << 20;
/// Modules that one runner keeps ready.
pub(super) const LOADED_MAX: usize = 4;
/// CPU time that compiling one module may take, in seconds.
pub(super) const COMPILE_CPU_S_MAX: u64 = 120;
/// A running module looks up at least this often, in milliseconds of CPU time.
pub(super) const TICK_MS: u64 = 500;
/// Checkpoints of one replica are handed to the agent at most once in this many milliseconds.
pub(super) const CHECKPOINT_INTERVAL_MS: u64 = 1_000;
