//! Whose certificates are accepted over TLS.
//!
//! A certificate that a file lists is accepted while it is valid, by whatever name its server is reached:
//! the file says that it is the right one. What such a certificate has signed is accepted as well, for the names
//! in it. So a broker that made its own certificate needs no authority: whoever joins it is told the hash
//! of its key, the [`Pin`], with the invitation, and keeps the certificate that fits.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use gleaner_protocol::Digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, WantsVerifier,
};
use rustls_platform_verifier::{BuilderVerifierExt, Verifier};
use thiserror::Error;

/// Longest file of certificates, in bytes.
const CA_FILE_BYTES_MAX: u64 = 16 << 20;

/// The hash (BLAKE3) of a server's public key, as its certificate has it (`SubjectPublicKeyInfo`, DER).
pub type Pin = Digest;

/// The pin of a certificate; nothing where it cannot be read.
#[must_use]
pub fn pin_of(certificate: &CertificateDer<'_>) -> Option<Pin> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    Some(Digest::of(&parsed.subject_public_key_info()))
}

/// The pin of the first certificate in a PEM file.
///
/// # Errors
/// There is none that can be read.
pub fn pin_of_file(path: &Path) -> Result<Pin, TrustError> {
    let refuse = |reason: String| TrustError::File { path: path.to_owned(), reason };
    let first = CertificateDer::from_pem_file(path).map_err(|error| refuse(error.to_string()))?;
    pin_of(&first).ok_or_else(|| refuse("it is no certificate".into()))
}

/// Whose certificates are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Those that the operating system trusts.
    System,
    /// Those in this file, and those that they have signed.
    File(&'a Path),
    /// None: no address in use is `https://`.
    Nobody,
}

impl<'a> Trust<'a> {
    /// That of a file, or the system's where there is none.
    #[must_use]
    pub fn of(ca_file: Option<&'a Path>) -> Self {
        ca_file.map_or(Self::System, Self::File)
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub enum TrustError {
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
    Setup(Error),
}

/// TLS settings that accept whom `trust` says.
///
/// # Errors
/// The file cannot be read or holds no certificate, or the system's cannot be read.
pub fn client_config(trust: Trust<'_>) -> Result<ClientConfig, TrustError> {
    let builder = builder()?;
    let builder = match trust {
        Trust::System => builder.with_platform_verifier().map_err(TrustError::Setup)?,
        Trust::File(path) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Listed::read(path)?))
        }
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// TLS settings that accept the server with this key alone, and what they have seen of it.
///
/// # Errors
/// The library refuses, or the system's certificates cannot be read.
pub fn pinned_config(pin: Pin) -> Result<(ClientConfig, Arc<Pinned>), TrustError> {
    let known = Verifier::new(provider()).map_err(TrustError::Setup)?;
    let pinned = Arc::new(Pinned { pin, known, shown: Mutex::default() });
    let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&pinned) as _;
    let builder = builder()?.dangerous().with_custom_certificate_verifier(verifier);
    Ok((builder.with_no_client_auth(), pinned))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, WantsVerifier>, TrustError> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Setup)
}

/// Accepts certificates of a list, and what they have signed.
#[derive(Debug)]
struct Listed {
    list: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl Listed {
    fn read(path: &Path) -> Result<Self, TrustError> {
        let refuse = |reason: String| TrustError::File { path: path.to_owned(), reason };
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| refuse(error.to_string()))?;
        let read = file.take(CA_FILE_BYTES_MAX + 1).read_to_end(&mut text);
        let bytes = read.map_err(|error| refuse(error.to_string()))? as u64;
        if bytes > CA_FILE_BYTES_MAX {
            return Err(refuse(format!("it is longer than {CA_FILE_BYTES_MAX} bytes")));
        }
        let found = CertificateDer::pem_slice_iter(&text);
        let (mut list, mut roots) = (Vec::new(), RootCertStore::empty());
        for certificate in found {
            let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
            roots.add(certificate.clone()).map_err(|error| refuse(error.to_string()))?;
            list.push(certificate);
        }
        if list.is_empty() {
            return Err(refuse("no certificate in it".into()));
        }
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let signed = signed.build().map_err(|error| refuse(error.to_string()))?;
        Ok(Self { list, signed })
    }
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        let verified = self.signed.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        match verified {
            Err(Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            )) => verified,
            Err(_) if self.list.contains(end_entity) => Ok(ServerCertVerified::assertion()),
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Accepts the server with one key, and keeps its certificates.
#[derive(Debug)]
pub struct Pinned {
    pin: Pin,
    /// Says whether the system would accept it anyway.
    known: Verifier,
    shown: Mutex<Vec<CertificateDer<'static>>>,
}

impl Pinned {
    /// The certificates of the server that was accepted, its own first; none where there was none, or
    /// where the system accepts it anyway.
    #[must_use]
    pub fn to_be_kept(&self) -> Vec<CertificateDer<'static>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = pin_of(end_entity).ok_or(rustls::CertificateError::BadEncoding)?;
        if found != self.pin {
            let why = format!(
                "its certificate has another key ({found}) than the invitation says ({}): somebody may \
                 be in between, or the broker has a new certificate; ask whoever invited you",
                self.pin
            );
            return Err(Error::General(why));
        }
        let known = self.known.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        let kept = match known {
            Ok(_) => Vec::new(),
            Err(_) => [end_entity]
                .into_iter()
                .chain(intermediates)
                .map(|of| of.clone().into_owned())
                .collect(),
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
