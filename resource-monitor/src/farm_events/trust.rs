//! Whom a link to an MQTT broker trusts, and who it says it is.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use thiserror::Error;

use crate::limits::TOKEN_BYTES_MAX;

/// Settings that accept certificates of this file, or those that the system trusts.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, TrustError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Setup)?;
    let builder = match ca_file {
        Some(path) => builder.with_root_certificates(read_roots(path)?),
        None => builder.with_platform_verifier().map_err(TrustError::Setup)?,
    };
    Ok(Arc::new(builder.with_no_client_auth()))
}

fn read_roots(path: &Path) -> Result<RootCertStore, TrustError> {
    let refuse = |reason: String| TrustError::Certificates { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path).map_err(|error| refuse(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(roots)
}

/// One line, without its end.
pub(super) fn read_password(path: &Path) -> Result<String, TrustError> {
    let refuse = |source| TrustError::Password { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(refuse)?;
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(refuse)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.contains('\n') {
        return Err(refuse(io::Error::other("it is not one line")));
    }
    Ok(password.to_owned())
}

/// Why the farm cannot be listened to.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The library refused.
    #[error("cannot set up TLS for poll_events_url: {0}")]
    Setup(rustls::Error),
    /// No certificates to trust.
    #[error("cannot read the certificates {path} (ca_file): {reason}", path = path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
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
    fn a_password_is_one_line_and_certificates_are_such() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let says = |text: &str| std::fs::write(file.path(), text).expect("written");
        says("open sesame\r\n");
        assert_eq!(read_password(file.path()).expect("a password"), "open sesame");
        for text in ["", "\n", "two\nlines\n"] {
            says(text);
            let error = read_password(file.path()).expect_err(text).to_string();
            assert!(error.contains("poll_events_password_file"), "{error}");
        }
        says("-----BEGIN CERTIFICATE-----\nnone\n");
        let error = client_config(Some(file.path())).expect_err("no certificate").to_string();
        assert!(error.contains("ca_file"), "{error}");
    }
}
