//! Who is trusted, and who waits: what the core is told of owners and projects.

use std::collections::BTreeSet;

use gleaner_protocol::{Account, OwnerName, Time};
use gleaner_scheduling::Input;

use super::super::decided::Decided;
use super::Dispatcher;
use crate::people::RevokedHost;

impl<M: Clone> Dispatcher<M> {
    /// These get nothing more in background for now, and all others do.
    pub fn hold_back(&mut self, now: Time, accounts: BTreeSet<Account>, turn: &mut Decided<M>) {
        self.feed(now, Input::HoldBack { accounts }, turn);
    }

    /// Whoever runs the broker vouches for these owners; hosts whose keys were revoked have yet to earn
    /// trust.
    pub(crate) fn keys_changed(
        &mut self,
        now: Time,
        vouched: BTreeSet<OwnerName>,
        revoked: Vec<RevokedHost>,
        turn: &mut Decided<M>,
    ) {
        self.feed(now, Input::Vouch { owners: vouched }, turn);
        for RevokedHost { host, last_of } in revoked {
            self.feed(now, Input::KeyRevoked { host, last_of }, turn);
        }
    }
}
