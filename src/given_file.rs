//! Files that the command line names, and standard input in the place of one.
//!
//! # Invariants
//! - Nothing is read beyond its limit, whatever the name leads to: a device or a pipe may have no
//!   end.
//! - A file that cannot be read, is too long or is no text ends with the exit code of a wrong command
//!   line.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The name of standard input.
pub(crate) const STDIN: &str = "-";

/// Why a file that the command line names cannot be used.
#[derive(Debug, Error)]
pub(crate) enum GivenFileError {
    #[error("cannot read {what} {}", shown(path))]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {what} must be a file, and that is {is}", shown(path))]
    Kind { what: &'static str, path: PathBuf, is: &'static str },
    #[error("{} is longer than {}, the most for {what}", shown(path), size(*limit_bytes))]
    TooLong { what: &'static str, path: PathBuf, limit_bytes: u64 },
    #[error("{} {problem}", shown(path))]
    Content { path: PathBuf, problem: String },
}

/// A path as a message has it.
fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "stdin".into() } else { path.display().to_string() }
}

/// The whole content; `what` names the file's part in messages ("the items").
pub(crate) fn read(
    what: &'static str,
    path: &Path,
    limit_bytes: u64,
) -> Result<Vec<u8>, GivenFileError> {
    let file = File::open(path).map_err(|source| unreadable(what, path, source))?;
    read_from(file, what, path, limit_bytes)
}

/// The same, where `-` stands for standard input.
pub(crate) fn read_or_stdin(
    what: &'static str,
    path: &Path,
    limit_bytes: u64,
) -> Result<Vec<u8>, GivenFileError> {
    if path == Path::new(STDIN) {
        return read_from(io::stdin().lock(), what, path, limit_bytes);
    }
    read(what, path, limit_bytes)
}

fn read_from(
    from: impl Read,
    what: &'static str,
    path: &Path,
    limit_bytes: u64,
) -> Result<Vec<u8>, GivenFileError> {
    let mut content = Vec::new();
    let read = from.take(limit_bytes + 1).read_to_end(&mut content);
    read.map_err(|source| unreadable(what, path, source))?;
    if content.len() as u64 > limit_bytes {
        return Err(GivenFileError::TooLong { what, path: path.into(), limit_bytes });
    }
    Ok(content)
}

/// What reading a file has failed with.
pub(crate) fn unreadable(what: &'static str, path: &Path, source: io::Error) -> GivenFileError {
    let path = path.into();
    match source.kind() {
        io::ErrorKind::IsADirectory => GivenFileError::Kind { what, path, is: "a folder" },
        _ => GivenFileError::Read { what, path, source },
    }
}

/// The content as text, without a byte order mark; a line that is none is named.
pub(crate) fn text(path: &Path, content: Vec<u8>) -> Result<String, GivenFileError> {
    let wrong = |problem: String| GivenFileError::Content { path: path.into(), problem };
    if content.starts_with(b"\xff\xfe") || content.starts_with(b"\xfe\xff") {
        return Err(wrong("is UTF-16 text: save it as UTF-8 (`iconv -f UTF-16 -t UTF-8`)".into()));
    }
    let mut text = String::from_utf8(content).map_err(|error| {
        let (valid, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = bytes[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        wrong(format!(
            "is no UTF-8 text: line {line} has the byte 0x{:02x}; save it as UTF-8 (`iconv -f LATIN1 -t \
             UTF-8`, where it is Latin-1)",
            bytes[valid]
        ))
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// A limit in the largest unit that says it exactly.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_read_to_its_limit() {
        let error = read("the items", Path::new("/dev/zero"), 1 << 20).expect_err("no end");
        assert_eq!(error.to_string(), "/dev/zero is longer than 1 MiB, the most for the items");
        let read = read_from(&b"abc"[..], "the job", Path::new(STDIN), 3).expect("it fits");
        assert_eq!(read, b"abc");
        let error = read_from(&b"abcd"[..], "the job", Path::new(STDIN), 3).expect_err("longer");
        assert_eq!(error.to_string(), "stdin is longer than 3 bytes, the most for the job");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let error = read("the module", Path::new("/nowhere/x"), 9).expect_err("nowhere");
        assert_eq!(error.to_string(), "cannot read the module /nowhere/x");
        let error = read("the module", Path::new("/"), 9).expect_err("a folder");
        assert_eq!(error.to_string(), "/: the module must be a file, and that is a folder");
    }

    #[test]
    fn text_names_the_line_that_is_none() {
        let text =
            |bytes: &[u8]| text(Path::new("x"), bytes.to_vec()).map_err(|error| error.to_string());
        assert_eq!(text(b"\xef\xbb\xbfa\nb"), Ok("a\nb".into()));
        let error = text(b"a\nb\n\xc5ngelholm\n").expect_err("Latin-1");
        assert!(error.contains("line 3 has the byte 0xc5"), "{error}");
        let error = text(b"\xff\xfea\0").expect_err("UTF-16");
        assert!(error.contains("UTF-16"), "{error}");
    }

    #[test]
    fn sizes_are_exact() {
        let said = [1 << 30, 16 << 20, 3 << 10, 1_000, 0].map(size);
        assert_eq!(said, ["1 GiB", "16 MiB", "3 KiB", "1000 bytes", "0 bytes"]);
    }
}
