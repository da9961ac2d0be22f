//! The most memory that a leaf has taken since a moment.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Counts from when it was made.
#[derive(Debug)]
pub struct MemoryPeak {
    file: File,
    /// The most before that, where the kernel does not count anew.
    before_bytes: Option<u64>,
}

impl MemoryPeak {
    /// Of a file that the kernel keeps the most in. A write has it count anew, where the kernel can.
    pub(crate) fn of(path: &Path, anew: &str) -> Option<Self> {
        let writable = OpenOptions::new().read(true).write(true).open(path).ok();
        let begun = writable.and_then(|mut file| {
            file.write_all(anew.as_bytes()).ok()?;
            Some(file)
        });
        if let Some(file) = begun {
            return Some(Self { file, before_bytes: None });
        }
        let file = File::open(path).ok()?;
        let before_bytes = Some(read(&file)?);
        Some(Self { file, before_bytes })
    }

    /// The most so far, in MiB, rounded up. None where more was taken before, and nobody counts
    /// anew.
    #[must_use]
    pub fn mib(&self) -> Option<u64> {
        let most_bytes = read(&self.file)?;
        let is_known = self.before_bytes.is_none_or(|before_bytes| most_bytes > before_bytes);
        is_known.then(|| most_bytes.div_ceil(1 << 20))
    }
}

fn read(file: &File) -> Option<u64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_taken_before_is_none_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("memory.peak");
        assert!(MemoryPeak::of(&path, "0").is_none(), "this kernel does not say");
        fs::write(&path, "5242880\n").expect("written");
        // A plain file keeps what is written to it, as a kernel would that begins at 0.
        let anew = MemoryPeak::of(&path, "0000000\n").expect("it can be written");
        fs::write(&path, "1048577\n").expect("written");
        assert_eq!(anew.mib(), Some(2));
        let old =
            MemoryPeak { file: File::open(&path).expect("there"), before_bytes: Some(1_048_577) };
        assert_eq!(old.mib(), None);
        fs::write(&path, "9437184\n").expect("written");
        assert_eq!(old.mib(), Some(9));
    }
}
