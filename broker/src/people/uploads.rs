//! How many bytes an owner may bring in a day.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gleaner_protocol::{OwnerName, Span, Time, boottime};
use thiserror::Error;

use crate::limits::{OWNERS_PACED, UPLOADS_WINDOW};

/// Counts what owners upload. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Uploads {
    bytes_max: Option<u64>,
    of: Arc<Mutex<BTreeMap<OwnerName, Counted>>>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    bytes: u64,
    until: Time,
}

/// An owner has brought as much as it may.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{owner} may upload {mib_max} MiB a day and has uploaded {mib} (`upload_mib_a_day` of [limits] in \
     the broker's configuration): try again in {} s", .wait.as_secs()
)]
pub(crate) struct TooMuch {
    owner: OwnerName,
    mib: u64,
    mib_max: u64,
    /// Then it may bring more.
    pub(crate) wait: Duration,
}

impl Uploads {
    /// So many MiB a day for each owner; any number where it is 0.
    pub(super) fn of(mib_a_day: u64) -> Self {
        let bytes_max = (mib_a_day > 0).then(|| mib_a_day.saturating_mul(1 << 20));
        Self { bytes_max, of: Arc::default() }
    }

    /// Counts bytes that come from an owner; none ask whether any may.
    ///
    /// # Errors
    /// These are more than may come, and are not counted.
    pub(crate) fn count(&self, owner: &OwnerName, bytes: u64) -> Result<(), TooMuch> {
        self.count_at(owner, bytes, boottime())
    }

    fn count_at(&self, owner: &OwnerName, bytes: u64, now: Time) -> Result<(), TooMuch> {
        let Some(bytes_max) = self.bytes_max else { return Ok(()) };
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= OWNERS_PACED {
            of.retain(|_, counted| counted.until > now);
        }
        let fresh = Counted { bytes: 0, until: now + UPLOADS_WINDOW };
        let counted = of.entry(owner.clone()).or_insert(fresh);
        if counted.until <= now {
            *counted = fresh;
        }
        let sum = counted.bytes.saturating_add(bytes);
        if sum > bytes_max || (bytes == 0 && counted.bytes >= bytes_max) {
            let wait: Span = counted.until.since(now);
            let (mib, mib_max) = (counted.bytes >> 20, bytes_max >> 20);
            let wait = Duration::from(wait).max(Duration::from_secs(1));
            return Err(TooMuch { owner: owner.clone(), mib, mib_max, wait });
        }
        counted.bytes = sum;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_counted_and_the_next_day_counts_anew() {
        let uploads = Uploads::of(2);
        let [anna, bob] = ["anna", "bob"].map(|name| name.parse().expect("a plain name"));
        let at = |seconds: u64| Time::from_micros(seconds * 1_000_000);
        assert_eq!(uploads.count_at(&anna, 1 << 20, at(1)), Ok(()));
        let refused = uploads.count_at(&anna, 2 << 20, at(2)).expect_err("3 MiB of 2");
        assert!(refused.to_string().contains("2 MiB a day and has uploaded 1 "), "{refused}");
        assert_eq!(refused.wait, Duration::from_secs(86_399));
        assert_eq!(uploads.count_at(&anna, 1 << 20, at(3)), Ok(()));
        assert!(uploads.count_at(&anna, 0, at(4)).is_err(), "all is used");
        assert_eq!(uploads.count_at(&bob, 2 << 20, at(4)), Ok(()));
        assert_eq!(uploads.count_at(&anna, 2 << 20, at(86_401)), Ok(()));
        assert_eq!(Uploads::of(0).count_at(&anna, u64::MAX, at(1)), Ok(()));
    }
}
