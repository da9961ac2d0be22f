//! What a control group can do for us, and through which of its files.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that a hierarchy may or may not grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// Stops everything in a leaf where it stands, whatever it has forked.
    Freeze,
    /// Kills everything in a leaf with one write.
    Kill,
    /// Keeps a leaf off certain cores.
    Cpus,
    /// Lets a leaf run only where nothing else wants the core.
    Idle,
    /// Limits a leaf to a share of a core.
    Share,
    /// Weighs leaves against each other.
    Weight,
    /// Limits a leaf's memory, page cache of its files included.
    Memory,
    /// Limits a leaf's number of processes.
    Processes,
    /// Lets a leaf's disk accesses wait for others.
    Disk,
}

/// Which generation of control groups grants an ability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The unified hierarchy (version 2).
    Cgroup2,
    /// A hierarchy of version 1.
    Cgroup1,
}

impl Ability {
    /// All of them, the most important first.
    pub const ALL: [Self; 9] = [
        Self::Freeze,
        Self::Kill,
        Self::Cpus,
        Self::Idle,
        Self::Share,
        Self::Weight,
        Self::Memory,
        Self::Processes,
        Self::Disk,
    ];

    /// Its controller; none where every group has it.
    pub(crate) const fn controller(self, provider: Provider) -> Option<&'static str> {
        match (self, provider) {
            (Self::Freeze | Self::Kill, Provider::Cgroup2) => None,
            // The first generation has no such file: whoever kills walks over the members.
            (Self::Freeze | Self::Kill, Provider::Cgroup1) => Some("freezer"),
            (Self::Cpus, _) => Some("cpuset"),
            (Self::Idle | Self::Share | Self::Weight, _) => Some("cpu"),
            (Self::Memory, _) => Some("memory"),
            (Self::Processes, _) => Some("pids"),
            (Self::Disk, Provider::Cgroup2) => Some("io"),
            (Self::Disk, Provider::Cgroup1) => Some("blkio"),
        }
    }

    /// The file that must be there for it; none where nothing grants it.
    pub(crate) const fn file(self, provider: Provider) -> Option<&'static str> {
        Some(match (self, provider) {
            (Self::Freeze, Provider::Cgroup2) => "cgroup.freeze",
            (Self::Freeze, Provider::Cgroup1) => "freezer.state",
            (Self::Kill, Provider::Cgroup2) => "cgroup.kill",
            (Self::Kill, Provider::Cgroup1) => return None,
            (Self::Cpus, _) => "cpuset.cpus",
            (Self::Idle, _) => "cpu.idle",
            (Self::Share, Provider::Cgroup2) => "cpu.max",
            (Self::Share, Provider::Cgroup1) => "cpu.cfs_quota_us",
            (Self::Weight, Provider::Cgroup2) => "cpu.weight",
            (Self::Weight, Provider::Cgroup1) => "cpu.shares",
            (Self::Memory, Provider::Cgroup2) => "memory.max",
            (Self::Memory, Provider::Cgroup1) => "memory.limit_in_bytes",
            (Self::Processes, _) => "pids.max",
            (Self::Disk, Provider::Cgroup2) => "io.weight",
            (Self::Disk, Provider::Cgroup1) => "blkio.bfq.weight",
        })
    }

    /// What is lost without it.
    #[must_use]
    pub const fn without(self) -> &'static str {
        match self {
            Self::Freeze => "a release signals each process group, and walks over what left it",
            Self::Kill => "killing takes a walk over the members",
            Self::Cpus => {
                "harvested threads are kept off booked cores by their affinity, which a task may change"
            }
            Self::Idle => "harvested work is idle by scheduling class alone",
            Self::Share => "a slot gets a whole core or none",
            Self::Weight => "all slots weigh the same: a weight that a job asks for is not heeded",
            Self::Memory => {
                "a task's memory is limited per process, and its page cache is not: the files that it \
                 reads and writes may push those of renders out of memory"
            }
            Self::Processes => {
                "a task's processes are counted for its user, or by a walk over them now and then"
            }
            Self::Disk => "harvested reads and writes are idle by I/O class alone",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Freeze => "freeze",
            Self::Kill => "kill",
            Self::Cpus => "cpus",
            Self::Idle => "idle",
            Self::Share => "share",
            Self::Weight => "weight",
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
        })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup2 => "cgroup2",
            Self::Cgroup1 => "cgroup1",
        })
    }
}
