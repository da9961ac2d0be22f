//! Long values cut into parts, because the engine is only sound and small for short ones.
//!
//! A page of the engine holds up to about twenty values. A page over 128 KiB it puts into a file
//! of its own, which nobody ever syncs. And its cache counts pages rather than bytes: it keeps
//! some thousands of them, whatever it was told. Parts of at most [`PART_BYTES`] keep every page
//! far below the first limit, and all of them together at some 20 MB.

use sled::{Batch, Tree};

/// Longest value that is given to the engine.
const PART_BYTES: usize = 1_000;
/// Bytes that a part's number adds to the key.
const PART_KEY_BYTES: usize = 4;

/// Key of part `part` of the value under `key`.
fn part_key(key: &[u8], part: u32) -> Vec<u8> {
    [key, &part.to_be_bytes()].concat()
}

/// Splits a part's key into the value's key and the part's number.
pub(crate) fn split_part_key(part_key: &[u8]) -> Option<(&[u8], u32)> {
    let (key, part) = part_key.split_last_chunk::<PART_KEY_BYTES>()?;
    Some((key, u32::from_be_bytes(*part)))
}

/// Puts a value in parts, first part first: what a kill leaves is a beginning.
pub(crate) fn put(tree: &Tree, key: &[u8], value: &[u8]) -> sled::Result<()> {
    // An empty value still has its one part.
    let mut rest = value;
    let mut part = 0;
    loop {
        let (piece, after) = rest.split_at(rest.len().min(PART_BYTES));
        tree.insert(part_key(key, part), piece)?;
        part += 1;
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Removes parts by their keys, all or none.
pub(crate) fn remove(tree: &Tree, keys: impl IntoIterator<Item = sled::IVec>) -> sled::Result<()> {
    let mut batch = Batch::default();
    for key in keys {
        batch.remove(key);
    }
    tree.apply_batch(batch)
}
