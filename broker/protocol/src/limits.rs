//! Named bounds of everything that crosses a process boundary.

use std::ops::RangeInclusive;

use thiserror::Error;

/// A number outside its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} is {value}, must be from {min} to {max}")]
pub struct OutOfRange {
    /// Of which field.
    pub field: &'static str,
    /// What was given.
    pub value: u64,
    /// Least allowed.
    pub min: u64,
    /// Most allowed.
    pub max: u64,
}

/// Checks a number.
///
/// # Errors
/// It is outside its range.
pub(crate) fn check_range(
    field: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), OutOfRange> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(OutOfRange { field, value, min, max }) }
}

/// Longest id or name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest message on the control link, in bytes.
pub const CONTROL_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest task of a job as it travels to an agent, in bytes: the rest of the message takes less
/// than what is left of [`CONTROL_MESSAGE_BYTES_MAX`].
pub const TASK_BYTES_MAX: usize = CONTROL_MESSAGE_BYTES_MAX - 64;
/// Most replicas that an agent may say it holds when it connects: those that run, those that are
/// parked, and those whose reports wait for a verdict.
pub const HELD_MAX: usize = (REPLICAS_PER_CORE_MAX as usize + 1) * CORES_MAX as usize + 4096;
/// Most ended bookings that one opening names.
pub const OPENING_ENDED_MAX: usize = 1_024;
/// Longest JSON body of an HTTP request, in bytes.
pub const HTTP_BODY_BYTES_MAX: u64 = 16 << 20;
/// Longest line on an agent's local socket, in bytes.
pub const HOOK_MESSAGE_BYTES_MAX: usize = 16 << 10;
/// An output up to this many bytes travels and is stored with its report; a larger one is a
/// blob of its own.
pub const INLINE_BYTES_MAX: usize = 4 << 10;
/// Longest text of an output that a list of results has, in bytes.
pub const RESULT_TEXT_BYTES_MAX: usize = 256;
/// Largest single blob (an input or an output), in bytes.
pub const BLOB_BYTES_MAX: u64 = 1 << 30;
/// Most chunks of one dataset, coarse ones counted.
pub const DATASET_CHUNKS_MAX: usize = 1 << 17;
/// Most steps of time of one dataset.
pub const DATASET_STEPS_MAX: u32 = 1 << 16;
/// Longest manifest of a dataset, in bytes.
pub const DATASET_MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Most copies of each chunk that a dataset may ask for.
pub const COPIES_MAX: u8 = 16;
/// Most output files of one replica.
pub const OUTPUT_FILES_MAX: usize = 64;
/// Most input files of one task.
pub const INPUT_FILES_MAX: usize = 64;
/// Most elements in a command's argument list.
pub const ARGV_MAX: usize = 1024;
/// Longest single argument or item, in bytes.
pub const ARGUMENT_BYTES_MAX: usize = 64 << 10;
/// Largest WebAssembly module, in bytes.
pub const WASM_MODULE_BYTES_MAX: u64 = 32 << 20;
/// Most memory that one replica of a module may ask for, in MiB: all that it can address.
pub const WASM_MEMORY_MIB_MAX: u32 = 4096;
/// Most that the files of one replica of a module may hold together, in MiB.
pub const WASM_DISK_MIB_MAX: u32 = 4096;
/// Most CPU time that one replica of a module may ask for, in seconds (30 days).
pub const WASM_CPU_S_MAX: u64 = 30 * 86_400;
/// Most instructions that one replica of a module may ask for.
pub const WASM_FUEL_MAX: u64 = 1 << 62;
/// Largest checkpoint that a module may offer, in bytes.
pub const WASM_CHECKPOINT_BYTES_MAX: usize = 1 << 20;
/// Largest state of a replica that the broker takes, in bytes: a checkpoint, and what is saved with
/// it.
pub const SAVED_STATE_BYTES_MAX: u64 = WASM_CHECKPOINT_BYTES_MAX as u64 + (4 << 10);
/// Longest specification of a kernel, in bytes.
pub const SPEC_BYTES_MAX: u64 = 1 << 20;
/// Most workunits of one job.
pub const WORKUNITS_MAX: u32 = 100_000_000;
/// Most replicas that a job may ask for at once per workunit.
pub const REPLICATION_MAX: u8 = 32;
/// Most attempts of a workunit that may end without an output, for each cause.
pub const ATTEMPTS_MAX: u16 = 100;
/// Most outputs over the life of a workunit, disagreeing ones counted.
pub const REPLICAS_MAX: u16 = 256;
/// Greatest error that a job may allow, in parts per billion (5 %).
pub const ERROR_PPB_MAX: u32 = 50_000_000;
/// Longest lease that a job may ask for, in seconds (ten years: batches that are known only by
/// their expected times run for more than a month).
pub const LEASE_S_MAX: u64 = 3_652 * 86_400;
/// Most CPU time that one replica is said to have taken, in microseconds: the longest lease.
pub const CPU_US_MAX: u64 = LEASE_S_MAX * 1_000_000;
/// Longest time for which a job may ask that a replica be kept frozen, in seconds (a day).
pub const KEEP_S_MAX: u64 = 86_400;
/// Longest time that a job may ask for to save a checkpoint when a render comes, in seconds.
pub const SAVE_S_MAX: u64 = 60;
/// Most memory that a command may ask to be limited to, in MiB (16 TiB).
pub const MEMORY_MIB_MAX: u32 = 1 << 24;
/// Most cores of one host.
pub const CORES_MAX: u32 = 4096;
/// Most GPUs that a workunit may ask for.
pub const GPUS_MAX: u8 = 16;
/// Most replicas that share a core, on average over the cores that a host gives.
pub const REPLICAS_PER_CORE_MAX: u32 = 2;
/// Least part of a core that a job may ask for, in thousandths.
pub const PART_PERMILLE_MIN: u32 = 1000 / REPLICAS_PER_CORE_MAX;
/// Longest name of a job, in bytes: it stands in lists beside others.
pub const JOB_NAME_BYTES_MAX: usize = 128;
/// Longest time that a job may say of its workunits beforehand, in seconds (three years).
pub const PROFILE_S_MAX: u64 = 100_000_000;
/// How sure a job may ask to be in time, in thousandths.
pub const CONFIDENCE_PERMILLE: RangeInclusive<u16> = 500..=999;
/// Most features that a job may be given.
pub const FEATURES_MAX: usize = 16;
/// Longest name of a feature, in bytes.
pub const FEATURE_NAME_BYTES_MAX: usize = 64;
/// Most messages in one frame of the control link: tiny ones take hundreds of times as much memory as
/// they take on the wire.
pub const FRAME_MESSAGES_MAX: usize = 4_096;

/// Frames of a view that are on their way and not drawn yet.
pub const VIEW_CREDITS: usize = 2;
/// Shortest side of a view's picture, in pixels.
pub const VIEW_SIDE_MIN: u32 = 16;
/// Longest side of a view's picture, in pixels.
pub const VIEW_SIDES_MAX: u32 = 4_096;
/// Most pixels of a view's picture.
pub const VIEW_PIXELS_MAX: u32 = 4 << 20;
/// Greatest number of a state: one that a browser can count to.
pub const VIEW_NUMBER_MAX: u64 = 1 << 53;
/// Most points of a view's transfer function.
pub const TRANSFER_POINTS_MAX: usize = 64;
/// Most bytes of what a part of a frame produces: a layer, or a picture.
pub const FRAME_PART_BYTES_MAX: u64 = 64 << 20;
/// Most strips that a frame's picture is joined in.
pub const FRAME_STRIPS_MAX: u8 = 16;
/// Most bytes of the layers of a frame together, with the length of each.
pub const FRAME_LAYERS_BYTES_MAX: u64 = 2 * FRAME_PART_BYTES_MAX;
/// Most bytes of what a client of a view says at once.
pub const VIEW_WISH_BYTES_MAX: usize = 16 << 10;
/// Longest time that a part of a paced frame takes for each of loading and drawing, in microseconds.
pub const PACED_US_MAX: u32 = 30_000_000;
/// Longest recording of views, in bytes.
pub const VIEW_RECORDING_BYTES_MAX: u64 = 64 << 20;
/// Most views of a recording.
pub const VIEW_RECORDING_VIEWS_MAX: usize = 64;
/// Longest time that a recording takes, in seconds.
pub const VIEW_RECORDING_S_MAX: u64 = 86_400;
/// Longest program that a host may offer, in bytes: a path.
pub const PROGRAM_BYTES_MAX: usize = 4 << 10;
/// Most kernels or commands that a host may offer.
pub const CAPABILITIES_MAX: usize = 256;
/// Longest name of a graphics processor, and of its driver, in bytes.
pub const GPU_TEXT_BYTES_MAX: usize = 256;
/// Most times of one kind that an agent says at once that it has measured.
pub const AGENT_TIMES_MAX: usize = 64;
/// Most copies of chunks that one message tells of.
pub const COPIES_TOLD_MAX: usize = 8_192;
/// Longest reason text that one part sends another, in bytes.
pub const REASON_BYTES_MAX: usize = 2 << 10;

/// Cuts `text` to [`REASON_BYTES_MAX`] bytes at a character boundary.
#[must_use]
pub fn bounded_reason(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        let mut end = REASON_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}
