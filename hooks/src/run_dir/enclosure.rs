//! The control groups of this host's harvested work, noted in the run folder: how a hook stops
//! even what has left its process group.
//!
//! # Invariants
//! - A note has only groups stopped that belong to its writer, unless root has written it. A link is
//!   no note, and nor is what others may have written.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gleaner_isolation::Marks;

use super::{RunDirError, read_small_of_one, write_new_of_one};

/// Its file below a life.
const FILE: &str = "enclosure";

pub(super) fn note(life: &Path, marks: &Marks) -> Result<(), RunDirError> {
    let mut text = String::new();
    // A group's path is made of names that were chosen by programs; one that is not UTF-8 is
    // nobody's.
    for path in marks.paths().iter().filter_map(|path| path.to_str()) {
        text.push_str(path);
        text.push('\n');
    }
    write_new_of_one(life, text.as_bytes())?.replace(&life.join(FILE))
}

/// The groups that were noted; none where there are none.
pub(super) fn marks(life: &Path) -> Result<Marks, RunDirError> {
    let path = life.join(FILE);
    match read(&path) {
        Ok((writer, text)) => {
            let ours = |path: &PathBuf| {
                writer == ROOT || fs::metadata(path).is_ok_and(|group| group.uid() == writer)
            };
            Ok(Marks::from_paths(text.lines().map(PathBuf::from).filter(ours)))
        }
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(Marks::default()),
        Err(source) => Err(RunDirError::io("read", &path, source)),
    }
}

fn read(path: &Path) -> io::Result<(u32, String)> {
    let (writer, bytes) = read_small_of_one(path)?;
    Ok((writer, String::from_utf8(bytes).map_err(io::Error::other)?))
}

const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_somebody_else_may_have_laid_or_written_is_no_note() {
        let life = tempfile::tempdir().expect("a folder");
        let (place, elsewhere) = (life.path().join(FILE), life.path().join("elsewhere"));
        let may_write = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
        };
        fs::write(&place, "/sys/fs/cgroup/somebodys\n").expect("written");
        may_write(&place, 0o644);
        marks(life.path()).expect("a note");
        may_write(&place, 0o664);
        marks(life.path()).expect_err("anybody's of the group");
        may_write(&place, 0o644);
        fs::rename(&place, &elsewhere).expect("moved");
        symlink(&elsewhere, &place).expect("laid");
        marks(life.path()).expect_err("a link");
    }
}
