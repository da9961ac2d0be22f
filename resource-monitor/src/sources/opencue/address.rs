//! Where a host's RQD is, and what the host is called.

use std::fmt;
use std::str::FromStr;

use gleaner_protocol::HostName;

/// Where RQD listens unless it is told otherwise.
const PORT: u16 = 8_444;

/// An entry of `poll_hosts`: `[NAME=]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RqdAddress {
    /// What its agent and its hooks call the host; what stands before the port unless it is given.
    pub(super) name: HostName,
    /// Its name or address in the network.
    pub(super) host: String,
    pub(super) port: u16,
}

impl FromStr for RqdAddress {
    type Err = String;

    fn from_str(entry: &str) -> Result<Self, Self::Err> {
        let (name, at) = match entry.split_once('=') {
            Some((name, at)) => (Some(name), at),
            None => (None, entry),
        };
        let (host, port) = match at.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            // An address of IPv6.
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or_default())),
            None => at.split_once(':').map_or((at, None), |(host, port)| (host, Some(port))),
        };
        let port = match port.map(str::parse) {
            None => PORT,
            Some(Ok(port @ 1..)) => port,
            Some(_) => return Err(format!("{at:?} does not end in a port, 1 to 65535")),
        };
        if host.is_empty() || host.contains(['/', '@', '[', ' ']) {
            return Err(format!("{at:?} begins with no host"));
        }
        let name = HostName::new(name.unwrap_or(host)).map_err(|error| error.to_string())?;
        Ok(Self { name, host: host.to_owned(), port })
    }
}

impl fmt::Display for RqdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, host, port } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "the RQD of {} at {open}{host}{close}:{port}", name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_host_with_what_differs_from_the_usual() {
        for (entry, expected) in [
            ("render042", "the RQD of render042 at render042:8444"),
            ("render042.farm:9444", "the RQD of render042.farm at render042.farm:9444"),
            ("render042=10.0.0.42", "the RQD of render042 at 10.0.0.42:8444"),
            ("render042=10.0.0.42:1", "the RQD of render042 at 10.0.0.42:1"),
            ("[fe80::1]", "the RQD of fe80::1 at [fe80::1]:8444"),
            ("r1=[fe80::1]", "the RQD of r1 at [fe80::1]:8444"),
            ("r1=[fe80::1]:9444", "the RQD of r1 at [fe80::1]:9444"),
        ] {
            let address: RqdAddress = entry.parse().expect(entry);
            assert_eq!(address.to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for entry in [
            "",
            ":8444",
            "r1:",
            "r1:0",
            "r1:65536",
            "r1:x",
            "=r1",
            "r 1",
            "r1=",
            "r1=a b",
            "http://r1:8444",
            "r1/x",
            "a@r1",
            "r1=[fe80::1",
            "r1=[fe80::1]x",
            "fe80::1",
        ] {
            assert!(entry.parse::<RqdAddress>().is_err(), "{entry:?}");
        }
    }
}
