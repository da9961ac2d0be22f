//! A chunk that is being fetched: its pieces come in any order, and what an earlier try has left counts.
//!
//! # Invariants
//! - What is written was checked, and what is found there is checked before it counts.

use std::io::SeekFrom;
use std::path::Path;
use std::sync::Arc;

use gleaner_protocol::{PIECE_BYTES, Pieces};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Part {
    file: File,
    pieces: Arc<Pieces>,
    /// Which are there.
    there: Vec<bool>,
    bytes_there: u64,
}

impl Part {
    /// Opens the file of a chunk with these pieces, or makes it.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) async fn open(path: &Path, pieces: Arc<Pieces>) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).await?;
        let old_bytes = file.metadata().await?.len();
        let mut part = Self { file, there: vec![false; pieces.count()], bytes_there: 0, pieces };
        let mut piece = vec![0; PIECE_BYTES];
        for index in 0..part.pieces.count() {
            let (from, length) = part.pieces.place(index);
            if from + length as u64 > old_bytes {
                break;
            }
            part.file.read_exact(&mut piece[..length]).await?;
            if part.pieces.is_right(index, &piece[..length]) {
                part.note(index);
            }
        }
        // Whatever follows is no part of it.
        part.file.set_len(part.pieces.bytes()).await?;
        Ok(part)
    }

    pub(crate) fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// Bytes of the pieces that are there.
    pub(crate) fn bytes_there(&self) -> u64 {
        self.bytes_there
    }

    /// Those that are not.
    pub(crate) fn missing(&self) -> impl Iterator<Item = usize> {
        self.there.iter().enumerate().filter(|(_, there)| !**there).map(|(index, _)| index)
    }

    /// The first of these.
    pub(crate) fn first_missing(&self) -> Option<usize> {
        self.missing().next()
    }

    pub(crate) fn is_there(&self, index: usize) -> bool {
        self.there.get(index).is_some_and(|there| *there)
    }

    /// Takes a piece that was found to be right.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) async fn write(&mut self, index: usize, piece: &[u8]) -> std::io::Result<()> {
        let (from, _) = self.pieces.place(index);
        self.file.seek(SeekFrom::Start(from)).await?;
        self.file.write_all(piece).await?;
        self.note(index);
        Ok(())
    }

    /// Has all that was written in the file.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) async fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush().await
    }

    fn note(&mut self, index: usize) {
        if !std::mem::replace(&mut self.there[index], true) {
            self.bytes_there += self.pieces.place(index).1 as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_come_in_any_order_and_those_of_an_earlier_try_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.part");
        let content: Vec<u8> = (0..3 * PIECE_BYTES + 9).map(|at| (at / 251) as u8).collect();
        let pieces = Arc::new(Pieces::of_reader(&content[..]).expect("memory"));
        let piece = |index: usize| {
            let (from, length) = pieces.place(index);
            &content[from as usize..][..length]
        };
        let mut part = Part::open(&path, Arc::clone(&pieces)).await.expect("made");
        assert_eq!(part.missing().count(), 4);
        for index in [3, 1] {
            part.write(index, piece(index)).await.expect("written");
        }
        assert_eq!(part.bytes_there(), PIECE_BYTES as u64 + 9);
        part.flush().await.expect("written");
        drop(part);
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[3 * PIECE_BYTES] ^= 1;
        bytes.extend(b"and more");
        std::fs::write(&path, bytes).expect("written");
        let mut part = Part::open(&path, Arc::clone(&pieces)).await.expect("there");
        assert_eq!(part.missing().collect::<Vec<_>>(), [0, 2, 3], "what is damaged is not there");
        for index in [0, 2, 3] {
            assert!(!part.is_there(index));
            part.write(index, piece(index)).await.expect("written");
        }
        part.flush().await.expect("written");
        assert_eq!(std::fs::read(&path).expect("there"), content);
    }
}
