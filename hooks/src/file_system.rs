//! What kind of file system something lies on.

use std::path::Path;

/// As far as it matters for what has to be there at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// On a disk of this machine, or of a kind that is not known.
    Local,
    /// In memory.
    Memory,
    /// On another machine: it waits where that one, or the network, is slow.
    Network,
}

/// Of tmpfs and ramfs, by their numbers in the kernel's `magic.h`, like the others.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// Of NFS, SMB, CIFS, SMB2, AFS (two of them), Ceph, Lustre, GPFS, BeeGFS, Panasas and StorNext.
const NETWORK: [i64; 12] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x5346_414f,
    0x6b41_4653,
    0x00c3_6400,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0xaad7_aaea,
    0xbeef_dead,
];

impl FileSystem {
    /// Of what is there under this name, or of the nearest folder above it that is.
    #[must_use]
    #[allow(clippy::unnecessary_cast, reason = "the type is another on other machines")]
    pub fn of(path: &Path) -> Self {
        let found = path.ancestors().find_map(|path| rustix::fs::statfs(path).ok());
        found.map_or(Self::Local, |found| Self::of_kind(found.f_type as i64))
    }

    fn of_kind(magic: i64) -> Self {
        if MEMORY.contains(&magic) {
            Self::Memory
        } else if NETWORK.contains(&magic) {
            Self::Network
        } else {
            Self::Local
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_memory_is_no_disk() {
        let memory = Path::new("/dev/shm");
        assert!(!memory.exists() || FileSystem::of(memory) == FileSystem::Memory);
        assert_eq!(FileSystem::of(Path::new("/proc")), FileSystem::Local);
        assert_eq!(FileSystem::of(Path::new("/no/such/folder")), FileSystem::of(Path::new("/")));
    }

    #[test]
    fn what_a_server_holds_is_told_by_its_kind() {
        // NFS, CIFS and ext4.
        for (magic, kind) in [
            (0x6969, FileSystem::Network),
            (0xff53_4d42, FileSystem::Network),
            (0xef53, FileSystem::Local),
        ] {
            assert_eq!(FileSystem::of_kind(magic), kind, "{magic:#x}");
        }
    }
}
