//! How fast an owner may ask: so many requests a second, and some more at once after a pause.

use std::num::NonZeroU32;
use std::time::Duration;

use gleaner_protocol::OwnerName;
use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::limits::{OWNERS_PACED, REQUESTS_AT_ONCE_S};

type Limiter = RateLimiter<
    OwnerName,
    HashMapStateStore<OwnerName>,
    MonotonicClock,
    NoOpMiddleware<std::time::Instant>,
>;

/// Counts the requests of owners.
pub(super) struct Pace {
    limiter: Limiter,
}

impl Pace {
    /// So many a second for each owner; nobody is counted where it is 0.
    pub(super) fn of(requests_per_s: u32) -> Option<Self> {
        let each = NonZeroU32::new(requests_per_s)?;
        let burst = each.saturating_mul(REQUESTS_AT_ONCE_S);
        let quota = Quota::per_second(each).allow_burst(burst);
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), MonotonicClock);
        Some(Self { limiter })
    }

    /// Counts one request of an owner.
    ///
    /// # Errors
    /// It comes too early: by how much.
    pub(super) fn count(&self, owner: &OwnerName) -> Result<(), Duration> {
        if self.limiter.len() >= OWNERS_PACED {
            self.limiter.retain_recent();
        }
        let counted = self.limiter.check_key(owner);
        counted.map_err(|early| early.wait_time_from(self.limiter.clock().now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_too_fast_is_told_how_long_to_wait_and_nobody_else_is() {
        let pace = Pace::of(1).expect("a limit");
        let [anna, bob] = ["anna", "bob"].map(|name| name.parse().expect("a plain name"));
        let most = REQUESTS_AT_ONCE_S.get();
        // Whatever time passes, no more than one a second come on top.
        let counted = (0..most * 50).filter(|_| pace.count(&anna).is_ok()).count() as u32;
        assert!(counted >= most, "{counted}");
        if counted < most * 50 {
            let wait = pace.count(&anna).map_or_else(|wait| wait, |()| Duration::ZERO);
            assert!(wait <= Duration::from_secs(1), "{wait:?}");
        }
        assert_eq!(pace.count(&bob), Ok(()));
        assert!(Pace::of(0).is_none());
    }
}
