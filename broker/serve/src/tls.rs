//! TLS from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::listener::ServeError;
use crate::validity;

/// Where certificate and key lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those between it and the root, in PEM form.
    pub certificate: PathBuf,
    /// Its private key, in PEM form.
    pub key: PathBuf,
}

/// Reads and checks both. A certificate that is not valid now is taken, with a warning: the clock may
/// be what is wrong.
pub(crate) fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, ServeError> {
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable("certificate", &files.certificate, error))?;
    if chain.is_empty() {
        return Err(unreadable("certificate", &files.certificate, pem::Error::NoItemsFound));
    }
    if let Some(complaint) = validity::complaint(&files.certificate, &chain, Timestamp::now()) {
        tracing::warn!("{complaint}");
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| unreadable("private key", &files.key, error))?;
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| ServeError::Tls { files: files.clone(), source })?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|source| ServeError::Tls { files: files.clone(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn unreadable(what: &'static str, path: &Path, error: pem::Error) -> ServeError {
    // The reader's own words for I/O errors hide the reason.
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("it holds no {what} in PEM form"),
        error => format!("it is no PEM file: {error:?}").chars().take(200).collect(),
    };
    ServeError::Pem { what, path: path.to_owned(), why }
}
