//! Writing a file as a whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Whoever may read it: its owner alone.
pub(crate) const PRIVATE: u32 = 0o600;
/// Everybody, as far as the user's mask lets them.
pub(crate) const PUBLIC: u32 = 0o666;

/// Gives a file this content, in one step for whoever reads it. A link that somebody else put in
/// its place, or in that of its draft, is not followed.
pub(crate) fn replace_file(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, |_| Ok(()))
}

/// The same, and everybody may read it, whatever the user's mask is.
pub(crate) fn replace_file_for_all(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, PUBLIC, |file| file.set_permissions(Permissions::from_mode(0o644)))
}

/// The same, and it is on disk when this returns: neither a crash nor a power cut brings the old
/// content back.
pub(crate) fn replace_file_durably(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace(path, content, mode, File::sync_all)?;
    sync_folder_of(path)
}

/// Has it on disk that a file is there, or is not.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn replace(
    path: &Path,
    content: &[u8],
    mode: u32,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let draft = path.with_extension("new");
    // What was left by an agent that was killed.
    let _ = fs::remove_file(&draft);
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(mode).open(&draft)?;
    let written = file.write_all(content).and_then(|()| sync(&file));
    let replaced = written.and_then(|()| fs::rename(&draft, path));
    if replaced.is_err() {
        // A draft that a full disk cut short takes space from what would fit.
        let _ = fs::remove_file(&draft);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("note"), folder.path().join("other"));
        fs::write(&other, "mine").expect("written");
        symlink(&other, &path).expect("a link");
        symlink(&other, path.with_extension("new")).expect("a link");
        replace_file(&path, b"first", PRIVATE).expect("written");
        replace_file(&path, b"second", PRIVATE).expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "second");
        assert_eq!(fs::read_to_string(&other).expect("there"), "mine");
        let found = fs::symlink_metadata(&path).expect("there");
        assert!(found.is_file() && found.mode() & 0o777 == PRIVATE);
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 2);
    }

    #[test]
    fn what_cannot_be_written_leaves_no_draft() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("taken");
        fs::create_dir(&path).expect("made");
        assert!(replace_file(&path, b"text", PUBLIC).is_err(), "a folder is in the way");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
    }
}
