//! How much a command may leave on the disk: bytes, files, depth.
//!
//! No file system limits one folder, so the runner counts while the command runs, and once more at
//! its end; the rarer the longer a count takes. Between two counts a command may write more than it
//! should: how much is for the disk to say, and where that runs full the command is ended too.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gleaner_protocol::{Span, boottime};

use crate::limits::{
    COMMAND_DEPTH_MAX, COMMAND_LOOK_MS_MAX, COMMAND_LOOK_MS_MIN, COMMAND_LOOK_SHARE,
    DISK_FREE_MIB_MIN, DISK_FREE_PERMILLE_MIN,
};

/// What the folders of one command may hold.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The folders.
    pub(crate) folders: Vec<PathBuf>,
    /// Bytes on disk.
    pub(crate) bytes_max: u64,
    /// Files and folders.
    pub(crate) files_max: u64,
}

#[derive(Debug, Default)]
struct Found {
    bytes: u64,
    files: u64,
}

impl Bounds {
    /// When to look first.
    pub(crate) fn first(&self) -> Span {
        Span::from_millis(COMMAND_LOOK_MS_MIN)
    }

    /// Looks while it runs; says when to look again, or what the command did.
    pub(crate) fn look(&self) -> Result<Span, String> {
        let begun = boottime();
        self.judge(&self.count(fs::read_dir)?)?;
        if let Some(folder) = self.folders.first() {
            is_disk_full(folder)?;
        }
        let took = boottime().since(begun);
        let pause = Self::rest_after(took);
        let (least, most) = (COMMAND_LOOK_MS_MIN, COMMAND_LOOK_MS_MAX);
        // Where a count takes so long, its share of the time goes before.
        Ok(pause.max(Span::from_millis(if took > Span::from_millis(1) { most } else { least })))
    }

    /// How long to rest at least after a look that took so long.
    pub(crate) fn rest_after(took: Span) -> Span {
        Span::from_micros(took.as_micros().saturating_mul(COMMAND_LOOK_SHARE))
    }

    /// Looks when everything of it has ended.
    pub(crate) fn look_last(&self) -> Result<(), String> {
        self.judge(&self.count(read_whatever_its_rights)?)
    }

    fn judge(&self, found: &Found) -> Result<(), String> {
        if found.files > self.files_max {
            return Err(format!("it made more than {} files", self.files_max));
        }
        if found.bytes > self.bytes_max {
            return Err(format!("its files hold more than {} bytes", self.bytes_max));
        }
        Ok(())
    }

    fn count(&self, read: impl Fn(PathBuf) -> io::Result<fs::ReadDir>) -> Result<Found, String> {
        let mut found = Found::default();
        let mut open: Vec<(PathBuf, usize)> =
            self.folders.iter().map(|folder| (folder.clone(), 0)).collect();
        while let Some((folder, depth)) = open.pop() {
            if depth > COMMAND_DEPTH_MAX {
                return Err(format!("its folders are nested more than {COMMAND_DEPTH_MAX} deep"));
            }
            // One that is gone holds nothing; one without rights is counted at the end.
            let Ok(entries) = read(folder) else { continue };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                found.files += 1;
                found.bytes += metadata.blocks() * BLOCK_BYTES;
                if metadata.is_dir() {
                    open.push((entry.path(), depth + 1));
                }
                if found.files > self.files_max || found.bytes > self.bytes_max {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}

/// What `stat` counts in.
const BLOCK_BYTES: u64 = 512;

/// Reads a folder, even one that a command of this user took its own rights away from. Only when
/// nobody can put something else in its place any more.
fn read_whatever_its_rights(folder: PathBuf) -> io::Result<fs::ReadDir> {
    match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
            fs::read_dir(folder)
        }
        other => other,
    }
}

fn is_disk_full(folder: &Path) -> Result<(), String> {
    // What cannot be asked does not decide.
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let mib = |blocks: u64| blocks.saturating_mul(disk.f_frsize) >> 20;
    let least = DISK_FREE_MIB_MIN.min(mib(disk.f_blocks) * DISK_FREE_PERMILLE_MIN / 1_000);
    let free = mib(disk.f_bavail);
    if free < least {
        let path = folder.display();
        return Err(format!("the disk of {path} has {free} MiB left, which is under {least}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(folder: &Path, bytes_max: u64, files_max: u64) -> Bounds {
        Bounds { folders: vec![folder.to_owned()], bytes_max, files_max }
    }

    #[test]
    fn what_is_within_its_bounds_is_let_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("a/b/c")).expect("made");
        fs::write(folder.path().join("a/b/x"), [1; 5_000]).expect("written");
        let pause = bounds(folder.path(), 1 << 20, 10).look().expect("within");
        assert!(pause >= Span::from_millis(COMMAND_LOOK_MS_MIN));
    }

    #[test]
    fn what_passes_a_bound_is_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        for name in ["a", "b", "c"] {
            fs::write(path.join(name), [1; 8_192]).expect("written");
        }
        let says =
            |bytes_max, files_max| bounds(path, bytes_max, files_max).look().expect_err("beyond");
        assert_eq!(says(1 << 20, 2), "it made more than 2 files");
        assert_eq!(says(10_000, 10), "its files hold more than 10000 bytes");
        // Bytes that were never written count as what they take.
        fs::File::create(path.join("hole")).and_then(|file| file.set_len(1 << 40)).expect("made");
        bounds(path, 1 << 20, 10).look().expect("it takes nothing");
        let deep = vec!["d"; COMMAND_DEPTH_MAX + 2].join("/");
        fs::create_dir_all(path.join(deep)).expect("made");
        assert!(says(1 << 30, 1_000).contains("nested"));
    }

    #[test]
    fn a_folder_without_rights_hides_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        fs::create_dir(&secret).expect("made");
        fs::write(secret.join("large"), [1; 1 << 16]).expect("written");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).expect("ours");
        let said = bounds(folder.path(), 1 << 15, 10).look_last().expect_err("beyond");
        assert!(said.contains("32768 bytes"), "{said}");
    }

    #[test]
    fn a_link_leads_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/usr", folder.path().join("link")).expect("made");
        bounds(folder.path(), 1 << 20, 1).look().expect("one file");
    }
}
