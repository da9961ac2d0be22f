//! The times of a user log: old ones without a year, newer ones with.

use gleaner_protocol::{Span, Time};

use super::{Wrong, wrong};
use crate::replay::log::quoted;

const DAY_S: i64 = 86_400;
/// So far may an event stand behind a later one: several programs write to one log.
const DISORDER_S: i64 = 3_600;

/// The two words of a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp<'a> {
    day: &'a str,
    time: &'a str,
}

impl<'a> Stamp<'a> {
    /// Splits the time from what follows it.
    pub(super) fn split(text: &'a str) -> Option<(Self, &'a str)> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        if let Some((day, time)) = first.split_once('T') {
            return Some((Self { day, time }, rest));
        }
        let (time, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        (!time.is_empty()).then_some((Self { day: first, time }, rest))
    }
}

/// Reads times in their order.
///
/// Where they have no year, a year has a 29th of February where the log has that day, and a time
/// that seems far earlier than the one before is of the next year.
#[derive(Debug, Default)]
pub(super) struct Clock {
    year: Option<i64>,
    leap_year: Option<i64>,
    last_s: Option<i64>,
}

impl Clock {
    /// Any year of 365 days.
    const FIRST_YEAR: i64 = 2021;

    pub(super) fn read(&mut self, stamp: Stamp<'_>) -> Result<Time, Wrong> {
        let (time_s, micros) = time_of_day(stamp.time)?;
        let seconds = time_s
            + match stamp.day.split_once('/') {
                Some((month, day)) => self.day_without_year(month, day, stamp.day, time_s)?,
                None => day_with_year(stamp.day)?,
            };
        if let Some(last) = self.last_s.filter(|last| seconds + DISORDER_S < *last) {
            let found = format!("a time {} s before the one above it", last - seconds);
            return wrong(found, format!("events in order, up to {DISORDER_S} s"));
        }
        self.last_s = Some(self.last_s.map_or(seconds, |last| last.max(seconds)));
        let Ok(seconds) = u64::try_from(seconds) else {
            return wrong(quoted(stamp.day), "a day after 1970");
        };
        Ok(Time::ZERO + Span::from_secs(seconds) + Span::from_micros(micros))
    }

    /// Seconds from 1970 to a day of the year in hand, or of the next one.
    fn day_without_year(
        &mut self,
        month: &str,
        day: &str,
        text: &str,
        time_s: i64,
    ) -> Result<i64, Wrong> {
        let date = number(month).zip(number(day));
        let Some((month, day)) = date.filter(|(month, day)| days(2020, *month, *day).is_some())
        else {
            return wrong(quoted(text), "a month and a day, as in \"02/22\"");
        };
        let mut year = *self.year.get_or_insert(Self::FIRST_YEAR);
        let mut at = self.in_year(year, month, day);
        if let Some(last) = self.last_s.filter(|last| at + time_s + DISORDER_S < *last) {
            // Less than half a year forward to the next year, or a step back in this one.
            year += 1;
            at = self.in_year(year, month, day);
            if at + time_s - last > 183 * DAY_S {
                return wrong(quoted(text), "a day not before that of the event above it");
            }
            self.year = Some(year);
        }
        if (month, day) == (2, 29) {
            self.leap_year = Some(year);
        }
        Ok(at)
    }

    /// Seconds from 1970 to a day of one of the years that are counted.
    fn in_year(&self, year: i64, month: i64, day: i64) -> i64 {
        let is_behind = |leap: i64| leap < year || (leap == year && month > 2);
        let more = i64::from(self.leap_year.is_some_and(is_behind));
        let days = match days(year, month, day) {
            Some(days) => days + more,
            None => days(year, 2, 28).expect("every year has this day") + 1 + more,
        };
        days * DAY_S
    }
}

/// Seconds from 1970 to the day of "2021-02-22".
fn day_with_year(text: &str) -> Result<i64, Wrong> {
    let mut parts = text.splitn(3, '-').map(number);
    let date = match (parts.next(), parts.next(), parts.next()) {
        (Some(Some(year)), Some(Some(month)), Some(Some(day))) => days(year, month, day),
        _ => None,
    };
    match date {
        Some(days) => Ok(days * DAY_S),
        None => wrong(quoted(text), "a day, as in \"02/22\" or \"2021-02-22\""),
    }
}

/// Seconds and microseconds of "17:21:36", "17:21:36.512" and "17:21:36+01:00".
fn time_of_day(text: &str) -> Result<(i64, u64), Wrong> {
    let (clock, offset_s) = split_offset(text);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':').map(number);
    let parts = (parts.next(), parts.next(), parts.next(), parts.next());
    let (Some(Some(hour)), Some(Some(minute)), Some(Some(second)), None) = parts else {
        return wrong(quoted(text), "a time, as in \"17:21:36\"");
    };
    let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    let (true, Some(offset_s), Some(micros)) = (fits, offset_s, micros(fraction)) else {
        return wrong(quoted(text), "a time, as in \"17:21:36\"");
    };
    Ok((hour * 3600 + minute * 60 + second - offset_s, micros))
}

/// Takes "Z" or "+01:00" off a time; `None` for an offset that is none.
fn split_offset(text: &str) -> (&str, Option<i64>) {
    if let Some(clock) = text.strip_suffix('Z') {
        return (clock, Some(0));
    }
    let Some(at) = text.find(['+', '-']) else { return (text, Some(0)) };
    let (clock, offset) = text.split_at(at);
    let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
    let hours = digits.get(..2).and_then(number);
    let minutes = digits
        .get(2..)
        .map_or(Some(0), |rest| if rest.is_empty() { Some(0) } else { number(rest) });
    let seconds = hours.zip(minutes).map(|(hours, minutes)| hours * 3600 + minutes * 60);
    (clock, seconds.map(|seconds| if offset.starts_with('-') { -seconds } else { seconds }))
}

fn micros(fraction: &str) -> Option<u64> {
    let digits = fraction.get(..fraction.len().min(6))?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<6}").parse().ok()
}

/// A plain number without a sign.
fn number(text: &str) -> Option<i64> {
    let is_plain = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// Days from 1970-01-01 to a day of the calendar.
///
/// Source: E. M. Reingold and N. Dershowitz, "Calendrical Calculations", 2018: the day number
/// of the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let place = usize::try_from(month).ok()?.checked_sub(1)?;
    let before = *BEFORE.get(place)?;
    let next = BEFORE.get(place + 1).copied().unwrap_or(365);
    let length = next - before + i64::from(is_leap && month == 2);
    if !(1..=length).contains(&day) {
        return None;
    }
    let past = year - 1;
    let leap_days = past / 4 - past / 100 + past / 400;
    let day_of_year = before + i64::from(is_leap && month > 2) + day - 1;
    // Days before 1970: 719,162.
    Some(past * 365 + leap_days + day_of_year - 719_162)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(clock: &mut Clock, text: &str) -> Result<u64, String> {
        let (stamp, _) = Stamp::split(text).expect("two words");
        let at = clock.read(stamp).map_err(|(found, expected)| format!("{found}: {expected}"))?;
        Ok(at.as_micros())
    }

    fn seconds(clock: &mut Clock, text: &str) -> u64 {
        read(clock, text).expect(text) / 1_000_000
    }

    #[test]
    fn times_with_a_year_are_absolute() {
        let mut clock = Clock::default();
        assert_eq!(read(&mut clock, "2000-02-29 00:00:01.5"), Ok(951_782_401_500_000));
        assert_eq!(seconds(&mut clock, "2021-02-22T17:21:20Z"), 1_614_014_480);
        assert_eq!(seconds(&mut clock, "2021-02-22 18:21:21+01:00"), 1_614_014_481);
    }

    #[test]
    fn a_year_that_is_missing_turns_at_new_year() {
        let mut clock = Clock::default();
        let before = seconds(&mut clock, "12/31 23:59:59");
        assert_eq!(seconds(&mut clock, "01/01 00:00:02"), before + 3);
        assert_eq!(seconds(&mut clock, "02/28 00:00:02"), before + 3 + 58 * 86_400);
    }

    #[test]
    fn small_disorder_is_borne_and_a_step_back_is_not() {
        let mut clock = Clock::default();
        let at = seconds(&mut clock, "05/10 12:00:00");
        assert_eq!(seconds(&mut clock, "05/10 11:59:58"), at - 2);
        let error = read(&mut clock, "05/08 12:00:00").expect_err("two days back");
        assert!(error.contains("05/08") && error.contains("not before"), "{error}");
        let mut clock = Clock::default();
        read(&mut clock, "2021-05-10 12:00:00").expect("a time");
        let error = read(&mut clock, "2021-05-09 12:00:00").expect_err("a day back");
        assert!(error.contains("86400 s before"), "{error}");
    }

    #[test]
    fn days_that_are_none_are_refused() {
        for text in [
            "13/01 00:00:00",
            "02/30 00:00:00",
            "2021-02-29 00:00:00",
            "a/b 00:00:00",
            "-2/01 00:00:00",
            "05/10 24:00:00",
            "05/10 1:2",
            "05/10 00:00:00.x",
            "05/10 00:00:00+x",
        ] {
            read(&mut Clock::default(), text).expect_err(text);
        }
        let mut clock = Clock::default();
        let leap = seconds(&mut clock, "02/29 00:00:00");
        assert_eq!(seconds(&mut clock, "02/29 12:00:00"), leap + 43_200);
        assert_eq!(seconds(&mut clock, "03/01 00:00:00"), leap + 86_400);
        assert_eq!(seconds(&mut clock, "10/01 00:00:00"), leap + 215 * 86_400);
        assert_eq!(seconds(&mut clock, "02/01 00:00:00"), leap + 338 * 86_400);
    }
}
