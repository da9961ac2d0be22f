//! What is mounted where, and where else on this machine the same file is to be seen: a path says
//! little, for links and bind mounts lead to one file from many places.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gleaner_isolation::{Mount, mounts};
use rustix::mount::MountFlags;

/// What this process sees.
#[derive(Debug)]
pub(super) struct MountTable(Vec<Mount>);

/// A place where something else is to be seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Where.
    pub(super) place: PathBuf,
    /// Whether it is only something inside of it.
    pub(super) is_part: bool,
}

impl MountTable {
    pub(super) fn read() -> io::Result<Self> {
        Ok(Self(mounts()?))
    }

    /// The mounts at and below `base`, which must be free of links.
    pub(super) fn below(&self, base: &Path) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mounted| mounted.point.starts_with(base))
    }

    /// Where at and below `base` `path` is to be seen, both of them free of links.
    pub(super) fn sightings(&self, path: &Path, base: &Path) -> Vec<Sighting> {
        let mut found = self.places(path, base);
        found.retain(|Sighting { place, is_part }| *is_part || is_same(place, path));
        found
    }

    /// The same, without a look at whether something else lies above it.
    fn places(&self, path: &Path, base: &Path) -> Vec<Sighting> {
        let Some(home) = self.home(path) else { return Vec::new() };
        let Ok(rest) = path.strip_prefix(&home.point) else { return Vec::new() };
        let inner = home.root.join(rest);
        self.below_or_holding(base)
            .filter(|mounted| mounted.device == home.device)
            .filter_map(|mounted| match inner.strip_prefix(&mounted.root) {
                Ok(rest) => Some(Sighting { place: joined(&mounted.point, rest), is_part: false }),
                Err(_) if mounted.root.starts_with(&inner) => {
                    Some(Sighting { place: mounted.point.clone(), is_part: true })
                }
                Err(_) => None,
            })
            .filter(|sighting| sighting.place.starts_with(base))
            .collect()
    }

    /// What a change of the options of what is mounted at `path`, or around it, must repeat.
    pub(super) fn flags_at(&self, path: &Path) -> io::Result<MountFlags> {
        let path = fs::canonicalize(path)?;
        Ok(self.home(&path).map_or(MountFlags::empty(), flags))
    }

    /// The mount that holds `path`, which must be free of links.
    fn home(&self, path: &Path) -> Option<&Mount> {
        // Of several at one place the last one is what is seen.
        let holding = self.0.iter().filter(|mounted| path.starts_with(&mounted.point));
        holding.max_by_key(|mounted| mounted.point.as_os_str().len())
    }

    fn below_or_holding(&self, base: &Path) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mounted| {
            mounted.point.starts_with(base) || base.starts_with(&mounted.point)
        })
    }
}

/// Those of a mount's options that a change of others must repeat.
pub(super) fn flags(mount: &Mount) -> MountFlags {
    mount.options.iter().fold(MountFlags::empty(), |flags, option| {
        flags
            | match option.as_str() {
                "noexec" => MountFlags::NOEXEC,
                "nodev" => MountFlags::NODEV,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            }
    })
}

/// Without the slash at its end that an empty rest would make.
fn joined(point: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().as_bytes().is_empty() { point.to_owned() } else { point.join(rest) }
}

fn is_same(place: &Path, path: &Path) -> bool {
    let number = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((number(place), number(path)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use gleaner_isolation::parse_mounts;

    use super::*;

    #[test]
    fn a_change_of_a_mount_repeats_what_its_options_forbid() {
        let mounts = parse_mounts(b"37 35 0:5 / /proc ro,nosuid,nodev - proc proc rw\n");
        assert_eq!(flags(&mounts[0]), MountFlags::NODEV);
    }

    #[test]
    fn a_folder_is_found_wherever_its_disk_is_mounted() {
        let table = MountTable(parse_mounts(
            b"1 0 8:1 / / rw - ext4 a rw\n\
              2 1 8:2 / /var rw - ext4 b rw\n\
              3 1 8:2 / /srv/all rw - ext4 b rw\n\
              4 1 8:2 /tmp /srv/tmp rw - ext4 b rw\n\
              5 1 8:2 /tmp/own/slot /srv/slot rw - ext4 b rw\n\
              6 1 8:2 /lib /srv/lib rw - ext4 b rw\n\
              7 1 8:1 /tmp/own /srv/other rw - ext4 a rw\n",
        ));
        let places = |base: &str| table.places(Path::new("/var/tmp/own"), Path::new(base));
        let whole = |place: &str| Sighting { place: place.into(), is_part: false };
        let part = Sighting { place: "/srv/slot".into(), is_part: true };
        assert_eq!(places("/srv"), [whole("/srv/all/tmp/own"), whole("/srv/tmp/own"), part]);
        assert_eq!(places("/var/tmp"), [whole("/var/tmp/own")]);
        assert_eq!(places("/srv/lib"), []);
    }
}
