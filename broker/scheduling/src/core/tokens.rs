//! Fencing tokens.

use std::fmt;
use std::hash::Hasher;

use gleaner_protocol::job::JobSpec;
use gleaner_protocol::{Digest, HostName, LeaseToken, ReplicaId, codec};
use siphasher::sip::SipHasher24;

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

/// What a job asked for, as far as it tells two jobs apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64);

impl Asked {
    pub(crate) fn of(spec: &JobSpec) -> Self {
        let digest = Digest::of(&codec::encode(spec));
        let first = digest.as_bytes().first_chunk().expect("a digest has more bytes");
        Self(u64::from_le_bytes(*first))
    }
}

/// Makes lease tokens, and knows its own again, in later lives of the broker too, although leases
/// are not in its journal: the incarnation's lower 16 bits above, and below 48 bits that follow
/// from the whole incarnation, the host, the replica and what its job asked for, and that nobody
/// without the key can foretell.
///
/// # Invariants
/// - What a broker leased that died before its job was on disk is nothing of the job that got the
///   same id since.
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
    pub(crate) fn mint(&self, host: &HostName, replica: ReplicaId, asked: Asked) -> LeaseToken {
        self.token_of(self.incarnation, host, replica, asked)
    }

    /// Whether this host was given this replica under this token, now or in one of the last
    /// 65,536 lives.
    pub(crate) fn has_made(
        &self,
        token: LeaseToken,
        host: &HostName,
        replica: ReplicaId,
        asked: Asked,
    ) -> bool {
        let lives_ago = (self.incarnation as u16).wrapping_sub((token.get() >> MARK_BITS) as u16);
        let incarnation = self.incarnation.checked_sub(lives_ago.into());
        incarnation.is_some_and(|of| self.token_of(of, host, replica, asked) == token)
    }

    fn token_of(
        &self,
        incarnation: u32,
        host: &HostName,
        replica: ReplicaId,
        Asked(asked): Asked,
    ) -> LeaseToken {
        let (id, [key, rest]) = (replica.workunit, self.key.0);
        let mut hash = SipHasher24::new_with_keys(key, rest);
        let life = u64::from(incarnation) << 32 | u64::from(replica.attempt);
        for word in [life, id.job.get(), id.index.into(), asked] {
            hash.write(&word.to_le_bytes());
        }
        hash.write(host.as_str().as_bytes());
        let mark = hash.finish() >> (64 - MARK_BITS);
        LeaseToken::new(u64::from(incarnation) << MARK_BITS | mark)
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{JobId, WorkunitId};

    use super::*;

    #[test]
    fn a_token_is_that_of_one_host_one_replica_one_job_and_one_life() {
        let host = |name| HostName::new(name).expect("a plain name");
        let replica = |job, index, attempt| ReplicaId {
            workunit: WorkunitId { job: JobId::new(job), index },
            attempt,
        };
        let before = TokenMint::new(TokenKey::from_bytes([7; 16]), 65_540);
        let (given, asked) = (replica(1, 2, 3), Asked(9));
        let token = before.mint(&host("a"), given, asked);
        let now = before.reborn(65_541);
        let has_made =
            |token, name, replica, asked| now.has_made(token, &host(name), replica, asked);
        assert!(has_made(token, "a", given, asked), "in the life before");
        assert!(!has_made(token, "b", given, asked));
        assert!(!has_made(token, "a", given, Asked(8)), "its job was lost, and this one came");
        for other in [replica(2, 2, 3), replica(1, 3, 3), replica(1, 2, 4)] {
            assert!(!has_made(token, "a", other, asked), "{other}");
        }
        assert!(!has_made(LeaseToken::new(token.get() ^ 1), "a", given, asked));
        assert!(!has_made(LeaseToken::new(token.get() ^ 1 << 50), "a", given, asked));
        let other_key = TokenMint::new(TokenKey::default(), 65_541);
        assert!(!other_key.has_made(token, &host("a"), given, asked));
        let later = now.mint(&host("a"), given, asked);
        assert_ne!(later, token);
        assert!(
            !before.has_made(later, &host("a"), given, asked),
            "nobody has a lease of the future"
        );
    }
}
