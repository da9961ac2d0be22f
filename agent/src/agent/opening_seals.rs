//! Whose word an opening is. The farm's monitor signs openings; they come through the broker, and one that
//! somebody has taken over can neither make an opening nor keep one for later.
//!
//! # Invariants
//! - Where the host knows keys of monitors, an opening counts that one of them signed for this host, within
//!   [`OPENING_CLOCKS_APART_MAX`] of now, and after the last one that counted.
//! - Where it knows none, whoever runs the broker is trusted.

use gleaner_identity::{PublicKey, Purpose};
use gleaner_protocol::control::Opening;
use gleaner_protocol::{HostName, Span};
use jiff::Timestamp;
use thiserror::Error;

use crate::limits::OPENING_CLOCKS_APART_MAX;

/// The seals of a host's openings.
#[derive(Debug)]
pub(super) struct OpeningSeals {
    host: HostName,
    /// Of monitors.
    keys: Vec<PublicKey>,
    /// When the last opening was signed that counted, in milliseconds of UTC.
    last_ms: u64,
}

/// Why an opening does not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum SealError {
    #[error(
        "an opening came that the farm's monitor has not signed: nothing runs here. If the monitor shows no \
         key to the broker, give it one (`gleaner invite --role monitor`); else find out who uses the broker"
    )]
    Unsigned,
    #[error(
        "an opening came that is signed with another key than the monitor's ({known}): nothing runs here. If \
         the monitor has a new key, have this host know it (`monitor_keys`; `gleaner people` shows keys); \
         else find out who uses the broker"
    )]
    OtherKey { known: String },
    #[error(
        "the clocks of this host and of the farm's monitor are {} s apart: nothing runs here until they agree; \
         see that both follow the network's time",
        apart.as_millis() / 1_000
    )]
    Clock { apart: Span },
    /// What needs nobody: it may have come twice.
    #[error("an opening came that is older than the last one")]
    Old,
}

impl OpeningSeals {
    pub(super) const fn new(host: HostName, keys: Vec<PublicKey>) -> Self {
        Self { host, keys, last_ms: 0 }
    }

    /// Whether an opening counts that comes now.
    pub(super) fn check(&mut self, opening: &Opening) -> Result<(), SealError> {
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        self.check_at(opening, now_ms)
    }

    /// The same at a time, in milliseconds of UTC.
    fn check_at(&mut self, opening: &Opening, now_ms: u64) -> Result<(), SealError> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let seal = opening.seal.as_ref().ok_or(SealError::Unsigned)?;
        let text = opening.sealed_text(&self.host, seal.at_ms);
        let is_by =
            |key: &PublicKey| key.check(Purpose::Opening, &seal.signed).as_ref() == Ok(&text);
        if !self.keys.iter().any(is_by) {
            let known: Vec<String> = self.keys.iter().map(|key| key.id().to_string()).collect();
            return Err(SealError::OtherKey { known: known.join(", ") });
        }
        let apart = Span::from_millis(now_ms.abs_diff(seal.at_ms));
        if apart > OPENING_CLOCKS_APART_MAX {
            return Err(SealError::Clock { apart });
        }
        if seal.at_ms <= self.last_ms {
            return Err(SealError::Old);
        }
        self.last_ms = seal.at_ms;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gleaner_identity::KeyPair;
    use gleaner_protocol::farm::OpeningSeal;
    use gleaner_protocol::{BookingId, Epoch};

    use super::*;

    const NOW_MS: u64 = 1_796_000_000_000;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a plain name")
    }

    /// An opening of a host, signed at a time.
    fn signed(key: &KeyPair, name: &str, at_ms: u64) -> Opening {
        let mut opening = Opening {
            epoch: Epoch::default(),
            cores: 4,
            memory_mib: 1_000,
            booked_cores: 1,
            gpus: Some(0),
            valid_ms: 30_000,
            ended: Vec::new(),
            seal: None,
        };
        let signed = key.sign(Purpose::Opening, &opening.sealed_text(&host(name), at_ms));
        opening.seal = Some(Box::new(OpeningSeal { at_ms, signed }));
        opening
    }

    #[test]
    fn an_opening_counts_once_that_the_monitor_signed_for_this_host_just_now() {
        let [monitor, other] = [(); 2].map(|()| KeyPair::generate().expect("made"));
        let mut seals = OpeningSeals::new(host("one"), vec![monitor.public().clone()]);
        assert_eq!(seals.check_at(&signed(&monitor, "one", NOW_MS), NOW_MS + 9), Ok(()));
        assert_eq!(
            seals.check_at(&signed(&monitor, "one", NOW_MS), NOW_MS + 9),
            Err(SealError::Old)
        );
        assert_eq!(seals.check_at(&signed(&monitor, "one", NOW_MS + 1), NOW_MS), Ok(()));
        let unsigned = Opening { seal: None, ..signed(&monitor, "one", NOW_MS + 2) };
        assert_eq!(seals.check_at(&unsigned, NOW_MS), Err(SealError::Unsigned));
        let mut changed = [(); 6].map(|()| signed(&monitor, "one", NOW_MS + 2));
        changed[0].cores += 1;
        changed[1].valid_ms += 1;
        changed[2].epoch.count += 1;
        changed[3].ended.push(BookingId::new("a").expect("a name"));
        changed[4].booked_cores = 0;
        changed[5].seal.as_mut().expect("signed").at_ms += 1;
        let of_others = [signed(&other, "one", NOW_MS + 2), signed(&monitor, "two", NOW_MS + 2)];
        for opening in changed.iter().chain(&of_others) {
            let error = seals.check_at(opening, NOW_MS).expect_err("not the monitor's word");
            assert!(matches!(error, SealError::OtherKey { .. }), "{opening:?}: {error}");
        }
        assert_eq!(seals.check_at(&signed(&monitor, "one", NOW_MS + 2), NOW_MS), Ok(()));
    }

    #[test]
    fn an_opening_that_was_kept_for_later_does_not_count() {
        let monitor = KeyPair::generate().expect("made");
        let mut seals = OpeningSeals::new(host("one"), vec![monitor.public().clone()]);
        let later_ms = NOW_MS + 3_600_000;
        for (at_ms, now_ms) in [(NOW_MS, later_ms), (later_ms, NOW_MS)] {
            let error = seals.check_at(&signed(&monitor, "one", at_ms), now_ms).expect_err("hours");
            assert!(error.to_string().contains("3600 s apart"), "{error}");
        }
    }

    #[test]
    fn who_knows_no_monitor_takes_the_brokers_word() {
        let other = KeyPair::generate().expect("made");
        let mut seals = OpeningSeals::new(host("one"), Vec::new());
        let unsigned = Opening { seal: None, ..signed(&other, "one", 0) };
        assert_eq!(seals.check_at(&unsigned, NOW_MS), Ok(()));
    }
}
