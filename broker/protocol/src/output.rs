//! What a replica produced, in the form that votes compare.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{BLOB_BYTES_MAX, INLINE_BYTES_MAX, NAME_BYTES_MAX, OUTPUT_FILES_MAX};
use crate::{Digest, limits, stored};

/// One file's content: itself where it is small, else its address.
///
/// Which of the two is not a choice but a rule ([`INLINE_BYTES_MAX`]), so that equal outputs
/// have equal manifests.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// At most [`INLINE_BYTES_MAX`] bytes, as they are.
    Inline(Vec<u8>),
    /// More than that: a blob that was uploaded first.
    Stored {
        /// Address of the blob.
        digest: Digest,
        /// Its length.
        bytes: u64,
    },
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Stored { bytes, .. } => *bytes,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Stored { digest, bytes } => write!(f, "{digest:?} ({bytes} B)"),
        }
    }
}

/// A named file of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Name below the replica's folder, without a path; `result` for a kernel's single value,
    /// `stdout` for what a command printed.
    pub name: String,
    /// What is in it.
    pub content: Content,
}

/// All that a replica produced, its files in order of their names. Its digest is the replica's
/// vote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    files: Vec<OutputFile>,
}

impl Manifest {
    /// Puts files into the one order that a manifest has.
    ///
    /// # Errors
    /// Too many files, a name twice or that is no plain file name, content that is inline or
    /// stored against the rule, or larger than [`BLOB_BYTES_MAX`].
    pub fn new(mut files: Vec<OutputFile>) -> Result<Self, ManifestError> {
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let manifest = Self { files };
        manifest.check()?;
        Ok(manifest)
    }

    /// The files, in order of their names.
    #[must_use]
    pub fn files(&self) -> &[OutputFile] {
        &self.files
    }

    /// Checks what came over a wire.
    ///
    /// # Errors
    /// As [`Manifest::new`], and files out of order.
    pub fn check(&self) -> Result<(), ManifestError> {
        if self.files.len() > OUTPUT_FILES_MAX {
            return Err(ManifestError::TooManyFiles(self.files.len()));
        }
        for file in &self.files {
            check_file_name(&file.name)?;
            let inline = matches!(file.content, Content::Inline(_));
            let bytes = file.content.len();
            if bytes > BLOB_BYTES_MAX {
                return Err(ManifestError::TooLarge { name: file.name.clone(), bytes });
            }
            if inline != (bytes <= INLINE_BYTES_MAX as u64) {
                return Err(ManifestError::Form { name: file.name.clone(), bytes });
            }
        }
        match self.files.windows(2).find(|pair| pair[0].name >= pair[1].name) {
            Some(pair) => Err(ManifestError::Order(pair[1].name.clone())),
            None => Ok(()),
        }
    }

    /// The encoding that is hashed and stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        stored::encode(self)
    }

    /// The vote: the hash of [`Manifest::encode`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.encode())
    }
}

/// Checks that `name` is a plain file name: no path, not hidden, not empty, not too long.
///
/// # Errors
/// [`ManifestError::Name`].
pub fn check_file_name(name: &str) -> Result<(), ManifestError> {
    let plain = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && !name.chars().any(|c| c == '/' || c == '\\' || c.is_control());
    if plain { Ok(()) } else { Err(ManifestError::Name(name.chars().take(80).collect())) }
}

/// Why a manifest is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// Over [`OUTPUT_FILES_MAX`].
    #[error("{0} output files are more than {max}", max = OUTPUT_FILES_MAX)]
    TooManyFiles(usize),
    /// Not a plain file name.
    #[error("{0:?} is no plain file name: no path, no leading dot, at most {max} bytes", max = limits::NAME_BYTES_MAX)]
    Name(String),
    /// Twice the same name, or out of order.
    #[error("file {0:?} comes twice or out of order")]
    Order(String),
    /// Over [`BLOB_BYTES_MAX`].
    #[error("file {name:?} has {bytes} bytes, more than {max}", max = BLOB_BYTES_MAX)]
    TooLarge {
        /// The file.
        name: String,
        /// Its length.
        bytes: u64,
    },
    /// Inline although large, or stored although small.
    #[error("file {name:?} of {bytes} bytes is on the wrong side of the inline limit of {max} bytes", max = INLINE_BYTES_MAX)]
    Form {
        /// The file.
        name: String,
        /// Its length.
        bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> OutputFile {
        OutputFile { name: name.into(), content: Content::Inline(bytes.into()) }
    }

    #[test]
    fn the_order_of_files_does_not_change_the_vote() {
        let one = Manifest::new(vec![file("a", b"1"), file("b", b"2")]).expect("plain");
        let two = Manifest::new(vec![file("b", b"2"), file("a", b"1")]).expect("plain");
        assert_eq!(one.digest(), two.digest());
        let other = Manifest::new(vec![file("a", b"2"), file("b", b"1")]).expect("plain");
        assert_ne!(one.digest(), other.digest());
    }

    #[test]
    fn what_could_leave_its_folder_is_refused() {
        for bad in ["", "../x", "a/b", ".hidden", "a\0b"] {
            assert!(Manifest::new(vec![file(bad, b"")]).is_err(), "{bad:?}");
        }
        assert!(matches!(
            Manifest::new(vec![file("a", b""), file("a", b"")]),
            Err(ManifestError::Order(_))
        ));
        let large = vec![0; INLINE_BYTES_MAX + 1];
        assert!(matches!(Manifest::new(vec![file("a", &large)]), Err(ManifestError::Form { .. })));
    }
}
