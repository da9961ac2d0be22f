//! What an agent and its runners say to each other.

use std::path::PathBuf;

use gleaner_protocol::{Digest, FrameTask, KernelName, Measured, PciAddress};
use serde::{Deserialize, Serialize};

use super::look::{LookOrder, Seen};
use super::sandbox::Confines;
use crate::harvest::Product;

/// First on the socket: where the runner works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Folder for the files of one task at a time, for this runner alone.
    pub(crate) folder: PathBuf,
    /// Folder for large outputs, on the same file system.
    pub(crate) spool: PathBuf,
    /// What confines work; none where nothing does.
    pub(crate) confines: Option<Confines>,
    /// What one command may leave behind.
    pub(crate) limits: CommandLimits,
}

/// What one command may leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandLimits {
    /// Bytes that its files take together.
    pub(crate) bytes_max: u64,
    /// Files and folders.
    pub(crate) files_max: u64,
}

/// A replica to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// In the runner's worker.
    Kernel(KernelOrder),
    /// As a child of the runner.
    Command(CommandOrder),
    /// In the runner's worker, as a WebAssembly module.
    Wasm(WasmOrder),
    /// In the runner's worker, a kernel with a specification.
    Application(ApplicationOrder),
    /// In the runner's worker, a part of a frame of a view.
    Frame(FrameOrder),
    /// Look at what confines it, for a trial.
    Look(LookOrder),
    /// Have this replica of a module save where it is: it is about to end. One that has ended already
    /// is passed over.
    Save {
        /// Which.
        token: u64,
    },
    /// End this replica of a module, and keep the runner. One that has ended already is passed
    /// over.
    Stop {
        /// Which.
        token: u64,
    },
}

/// A replica of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelOrder {
    /// The lease's token; names the replica's large outputs.
    pub(crate) token: u64,
    /// Which kernel.
    pub(crate) kernel: KernelName,
    /// The workunit.
    pub(crate) index: u32,
    /// Its item.
    pub(crate) item: Option<String>,
}

/// A replica of a kernel with a specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApplicationOrder {
    /// The lease's token; names the replica's large outputs.
    pub(crate) token: u64,
    /// Which kernel.
    pub(crate) kernel: KernelName,
    /// Its specification.
    pub(crate) spec: StagedInput,
    /// Files that it reads.
    pub(crate) inputs: Vec<StagedInput>,
    /// The part of it that is to be done; none where all of it is.
    pub(crate) item: Option<String>,
    /// Most memory that it may have, in MiB.
    pub(crate) memory_mib: u32,
    /// What is said where that is too little.
    pub(crate) too_little: String,
    /// The GPU that may compute it; none where the processor is to.
    pub(crate) gpu: Option<GpuOrder>,
}

/// A part of a frame of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrameOrder {
    /// The lease's token; names what is drawn where that is large.
    pub(crate) token: u64,
    /// What is drawn.
    pub(crate) task: Box<FrameTask>,
    /// The workunit: which strip it is, where layers are joined.
    pub(crate) index: u32,
    /// What of.
    pub(crate) input: FrameInput,
    /// Most memory that it may take beside what is kept, in MiB.
    pub(crate) memory_mib: u32,
    /// Memory that decoded bricks may take from one order to the next, in MiB.
    pub(crate) bricks_mib: u64,
    /// How long it waits before it draws, as if that were drawing, in microseconds.
    pub(crate) waits_us: u64,
    /// The GPU that may draw it; none where the processor is to.
    pub(crate) gpu: Option<GpuOrder>,
}

/// What a part of a frame is drawn of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FrameInput {
    /// Nothing.
    Nothing,
    /// A brick, whose file has so many bytes.
    Chunk(StagedInput, u64),
    /// Layers that are joined, in this file.
    Layers(PathBuf),
}

/// The GPU that may compute a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GpuOrder {
    /// A part of its name; the strongest kind that there is where not given.
    pub(crate) name: Option<String>,
    /// Where it is, and where it is watched; none where it is on no bus.
    pub(crate) pci: Option<PciAddress>,
    /// Its free memory that stays free for others, in MiB.
    pub(crate) reserve_mib: u64,
    /// What a volume has at least whose surface it cuts, in MiB.
    pub(crate) surface_mib_min: u64,
}

/// A replica of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandOrder {
    /// The lease's token; names the replica's large outputs.
    pub(crate) token: u64,
    /// The file that is executed, already allowed.
    pub(crate) program: PathBuf,
    /// Its arguments, without the program, before substitution.
    pub(crate) arguments: Vec<String>,
    /// The workunit.
    pub(crate) index: u32,
    /// Its item.
    pub(crate) item: Option<String>,
    /// The name of the chunk that it reads, which is one of its inputs.
    pub(crate) chunk: Option<String>,
    /// Files that it reads.
    pub(crate) inputs: Vec<StagedInput>,
    /// Files that it writes.
    pub(crate) outputs: Vec<String>,
    /// Cores that it may use, the last of them maybe in part.
    pub(crate) cores: u32,
    /// Memory that each of its processes may have, in MiB; none for no limit.
    pub(crate) data_mib: Option<u64>,
}

/// A file of the input cache that a task reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedInput {
    /// Its name in the task's folder.
    pub(crate) name: String,
    /// Where the cache has it.
    pub(crate) source: PathBuf,
    /// What it must hold.
    pub(crate) digest: Digest,
}

/// A replica of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WasmOrder {
    /// The lease's token; names the replica's large outputs.
    pub(crate) token: u64,
    /// The module.
    pub(crate) module: StagedInput,
    /// What was compiled of it before, on this host.
    pub(crate) compiled: Option<CompiledModule>,
    /// Its arguments, before substitution.
    pub(crate) arguments: Vec<String>,
    /// The workunit.
    pub(crate) index: u32,
    /// Its item.
    pub(crate) item: Option<String>,
    /// Names job and workunit, the same for all of its replicas.
    pub(crate) workunit: Digest,
    /// The name of the chunk that it reads, which is one of its inputs.
    pub(crate) chunk: Option<String>,
    /// Files that it reads.
    pub(crate) inputs: Vec<StagedInput>,
    /// Files that it writes.
    pub(crate) outputs: Vec<String>,
    /// Most memory that it may have, in MiB.
    pub(crate) memory_mib: u32,
    /// Most that its files may hold together, in MiB.
    pub(crate) disk_mib: u32,
    /// Most CPU time, in seconds.
    pub(crate) cpu_s: u64,
    /// Most instructions, where they are counted.
    pub(crate) fuel: Option<u64>,
    /// What an earlier replica of the workunit saved on this host.
    pub(crate) checkpoint: Option<Vec<u8>>,
}

/// A file of the cache that holds a compiled module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompiledModule {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What it must hold.
    pub(crate) digest: Digest,
}

/// Whose fault it is that a GPU does not compute a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The GPU's or its driver's: it would do the same to any other.
    Device,
    /// The replica's: its job asks for more than there is.
    Job,
    /// Either's.
    Unclear,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It came further; more replies follow.
    Progress {
        /// How far, in thousandths.
        permille: u16,
    },
    /// It is about to open a GPU; more replies follow.
    OpensGpu,
    /// What computes it, where a GPU may; more replies follow. What a GPU draws for views stays there
    /// until the process ends.
    ComputedBy {
        /// The GPU's name; none where the processor does.
        gpu: Option<String>,
    },
    /// The GPU does not compute it to its end. Its runner is of no more use: a device that hangs is
    /// let go of with its process only.
    GpuFailed {
        /// In words.
        reason: String,
        /// Whose fault that is.
        of: Fault,
    },
    /// Its module was compiled, and lies in the spool folder for the agent to keep; more replies
    /// follow.
    Compiled {
        /// What it holds.
        digest: Digest,
        /// Its length.
        bytes: u64,
    },
    /// It saved this, for the agent to keep; more replies follow.
    Checkpoint {
        /// What.
        bytes: Vec<u8>,
    },
    /// It was stopped, as the agent asked.
    Stopped,
    /// It looked, and saw this.
    Seen(Seen),
    /// It has an output.
    Done {
        /// Its files.
        files: Vec<Product>,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
        /// How long it took, where it is a kernel with a specification.
        measured: Option<Measured>,
    },
    /// It ran and failed.
    Failed {
        /// In its words.
        reason: String,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
    },
    /// It ran and failed, and what it has started is more than its runner can end: that is to end with it.
    Overrun {
        /// In its words.
        reason: String,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
    },
    /// It cannot run here.
    CannotRun(String),
}
