//! What the agent's decisions are told.

use gleaner_protocol::control::BrokerMessage;
use gleaner_protocol::{Content, Digest, LeaseToken, Measured};

use super::RunFolderState;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// A link to the broker stands, and nothing was said on it.
    LinkUp,
    /// It is gone.
    LinkDown,
    /// The broker said something.
    Broker(BrokerMessage),
    /// The run folder was read, after a hook spoke or where it may have changed unseen.
    RunFolder {
        /// What it says; None where it cannot be read.
        run_folder: Option<RunFolderState>,
        /// Replicas that were stopped for a render already.
        stopped: Vec<LeaseToken>,
        /// Replicas that are frozen for a render or by the broker's word and not killed, all of them.
        parked: Vec<LeaseToken>,
        /// The least that bookings left since the folder was read before, where a render has begun:
        /// it may have ended since, and no more of what was opened stays open.
        cores_left: Option<u32>,
    },
    /// What a replica saved is at the broker.
    StateStored {
        /// Which.
        token: LeaseToken,
        /// What it saved.
        state: Digest,
    },
    /// A replica saved where it is.
    Saved {
        /// Which.
        token: LeaseToken,
    },
    /// The owner allows this many replicas from now on.
    Allowance {
        /// How many.
        slots: u32,
        /// Replicas that were ended for the owner already.
        stopped: Vec<LeaseToken>,
    },
    /// A replica ended by itself.
    Ended {
        /// Which.
        token: LeaseToken,
        /// With what.
        result: RunResult,
    },
    /// The large files of an output are at the broker, or cannot get there.
    Stored {
        /// Whose.
        token: LeaseToken,
        /// Why they cannot.
        result: Result<(), String>,
    },
    /// A replica came further.
    Progress {
        /// Which.
        token: LeaseToken,
        /// How far, in thousandths.
        permille: u16,
    },
    /// All harvest of the farm is stopped, as the monitor itself says.
    FarmStops,
    /// Something on the host needs a person, in these words, or does not any more: nothing may
    /// run meanwhile.
    Alarm(Option<String>),
    /// Nothing but time went by.
    Tick,
    /// The agent is about to end: give everything back.
    Leave,
}

/// How a replica ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult {
    /// With an output.
    Output {
        /// Its files.
        files: Vec<Product>,
        /// CPU time it took, in microseconds.
        cpu_us: u64,
        /// How long it took, where that was measured and nothing held it up.
        measured: Option<Measured>,
        /// What went by while it ran, without the time for which it stood still, in microseconds.
        wall_us: u64,
        /// Most memory that it took, in MiB, where that was seen.
        peak_memory_mib: Option<u64>,
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
    /// It could not run because of the host itself, for this reason: a full disk, say.
    HostTrouble(String),
    /// It was stopped for a render or the owner, or not started for their sake.
    Preempted,
}

/// A file that a replica produced. Where its content is [`Content::Stored`], the content still
/// lies in the agent's spool folder.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Product {
    /// Its name.
    pub name: String,
    /// Its content.
    pub content: Content,
}
