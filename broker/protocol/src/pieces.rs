//! Contents that are checked a piece at a time.
//!
//! BLAKE3 is a tree: the hashes of its parts, "chaining values", merge to the digest of the whole. So
//! whoever has the values of all pieces checks them against a digest once, and then each piece by itself,
//! whoever sent it.

use std::io::{self, Read};

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use serde::{Deserialize, Serialize};

use crate::Digest;

/// Length of all pieces but the last, in bytes: a power of two, and so a part of the tree.
pub const PIECE_BYTES: usize = 256 << 10;

/// The hashes of a content's pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    bytes: u64,
    values: Vec<ChainingValue>,
    /// The digest, where there is one piece: it is no part of a tree.
    whole: Option<Digest>,
}

/// Hashes the pieces of a content that comes in parts of any length.
#[derive(Debug, Default)]
pub struct PiecesBuilder {
    bytes: u64,
    values: Vec<ChainingValue>,
    /// The digest of the first piece.
    first: Option<Digest>,
    /// What has come of the next piece.
    part: Vec<u8>,
}

impl PiecesBuilder {
    /// Adds what comes next.
    pub fn add(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let (taken, rest) = part.split_at(part.len().min(PIECE_BYTES - self.part.len()));
            self.part.extend_from_slice(taken);
            part = rest;
            if self.part.len() == PIECE_BYTES {
                self.end_piece();
            }
        }
    }

    /// Those of all that has come.
    #[must_use]
    pub fn end(mut self) -> Pieces {
        if !self.part.is_empty() || self.values.is_empty() {
            self.end_piece();
        }
        let whole = self.first.filter(|_| self.values.len() == 1);
        Pieces { bytes: self.bytes, values: self.values, whole }
    }

    fn end_piece(&mut self) {
        self.first.get_or_insert_with(|| Digest::of(&self.part));
        self.values.push(value_of(self.values.len(), &self.part));
        self.bytes += self.part.len() as u64;
        self.part.clear();
    }
}

impl Pieces {
    /// Those of a content, as it is read.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_reader(mut content: impl Read) -> io::Result<Self> {
        let mut pieces = PiecesBuilder::default();
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        loop {
            piece.clear();
            content.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            pieces.add(&piece);
            if piece.len() < PIECE_BYTES {
                return Ok(pieces.end());
            }
        }
    }

    /// Length of the content.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Where a piece begins, and its length.
    #[must_use]
    pub fn place(&self, index: usize) -> (u64, usize) {
        let from = (index as u64).saturating_mul(PIECE_BYTES as u64);
        let length = self.bytes.saturating_sub(from).min(PIECE_BYTES as u64);
        (from, usize::try_from(length).unwrap_or(PIECE_BYTES))
    }

    /// The digest of the content that has these; none where there are not as many as its length says.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        let expected = self.bytes.div_ceil(PIECE_BYTES as u64).max(1);
        if self.values.len() as u64 != expected {
            return None;
        }
        if self.values.len() == 1 {
            return self.whole;
        }
        let (left, right) = self.halves(0, self.bytes);
        let hash = merge_subtrees_root(&left, &right, Mode::Hash);
        Some(Digest::from_bytes(*hash.as_bytes()))
    }

    /// Whether a piece is the one of this place.
    #[must_use]
    pub fn is_right(&self, index: usize, piece: &[u8]) -> bool {
        piece.len() == self.place(index).1
            && match self.whole {
                Some(whole) => index == 0 && Digest::of(piece) == whole,
                None => self.values.get(index).is_some_and(|of| *of == value_of(index, piece)),
            }
    }

    /// The values of both halves of a part of the tree.
    fn halves(&self, from: u64, bytes: u64) -> (ChainingValue, ChainingValue) {
        let left = left_subtree_len(bytes);
        (self.value(from, left), self.value(from + left, bytes - left))
    }

    fn value(&self, from: u64, bytes: u64) -> ChainingValue {
        if bytes <= PIECE_BYTES as u64 {
            return self.values[(from / PIECE_BYTES as u64) as usize];
        }
        let (left, right) = self.halves(from, bytes);
        merge_subtrees_non_root(&left, &right, Mode::Hash)
    }
}

fn value_of(index: usize, piece: &[u8]) -> ChainingValue {
    if piece.is_empty() {
        // Of nothing there is no part of a tree.
        return ChainingValue::default();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset((index * PIECE_BYTES) as u64);
    hasher.update(piece);
    hasher.finalize_non_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn pieces_of_any_length_merge_to_the_digest_of_the_whole() {
        let piece = PIECE_BYTES;
        for bytes in [
            0,
            1,
            1024,
            1025,
            piece - 1,
            piece,
            piece + 1,
            2 * piece,
            3 * piece - 7,
            4 * piece,
            5 * piece + 1023,
            7 * piece + 1,
        ] {
            let content = content(bytes);
            let pieces = Pieces::of_reader(&content[..]).expect("memory");
            assert_eq!(pieces.digest(), Some(Digest::of(&content)), "{bytes} bytes");
            assert_eq!(pieces.count(), bytes.div_ceil(piece).max(1));
            for index in 0..pieces.count() {
                let (from, length) = pieces.place(index);
                let part = &content[from as usize..from as usize + length];
                assert!(pieces.is_right(index, part));
                assert!(pieces.count() == 1 || !pieces.is_right(index + 1, part));
            }
        }
    }

    #[test]
    fn a_wrong_bit_and_a_wrong_list_are_noticed() {
        let content = content(3 * PIECE_BYTES + 100);
        let pieces = Pieces::of_reader(&content[..]).expect("memory");
        for at in [0, PIECE_BYTES / 2, PIECE_BYTES - 1] {
            let mut piece = content[PIECE_BYTES..2 * PIECE_BYTES].to_vec();
            piece[at] ^= 0x10;
            assert!(!pieces.is_right(1, &piece));
        }
        assert!(!pieces.is_right(3, &content[3 * PIECE_BYTES..][..99]));
        assert!(!pieces.is_right(4, &[]));
        let mut fewer = pieces.clone();
        fewer.values.pop();
        assert_eq!(fewer.digest(), None);
        let mut other = pieces.clone();
        other.values[2][0] ^= 1;
        assert_ne!(other.digest(), pieces.digest());
        let huge = Pieces { bytes: u64::MAX, ..pieces };
        assert_eq!(huge.digest(), None);
    }
}
