//! Files that parameters name, read up to a limit and no further.

use std::fs::File;
use std::io::Read;

/// All of a file of at most `most_bytes`.
///
/// # Errors
/// Names the file: it cannot be read, is a folder, or is larger, even if it never ends.
pub(crate) fn read_bytes(path: &str, most_bytes: u64) -> Result<Vec<u8>, String> {
    let refuse = |error: std::io::Error| format!("{path}: cannot be read: {error}");
    let file = File::open(path).map_err(refuse)?;
    let mut bytes = Vec::new();
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(refuse)?;
    if bytes.len() as u64 > most_bytes {
        return Err(format!("{path}: it is too large: expected at most {most_bytes} bytes"));
    }
    Ok(bytes)
}

/// The same of a text.
///
/// # Errors
/// Likewise, and what is no text.
pub(crate) fn read_text(path: &str, most_bytes: u64) -> Result<String, String> {
    let bytes = read_bytes(path, most_bytes)?;
    String::from_utf8(bytes)
        .map_err(|_| format!("{path}: cannot be read: it is not text; expected lines of UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_beyond() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"12345").expect("written");
        let path = file.path().to_str().expect("a plain path").to_owned();
        let path = path.as_str();
        assert_eq!(read_text(path, 5).as_deref(), Ok("12345"));
        let error = read_text(path, 4).expect_err("a byte more");
        assert!(error.starts_with(path) && error.contains("at most 4 bytes"), "{error}");
        file.write_all(&[0xff]).expect("written");
        assert!(read_text(path, 9).expect_err("no text").contains("not text"));
    }

    #[test]
    fn what_never_ends_and_what_is_no_file_is_refused() {
        assert!(read_bytes("/dev/zero", 1 << 16).expect_err("no end").contains("too large"));
        for path in ["/", "/no/such/file"] {
            assert!(read_bytes(path, 9).expect_err(path).contains("cannot be read"));
        }
    }
}
