//! The control groups of this host's harvested work, noted in the run folder: how a hook stops
//! even what has left its process group.
//!
//! # Invariants
//! - A note has only groups stopped that belong to its writer, unless root has written it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gleaner_isolation::Marks;

use super::{RunDirError, write_new};
use crate::limits::RUN_FILE_BYTES_MAX;

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
    write_new(life, text.as_bytes())?.replace(&life.join(FILE))
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
    let file = File::open(path)?;
    let writer = file.metadata()?.uid();
    let mut text = String::new();
    file.take(RUN_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok((writer, text))
}

const ROOT: u32 = 0;
