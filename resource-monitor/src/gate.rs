//! Who may ask: the check before every request.
//!
//! A browser on this machine can be made to send requests here by any page that it shows. It
//! then says so in an `Origin` header, or it was led here by a name that is not ours.

use std::net::{IpAddr, SocketAddr};

use warp::http::{HeaderMap, StatusCode, Uri, header};

use crate::answer::Refusal;

/// What requests are measured against.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Option<String>,
}

impl Gate {
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named.next().and_then(|host| host.to_str().ok());
        let is_ours = |name: &str| self.is_ours(name);
        if !host.is_some_and(is_ours) || named.next().is_some() || !uri.host().is_none_or(is_ours) {
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "wrong_host",
                format!(
                    "the request is not for this monitor: its Host header is {host:.200?}, not {} or another loopback name",
                    self.listen
                ),
            ));
        }
        if headers.contains_key(header::ORIGIN) {
            return Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "origin",
                "requests that a web page makes are not taken: they bear an Origin header".into(),
            ));
        }
        self.check_token(uri, headers)
    }

    fn check_token(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        if uri.path() == "/healthz" || given.is_some_and(|given| is_same(given, token.as_bytes())) {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::UNAUTHORIZED,
            "token",
            "this monitor asks for its token: send Authorization: Bearer TOKEN".into(),
        ))
    }

    /// With or without a port.
    fn is_ours(&self, authority: &str) -> bool {
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
        };
        match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || address == self.listen.ip(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// In a time that does not tell where they differ.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(token: Option<&str>, headers: &[(&'static str, &str)], uri: &str) -> Option<u16> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7711));
        let gate = Gate { listen, token: token.map(str::to_owned) };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        gate.check(&uri.parse().expect("a URI"), &map).err().map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn only_our_own_names_are_answered() {
        for host in ["127.0.0.1:7711", "localhost:7711", "LOCALHOST", "[::1]:7711", "127.0.0.2"] {
            assert_eq!(check(None, &[("host", host)], "/"), None, "{host}");
        }
        for host in ["evil.example", "evil.example:7711", "localhost.evil.example", "10.0.0.1", ""]
        {
            assert_eq!(check(None, &[("host", host)], "/"), Some(421), "{host}");
        }
        assert_eq!(check(None, &[], "/"), Some(421));
        let both = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(check(None, &both, "/"), Some(421));
        assert_eq!(check(None, &[("host", "localhost")], "http://evil.example/"), Some(421));
    }

    #[test]
    fn web_pages_are_refused() {
        for origin in ["null", "http://localhost:7711", "http://evil.example"] {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(check(None, &headers, "/v1/events"), Some(403), "{origin}");
        }
    }

    #[test]
    fn where_there_is_a_token_it_must_be_borne() {
        let with =
            |value| check(Some("secret"), &[("host", "localhost"), ("authorization", value)], "/");
        assert_eq!(with("Bearer secret"), None);
        for bad in ["Bearer secre", "Bearer secret2", "Bearer ", "secret", "Basic secret"] {
            assert_eq!(with(bad), Some(401), "{bad}");
        }
        assert_eq!(check(Some("secret"), &[("host", "localhost")], "/v1/hosts"), Some(401));
        assert_eq!(check(Some("secret"), &[("host", "localhost")], "/healthz"), None);
    }
}
