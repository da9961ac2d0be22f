//! What kind of file system something lies on.

use std::fs;
use std::os::unix::fs::MetadataExt;
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

impl FileSystem {
    /// Of what is there under this name, or of the nearest folder above it that is.
    #[must_use]
    #[allow(clippy::unnecessary_cast, reason = "the type is another on other machines")]
    pub fn of(path: &Path) -> Self {
        let found = path.ancestors().find_map(|path| Some((path, rustix::fs::statfs(path).ok()?)));
        let Some((path, found)) = found else { return Self::Local };
        match found.f_type as i64 {
            FUSE => Self::of_program(path),
            magic => Self::of_kind(magic),
        }
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

    fn of_program(path: &Path) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        fs::metadata(path).map_or(Self::Local, |found| Self::of_mount(&mounts, found.dev()))
    }

    /// Of a program whose mount has this device. Format: `proc_pid_mountinfo(5)`.
    fn of_mount(mounts: &str, device: u64) -> Self {
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mut kinds = mounts.lines().filter_map(|line| {
            let (head, tail) = line.split_once(" - ")?;
            (head.split(' ').nth(2) == Some(&*number)).then(|| tail.split(' ').next())?
        });
        let has_server = kinds.any(|kind| FUSE_WITH_SERVER.contains(&kind));
        if has_server { Self::Network } else { Self::Local }
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
    fn a_program_holds_files_of_this_machine_or_of_another() {
        let mounts = "\
40 30 0:50 / /net rw,nosuid shared:9 - fuse.sshfs me@head:/net rw,user_id=0
41 30 8:17 / /usb rw - fuseblk /dev/sdb1 rw
42 30 0:51 / /pool rw - fuse.mergerfs a:b rw
";
        let of = |major, minor| FileSystem::of_mount(mounts, rustix::fs::makedev(major, minor));
        assert_eq!(of(0, 50), FileSystem::Network);
        assert_eq!(of(8, 17), FileSystem::Local);
        assert_eq!(of(0, 51), FileSystem::Local);
        assert_eq!(of(0, 52), FileSystem::Local, "no such mount");
    }
}
