//! Who a link to an MQTT broker says it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::limits::PASSWORD_BYTES_MAX;

/// One line, without its end.
pub(super) fn read_password(path: &Path) -> Result<String, TrustError> {
    let refuse = |source| TrustError::Password { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(refuse)?;
    file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text).map_err(refuse)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains('\n') {
        return Err(refuse(io::Error::other("it is not one line")));
    }
    Ok(password.to_owned())
}

/// Why the farm cannot be listened to.
#[derive(Debug, Error)]
pub enum TrustError {
    /// TLS cannot be set up.
    #[error("poll_events_url: {0}")]
    Tls(#[from] gleaner_identity::TrustError),
    /// No password.
    #[error("cannot read the password in {path} (poll_events_password_file): {source}", path = path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let says = |text: &str| std::fs::write(file.path(), text).expect("written");
        says("open sesame\r\n");
        assert_eq!(read_password(file.path()).expect("a password"), "open sesame");
        for text in ["", "\n", "two\nlines\n"] {
            says(text);
            let error = read_password(file.path()).expect_err(text).to_string();
            assert!(error.contains("poll_events_password_file"), "{error}");
        }
    }
}
