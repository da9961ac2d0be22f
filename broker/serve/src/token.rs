//! The access token.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::{TOKEN_CHARS_MIN, TOKEN_FILE_BYTES_MAX};

/// A secret that whoever speaks to the broker must show. Only its hash is held.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

/// Names a token: whoever knows it cannot show the token, and another token has another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMark(String);

impl TokenMark {
    /// As it was written down.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// To be written down.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a token is none.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read token file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Everyone on the machine can read it.
    #[error("token file {path} can be read by everyone on this machine: chmod o-r {path}")]
    Readable {
        /// The file.
        path: PathBuf,
    },
    /// Too short, or not of visible ASCII characters.
    #[error(
        "token file {path} holds no token: {TOKEN_CHARS_MIN} or more visible ASCII characters on one line; make one with `head -c 24 /dev/urandom | base64`"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

impl Token {
    /// Reads a token file.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let read_error = |source| TokenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read_error)?;
        if file.metadata().map_err(read_error)?.permissions().mode() & 0o004 != 0 {
            return Err(TokenError::Readable { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text).map_err(read_error)?;
        Self::new(&text).ok_or_else(|| TokenError::Form { path: path.to_owned() })
    }

    /// Takes a token without the white space around it; nothing where it is too short or not of
    /// visible ASCII characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let sound =
            text.len() >= TOKEN_CHARS_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        sound.then(|| Self(blake3::hash(text.as_bytes())))
    }

    /// Names this token without telling it.
    #[must_use]
    pub fn mark(&self) -> TokenMark {
        let mark = blake3::derive_key("gleaner 2026 mark of a token", self.0.as_bytes());
        TokenMark(mark[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether `shown` is this token. Takes the same time however much of it is right: hashes are
    /// compared, and those in constant time.
    #[must_use]
    pub fn matches(&self, shown: &[u8]) -> bool {
        self.0 == blake3::hash(shown)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    fn file_with(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("set");
        file
    }

    #[test]
    fn a_token_is_read_without_the_white_space_around_it() {
        let file = file_with("  0123456789abcdef\n", 0o600);
        let token = Token::read(file.path()).expect("a token");
        assert!(token.matches(b"0123456789abcdef"));
        for wrong in [&b""[..], b"0123456789abcde", b"0123456789abcdef\n", b"0123456789abcdeF"] {
            assert!(!token.matches(wrong));
        }
        assert_eq!(format!("{token:?}"), "Token(secret)");
    }

    #[test]
    fn what_is_no_token_is_refused_with_the_files_name() {
        for (text, mode, says) in [
            ("short", 0o600, "visible ASCII"),
            ("", 0o600, "visible ASCII"),
            ("0123456789 abcdef", 0o600, "visible ASCII"),
            ("0123456789abcdéf", 0o600, "visible ASCII"),
            ("0123456789abcdef", 0o644, "chmod"),
        ] {
            let file = file_with(text, mode);
            let error = Token::read(file.path()).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.contains(&file.path().display().to_string()), "{error}");
        }
        let error = Token::read(Path::new("/nowhere/token")).expect_err("not there").to_string();
        assert!(error.contains("/nowhere/token"), "{error}");
    }
}
