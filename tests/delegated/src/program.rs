//! A program that everybody may run.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A copy of the program that runs, which everybody may run.
#[derive(Debug)]
pub struct EverybodysProgram {
    place: TempDir,
}

impl EverybodysProgram {
    const NAME: &str = "program";

    /// Makes it.
    ///
    /// # Errors
    /// Where there is no room for it.
    pub fn copy() -> io::Result<Self> {
        let place = tempfile::tempdir()?;
        fs::set_permissions(place.path(), Permissions::from_mode(0o755))?;
        // Written by this process, it would be busy while a child of another test has it open still.
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe()?).arg(place.path().join(Self::NAME));
        match copy.status()?.success() {
            true => Ok(Self { place }),
            false => Err(io::Error::other("it could not be copied")),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.place.path().join(Self::NAME)
    }
}
