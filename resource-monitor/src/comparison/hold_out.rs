//! The lottery: who is held out of harvest on a day.

use std::hash::Hasher;

use gleaner_protocol::HostName;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use thiserror::Error;

use crate::limits::HELD_OUT_PERMILLE_MAX;

/// The `[comparison]` table, as an administrator writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldOutSettings {
    /// Thousandths of the hosts that are held out of harvest each day.
    pub held_out_permille: u16,
    /// The time zone in which a day begins at midnight.
    #[serde(default = "utc")]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".into()
}

/// How hosts are drawn, day by day.
#[derive(Debug, Clone)]
pub struct Lottery {
    seed: u64,
    permille: u16,
    zone: TimeZone,
    zone_name: String,
}

/// Who is held out on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldOut {
    seed: u64,
    permille: u16,
    /// The day.
    pub day: Date,
}

/// One of the two that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// May be harvested.
    Harvested,
    /// May not, by the lottery.
    HeldOut,
}

impl Lottery {
    /// As it was written; the same `seed` draws the same hosts.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub fn new(settings: &HoldOutSettings, seed: u64) -> Result<Self, HoldOutError> {
        let permille = settings.held_out_permille;
        if !(1..=HELD_OUT_PERMILLE_MAX).contains(&permille) {
            return Err(HoldOutError::Permille(permille));
        }
        let zone_name = settings.time_zone.clone();
        let zone =
            TimeZone::get(&zone_name).map_err(|_| HoldOutError::TimeZone(zone_name.clone()))?;
        Ok(Self { seed, permille, zone, zone_name })
    }

    /// Who is held out at a time.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> HoldOut {
        let day = now.to_zoned(self.zone.clone()).date();
        HoldOut { seed: self.seed, permille: self.permille, day }
    }

    pub(crate) const fn permille(&self) -> u16 {
        self.permille
    }

    pub(crate) fn time_zone(&self) -> &str {
        &self.zone_name
    }
}

impl HoldOut {
    /// Which arm a host is in on this day: as if each had thrown a die of its own.
    #[must_use]
    pub fn arm(&self, host: &HostName) -> Arm {
        let (year, ordinal) = (self.day.year(), self.day.day_of_year());
        let day = u64::from(year.unsigned_abs()) << 16 | u64::from(ordinal.unsigned_abs());
        let mut hash = SipHasher24::new_with_keys(self.seed, day);
        hash.write(host.as_str().as_bytes());
        // The hash is as good as evenly spread: the bias of the remainder is below 2^-54.
        match hash.finish() % 1_000 < u64::from(self.permille) {
            true => Arm::HeldOut,
            false => Arm::Harvested,
        }
    }
}

/// A comparison without sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HoldOutError {
    /// Nobody, or too many.
    #[error(
        "[comparison]: held_out_permille = {0} will not do; expected 1 to {HELD_OUT_PERMILLE_MAX} \
         thousandths of the hosts, or no [comparison] at all"
    )]
    Permille(u16),
    /// No such zone.
    #[error(
        "[comparison]: time_zone = {0:?} will not do; expected the name of a time zone that this \
         system knows (tzdata), as in \"Europe/Berlin\""
    )]
    TimeZone(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lottery(permille: u16, zone: &str) -> Result<Lottery, HoldOutError> {
        let settings = HoldOutSettings { held_out_permille: permille, time_zone: zone.into() };
        Lottery::new(&settings, 7)
    }

    fn at(lottery: &Lottery, time: &str) -> HoldOut {
        lottery.at(time.parse().expect("a time"))
    }

    fn host(number: u32) -> HostName {
        HostName::new(format!("r{number}")).expect("a name")
    }

    fn drawn(hold_out: &HoldOut) -> Vec<u32> {
        (0..10_000).filter(|number| hold_out.arm(&host(*number)) == Arm::HeldOut).collect()
    }

    #[test]
    fn each_day_draws_its_share_anew_and_the_same_again_after_a_restart() {
        let hosts = lottery(50, "UTC").expect("sense");
        let monday = drawn(&at(&hosts, "2026-03-02T12:00:00Z"));
        let tuesday = drawn(&at(&hosts, "2026-03-03T12:00:00Z"));
        // Of 10,000 at 5 %: 500, give or take five times 22.
        assert!((390..=610).contains(&monday.len()), "{}", monday.len());
        let both = monday.iter().filter(|number| tuesday.contains(number)).count();
        assert!(both < 60, "{both} of both days: by chance some 25");
        let again = lottery(50, "UTC").expect("sense");
        assert_eq!(drawn(&at(&again, "2026-03-02T23:59:59Z")), monday);
    }

    #[test]
    fn a_day_begins_at_midnight_where_the_farm_is() {
        let berlin = lottery(50, "Europe/Berlin").expect("sense");
        let day = |time| at(&berlin, time).day.to_string();
        // Summer time began at night on the 29th.
        assert_eq!(day("2026-03-28T22:59:59Z"), "2026-03-28");
        assert_eq!(day("2026-03-28T23:00:00Z"), "2026-03-29");
        assert_eq!(day("2026-03-29T21:59:59Z"), "2026-03-29");
        assert_eq!(day("2026-03-29T22:00:00Z"), "2026-03-30");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (permille, zone, expected) in [
            (0, "UTC", "held_out_permille = 0"),
            (501, "UTC", "1 to 500"),
            (50, "Mars/Olympus", "Mars/Olympus"),
        ] {
            let error = lottery(permille, zone).expect_err("no sense").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
