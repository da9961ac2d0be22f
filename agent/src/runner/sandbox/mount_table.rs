//! What is mounted where, and where else on this machine the same file is to be seen: a path says
//! little, for links and bind mounts lead to one file from many places.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

/// What this process sees.
#[derive(Debug)]
pub(super) struct MountTable(Vec<Mounted>);

/// One mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// Where.
    pub(super) point: PathBuf,
    device: Vec<u8>,
    /// What of the device, as it names its own files.
    inner: PathBuf,
    options: Vec<u8>,
}

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
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &[u8]) -> Self {
        let lines = mountinfo.split(|byte| *byte == b'\n');
        Self(lines.filter_map(Mounted::parse).collect())
    }

    /// The mounts at and below `base`, which must be free of links.
    pub(super) fn below(&self, base: &Path) -> impl Iterator<Item = &Mounted> {
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
        // Of several at one place the last one is what is seen.
        let holding = self.0.iter().filter(|mounted| path.starts_with(&mounted.point));
        let Some(home) = holding.max_by_key(|mounted| mounted.point.as_os_str().len()) else {
            return Vec::new();
        };
        let Ok(rest) = path.strip_prefix(&home.point) else { return Vec::new() };
        let inner = home.inner.join(rest);
        self.below_or_holding(base)
            .filter(|mounted| mounted.device == home.device)
            .filter_map(|mounted| match inner.strip_prefix(&mounted.inner) {
                Ok(rest) => Some(Sighting { place: joined(&mounted.point, rest), is_part: false }),
                Err(_) if mounted.inner.starts_with(&inner) => {
                    Some(Sighting { place: mounted.point.clone(), is_part: true })
                }
                Err(_) => None,
            })
            .filter(|sighting| sighting.place.starts_with(base))
            .collect()
    }

    fn below_or_holding(&self, base: &Path) -> impl Iterator<Item = &Mounted> {
        self.0.iter().filter(move |mounted| {
            mounted.point.starts_with(base) || base.starts_with(&mounted.point)
        })
    }
}

impl Mounted {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = fields.next()?.to_owned();
        let mut path =
            || fields.next().map(|text| PathBuf::from(OsString::from_vec(unescape(text))));
        let (inner, point) = (path()?, path()?);
        Some(Self { point, device, inner, options: fields.next()?.to_owned() })
    }

    /// Those of its options that a change of others must repeat.
    pub(super) fn flags(&self) -> MountFlags {
        let options = self.options.split(|byte| *byte == b',');
        options.fold(MountFlags::empty(), |flags, option| {
            flags
                | match option {
                    b"noexec" => MountFlags::NOEXEC,
                    b"nodev" => MountFlags::NODEV,
                    b"noatime" => MountFlags::NOATIME,
                    b"nodiratime" => MountFlags::NODIRATIME,
                    b"relatime" => MountFlags::RELATIME,
                    _ => MountFlags::empty(),
                }
        })
    }
}

/// Without the slash at its end that an empty rest would make.
fn joined(point: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().as_bytes().is_empty() { point.to_owned() } else { point.join(rest) }
}

fn is_same(place: &Path, path: &Path) -> bool {
    let number = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((number(place), number(path)), (Ok(one), Ok(other)) if one == other)
}

/// Blanks and the like stand as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, more)) = rest.split_first() {
        let code = (*first == b'\\').then(|| more.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &more[3..];
            }
            None => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let text = b"36 35 98:0 /mnt1 /mnt\\040a/b\\134c rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 35 0:5 / /proc ro,nosuid,nodev - proc proc rw\n\n";
        let MountTable(found) = MountTable::parse(text);
        let point = PathBuf::from("/mnt a/b\\c");
        let inner = "/mnt1".into();
        let options = b"rw,noatime".to_vec();
        assert_eq!(found[0], Mounted { point, device: b"98:0".to_vec(), inner, options });
        assert_eq!(found[1].point, Path::new("/proc"));
        assert_eq!(found[1].flags(), MountFlags::NODEV);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_folder_is_found_wherever_its_disk_is_mounted() {
        let table = MountTable::parse(
            b"1 0 8:1 / / rw - ext4 a rw\n\
              2 1 8:2 / /var rw - ext4 b rw\n\
              3 1 8:2 / /srv/all rw - ext4 b rw\n\
              4 1 8:2 /tmp /srv/tmp rw - ext4 b rw\n\
              5 1 8:2 /tmp/own/slot /srv/slot rw - ext4 b rw\n\
              6 1 8:2 /lib /srv/lib rw - ext4 b rw\n\
              7 1 8:1 /tmp/own /srv/other rw - ext4 a rw\n",
        );
        let places = |base: &str| table.places(Path::new("/var/tmp/own"), Path::new(base));
        let whole = |place: &str| Sighting { place: place.into(), is_part: false };
        let part = Sighting { place: "/srv/slot".into(), is_part: true };
        assert_eq!(places("/srv"), [whole("/srv/all/tmp/own"), whole("/srv/tmp/own"), part]);
        assert_eq!(places("/var/tmp"), [whole("/var/tmp/own")]);
        assert_eq!(places("/srv/lib"), []);
    }
}
