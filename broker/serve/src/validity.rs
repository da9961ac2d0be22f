//! Whether certificates are valid by this machine's clock.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

/// Says which certificate of a file is not valid now, and what to do: the first such one.
pub(crate) fn complaint(
    path: &Path,
    chain: &[CertificateDer<'_>],
    now: Timestamp,
) -> Option<String> {
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let clock = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    let faults = chain.iter().map(|certificate| fault(certificate, clock));
    let (index, fault) = faults.enumerate().find_map(|(index, fault)| Some((index, fault?)))?;
    let which = match chain.len() {
        1 => "the certificate".to_owned(),
        all => format!("certificate {} of {all}", index + 1),
    };
    let what = match fault {
        Fault::Expired(at) => format!("expired on {}", date_of(at)),
        Fault::NotYet(from) => format!("is not valid before {}", date_of(from)),
    };
    Some(format!(
        "{which} in {path} {what}, and this machine's clock says {now}: agents, hooks and clients \
         refuse to connect; renew the certificate and restart, or set the clock if that is wrong \
         (`timedatectl` shows it)",
        path = path.display(),
        now = shown(now),
    ))
}

/// What is wrong with a certificate's time.
enum Fault {
    Expired(UnixTime),
    NotYet(UnixTime),
}

fn fault(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<Fault> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    // Its time is looked at first, and then it is refused in any case, because no root is trusted.
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&certificate, &nobody, &[], now, &[]) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Some(Fault::Expired(not_after))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            not_before, ..
        })) => Some(Fault::NotYet(not_before)),
        _ => None,
    }
}

fn date_of(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| format!("second {seconds} of UNIX"), shown)
}

fn shown(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that is valid from a year's first day to another's.
    fn certificate(from: i32, to: i32, is_ca: IsCa) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        params.is_ca = is_ca;
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn said(chain: &[CertificateDer<'_>], now: &str) -> Option<String> {
        complaint(Path::new("/etc/cert.pem"), chain, now.parse().expect("a time"))
    }

    #[test]
    fn a_certificate_that_is_not_valid_now_is_named_with_its_date_and_the_cure() {
        let chain = [certificate(2020, 2022, IsCa::NoCa)];
        assert_eq!(said(&chain, "2020-01-01T00:00:01Z"), None);
        assert_eq!(said(&chain, "2021-12-31T23:59:59Z"), None);
        let early = said(&chain, "2019-12-31T23:00:00Z").expect("not valid yet");
        assert!(
            early.contains("/etc/cert.pem is not valid before 2020-01-01 00:00 UTC"),
            "{early}"
        );
        assert!(early.contains("clock says 2019-12-31 23:00 UTC"), "{early}");
        let late = said(&chain, "2022-01-02T10:30:00Z").expect("expired");
        assert!(
            late.starts_with("the certificate in /etc/cert.pem expired on 2022-01-01"),
            "{late}"
        );
        for cure in ["renew the certificate and restart", "set the clock"] {
            assert!(late.contains(cure), "{late}");
        }
    }

    #[test]
    fn authorities_in_the_file_are_looked_at_too() {
        let authority = || IsCa::Ca(BasicConstraints::Unconstrained);
        let own = [certificate(2020, 2030, authority())];
        assert_eq!(said(&own, "2025-01-01T00:00:00Z"), None);
        let chain = [certificate(2020, 2030, IsCa::NoCa), certificate(2010, 2022, authority())];
        let late = said(&chain, "2025-01-01T00:00:00Z").expect("expired");
        assert!(late.starts_with("certificate 2 of 2 in /etc/cert.pem expired on 2022"), "{late}");
    }
}
