//! Reading a log line by line, packed or not, and what can be wrong with one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use thiserror::Error;

use crate::limits::{REPLAY_LINE_BYTES_MAX, REPLAY_QUOTED_CHARS_MAX};

/// What is wrong with a log.
#[derive(Debug, Error)]
pub(crate) enum LogError {
    /// It cannot be opened.
    #[error("cannot open {path}: {source}; expected a log of the farm, plain or packed by gzip")]
    Open { path: String, source: io::Error },
    /// It cannot be read to its end.
    #[error("{path}, line {line}: cannot read on: {source}; expected a whole file")]
    Read { path: String, line: u64, source: io::Error },
    /// One line of it.
    #[error("{path}, line {line}: {found}; expected {expected}")]
    Line { path: String, line: u64, found: String, expected: String },
    /// All of it.
    #[error("{path}: {found}; expected {expected}")]
    File { path: String, found: String, expected: String },
}

impl LogError {
    /// Something is wrong with the log as a whole.
    pub(crate) fn file(path: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::File { path: path.into(), found: found.into(), expected: expected.into() }
    }

    /// Nothing is in it.
    pub(crate) fn empty(path: &str, expected: &str) -> Self {
        Self::file(path, "there is nothing to replay", expected)
    }
}

/// The lines of a log.
pub(crate) struct Lines {
    reader: Box<dyn BufRead>,
    path: String,
    number: u64,
    buffer: Vec<u8>,
    /// A line that was read to be looked at, and is to be read again.
    peeked: bool,
    ended: bool,
}

impl Lines {
    /// Opens a log, and unpacks it where it begins like a gzip file.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub(crate) fn open(path: &str) -> Result<Self, LogError> {
        let refuse = |source| LogError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(refuse)?;
        if file.metadata().map_err(refuse)?.is_dir() {
            return Err(LogError::file(path, "it is a folder", "a log of the farm"));
        }
        Self::of(path, Box::new(file)).map_err(refuse)
    }

    /// The lines of what is read from `source`.
    pub(crate) fn of(path: &str, source: Box<dyn Read>) -> Result<Self, io::Error> {
        let mut reader = BufReader::with_capacity(1 << 16, source);
        let is_packed = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let reader: Box<dyn BufRead> = if is_packed {
            Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        let path = path.to_owned();
        let buffer = Vec::new();
        Ok(Self { reader, path, number: 0, buffer, peeked: false, ended: false })
    }

    /// Its path, for errors.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The next line without its end; `None` behind the last one.
    ///
    /// # Errors
    /// It cannot be read, is too long, or is no text.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, LogError> {
        if !std::mem::take(&mut self.peeked) && !self.ended {
            self.read()?;
        }
        if self.ended {
            return Ok(None);
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.wrong("it is not text".into(), "a line of UTF-8 text")),
        }
    }

    /// The next line that is not blank, which comes again.
    ///
    /// # Errors
    /// As [`Lines::next`].
    pub(crate) fn peek(&mut self) -> Result<Option<&str>, LogError> {
        while self.next()?.is_some_and(|line| line.trim().is_empty()) {}
        self.peeked = !self.ended;
        if self.ended {
            return Ok(None);
        }
        Ok(std::str::from_utf8(&self.buffer).ok())
    }

    /// Says what is wrong with the line that was read last.
    pub(crate) fn wrong(&self, found: String, expected: impl Into<String>) -> LogError {
        LogError::Line {
            path: self.path.clone(),
            line: self.number,
            found,
            expected: expected.into(),
        }
    }

    fn read(&mut self) -> Result<(), LogError> {
        self.buffer.clear();
        self.number += 1;
        let mut limited = self.reader.by_ref().take(REPLAY_LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut self.buffer).map_err(|source| {
            LogError::Read { path: self.path.clone(), line: self.number, source }
        })?;
        self.ended = read == 0;
        if read as u64 == REPLAY_LINE_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
            let most = format!("lines of at most {REPLAY_LINE_BYTES_MAX} bytes");
            return Err(self.wrong("the line is longer than that".into(), most));
        }
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            self.buffer.pop();
        }
        if self.buffer.contains(&0) {
            return Err(self.wrong("it is not text".into(), "a line of text"));
        }
        Ok(())
    }
}

/// A text as it is shown in an error: its beginning, in quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(REPLAY_QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
