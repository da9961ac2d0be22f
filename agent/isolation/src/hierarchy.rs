//! Which hierarchies of control groups this process is in, and where.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::ability::Provider;
use crate::aside::home;
use crate::mounts::{Mount, mounts};

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) provider: Provider,
    /// Controllers of a hierarchy of version 1; those of the unified one stand in its files.
    pub(crate) controllers: BTreeSet<String>,
    /// The group that this process is in, or was before it went aside.
    pub(crate) own: PathBuf,
}

/// Those that this process can see.
pub(crate) fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    let groups = fs::read("/proc/self/cgroup")?;
    Ok(parse(&mounts()?, &String::from_utf8_lossy(&groups)))
}

/// Where the process with these groups is. Format: `cgroups(7)`.
pub(crate) fn parse(mounts: &[Mount], groups: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts {
        let provider = match mount.kind.as_str() {
            "cgroup2" => Provider::Cgroup2,
            "cgroup" => Provider::Cgroup1,
            _ => continue,
        };
        let of_mount: BTreeSet<&str> = mount.super_options.iter().map(String::as_str).collect();
        let Some((controllers, path)) = own_path(groups, provider, &of_mount) else { continue };
        // The mount may show a part of the hierarchy only; what lies outside it is out of reach.
        let Ok(below) = Path::new(path).strip_prefix(&mount.root) else { continue };
        // Joined with nothing it would end with a slash.
        let is_root = below.as_os_str().is_empty();
        let own = if is_root { mount.point.clone() } else { mount.point.join(below) };
        let own = if provider == Provider::Cgroup2 { home(own) } else { own };
        let entry = Hierarchy { provider, controllers, own };
        if !found.iter().any(|other| same_hierarchy(other, &entry)) {
            found.push(entry);
        }
    }
    found
}

/// A hierarchy may be mounted more than once.
fn same_hierarchy(one: &Hierarchy, other: &Hierarchy) -> bool {
    one.provider == other.provider && one.controllers == other.controllers
}

/// The controllers and the path of this process in the hierarchy that a mount shows.
fn own_path<'a>(
    groups: &'a str,
    provider: Provider,
    of_mount: &BTreeSet<&str>,
) -> Option<(BTreeSet<String>, &'a str)> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, list, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match provider {
            Provider::Cgroup2 => number == "0" && list.is_empty(),
            Provider::Cgroup1 => {
                !list.is_empty() && list.split(',').all(|name| of_mount.contains(name))
            }
        };
        let names = || list.split(',').filter(|name| !name.is_empty()).map(String::from).collect();
        is_it.then(|| (names(), path))
    })
}

/// Whether a path lies on a control group file system, so that writing there can harm no file.
pub(crate) fn is_control_group(path: &Path) -> bool {
    // From the kernel's `magic.h`.
    const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
    const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
    rustix::fs::statfs(path).is_ok_and(|found| {
        let kind = u64::try_from(found.f_type).unwrap_or_default();
        kind == CGROUP_SUPER_MAGIC || kind == CGROUP2_SUPER_MAGIC
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse_mounts;

    fn parse_text(mounts: &str, groups: &str) -> Vec<Hierarchy> {
        parse(&parse_mounts(mounts.as_bytes()), groups)
    }

    const HYBRID_MOUNTS: &str = "\
24 30 0:22 / /sys rw - sysfs sysfs rw
31 24 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
33 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 31 0:30 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate
";
    const HYBRID_GROUPS: &str = "\
4:cpu,cpuacct:/
2:name=systemd:/user.slice/session-1.scope
0::/user.slice
";

    #[test]
    fn a_hybrid_host_has_each_hierarchy_once() {
        let found = parse_text(HYBRID_MOUNTS, HYBRID_GROUPS);
        let [cpu, systemd, unified] = &found[..] else { panic!("{found:?}") };
        assert_eq!(cpu.provider, Provider::Cgroup1);
        assert!(cpu.controllers.contains("cpu"));
        assert_eq!(cpu.own, Path::new("/sys/fs/cgroup/cpu"));
        assert!(systemd.controllers.contains("name=systemd"));
        assert_eq!(unified.provider, Provider::Cgroup2);
        assert_eq!(unified.own, Path::new("/sys/fs/cgroup/unified/user.slice"));
    }

    #[test]
    fn a_container_sees_a_part_of_the_hierarchy() {
        let mounts = "50 49 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let inside = parse_text(mounts, "0::/docker/abc/job\n");
        assert_eq!(inside[0].own, Path::new("/sys/fs/cgroup/job"));
        for group in ["/elsewhere", "/docker/abcd/job"] {
            assert_eq!(parse_text(mounts, &format!("0::{group}\n")), [], "{group}");
        }
    }

    #[test]
    fn a_mount_whose_name_is_no_text_hides_no_hierarchy() {
        let mut list = b"30 1 8:2 / /media/B\xfccher rw - vfat /dev/sdb1 rw\n".to_vec();
        list.extend_from_slice(HYBRID_MOUNTS.as_bytes());
        assert_eq!(parse(&parse_mounts(&list), HYBRID_GROUPS).len(), 3);
    }

    #[test]
    fn nonsense_is_no_hierarchy() {
        for mounts in ["", "x", "1 2 3", " - ", "1 2 0:1 / /a rw - cgroup2"] {
            assert_eq!(parse_text(mounts, "0::/\n"), [], "{mounts:?}");
        }
        assert_eq!(parse_text(HYBRID_MOUNTS, "what:ever\n\n"), []);
    }

    #[test]
    fn an_ordinary_folder_is_no_control_group() {
        assert!(!is_control_group(Path::new("/tmp")));
        assert!(!is_control_group(Path::new("/no/such/folder")));
    }
}
