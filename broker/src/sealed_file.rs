//! Small files that hold all of something, with a hash of it: replaced as a whole with each change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gleaner_protocol::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What cannot be done with such a file.
#[derive(Debug, Error)]
pub enum SealedFileError {
    /// It cannot be read or written.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It holds something else than it should.
    #[error("{path} is damaged ({why})", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Content and hash, as they stand in the file.
#[derive(Serialize, Deserialize)]
struct Sealed<T> {
    /// The hash of the rest, as JSON without spaces.
    hash: Digest,
    book: T,
}

/// Reads one; nothing where there is no file.
///
/// # Errors
/// See [`SealedFileError`].
pub(crate) fn read<T: Serialize + DeserializeOwned>(
    path: &Path,
) -> Result<Option<T>, SealedFileError> {
    let damaged = |why: String| SealedFileError::Damaged { path: path.into(), why };
    match fs::read(path) {
        Ok(bytes) => {
            let Sealed { hash, book } =
                serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
            if hash != hash_of(&book) {
                return Err(damaged("its content has another hash than it says".into()));
            }
            Ok(Some(book))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SealedFileError::File { what: "read", path: path.into(), source }),
    }
}

/// Replaces one, for its owner alone. It is on the disk when this returns.
///
/// # Errors
/// [`SealedFileError::File`]: the file is as it was.
pub(crate) fn replace<T: Serialize>(path: &Path, book: &T) -> Result<(), SealedFileError> {
    let sealed = Sealed { hash: hash_of(book), book };
    let bytes = serde_json::to_vec_pretty(&sealed).expect("our own types serialise");
    let new = path.with_extension("json.new");
    let replaced = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    replaced().map_err(|source| SealedFileError::File { what: "write", path: path.into(), source })
}

/// Removes one, where it is there. It is gone from the disk when this returns.
///
/// # Errors
/// [`SealedFileError::File`]: the file is as it was.
pub(crate) fn remove(path: &Path) -> Result<(), SealedFileError> {
    let removed = || match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all(),
    };
    removed().map_err(|source| SealedFileError::File { what: "remove", path: path.into(), source })
}

fn hash_of<T: Serialize>(book: &T) -> Digest {
    Digest::of(&serde_json::to_vec(book).expect("our own types serialise"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_a_changed_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("book.json");
        assert_eq!(read::<Vec<u32>>(&path).expect("none"), None);
        replace(&path, &vec![1, 2, 3]).expect("written");
        replace(&path, &vec![1, 2]).expect("written");
        assert_eq!(read(&path).expect("sound"), Some(vec![1, 2]));
        let text = fs::read_to_string(&path).expect("text").replace('2', "3");
        fs::write(&path, text).expect("written");
        assert!(matches!(read::<Vec<u32>>(&path), Err(SealedFileError::Damaged { .. })));
    }
}
