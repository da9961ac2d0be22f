//! Reading it, believing nothing.

use std::io::{BufRead, Read};

use gleaner_protocol::Digest;
use gleaner_scheduling::Fact;

use super::{ArchiveError, FIRST_LINE, FIRST_WORD, Folder};
use crate::limits::{EXPORT_FACTS_BYTES_MAX, EXPORT_LINE_BYTES_MAX, SMALL_BLOB_BYTES_MAX};

/// One part of the stream.
pub(super) enum Part {
    Facts(Vec<Fact>),
    Output(Digest, Vec<u8>),
    /// So many bytes follow, to be read with [`Reader::content`].
    Blob(Digest, u64),
    /// The same of a file that is carried as it is, by its name in the folder.
    File(String, u64),
    End,
}

/// Reads it part by part.
pub(super) struct Reader<R> {
    input: R,
    hasher: blake3::Hasher,
    pub(super) bytes: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads up to what the folder is.
    pub(super) fn begin(input: R) -> Result<(Self, Folder), ArchiveError> {
        let mut reader = Self { input, hasher: blake3::Hasher::new(), bytes: 0 };
        let first = reader.line()?;
        if first != FIRST_LINE {
            return Err(match first.strip_prefix(FIRST_WORD) {
                Some(version) => ArchiveError::Version(version.chars().take(20).collect()),
                None => broken("its first line is another"),
            });
        }
        let line = reader.line()?;
        let folder = line.strip_prefix("S ").ok_or_else(|| broken("it names no folder"))?;
        let folder = serde_json::from_str(folder).map_err(|error| broken(error.to_string()))?;
        Ok((reader, folder))
    }

    /// The next part.
    pub(super) fn next(&mut self) -> Result<Part, ArchiveError> {
        let before = self.hasher.finalize();
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().ok();
        let digest = |text: &str| text.parse::<Digest>().ok();
        let unknown =
            || broken(format!("{:?} is no part", line.chars().take(100).collect::<String>()));
        match words[..] {
            ["F", bytes] => {
                let bytes = number(bytes).filter(|bytes| *bytes <= EXPORT_FACTS_BYTES_MAX);
                let facts = self.whole(bytes.ok_or_else(unknown)?)?;
                let facts = serde_json::from_slice(&facts);
                facts.map(Part::Facts).map_err(|error| broken(format!("a fact: {error}")))
            }
            ["O", of, bytes] => {
                let bytes = number(bytes).filter(|bytes| *bytes <= SMALL_BLOB_BYTES_MAX as u64);
                let (of, bytes) = digest(of).zip(bytes).ok_or_else(unknown)?;
                let content = self.whole(bytes)?;
                if Digest::of(&content) != of {
                    return Err(broken(format!("output {of} has another digest")));
                }
                Ok(Part::Output(of, content))
            }
            ["B", of, bytes] => {
                let (of, bytes) = digest(of).zip(number(bytes)).ok_or_else(unknown)?;
                Ok(Part::Blob(of, bytes))
            }
            ["N", name, bytes] => {
                let bytes = number(bytes).ok_or_else(unknown)?;
                Ok(Part::File(name.to_owned(), bytes))
            }
            ["E", hash] if hash == before.to_hex().as_str() => Ok(Part::End),
            ["E", _] => Err(broken("its content has another hash than its last line says")),
            _ => Err(unknown()),
        }
    }

    /// Some of a blob's content, of which `rest` bytes are still to come.
    pub(super) fn content(&mut self, piece: &mut [u8], rest: u64) -> Result<usize, ArchiveError> {
        let most = usize::try_from(rest).unwrap_or(usize::MAX).min(piece.len());
        let read = self.input.read(&mut piece[..most]).map_err(cannot_read)?;
        if read == 0 {
            return Err(broken("it is cut off"));
        }
        self.count(&piece[..read]);
        Ok(read)
    }

    /// The line break behind a content.
    pub(super) fn after_content(&mut self) -> Result<(), ArchiveError> {
        if self.line()?.is_empty() { Ok(()) } else { Err(broken("a content is too long")) }
    }

    fn whole(&mut self, bytes: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut content = Vec::new();
        (&mut self.input).take(bytes).read_to_end(&mut content).map_err(cannot_read)?;
        if content.len() as u64 != bytes {
            return Err(broken("it is cut off"));
        }
        self.count(&content);
        self.after_content()?;
        Ok(content)
    }

    fn line(&mut self) -> Result<String, ArchiveError> {
        let mut line = Vec::new();
        let mut input = (&mut self.input).take(EXPORT_LINE_BYTES_MAX);
        input.read_until(b'\n', &mut line).map_err(cannot_read)?;
        self.count(&line);
        if line.pop() != Some(b'\n') {
            return Err(broken("it is cut off"));
        }
        String::from_utf8(line).map_err(|_| broken("a line is no text"))
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

pub(super) fn broken(what: impl Into<String>) -> ArchiveError {
    ArchiveError::Broken(what.into())
}

fn cannot_read(error: std::io::Error) -> ArchiveError {
    ArchiveError::Stream("read", error)
}
