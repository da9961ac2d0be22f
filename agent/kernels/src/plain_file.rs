//! Files that are read.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Opens a file to be read. Only a plain one: a pipe would be waited for until somebody writes to
/// it, and a device may have no end.
///
/// # Errors
/// It cannot be opened, or is none.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("it is not a plain file: name one, or copy what it gives into one"))
    }
}
