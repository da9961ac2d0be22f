//! What a command may see of the host's files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Confines;
use super::mount_table::MountTable;

/// The system's folders, to be read only. Those that a host does not have are passed over.
pub(super) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system",
    "/sys/kernel/mm/transparent_hugepage",
    "/var/cache/fontconfig",
];

/// Of `/etc` what programs need to find libraries, fonts, certificates and the time; nothing that
/// is somebody's.
pub(super) const ETC: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/glvnd",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/OpenCL",
    "/etc/os-release",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
    "/etc/vulkan",
];

/// What a network needs besides.
pub(super) const ETC_OF_NETWORK: &[&str] = &["/etc/hosts", "/etc/resolv.conf"];

/// Devices that are nobody's.
pub(super) const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Of `/proc` what is the machine's and no process's.
pub(super) const PROC: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
];

/// Where a command has what is its own; nothing of the host can be shown there.
pub(super) const OWN: &[&str] = &["/dev", "/proc", "/task", "/tmp", "/var/tmp"];

/// Everything that may be read: of the system, and what the owner names.
pub(super) fn readable(confines: &Confines) -> Vec<PathBuf> {
    let network = if confines.network { ETC_OF_NETWORK } else { &[] };
    let system = [SYSTEM, ETC, network].into_iter().flatten().map(PathBuf::from);
    system.chain(confines.read.iter().cloned()).filter(|path| path.exists()).collect()
}

/// Which of the agent's own `path` is, or leads into over whatever links.
pub(super) fn leads_into<'a>(path: &Path, own: &'a [PathBuf]) -> Option<&'a Path> {
    let path = free_of_links(path);
    own.iter().find(|own| path.starts_with(free_of_links(own))).map(PathBuf::as_path)
}

/// Whether something of the agent's own is `path`, lies in it or holds it, over whatever links.
pub(super) fn overlaps(path: &Path, own: &[PathBuf]) -> bool {
    let path = free_of_links(path);
    own.iter()
        .map(|own| free_of_links(own))
        .any(|own| own.starts_with(&path) || path.starts_with(own))
}

/// Which of the agent's own is to be seen, whole or in part, in what may be read, over whatever
/// links and mounts.
pub(super) fn exposed(confines: &Confines) -> io::Result<Option<&Path>> {
    let readable: Vec<_> = readable(confines).iter().map(|path| free_of_links(path)).collect();
    let table = MountTable::read()?;
    let is_seen = |own: &PathBuf| {
        let own = free_of_links(own);
        let sightings = table.sightings(&own, Path::new("/"));
        let places = sightings.iter().map(|sighting| sighting.place.as_path());
        places.chain([own.as_path()]).any(|place| {
            readable.iter().any(|shown| place.starts_with(shown) || shown.starts_with(place))
        })
    };
    Ok(confines.hidden.iter().find(|own| is_seen(own)).map(PathBuf::as_path))
}

/// As it is where nothing is there.
fn free_of_links(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::runner::sandbox::Layers;

    fn confines(read: &Path, hidden: &Path) -> Confines {
        Confines {
            layers: Layers::default(),
            network: false,
            programs: Vec::new(),
            read: vec![read.to_owned()],
            hidden: vec![hidden.to_owned()],
            user: None,
        }
    }

    #[test]
    fn what_is_somebodys_is_not_shown() {
        let all = readable(&confines(Path::new("/var/log"), Path::new("/run/gleaner")));
        let is_readable = |path: &str| all.iter().any(|shown| Path::new(path).starts_with(shown));
        for path in ["/usr/bin/env", "/bin/sh", "/etc/ld.so.cache", "/var/log/x"] {
            assert!(is_readable(path), "{path}");
        }
        for path in [
            "/etc/shadow",
            "/etc/passwd",
            "/etc/gleaner/token",
            "/etc/resolv.conf",
            "/home/alice/.ssh",
            "/root",
            "/run/gleaner/agent.sock",
            "/usrlocal",
            "/var/tmp/gleaner-0",
        ] {
            assert!(!is_readable(path), "{path}");
        }
    }

    #[test]
    fn a_link_hides_neither_where_it_leads_nor_what_is_the_agents_own() {
        let base = tempfile::tempdir().expect("a folder");
        let path = |name: &str| base.path().join(name);
        for folder in ["data/own/tasks", "data/ownish", "other"] {
            fs::create_dir_all(path(folder)).expect("made");
        }
        for (link, to) in [("link", "data"), ("deep", "link/own/tasks"), ("alias", "data/own")] {
            std::os::unix::fs::symlink(path(to), path(link)).expect("made");
        }
        for own in ["data/own", "link/own", "alias"] {
            let own = path(own);
            let leads = |name: &str| leads_into(&path(name), std::slice::from_ref(&own)).is_some();
            for name in ["data/own", "link/own", "deep", "alias", "link/own/tasks"] {
                assert!(leads(name), "{name} leads into {own:?}");
            }
            for name in ["data", "link", "data/ownish", "other"] {
                assert!(!leads(name), "{name}");
            }
            for (name, is_seen) in
                [("data", true), ("link", true), ("deep", true), ("other", false)]
            {
                let confines = confines(&path(name), &own);
                assert_eq!(exposed(&confines).expect("told").is_some(), is_seen, "{name}");
            }
        }
    }
}
