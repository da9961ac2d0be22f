//! What a host keeps of datasets.

use std::net::SocketAddr;
use std::path::Path;

use gleaner_protocol::Origin;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// What a host keeps of datasets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChunkSettings {
    /// Disk space for copies of chunks, in MiB.
    pub disk_mib: Option<u64>,
    /// Memory for bricks that were decoded for views, of all slots together, in MiB.
    pub memory_mib: Option<u64>,
    /// Where other agents may call for copies, as the broker says; nowhere where not given.
    pub listen: Option<SocketAddr>,
    /// Most that copies may travel a second in both directions together, in MiB.
    pub mib_per_s: u64,
}

impl Default for ChunkSettings {
    fn default() -> Self {
        Self { disk_mib: None, memory_mib: None, listen: None, mib_per_s: 20 }
    }
}

impl ChunkSettings {
    /// Checks what can be checked.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let (value, min, max) = (self.mib_per_s, 1, RATE_MIB_MAX);
        match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(ConfigError::Range { key: "chunks.mib_per_s", value, min, max }),
        }
    }
}

/// Most that may travel a second, in MiB: more than any link carries.
const RATE_MIB_MAX: u64 = 100_000;

/// The part of the free disk that a farm host gives where its owner says nothing.
const FREE_PART: u64 = 10;
/// The part of its memory that it gives.
const MEMORY_PART: u64 = 8;
/// Memory that a desktop gives where its owner says nothing, in MiB.
const DESKTOP_MEMORY_MIB: u64 = 256;

impl Config {
    /// Disk space for copies of chunks, in MiB.
    pub(crate) fn chunk_disk_mib(&self) -> u64 {
        let wanted = match (self.chunks.disk_mib, self.origin) {
            (Some(mib), _) => mib,
            (None, Origin::Desktop) => 0,
            (None, Origin::Farm) => (free_bytes(&self.work_dir()) >> 20) / FREE_PART,
        };
        wanted.min(self.part_of_disk(4) >> 20)
    }
}

impl Config {
    /// Memory for decoded bricks in the runner of one slot, of a host that has so much, in MiB.
    pub(crate) fn bricks_mib(&self, host_mib: u64) -> u64 {
        let wanted = match (self.chunks.memory_mib, self.origin) {
            (Some(mib), _) => mib,
            (None, Origin::Desktop) => DESKTOP_MEMORY_MIB,
            (None, Origin::Farm) => host_mib / MEMORY_PART,
        };
        // No machine has more than it has, whatever stands in a file.
        wanted.min(host_mib) / u64::from(self.cores().max(1))
    }
}

/// Free space where a folder is, or will be; none where that cannot be seen.
fn free_bytes(folder: &Path) -> u64 {
    let there = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok());
    there.map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn farm_hosts_keep_copies_and_desktops_only_where_their_owner_says_so() {
        let kept = |origin, disk_mib, disk_mib_max| {
            let mut config = Config { origin, ..Config::default() };
            config.work_dir = Some("/var/tmp/of-an-agent".into());
            config.chunks.disk_mib = disk_mib;
            config.preferences.disk_mib_max = disk_mib_max;
            config.chunk_disk_mib()
        };
        assert_eq!(kept(Origin::Desktop, None, 0), 0);
        assert_eq!(kept(Origin::Desktop, Some(700), 0), 700);
        assert_eq!(kept(Origin::Farm, Some(0), 0), 0);
        assert_eq!(kept(Origin::Farm, Some(700), 400), 100);
        let of_memory = |origin, memory_mib| {
            let mut config = Config { origin, cores: 4, ..Config::default() };
            config.chunks.memory_mib = memory_mib;
            config.bricks_mib(64_000)
        };
        assert_eq!(of_memory(Origin::Desktop, None), 64);
        assert_eq!(of_memory(Origin::Farm, None), 2_000);
        assert_eq!(of_memory(Origin::Farm, Some(0)), 0);
        assert_eq!(of_memory(Origin::Desktop, Some(u64::MAX)), 16_000);
        let free = free_bytes(Path::new("/var/tmp")) >> 20;
        assert!(kept(Origin::Farm, None, 0) <= free / 5);
    }
}
