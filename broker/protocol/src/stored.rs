//! The binary form of what is stored (facts of the journal and its snapshots, manifests of
//! outputs): a version byte, then postcard.
//!
//! # Invariants
//! - The version is the store's own: that of the wire ([`codec`](crate::codec)) may change without
//!   making a store unreadable. Whoever changes the form of a fact, of a manifest or of anything in
//!   them changes [`RECORD_VERSION`].

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Version of every stored record.
pub const RECORD_VERSION: u8 = 12;

/// Why stored bytes are no record.
#[derive(Debug, Error)]
pub enum StoredError {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// Written by another release.
    #[error(
        "its version is {0}, this release reads records of version {RECORD_VERSION}: run the release that wrote it, or name another data folder"
    )]
    Version(u8),
    /// Not what was expected.
    #[error("it is malformed")]
    Malformed(#[from] postcard::Error),
    /// Something follows the record.
    #[error("{0} bytes follow what belongs to it")]
    Trailing(usize),
}

/// Encodes a record.
///
/// # Panics
/// If `value` cannot be serialised, which our own types always can.
#[must_use]
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![RECORD_VERSION]).expect("our own types serialise")
}

/// Decodes a whole record.
///
/// # Errors
/// See [`StoredError`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoredError> {
    let (&version, body) = bytes.split_first().ok_or(StoredError::Empty)?;
    if version != RECORD_VERSION {
        return Err(StoredError::Version(version));
    }
    let (value, rest) = postcard::take_from_bytes(body)?;
    if rest.is_empty() { Ok(value) } else { Err(StoredError::Trailing(rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Manifest, codec};

    #[test]
    fn what_is_stored_bears_the_version_of_records() {
        let record = encode(&7_u32);
        assert_eq!(record[0], RECORD_VERSION);
        assert_eq!(Manifest::default().encode()[0], RECORD_VERSION);
        assert_eq!(decode::<u32>(&record).expect("our own"), 7);
    }

    #[test]
    fn another_version_is_refused_in_the_words_of_the_store_and_never_in_those_of_the_wire() {
        let mut record = encode(&7_u32);
        for version in (0..=u8::MAX).filter(|version| *version != RECORD_VERSION) {
            record[0] = version;
            let error = decode::<u32>(&record).expect_err("another version").to_string();
            let found = format!("version is {version}, this release reads");
            assert!(error.contains(&found) && error.contains("release that wrote it"), "{error}");
            assert!(!error.contains("both ends"), "{error}");
        }
        record[0] = codec::VERSION.wrapping_add(1);
        let of_the_wire = codec::decode::<u32>(&record).expect_err("another version").to_string();
        assert!(of_the_wire.contains("both ends"), "{of_the_wire}");
    }

    #[test]
    fn what_is_no_whole_record_is_refused() {
        let record = encode(&7_u32);
        let long: Vec<u8> = record.iter().copied().chain([0, 0]).collect();
        assert!(matches!(decode::<u32>(&long), Err(StoredError::Trailing(2))));
        assert!(matches!(decode::<u32>(&[]), Err(StoredError::Empty)));
        assert!(matches!(decode::<u32>(&record[..1]), Err(StoredError::Malformed(_))));
    }
}
