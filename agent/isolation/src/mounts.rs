//! What is mounted where. Paths are bytes, not text: one mount with an odd name must not hide all
//! others.
//!
//! Source: `proc_pid_mountinfo(5)`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount, as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The number of its device, as `major:minor`.
    pub device: String,
    /// What of the device is mounted, as the device names its own files.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Options of this mount, as `rw` or `noexec`.
    pub options: Vec<String>,
    /// The kind of its file system, as `ext4`.
    pub kind: String,
    /// Options of its file system.
    pub super_options: Vec<String>,
}

/// All mounts that this process sees, in the order in which they were made.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn mounts() -> io::Result<Vec<Mount>> {
    Ok(parse_mounts(&fs::read("/proc/self/mountinfo")?))
}

/// The mounts of such a list. A line that is none is passed over.
#[must_use]
pub fn parse_mounts(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = text(fields.next()?);
    let path = |field| PathBuf::from(OsString::from_vec(unescape(field)));
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let options = list(fields.next()?);
    // Any number of optional fields, then a dash.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = text(rest.next()?);
    let _source = rest.next()?;
    Some(Mount { device, root, point, options, kind, super_options: list(rest.next()?) })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

fn list(field: &[u8]) -> Vec<String> {
    field.split(|byte| *byte == b',').map(text).collect()
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
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_mount_with_a_name_that_is_no_text_hides_no_other() {
        let list = b"36 1 8:1 / / rw,noatime - ext4 /dev/sda1 rw\n\
            40 36 0:50 / /media/B\xfccher rw shared:9 - vfat /dev/sdb1 rw\n\
            41 36 0:26 /a\\040b /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 none rw,nsdelegate\n\
            half a line\n";
        let mounts = parse_mounts(list);
        let points: Vec<&[u8]> =
            mounts.iter().map(|mount| mount.point.as_os_str().as_bytes()).collect();
        assert_eq!(points, [&b"/"[..], b"/media/B\xfccher", b"/sys/fs/cgroup"]);
        let last = &mounts[2];
        assert_eq!((last.device.as_str(), last.kind.as_str()), ("0:26", "cgroup2"));
        assert_eq!(last.root, PathBuf::from("/a b"));
        assert_eq!(
            (&last.options[..], &last.super_options[..]),
            (
                &["rw".to_owned(), "nosuid".to_owned()][..],
                &["rw".to_owned(), "nsdelegate".to_owned()][..]
            )
        );
    }

    #[test]
    fn a_backslash_that_begins_no_octal_number_stands_for_itself() {
        for (escaped, plain) in
            [("a\\040b", "a b"), ("\\134", "\\"), ("\\9", "\\9"), ("a\\", "a\\")]
        {
            assert_eq!(unescape(escaped.as_bytes()), plain.as_bytes(), "{escaped}");
        }
    }

    #[test]
    fn this_process_sees_its_root() {
        assert!(mounts().expect("procfs").iter().any(|mount| mount.point.as_os_str() == "/"));
    }
}
