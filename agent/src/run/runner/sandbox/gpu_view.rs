//! What the driver of a GPU needs of a host: its devices, and what the kernel says of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::visible::{OWN, overlaps};

/// Beginnings of the names of GPUs' devices in `/dev`.
const DEVICES: &[&str] = &["nvidia", "dri", "kfd", "dxg"];

/// Folders of `/sys` in which drivers look for GPUs.
const SYSTEM: &[&str] = &["/sys/bus/pci", "/sys/class/drm", "/sys/dev/char", "/sys/module/nvidia"];

/// Variables by which an owner names descriptions of drivers.
const DRIVERS: &[&str] = &["VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// Devices of GPUs, or folders of them.
pub(super) fn devices() -> Vec<PathBuf> {
    let is_gpu = |name: &str| DEVICES.iter().any(|start| name.starts_with(start));
    entries(Path::new("/dev"), is_gpu)
}

/// Files and folders that a driver reads. A folder in which something of the agent's own lies is none,
/// nor is one where work has what is its own.
pub(super) fn files(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let buses = entries(Path::new("/sys/devices"), |name| name.starts_with("pci"));
    let system = SYSTEM.iter().map(PathBuf::from).chain(buses);
    let drivers = DRIVERS.iter().filter_map(std::env::var_os);
    let listed = drivers.flat_map(|list| std::env::split_paths(&list).collect::<Vec<_>>());
    // The description names its library, which mostly lies beside it.
    let folders = listed.filter_map(|path| path.parent().map(Path::to_owned));
    let folders = folders.filter(|folder| is_shown(folder, hidden));
    system.chain(folders).filter(|path| path.is_absolute() && path.exists()).collect()
}

fn is_shown(folder: &Path, hidden: &[PathBuf]) -> bool {
    !OWN.iter().any(|own| folder.starts_with(own)) && !overlaps(folder, hidden)
}

/// Groups whose members alone may open one of these devices.
pub(super) fn groups() -> Vec<u32> {
    let inside = |path: PathBuf| match path.is_dir() {
        true => entries(&path, |_| true),
        false => vec![path],
    };
    let for_others = 0o006;
    let mut groups: Vec<u32> = devices()
        .into_iter()
        .flat_map(inside)
        .filter_map(|path| fs::metadata(path).ok())
        .filter(|device| device.mode() & for_others != for_others && device.gid() != 0)
        .map(|device| device.gid())
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn entries(folder: &Path, is_meant: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let meant = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_meant));
    let mut paths: Vec<PathBuf> = meant.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_folder_is_shown_unless_the_agent_or_the_work_has_something_there() {
        let hidden = [PathBuf::from("/srv/gleaner/work")];
        let is_shown = |folder: &str| is_shown(Path::new(folder), &hidden);
        assert!(is_shown("/srv/driver") && is_shown("/srv/gleaner/driver"));
        for folder in ["/", "/srv", "/srv/gleaner/work", "/srv/gleaner/work/0", "/tmp/driver"] {
            assert!(!is_shown(folder), "{folder}");
        }
    }
}
