//! The content of one file of a module: in memory while it is small, else in a file of the host.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::limits::FILE_IN_MEMORY_BYTES_MAX;

/// What a file holds.
#[derive(Debug)]
pub(super) enum Content {
    /// An input: read, never written.
    Input(File, u64),
    /// Small.
    Memory(Vec<u8>),
    /// Large: a file of the host that a number names, whatever the module calls it.
    Scratch(File, PathBuf, u64),
}

impl Content {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Input(_, bytes) | Self::Scratch(_, _, bytes) => *bytes,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Reads from `offset` on; how many bytes there were.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let count = buffer.len().min(bytes.len() - start);
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(count)
            }
            Self::Input(file, length) | Self::Scratch(file, _, length) => {
                let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
                let count = buffer.len().min(left);
                file.read_exact_at(&mut buffer[..count], offset)?;
                Ok(count)
            }
        }
    }

    /// Writes at `offset`, with zeroes before it where the file was shorter. `scratch` makes the
    /// path of a file of the host.
    pub(super) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        scratch: impl FnOnce() -> PathBuf,
    ) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.len() {
            self.set_len(end, scratch)?;
        }
        match self {
            Self::Input(..) => Err(io::ErrorKind::PermissionDenied.into()),
            Self::Memory(content) => {
                let start = usize::try_from(offset).expect("below the length");
                content[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Self::Scratch(file, ..) => file.write_all_at(bytes, offset),
        }
    }

    /// Cuts it, or adds zeroes.
    pub(super) fn set_len(
        &mut self,
        length: u64,
        scratch: impl FnOnce() -> PathBuf,
    ) -> io::Result<()> {
        match self {
            Self::Input(..) => return Err(io::ErrorKind::PermissionDenied.into()),
            Self::Memory(bytes) if length <= FILE_IN_MEMORY_BYTES_MAX as u64 => {
                bytes.resize(usize::try_from(length).expect("small"), 0);
            }
            Self::Memory(bytes) => {
                let path = scratch();
                let file = File::options().read(true).write(true).create_new(true).open(&path)?;
                file.write_all_at(bytes, 0)?;
                file.set_len(length)?;
                *self = Self::Scratch(file, path, length);
            }
            Self::Scratch(file, _, bytes) => {
                file.set_len(length)?;
                *bytes = length;
            }
        }
        Ok(())
    }

    /// Where it lies on the host, if it does and is ours.
    pub(super) fn scratch_path(&self) -> Option<&Path> {
        match self {
            Self::Scratch(_, path, _) => Some(path),
            _ => None,
        }
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Self::Scratch(_, path, _) = self {
            // It may have been taken away as an output.
            let _ = fs::remove_file(path);
        }
    }
}
