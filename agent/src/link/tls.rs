//! Whom an agent trusts when it speaks to a broker or a monitor over TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use thiserror::Error;

/// Whose certificates are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Those that the operating system trusts.
    System,
    /// Those signed by a certificate of this file alone.
    File(&'a Path),
    /// None: no address in use is `https://`.
    Nobody,
}

/// TLS settings that accept whom `trust` says.
///
/// # Errors
/// The file cannot be read or holds no certificate, or the system's cannot be read.
pub fn client_config(trust: Trust<'_>) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let builder = match trust {
        Trust::System => builder.with_platform_verifier().map_err(TlsError::Setup)?,
        Trust::File(path) => builder.with_root_certificates(read_roots(path)?),
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn read_roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let refuse = |reason: String| TlsError::File { path: path.to_owned(), reason };
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| refuse(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refuse("no certificate in it".into()));
    }
    Ok(roots)
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// No certificates to trust.
    #[error("ca_file {path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The library refused.
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}
