//! What a host keeps of datasets.

use std::path::Path;

use gleaner_protocol::Origin;
use serde::{Deserialize, Serialize};

use super::Config;

/// What a host keeps of datasets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChunkSettings {
    /// Disk space for copies of chunks, in MiB.
    pub disk_mib: Option<u64>,
}

/// The part of the free disk that a farm host gives where its owner says nothing.
const FREE_PART: u64 = 10;

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
        let free = free_bytes(Path::new("/var/tmp")) >> 20;
        assert!(kept(Origin::Farm, None, 0) <= free / 5);
    }
}
