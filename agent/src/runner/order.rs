//! What an agent and its runners say to each other.

use std::path::PathBuf;

use gleaner_protocol::{Digest, KernelName};
use serde::{Deserialize, Serialize};

use crate::harvest::Product;

/// First on the socket: where the runner works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Folder for the files of one task at a time, for this runner alone.
    pub(crate) folder: PathBuf,
    /// Folder for large outputs, on the same file system.
    pub(crate) spool: PathBuf,
}

/// A replica to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// In the runner itself.
    Kernel(KernelOrder),
    /// As a child of it.
    Command(CommandOrder),
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
    /// Files that it reads.
    pub(crate) inputs: Vec<StagedInput>,
    /// Files that it writes.
    pub(crate) outputs: Vec<String>,
}

/// A file of the input cache that a command reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedInput {
    /// Its name in the task's folder.
    pub(crate) name: String,
    /// Where the cache has it.
    pub(crate) source: PathBuf,
    /// What it must hold.
    pub(crate) digest: Digest,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It came further; more replies follow.
    Progress {
        /// How far, in thousandths.
        permille: u16,
    },
    /// It has an output.
    Done {
        /// Its files.
        files: Vec<Product>,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
    },
    /// It ran and failed.
    Failed {
        /// In its words.
        reason: String,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
    },
    /// It cannot run here.
    CannotRun(String),
}
