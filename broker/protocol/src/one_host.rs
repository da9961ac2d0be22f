//! Whether two names may be those of one host.

use std::net::Ipv4Addr;

use crate::HostName;

impl HostName {
    /// Whether both may be names of one host: they are the same but for their case, or one is the other
    /// without its domain, or without a part of it.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let (one, other) = (self.as_str(), other.as_str());
        let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
        let begin = long.get(..short.len()).unwrap_or_default();
        let rest = long.get(short.len()..).unwrap_or_default();
        begin.eq_ignore_ascii_case(short)
            && (rest.is_empty() || (rest.starts_with('.') && !is_address(long)))
    }

    /// The part of a name that all names of one host have, in lower case.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.as_str();
        let label = if is_address(name) { Some(name) } else { name.split('.').next() };
        label.unwrap_or(name).to_ascii_lowercase()
    }
}

/// An address has no domain.
fn is_address(name: &str) -> bool {
    name.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_full_and_upper_case_names_may_be_one_hosts() {
        for (one, other, may_be) in [
            ("n1", "n1", true),
            ("n1", "N1", true),
            ("n1", "n1.farm.local", true),
            ("N1.FARM", "n1.farm.local", true),
            ("n1", "N1.Farm.Local", true),
            ("n1.farm", "n1.farm.", true),
            ("n1", "n10", false),
            ("n1", "n1-a.farm", false),
            ("n1.a", "n1.b", false),
            ("n1.farm", "n1.farmer", false),
            ("farm", "n1.farm", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10", "10.0.0.1", false),
            ("10.0.0.1", "10.0.0.10", false),
        ] {
            let [one, other] = [one, other].map(|name| HostName::new(name).expect("a name"));
            assert_eq!((one.may_be(&other), other.may_be(&one)), (may_be, may_be), "{one} {other}");
            assert!(!may_be || one.label() == other.label(), "{one} {other}");
        }
    }
}
