//! TLS between two agents, each of which knows the other's key and nothing else of it.
//!
//! Both show their bare public keys (RFC 7250), so that there is no certificate to make, to sign or to
//! expire. An agent signs with the key that it enrolled: TLS signs other bytes than a PASETO token has,
//! so neither signature is good for the other.
//!
//! # Invariants
//! - Who shows a key that is not admitted is refused in the handshake.
//! - TLS 1.3 only, and no session is taken up again: each connection is checked by itself.

use std::fmt;
use std::sync::Arc;

use gleaner_protocol::PeerKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::key::KeyPair;
use crate::trust::provider;

/// What stands before an Ed25519 public key in a `SubjectPublicKeyInfo` (RFC 8410).
const SPKI_HEAD: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// What stands before its seed in a `PrivateKeyInfo` (RFC 8410).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The key that somebody shows; nothing where it is none of this kind.
#[must_use]
pub fn peer_key_of(shown: &CertificateDer<'_>) -> Option<PeerKey> {
    let key = shown.strip_prefix(&SPKI_HEAD)?;
    Some(PeerKey::from_bytes(key.try_into().ok()?))
}

/// TLS settings of one who answers those whose keys `admits` says yes to, in one of these protocols.
///
/// # Errors
/// The library refuses the key.
pub fn peer_server(
    own: &KeyPair,
    admits: impl Fn(&PeerKey) -> bool + Send + Sync + 'static,
    protocols: &[&[u8]],
) -> Result<ServerConfig, Error> {
    let shown = AlwaysResolvesServerRawPublicKeys::new(shown(own)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Admitted(Box::new(admits))))
        .with_cert_resolver(Arc::new(shown));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = protocols.iter().map(|of| of.to_vec()).collect();
    Ok(config)
}

/// TLS settings of one who speaks to whoever has the key `other`, and to nobody else.
///
/// # Errors
/// The library refuses the key.
pub fn peer_client(own: &KeyPair, other: PeerKey, protocol: &[u8]) -> Result<ClientConfig, Error> {
    let shown = AlwaysResolvesClientRawPublicKeys::new(shown(own)?);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Expected(other)))
        .with_client_cert_resolver(Arc::new(shown));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

/// A key as TLS shows it and signs with it.
fn shown(own: &KeyPair) -> Result<Arc<CertifiedKey>, Error> {
    let public = [&SPKI_HEAD[..], own.peer_key().as_bytes()].concat();
    let secret = [&PKCS8_HEAD[..], own.seed()].concat();
    let secret = PrivatePkcs8KeyDer::from(secret).into();
    let signing = ring::default_provider().key_provider.load_private_key(secret)?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], signing)))
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    ring::default_provider().signature_verification_algorithms
}

fn verify(
    message: &[u8],
    shown: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signed, &algorithms())
}

fn no_tls12() -> Error {
    Error::General("agents speak TLS 1.3 to each other".into())
}

/// Accepts the server with one key.
#[derive(Debug)]
struct Expected(PeerKey);

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match peer_key_of(end_entity) == Some(self.0) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts clients whose keys it is told to.
struct Admitted(Box<dyn Fn(&PeerKey) -> bool + Send + Sync>);

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admitted")
    }
}

impl ClientCertVerifier for Admitted {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match peer_key_of(end_entity).is_some_and(|key| (self.0)(&key)) {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read, Write};

    use rustls::{ClientConnection, ConnectionCommon, ServerConnection};

    use super::*;

    const PROTOCOL: &[u8] = b"test/1";

    /// Takes what one end says to the other.
    fn carry<A, B>(
        from: &mut ConnectionCommon<A>,
        to: &mut ConnectionCommon<B>,
    ) -> Result<(), Error> {
        let mut said = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut said).expect("memory");
        }
        let mut said = Cursor::new(said);
        while to.read_tls(&mut said).expect("memory") > 0 {
            to.process_new_packets()?;
        }
        Ok(())
    }

    /// What a client with one key hears of a server with another.
    fn speak(client: ClientConfig, server: ServerConfig) -> Result<Vec<u8>, Error> {
        let name = ServerName::try_from("gleaner").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        for _ in 0..4 {
            carry(&mut client, &mut server)?;
            carry(&mut server, &mut client)?;
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        server.writer().write_all(b"hello").expect("memory");
        carry(&mut server, &mut client)?;
        let mut heard = vec![0; 5];
        client.reader().read_exact(&mut heard).expect("it was said");
        let shown = server.peer_certificates().and_then(|of| peer_key_of(&of[0]));
        assert!(shown.is_some());
        Ok(heard)
    }

    #[test]
    fn each_end_accepts_the_key_that_it_was_told_of_and_no_other() {
        let [one, two, third] = [(); 3].map(|()| KeyPair::generate().expect("made"));
        let server = |admitted: PeerKey| {
            peer_server(&one, move |key| *key == admitted, &[PROTOCOL]).expect("a good key")
        };
        let client = |own: &KeyPair, other: &KeyPair| {
            peer_client(own, other.peer_key(), PROTOCOL).expect("a good key")
        };
        let heard = speak(client(&two, &one), server(two.peer_key())).expect("both are right");
        assert_eq!(heard, b"hello");
        let refused = Error::from(CertificateError::ApplicationVerificationFailure);
        let told = |told: Result<Vec<u8>, Error>| told.expect_err("it is another");
        assert_eq!(told(speak(client(&third, &one), server(two.peer_key()))), refused);
        assert_eq!(told(speak(client(&two, &third), server(two.peer_key()))), refused);
        let nobody = peer_server(&one, |_| false, &[PROTOCOL]).expect("a good key");
        assert_eq!(told(speak(client(&two, &one), nobody)), refused);
        let other = peer_client(&two, one.peer_key(), b"test/2").expect("a good key");
        assert_eq!(told(speak(other, server(two.peer_key()))), Error::NoApplicationProtocol);
    }
}
