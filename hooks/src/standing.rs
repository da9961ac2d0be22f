//! How an agent stands, for its owner: what `gleaner agent status` and `tasks` show.

use gleaner_protocol::farm::SampledBooking;
use gleaner_protocol::{Epoch, GpuInfo};
use serde::{Deserialize, Serialize};

/// How an agent stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Standing {
    /// The host's name.
    pub host: String,
    /// Cores that it has for harvest at most.
    pub cores: u32,
    /// What isolates its work: `cgroup2`, `cgroup1`, `hybrid` or `process-groups`.
    #[serde(default)]
    pub isolation: String,
    /// Replicas that may run: what bookings, openings and the owner leave, the least of them.
    pub slots: u32,
    /// Replicas that the owner allows now.
    pub allowed: u32,
    /// Replicas that run.
    pub running: u32,
    /// Replicas that are kept frozen for the owner's sake.
    pub frozen: u32,
    /// Whether it has a link to the broker.
    pub connected: bool,
    /// The epoch that it sees.
    pub epoch: Option<Epoch>,
    /// Whether the owner has paused it.
    pub paused: bool,
    /// Whether nothing new begins while what runs comes to its end, as its owner wants.
    #[serde(default)]
    pub finishing: bool,
    /// For how long still, in milliseconds; none where it was paused without an end.
    pub paused_ms: Option<u64>,
    /// The mark that stops all harvest here.
    pub stopped_by: Option<String>,
    /// Why less runs than there are cores; none where nothing is in the way.
    pub reasons: Vec<StandingReason>,
    /// What the agent looks at, and what it sees there.
    pub watched: Vec<(String, String)>,
    /// What the host does not grant the agent, and what that costs.
    #[serde(default)]
    pub missing_abilities: Vec<String>,
    /// What confines commands, or why none run; none where the owner allows none.
    #[serde(default)]
    pub commands: Option<String>,
    /// Names of processes whose children it takes for renders.
    #[serde(default)]
    pub workers: Vec<String>,
    /// Renders that hooks have told of and that have not ended, the first of them.
    #[serde(default)]
    pub bookings: Vec<SampledBooking>,
    /// How the GPU is used; none where the owner gives none.
    #[serde(default)]
    pub gpu: Option<GpuStanding>,
    /// What has ended here since the agent's start.
    #[serde(default)]
    pub counted: Counted,
}

/// Replicas that have ended on a host, by how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counted {
    /// They gave an output.
    pub outputs: u64,
    /// They failed.
    pub failed: u64,
    /// They were given back to the broker: a render or the owner drove them out.
    pub given_back: u64,
    /// They could not be run here.
    pub refused: u64,
    /// CPU time of those that gave an output or failed, in milliseconds.
    pub cpu_ms: u64,
}

/// One wish of a host's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Its key in the configuration, with its table.
    pub key: String,
    /// Its value, as it stands in a file.
    pub value: String,
    /// Where it was said: a file, an option, a variable, or nowhere (`default`).
    pub origin: String,
}

/// How the GPU of a host is used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuStanding {
    /// Which it is; none where none can be used.
    pub device: Option<GpuInfo>,
    /// Replicas that it has begun to compute since the agent's start.
    pub begun: u64,
    /// Replicas that were to be computed on it and begun again on the processor.
    pub failed: u64,
    /// Why the last of these was, or why there is none.
    pub trouble: Option<String>,
    /// Why nothing begins on it now; none where something may.
    pub held_back: Option<String>,
    /// What is seen of it, as far as something tells.
    pub seen: Option<String>,
}

/// One reason why less runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingReason {
    /// In one word, for programs.
    pub kind: String,
    /// In words.
    pub text: String,
}

/// One replica that an agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLine {
    /// In which slot.
    pub slot: u32,
    /// Which replica of what, in words.
    pub what: String,
    /// Whether it is kept frozen.
    pub frozen: bool,
    /// For how long it has been here, in milliseconds.
    pub age_ms: u64,
    /// The process group that runs it.
    pub pgid: i32,
    /// The share of a core in percent that it is held to; none for no limit.
    #[serde(default)]
    pub share_percent: Option<u32>,
}
