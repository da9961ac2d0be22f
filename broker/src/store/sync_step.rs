//! The one step that makes a commit durable.

use std::fs::File;
use std::io;

/// Makes what was written to a file durable. A step of its own so that a test can see when it
/// happens, and can let it fail.
pub trait SyncStep: Send {
    /// Returns when all that was written to `file` is on the disk itself.
    ///
    /// # Errors
    /// Those of the disk. What was written before is then in doubt for ever: a later success
    /// does not vouch for it.
    fn sync(&mut self, file: &File) -> io::Result<()>;
}

/// `fdatasync`. The engine's own flush is not enough: on Linux it starts the writes
/// (`sync_file_range`), but neither flushes the disk's cache nor the file's length.
#[derive(Debug, Clone, Copy, Default)]
pub struct DataSync;

impl SyncStep for DataSync {
    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}
