//! How far the journal was acknowledged, outside of the engine.
//!
//! A log that ends early looks like a log that was cut off by a kill: after a flipped bit in its
//! middle the engine drops the rest without a word. The mark knows better. It is rewritten after
//! each commit and never synced: a power cut can only leave an older mark, which asks for less.
//!
//! Two slots are written in turn, so that one of them is always whole.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::sealed;

/// Distance of the slots.
const SLOT_BYTES: u64 = 512;
const KEY: &[u8] = b"mark";

/// What must be found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acknowledged {
    /// Last acknowledged sequence.
    pub(crate) sequence: u64,
    /// Last incarnation that a broker was told.
    pub(crate) incarnation: u32,
}

#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    file: File,
    writes: u64,
}

impl Mark {
    /// Reads the mark, or makes one where there is none (a folder that is new, or restored
    /// without it).
    ///
    /// # Errors
    /// The damage in words, in the inner result.
    pub(crate) fn open(
        folder: &Path,
    ) -> Result<Result<(Self, Option<Acknowledged>), String>, StoreError> {
        let path = folder.join("mark");
        if !path.exists() {
            let draft = folder.join("mark.new");
            fs::write(&draft, vec![0; 2 * SLOT_BYTES as usize])
                .and_then(|()| fs::rename(&draft, &path))
                .map_err(StoreError::file("make", &path))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(StoreError::file("open", &path))?;
        let mut slots = vec![0; 2 * SLOT_BYTES as usize];
        match file.read_exact_at(&mut slots, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Err(format!("{} is cut off", path.display())));
            }
            Err(error) => return Err(StoreError::file("read", &path)(error)),
        }
        let newest =
            slots.chunks_exact(SLOT_BYTES as usize).filter_map(read_slot).max_by_key(|slot| slot.0);
        let (writes, acknowledged) = match newest {
            Some((writes, acknowledged)) => (writes, Some(acknowledged)),
            None if slots.iter().all(|&byte| byte == 0) => (0, None),
            None => return Ok(Err(format!("neither half of {} is sound", path.display()))),
        };
        Ok(Ok((Self { path, file, writes }, acknowledged)))
    }

    /// Remembers that this much was acknowledged. To be called when it is durable.
    pub(crate) fn write(&mut self, acknowledged: Acknowledged) -> Result<(), StoreError> {
        self.writes += 1;
        let slot = sealed::seal(
            KEY,
            &[
                &self.writes.to_le_bytes(),
                &acknowledged.sequence.to_le_bytes(),
                &acknowledged.incarnation.to_le_bytes(),
            ],
        );
        self.file
            .write_all_at(&slot, (self.writes % 2) * SLOT_BYTES)
            .map_err(StoreError::file("write", &self.path))
    }
}

fn read_slot(slot: &[u8]) -> Option<(u64, Acknowledged)> {
    let bytes = sealed::entry_bytes(slot).ok()?;
    let records = sealed::open(KEY, slot.get(..bytes)?).ok()?;
    let [writes, sequence, incarnation] = records[..] else { return None };
    let acknowledged = Acknowledged {
        sequence: u64::from_le_bytes(sequence.try_into().ok()?),
        incarnation: u32::from_le_bytes(incarnation.try_into().ok()?),
    };
    Some((u64::from_le_bytes(writes.try_into().ok()?), acknowledged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reopen(folder: &Path) -> Result<(Mark, Option<Acknowledged>), String> {
        Mark::open(folder).expect("files work")
    }

    #[test]
    fn the_last_mark_is_found_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut mark, nothing) = reopen(folder.path()).expect("new");
        assert_eq!(nothing, None);
        for sequence in 1..=5 {
            let acknowledged = Acknowledged { sequence, incarnation: 7 };
            mark.write(acknowledged).expect("written");
            assert_eq!(reopen(folder.path()).expect("sound").1, Some(acknowledged));
        }
    }

    #[test]
    fn a_torn_slot_falls_back_to_the_other_and_two_are_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut mark, _) = reopen(folder.path()).expect("new");
        for sequence in 1..=2 {
            mark.write(Acknowledged { sequence, incarnation: 1 }).expect("written");
        }
        // Sequence 2 was the second write: slot 0.
        mark.file.write_all_at(b"torn", 14).expect("written");
        assert_eq!(reopen(folder.path()).expect("one half").1.map(|a| a.sequence), Some(1));
        mark.file.write_all_at(b"torn", SLOT_BYTES + 14).expect("written");
        let error = reopen(folder.path()).expect_err("no half");
        assert!(error.contains("mark"), "{error}");
    }
}
