//! The certificate of a broker that other machines reach and that was given none: it makes one.
//!
//! Nobody has signed it. Whoever joins the broker is told the hash of its key with the invitation, and
//! keeps the certificate that fits (`gleaner_identity::Pin`).

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gleaner_serve::TlsFiles;
use rcgen::{CertificateParams, KeyPair};
use thiserror::Error;

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum OwnCertificateError {
    /// A file cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The library refused.
    #[error("cannot make the broker's own certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The certificate and the key of a data folder, which are made where there are none.
///
/// # Errors
/// They cannot be made or written.
pub(crate) fn read_or_make(data_folder: &Path) -> Result<TlsFiles, OwnCertificateError> {
    let files =
        TlsFiles { certificate: data_folder.join("tls.crt"), key: data_folder.join("tls.key") };
    if files.certificate.exists() {
        return Ok(files);
    }
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names())?.self_signed(&key)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_folder)
        .map_err(|source| OwnCertificateError::File { path: data_folder.into(), source })?;
    // The certificate comes last: where it is there, so is its key.
    write(&files.key, &key.serialize_pem(), 0o600)?;
    write(&files.certificate, &certificate.pem(), 0o644)?;
    Ok(files)
}

/// The names in it, for those who are told to trust it as an authority.
fn names() -> Vec<String> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let others = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    others.into_iter().chain([machine]).filter(|name| name.is_ascii() && !name.is_empty()).collect()
}

/// Writes a file whole, which so many may read.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), OwnCertificateError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = || {
        // What somebody was killed over is another file's, with another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    written().map_err(|source| OwnCertificateError::File { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_made_once_and_its_key_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let files = read_or_make(&data).expect("made");
        let read = |files: &TlsFiles| {
            [&files.certificate, &files.key].map(|path| fs::read_to_string(path).expect("there"))
        };
        let made = read(&files);
        assert!(made[0].starts_with("-----BEGIN CERTIFICATE") && made[1].contains("PRIVATE KEY"));
        let mode = fs::metadata(&files.key).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read(&read_or_make(&data).expect("there")), made);
        let mode = fs::metadata(&data).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // One that was killed over it makes another.
        fs::remove_file(&files.certificate).expect("ours");
        fs::write(data.join("tls.key.new"), "half of it").expect("ours");
        assert_ne!(read(&read_or_make(&data).expect("made")), made);
        let mode = fs::metadata(&files.key).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let pin = gleaner_identity::pin_of_file(&files.certificate).expect("one is in it");
        assert_ne!(pin, gleaner_protocol::Digest::of(b""));
    }
}
