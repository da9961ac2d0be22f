//! Whose word an opening is. The farm's monitor signs openings; they come through the broker, and one that
//! somebody has taken over can neither make an opening nor keep one for later.
//!
//! # Invariants
//! - Where the host knows keys of monitors, an opening counts that one of them signed for this host, within
//!   [`OPENING_CLOCKS_APART_MAX`] of now, and after the last one that counted.
//! - One that comes later than others is good for as much less.
//! - Where it knows none, whoever runs the broker is trusted.

use std::collections::VecDeque;

use gleaner_identity::{PublicKey, Purpose};
use gleaner_protocol::HostName;
use gleaner_protocol::control::Opening;
use jiff::Timestamp;
use thiserror::Error;

use crate::limits::OPENING_CLOCKS_APART_MAX;

/// The seals of a host's openings.
#[derive(Debug)]
pub(super) struct OpeningSeals {
    host: HostName,
    monitors: Vec<Monitor>,
}

/// A monitor of the farm.
#[derive(Debug)]
struct Monitor {
    key: PublicKey,
    /// When it signed the last opening that counted, in milliseconds of UTC.
    last_ms: u64,
    /// How far this host's clock was ahead when each of the last ones came, in milliseconds: their way, and
    /// what the clocks are apart.
    behind_ms: VecDeque<i64>,
}

/// Openings whose ways are compared.
const OPENINGS_COMPARED: usize = 16;
/// Openings may come twice, or the later one first; a clock that was set back is farther off.
const OPENINGS_OUT_OF_ORDER_MS_MAX: u64 = 2_000;

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
        "the clocks of this host and of the farm's monitor are more than two minutes apart, one of them has \
         jumped, or openings come late: nothing runs here until that is over; see that both hosts follow the \
         network's time"
    )]
    Clock,
    #[error(
        "an opening came that the farm's monitor has signed for another host, or in another form: nothing runs \
         here; run the same release of monitor and agent"
    )]
    OtherText,
    /// What needs nobody: it may have come twice, or by another way.
    #[error("an opening came that is older than the last one")]
    Old,
}

impl OpeningSeals {
    pub(super) fn new(host: HostName, keys: Vec<PublicKey>) -> Self {
        let of = |key| Monitor { key, last_ms: 0, behind_ms: VecDeque::new() };
        Self { host, monitors: keys.into_iter().map(of).collect() }
    }

    /// Whether an opening counts that comes now, and for how long it is good, in milliseconds: it was signed
    /// a while ago.
    pub(super) fn check(&mut self, opening: &Opening) -> Result<u64, SealError> {
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        self.check_at(opening, now_ms)
    }

    /// The same at a time, in milliseconds of UTC.
    fn check_at(&mut self, opening: &Opening, now_ms: u64) -> Result<u64, SealError> {
        if self.monitors.is_empty() {
            return Ok(opening.valid_ms);
        }
        let seal = opening.seal.as_ref().ok_or(SealError::Unsigned)?;
        let signed_by = |of: &Monitor| of.key.check(Purpose::Opening, &seal.signed).ok();
        let mut all = self.monitors.iter().enumerate();
        let Some((at, text)) = all.find_map(|(at, of)| Some((at, signed_by(of)?))) else {
            let known: Vec<String> =
                self.monitors.iter().map(|of| of.key.id().to_string()).collect();
            return Err(SealError::OtherKey { known: known.join(", ") });
        };
        if text != opening.sealed_text(&self.host, seal.at_ms) {
            return Err(SealError::OtherText);
        }
        let late_ms = self.monitors[at].late_ms(seal.at_ms, now_ms)?;
        match opening.valid_ms.checked_sub(late_ms) {
            Some(valid_ms) if valid_ms > 0 => Ok(valid_ms),
            _ => Err(SealError::Clock),
        }
    }
}

impl Monitor {
    /// How late an opening of it is, if the one that took the shortest way came at once.
    fn late_ms(&mut self, at_ms: u64, now_ms: u64) -> Result<u64, SealError> {
        if self.last_ms > now_ms.saturating_add(OPENING_CLOCKS_APART_MAX.as_millis()) {
            // Both clocks were far ahead, and are right now: what was signed then does not count any more.
            self.last_ms = 0;
        }
        if self.last_ms >= at_ms {
            let is_twice = self.last_ms - at_ms < OPENINGS_OUT_OF_ORDER_MS_MAX;
            return Err(if is_twice { SealError::Old } else { SealError::Clock });
        }
        if now_ms.abs_diff(at_ms) > OPENING_CLOCKS_APART_MAX.as_millis() {
            return Err(SealError::Clock);
        }
        self.last_ms = at_ms;
        let behind_ms = now_ms.cast_signed() - at_ms.cast_signed();
        self.behind_ms.push_back(behind_ms);
        if self.behind_ms.len() > OPENINGS_COMPARED {
            self.behind_ms.pop_front();
        }
        let least_ms = self.behind_ms.iter().min().copied().unwrap_or(behind_ms);
        Ok(behind_ms.abs_diff(least_ms))
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
        assert_eq!(seals.check_at(&signed(&monitor, "one", NOW_MS), NOW_MS + 9), Ok(30_000));
        let again = seals.check_at(&signed(&monitor, "one", NOW_MS), NOW_MS + 9);
        assert_eq!(again, Err(SealError::Old));
        assert_eq!(seals.check_at(&signed(&monitor, "one", NOW_MS + 1), NOW_MS + 10), Ok(30_000));
        let unsigned = Opening { seal: None, ..signed(&monitor, "one", NOW_MS + 2) };
        assert_eq!(seals.check_at(&unsigned, NOW_MS), Err(SealError::Unsigned));
        let mut changed = [(); 7].map(|()| signed(&monitor, "one", NOW_MS + 2));
        changed[0].cores += 1;
        changed[1].valid_ms += 1;
        changed[2].epoch.count += 1;
        changed[3].ended.push(BookingId::new("a").expect("a name"));
        changed[4].booked_cores = 0;
        changed[5].seal.as_mut().expect("signed").at_ms += 1;
        changed[6] = signed(&monitor, "two", NOW_MS + 2);
        for opening in &changed {
            assert_eq!(seals.check_at(opening, NOW_MS), Err(SealError::OtherText), "{opening:?}");
        }
        let of_other = seals.check_at(&signed(&other, "one", NOW_MS + 2), NOW_MS);
        assert!(matches!(of_other, Err(SealError::OtherKey { .. })), "{of_other:?}");
        assert!(seals.check_at(&signed(&monitor, "one", NOW_MS + 2), NOW_MS + 11).is_ok());
    }

    #[test]
    fn two_monitors_have_clocks_of_their_own() {
        let [one, other] = [(); 2].map(|()| KeyPair::generate().expect("made"));
        let keys = [&one, &other].map(|key| key.public().clone());
        let mut seals = OpeningSeals::new(host("one"), keys.to_vec());
        assert!(seals.check_at(&signed(&one, "one", NOW_MS + 50_000), NOW_MS).is_ok());
        for after_ms in [0, 10_000] {
            let of_other =
                seals.check_at(&signed(&other, "one", NOW_MS + after_ms), NOW_MS + after_ms);
            assert_eq!(of_other, Ok(30_000), "its clock is 50 s behind the other's");
        }
    }

    #[test]
    fn an_opening_that_was_kept_for_later_is_good_for_less_or_nothing() {
        let monitor = KeyPair::generate().expect("made");
        let mut seals = OpeningSeals::new(host("one"), vec![monitor.public().clone()]);
        // This host's clock is ten seconds ahead.
        let mut check = |at_ms, after_ms| {
            seals.check_at(
                &signed(&monitor, "one", NOW_MS + at_ms),
                NOW_MS + 10_000 + at_ms + after_ms,
            )
        };
        assert_eq!(check(0, 5), Ok(30_000));
        assert_eq!(check(1_000, 20_005), Ok(10_000));
        assert_eq!(check(2_000, 40_005), Err(SealError::Clock));
        assert_eq!(check(3_000, 4), Ok(30_000), "nothing is held against the next one");
        assert_eq!(check(2_500, 4), Err(SealError::Old));
        assert_eq!(check(0, 4), Err(SealError::Clock), "the monitor's clock was set back");
        assert_eq!(check(4_000, 3_600_000), Err(SealError::Clock));
        // Where this host's clock has jumped, that is how it is after a while.
        let jumped = (0..20_u64).map(|of| check(10_000 + of, 60_000));
        let jumped: Vec<bool> = jumped.map(|of| of.is_ok()).collect();
        assert_eq!((jumped[0], jumped[19]), (false, true));
    }

    #[test]
    fn what_was_signed_by_clocks_that_were_a_year_ahead_keeps_nothing_closed() {
        let monitor = KeyPair::generate().expect("made");
        let mut seals = OpeningSeals::new(host("one"), vec![monitor.public().clone()]);
        let ahead_ms = NOW_MS + 365 * 86_400_000;
        assert!(seals.check_at(&signed(&monitor, "one", ahead_ms), ahead_ms).is_ok());
        assert!(seals.check_at(&signed(&monitor, "one", NOW_MS), NOW_MS).is_ok());
        let again = seals.check_at(&signed(&monitor, "one", ahead_ms + 1), NOW_MS + 1);
        assert_eq!(again, Err(SealError::Clock));
    }

    #[test]
    fn who_knows_no_monitor_takes_the_brokers_word() {
        let other = KeyPair::generate().expect("made");
        let mut seals = OpeningSeals::new(host("one"), Vec::new());
        let unsigned = Opening { seal: None, ..signed(&other, "one", 0) };
        assert_eq!(seals.check_at(&unsigned, NOW_MS), Ok(30_000));
    }
}
