//! What kind of file system something lies on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gleaner_isolation::Mount;

/// As far as it matters for what has to be there at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// On a disk of this machine, or of a kind that is not known
    /// ([`FileSystem::unknown_program`]).
    Local,
    /// In memory.
    Memory,
    /// On another machine: it waits where that one, or the network, is slow.
    Network,
}

/// Of tmpfs and ramfs, by their numbers in the kernel's `magic.h`, like the others.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// Of NFS, SMB, CIFS, SMB2, AFS (two of them), Ceph, Lustre, GPFS, BeeGFS, Panasas, StorNext, 9P,
/// Coda, and of OCFS2 and GFS2, whose disks are shared with machines that they ask for locks.
const NETWORK: [i64; 16] = [
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
    0x0102_1997,
    0x7375_7245,
    0x7461_636f,
    0x0116_1970,
];
/// Of all file systems that are programs (FUSE), of this machine or another.
const FUSE: i64 = 0x6573_5546;
/// Those of them that have a server, by the kind that they are mounted as.
const FUSE_WITH_SERVER: [&str; 17] = [
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.gcsfuse",
    "fuse.goofys",
    "fuse.juicefs",
    "fuse.mfs",
    "fuse.mfsmount",
    "fuse.saunafs",
    "fuse.lizardfs",
    "fuse.seaweedfs",
    "fuse.davfs",
    "fuse.curlftpfs",
    "fuse.cvmfs2",
];

/// Those of them that keep their files on this machine.
const FUSE_LOCAL: [&str; 15] = [
    "fuseblk",
    "fuse.mergerfs",
    "fuse.overlayfs",
    "fuse.fuse-overlayfs",
    "fuse.unionfs",
    "fuse.unionfs-fuse",
    "fuse.mhddfs",
    "fuse.bindfs",
    "fuse.lxcfs",
    "fuse.ntfs-3g",
    "fuse.exfat",
    "fuse.gocryptfs",
    "fuse.encfs",
    "fuse.squashfuse",
    "fuse.fuse2fs",
];

impl FileSystem {
    /// Of what is there under this name, or of the nearest folder above it that is.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        match nearest(path) {
            None => Self::Local,
            Some((path, FUSE)) => {
                let has_server = kinds_here(path).iter().any(|kind| has_server(kind));
                if has_server { Self::Network } else { Self::Local }
            }
            Some((_, magic)) => Self::of_kind(magic),
        }
    }

    /// The kind of the program (FUSE) that holds what is there, where it is neither known to keep its
    /// files on this machine nor to have a server: it may be either.
    #[must_use]
    pub fn unknown_program(path: &Path) -> Option<String> {
        let (path, magic) = nearest(path)?;
        let kinds = if magic == FUSE { kinds_here(path) } else { Vec::new() };
        kinds.into_iter().find(|kind| !has_server(kind) && !FUSE_LOCAL.contains(&&**kind))
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

/// What is there, or the nearest folder above it that is, and its kind's number.
#[allow(clippy::unnecessary_cast, reason = "the type is another on other machines")]
fn nearest(path: &Path) -> Option<(&Path, i64)> {
    path.ancestors().find_map(|path| Some((path, rustix::fs::statfs(path).ok()?.f_type as i64)))
}

fn has_server(kind: &str) -> bool {
    FUSE_WITH_SERVER.contains(&kind)
}

/// As what the program of this path is mounted.
fn kinds_here(path: &Path) -> Vec<String> {
    let mounts = gleaner_isolation::mounts().unwrap_or_default();
    fs::metadata(path).map_or(Vec::new(), |found| kinds_of(&mounts, found.dev()))
}

/// Of all mounts with this device.
fn kinds_of(mounts: &[Mount], device: u64) -> Vec<String> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let of_device = mounts.iter().filter(|mount| mount.device == number);
    of_device.map(|mount| mount.kind.clone()).collect()
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
        // NFS, CIFS, 9P, OCFS2, GFS2 and ext4.
        for (magic, kind) in [
            (0x6969, FileSystem::Network),
            (0xff53_4d42, FileSystem::Network),
            (0x0102_1997, FileSystem::Network),
            (0x7461_636f, FileSystem::Network),
            (0x0116_1970, FileSystem::Network),
            (0xef53, FileSystem::Local),
        ] {
            assert_eq!(FileSystem::of_kind(magic), kind, "{magic:#x}");
        }
    }

    #[test]
    fn a_program_holds_files_of_this_machine_or_of_another_or_nobody_knows() {
        let mounts = "\
40 30 0:50 / /net rw,nosuid shared:9 - fuse.sshfs me@head:/net rw,user_id=0
41 30 8:17 / /usb rw - fuseblk /dev/sdb1 rw
42 30 0:51 / /pool rw - fuse.mergerfs a:b rw
43 30 0:53 / /odd rw - fuse tool rw
44 30 0:54 / /new rw - fuse.newfs tool rw
";
        let mounts = gleaner_isolation::parse_mounts(mounts.as_bytes());
        for (major, minor, server, unknown) in [
            (0, 50, true, false),
            (8, 17, false, false),
            (0, 51, false, false),
            (0, 53, false, true),
            (0, 54, false, true),
        ] {
            let kinds = kinds_of(&mounts, rustix::fs::makedev(major, minor));
            assert_eq!(kinds.len(), 1, "{kinds:?}");
            assert_eq!(has_server(&kinds[0]), server, "{kinds:?}");
            assert_eq!(!server && !FUSE_LOCAL.contains(&&*kinds[0]), unknown, "{kinds:?}");
        }
        assert!(kinds_of(&mounts, rustix::fs::makedev(0, 52)).is_empty(), "no such mount");
        assert_eq!(FileSystem::unknown_program(Path::new("/proc")), None);
    }
}
