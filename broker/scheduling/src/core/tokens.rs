//! Fencing tokens.

mod sip_hash;

use std::fmt;

use gleaner_protocol::{HostName, LeaseToken, ReplicaId};

use sip_hash::SipHash;

const MARK_BITS: u32 = 48;

/// What tokens are made with: a secret of the broker's data folder, the same in all its lives.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenKey([u64; 2]);

impl TokenKey {
    /// A key from random bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self([number as u64, (number >> 64) as u64])
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

/// Makes lease tokens, and knows its own again, in later lives of the broker too, although leases
/// are not in its journal: the incarnation's lower 16 bits above, and below 48 bits that follow
/// from the whole incarnation, the host and the replica, and that nobody without the key can
/// foretell.
///
/// # Invariants
/// - No two leases of one host have the same token while they last: the
///   [`Desk`](crate::Desk) counts a try more where they would.
#[derive(Debug)]
pub(crate) struct TokenMint {
    key: TokenKey,
    incarnation: u32,
}

impl TokenMint {
    pub(crate) fn new(key: TokenKey, incarnation: u32) -> Self {
        Self { key, incarnation }
    }

    /// The same key in another life.
    pub(crate) fn reborn(&self, incarnation: u32) -> Self {
        Self { incarnation, ..*self }
    }

    /// The same life with another key.
    pub(crate) fn with_key(&self, key: TokenKey) -> Self {
        Self { key, ..*self }
    }

    /// The token of a lease that is given now.
    pub(crate) fn mint(&self, host: &HostName, replica: ReplicaId) -> LeaseToken {
        self.token_of(self.incarnation, host, replica)
    }

    /// Whether this host was given this replica under this token, now or in one of the last
    /// 65,536 lives.
    pub(crate) fn has_made(&self, token: LeaseToken, host: &HostName, replica: ReplicaId) -> bool {
        let lives_ago = (self.incarnation as u16).wrapping_sub((token.get() >> MARK_BITS) as u16);
        let incarnation = self.incarnation.checked_sub(lives_ago.into());
        incarnation.is_some_and(|of| self.token_of(of, host, replica) == token)
    }

    fn token_of(&self, incarnation: u32, host: &HostName, replica: ReplicaId) -> LeaseToken {
        let (id, name) = (replica.workunit, host.as_str().as_bytes());
        let mut hash = SipHash::new(self.key.0);
        hash.word(u64::from(incarnation) << 32 | u64::from(replica.attempt));
        hash.word(id.job.get());
        hash.word(id.index.into());
        let mark = hash.finish(name, 24 + name.len()) >> (64 - MARK_BITS);
        LeaseToken::new(u64::from(incarnation) << MARK_BITS | mark)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{JobId, WorkunitId};

    use super::*;

    #[test]
    fn a_token_is_that_of_one_host_and_one_replica_and_one_life() {
        let host = |name| HostName::new(name).expect("a plain name");
        let replica = |job, index, attempt| ReplicaId {
            workunit: WorkunitId { job: JobId::new(job), index },
            attempt,
        };
        let before = TokenMint::new(TokenKey::from_bytes([7; 16]), 65_540);
        let given = replica(1, 2, 3);
        let token = before.mint(&host("a"), given);
        let now = before.reborn(65_541);
        assert!(now.has_made(token, &host("a"), given), "in the life before");
        assert!(!now.has_made(token, &host("b"), given));
        for other in [replica(2, 2, 3), replica(1, 3, 3), replica(1, 2, 4)] {
            assert!(!now.has_made(token, &host("a"), other), "{other}");
        }
        assert!(!now.has_made(LeaseToken::new(token.get() ^ 1), &host("a"), given));
        assert!(!now.has_made(LeaseToken::new(token.get() ^ 1 << 50), &host("a"), given));
        assert!(!TokenMint::new(TokenKey::default(), 65_541).has_made(token, &host("a"), given));
        let later = now.mint(&host("a"), given);
        assert_ne!(later, token);
        assert!(!before.has_made(later, &host("a"), given), "nobody has a lease of the future");
    }
}
