//! What a host says of itself.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GpuInfo, HostKind, HostName, KernelName, OwnerName};

/// Where a host comes from: the two sides of the fragment-aware scheduler.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A render host (an RF-worker): harvested only inside its announced fragment.
    Farm,
    /// A volunteer's machine (a DG-worker).
    Desktop,
}

impl Origin {
    /// Both, in a fixed order.
    pub const ALL: [Self; 2] = [Self::Farm, Self::Desktop];

    /// The word for it, as in configuration and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Farm => "farm",
            Self::Desktop => "desktop",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a host is able and allowed to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Kernels built into its agent.
    pub kernels: BTreeSet<KernelName>,
    /// Programs that its owner allows, as absolute paths.
    pub commands: BTreeSet<String>,
    /// Most memory that one WebAssembly module gets, in MiB; 0 where the host runs none.
    pub wasm_memory_mib: u32,
    /// Most memory that one kernel with a specification gets, in MiB.
    pub kernel_memory_mib: u32,
    /// The graphics processor that computes kernels, where its owner gives one.
    pub gpu: Option<GpuInfo>,
}

/// What an agent tells the broker of its host when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its name, unique at one broker.
    pub name: HostName,
    /// Which side it is on.
    pub origin: Origin,
    /// Whose it is. Hosts that name the same owner share one vote on a workunit, and so do all
    /// that name none, unless the broker's `ownerless_hosts_vote` is `each`.
    pub owner: Option<OwnerName>,
    /// Cores that it could give at most.
    pub cores: u32,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// The class of hosts that it belongs to, where its owner named one.
    pub kind: Option<HostKind>,
    /// What it gives to copies of chunks of datasets, in MiB; the least recently used ones go first. 0
    /// where it keeps none.
    pub chunk_cache_mib: u64,
    /// What it runs.
    pub capabilities: Capabilities,
}
