//! Who is trusted, and who waits: what the core is told of owners and projects.

use std::collections::BTreeSet;

use gleaner_protocol::{Account, HostName, OwnerName, Time};
use gleaner_scheduling::Input;

use super::super::decided::Decided;
use super::Dispatcher;
use crate::limits::REVOKED_LATELY_MS;
use crate::people::RevokedHost;

/// The revocations that the core was told of: once each, or whoever comes under the name of a host
/// whose key was revoked long ago would be caught again with each change of somebody's key.
#[derive(Debug, Default)]
pub(crate) struct Revocations(Option<BTreeSet<(HostName, u64)>>);

impl Revocations {
    /// Those that are new. After a start these are those of the last hour: the broker may have been killed
    /// before the core had taken note.
    pub(crate) fn news(&mut self, all: Vec<RevokedHost>, now_ms: u64) -> Vec<RevokedHost> {
        let id = |of: &RevokedHost| (of.host.clone(), of.revoked_ms);
        let is_old = |of: &&RevokedHost| of.revoked_ms + REVOKED_LATELY_MS < now_ms;
        let told = self.0.get_or_insert_with(|| all.iter().filter(is_old).map(id).collect());
        all.into_iter().filter(|of| told.insert(id(of))).collect()
    }
}

impl<M: Clone> Dispatcher<M> {
    /// These get nothing more in background for now, and all others do.
    pub fn hold_back(&mut self, now: Time, accounts: BTreeSet<Account>, turn: &mut Decided<M>) {
        self.feed(now, Input::HoldBack { accounts }, turn);
    }

    /// Whoever runs the broker vouches for these owners; hosts whose keys were revoked have yet to earn
    /// trust. Where hosts have keys, those without one are nobody's: what they said before there were any
    /// is not believed any more, and they come back as such.
    pub(crate) fn keys_changed(
        &mut self,
        now: Time,
        with_keys: Option<&BTreeSet<HostName>>,
        vouched: BTreeSet<OwnerName>,
        revoked: Vec<RevokedHost>,
        turn: &mut Decided<M>,
    ) {
        if let Some(with_keys) = with_keys {
            let owned = self.core.farm().hosts().filter(|(_, host)| {
                host.connected && host.info.owner.is_some() && !with_keys.contains(&host.info.name)
            });
            let links: Vec<_> = owned.filter_map(|(host, _)| self.links.of_host(host)).collect();
            for link in links {
                let reason = "hosts have keys here now, and this one has none: it is nobody's";
                self.refuse(link, reason.into(), turn);
                self.link_expelled(now, link, turn);
            }
        }
        self.feed(now, Input::Vouch { owners: vouched }, turn);
        for RevokedHost { host, last_of, .. } in revoked {
            self.feed(now, Input::KeyRevoked { host, last_of }, turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revocation_is_told_once_and_after_a_start_the_latest() {
        let of = |host: &str, revoked_ms| RevokedHost {
            host: HostName::new(host).expect("a plain name"),
            last_of: None,
            revoked_ms,
        };
        let now_ms = 100 * REVOKED_LATELY_MS;
        let (old, late) = (of("h1", 5), of("h2", now_ms - 1));
        let mut first = Revocations::default();
        assert_eq!(
            first.news(vec![old.clone(), late.clone()], now_ms),
            std::slice::from_ref(&late)
        );
        assert_eq!(first.news(vec![old.clone(), late.clone()], now_ms), []);
        let again = of("h1", now_ms);
        assert_eq!(first.news(vec![old, late, again.clone()], now_ms), [again]);
    }
}
