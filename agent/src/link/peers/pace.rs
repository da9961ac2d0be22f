//! How many bytes a second travel between agents, and from the broker: what the owner gives.

use std::sync::{Mutex, PoisonError};

use gleaner_protocol::{Span, Time, boottime};
use tokio::time::sleep;

/// What was not used is saved for so long.
const SAVED: Span = Span::from_millis(20);

/// A bucket of bytes that fills as time goes by. All who carry something take from it.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_s: u64,
    /// When all is carried that was taken until now.
    carried_at: Mutex<Time>,
}

impl Pace {
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s: bytes_per_s.max(1), carried_at: Mutex::new(Time::ZERO) }
    }

    /// Takes so many bytes, and waits until they may have been carried.
    pub(crate) async fn take(&self, bytes: usize) {
        let wait = self.wait(boottime(), bytes);
        if wait > Span::ZERO {
            sleep(wait.into()).await;
        }
    }

    /// How long whoever takes so many bytes now has to wait.
    fn wait(&self, now: Time, bytes: usize) -> Span {
        let takes_us = (bytes as u64).saturating_mul(1_000_000) / self.bytes_per_s;
        let mut carried_at = self.carried_at.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = match now.since(*carried_at) > SAVED {
            true => Time::ZERO + now.since(Time::ZERO + SAVED),
            false => *carried_at,
        };
        *carried_at = begins + Span::from_micros(takes_us);
        carried_at.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_more_than_there_is_waits_and_little_is_saved() {
        let pace = Pace::new(1_000_000);
        let at = |ms| Time::ZERO + Span::from_secs(10) + Span::from_millis(ms);
        let wait = |ms, bytes| pace.wait(at(ms), bytes).as_millis();
        // What ten seconds of rest saved is gone after 20 ms.
        assert_eq!([wait(0, 20_000), wait(0, 5_000), wait(0, 5_000)], [0, 5, 10]);
        assert_eq!([wait(10, 1_000), wait(10, 0)], [1, 1]);
        assert_eq!([wait(5_000, 30_000), wait(5_000, 0)], [10, 10]);
    }
}
