//! Fencing tokens.

use gleaner_protocol::LeaseToken;

const COUNT_BITS: u32 = 40;

/// Makes lease tokens that no broker of the same data folder ever made: the incarnation above,
/// a counter below.
#[derive(Debug)]
pub(crate) struct TokenMint {
    next: u64,
    end: u64,
}

impl TokenMint {
    /// # Panics
    /// After 2^24 incarnations, or 2^40 leases of one (a year at 30,000 a second).
    pub(crate) fn new(incarnation: u32) -> Self {
        assert!(incarnation < 1 << (64 - COUNT_BITS), "a broker is not restarted 16 million times");
        let base = u64::from(incarnation) << COUNT_BITS;
        Self { next: base + 1, end: base + (1 << COUNT_BITS) }
    }

    pub(crate) fn mint(&mut self) -> LeaseToken {
        assert!(self.next < self.end, "a broker does not give a trillion leases in one life");
        let token = LeaseToken::new(self.next);
        self.next += 1;
        token
    }

    /// Whether this token can have been given out: by this incarnation so far, or an earlier one.
    pub(crate) fn may_have_made(&self, token: LeaseToken) -> bool {
        token.get() < self.next
    }
}
