//! Reading the journal from its first entry to its last, believing nothing.

use std::path::PathBuf;

use sled::{IVec, Tree};

use super::engine::guarded;
use super::error::StoreError;
use super::{parts, sealed};

/// What a replay yields: first the chunks of the snapshot, then the records after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed<'a> {
    /// A chunk of the snapshot, in the order in which they were written.
    Chunk(&'a [u8]),
    /// A record.
    Record {
        /// Sequence of its commit.
        sequence: u64,
        /// The record.
        record: &'a [u8],
    },
}

/// How the journal ended.
#[derive(Debug)]
pub(crate) struct End {
    /// Last whole entry.
    pub(crate) last_sequence: u64,
    /// Bytes of all whole entries.
    pub(crate) bytes: u64,
    /// Keys of an entry behind it that was cut off by a kill.
    pub(crate) torn: Vec<IVec>,
}

/// Reads all entries after sequence `begin`.
pub(crate) struct Reader<'a> {
    pub(crate) folder: &'a PathBuf,
    pub(crate) kept: &'a Option<PathBuf>,
    pub(crate) tree: &'a Tree,
    pub(crate) begin: u64,
    pub(crate) acknowledged: u64,
}

/// An entry whose parts are still coming.
struct Open {
    sequence: u64,
    bytes: usize,
    entry: Vec<u8>,
    keys: Vec<IVec>,
}

impl Reader<'_> {
    pub(crate) fn run(
        &self,
        mut visit: impl FnMut(u64, &[u8]) -> Result<(), StoreError>,
    ) -> Result<End, StoreError> {
        let mut last = self.begin;
        let mut bytes = 0;
        let mut open: Option<Open> = None;
        let mut entries = self.tree.range((self.begin + 1).to_be_bytes().to_vec()..);
        loop {
            let next = guarded(self.folder, "reading the journal", || Ok(entries.next()));
            let (key, piece) = match next {
                Ok(Some(Ok(pair))) => pair,
                Ok(None) => break,
                Ok(Some(Err(error @ sled::Error::Io(_)))) => {
                    return Err(StoreError::engine("reading the journal", self.folder)(error));
                }
                Ok(Some(Err(error))) => {
                    return Err(self.damaged(last + 1, &format!("it cannot be read: {error}")));
                }
                Err(error) => {
                    return Err(self.damaged(last + 1, &format!("it cannot be read: {error}")));
                }
            };
            let mut current = self.take(open.take(), last, key, &piece)?;
            current.entry.extend_from_slice(&piece);
            if current.entry.len() < current.bytes {
                open = Some(current);
                continue;
            }
            let sequence = current.sequence;
            let records = sealed::open(&sequence.to_be_bytes(), &current.entry)
                .map_err(|what| self.damaged(sequence, &what))?;
            for record in records {
                visit(sequence, record)?;
            }
            last = sequence;
            bytes += current.entry.len() as u64;
        }
        let known = self.acknowledged;
        if last < known {
            let what = format!(
                "the journal ends after it, but everything up to sequence {known} was acknowledged"
            );
            return Err(self.damaged(last, &what));
        }
        let torn = open.map(|open| open.keys).unwrap_or_default();
        Ok(End { last_sequence: last, bytes, torn })
    }

    /// The entry to which this part belongs.
    fn take(
        &self,
        open: Option<Open>,
        last: u64,
        key: IVec,
        piece: &[u8],
    ) -> Result<Open, StoreError> {
        let place = parts::split_part_key(&key).and_then(|(key, part)| {
            Some((u64::from_be_bytes(key.try_into().ok()?), part as usize))
        });
        let Some((sequence, part)) = place else {
            return Err(self.damaged(last + 1, "something else stands in its place"));
        };
        match open {
            Some(mut open) if open.sequence == sequence && open.keys.len() == part => {
                open.keys.push(key);
                Ok(open)
            }
            Some(open) => Err(self.damaged(open.sequence, "a part of it is missing")),
            None if sequence == last + 1 && part == 0 => {
                let bytes =
                    sealed::entry_bytes(piece).map_err(|what| self.damaged(sequence, &what))?;
                Ok(Open { sequence, bytes, entry: Vec::new(), keys: vec![key] })
            }
            None => Err(self.damaged(
                last + 1,
                &format!("it is missing; what follows is sequence {sequence}, part {part}"),
            )),
        }
    }

    fn damaged(&self, sequence: u64, what: &str) -> StoreError {
        StoreError::Damaged {
            folder: self.folder.clone(),
            what: format!("sequence {sequence}: {what}"),
            kept: self.kept.clone(),
        }
    }
}
