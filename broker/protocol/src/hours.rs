//! Hours of the week, in somebody's local time: those that the owner of a host or the administrator
//! of a farm names.
//!
//! They are matched against what a clock on the wall shows, so a change of the clocks needs no
//! care: an hour that is skipped is never seen, and one that comes twice counts twice.

use thiserror::Error;

const DAY_MINUTES: u16 = 24 * 60;
const WEEK_MINUTES: usize = 7 * DAY_MINUTES as usize;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// What a clock on the wall shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// 0 for Monday to 6 for Sunday.
    pub weekday: u8,
    /// Since midnight, below 1,440.
    pub minute: u16,
}

impl LocalTime {
    fn minute_of_week(self) -> usize {
        (usize::from(self.weekday % 7) * usize::from(DAY_MINUTES) + usize::from(self.minute))
            % WEEK_MINUTES
    }
}

/// A set of minutes of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours {
    minutes: Vec<bool>,
}

/// Why a text is no span of hours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0}; expected days, a time or both, as in \"mon-fri 19:00-07:00\", \"sat,sun\" or \"22:00-06:00\""
)]
pub struct HoursError(String);

impl Hours {
    /// All of these spans together. A span over midnight belongs to the day on which it begins.
    ///
    /// # Errors
    /// A text that is no span of hours; what would be one.
    pub fn parse<'a>(spans: impl IntoIterator<Item = &'a str>) -> Result<Self, HoursError> {
        let mut hours = Self { minutes: vec![false; WEEK_MINUTES] };
        for span in spans {
            hours.add(span)?;
        }
        Ok(hours)
    }

    /// Whether they hold this moment.
    #[must_use]
    pub fn contain(&self, at: LocalTime) -> bool {
        self.minutes[at.minute_of_week()]
    }

    /// Minutes until that changes; None where it never does.
    #[must_use]
    pub fn minutes_to_change(&self, at: LocalTime) -> Option<usize> {
        let (begin, now) = (at.minute_of_week(), self.contain(at));
        (1..WEEK_MINUTES).find(|ahead| self.minutes[(begin + ahead) % WEEK_MINUTES] != now)
    }

    fn add(&mut self, span: &str) -> Result<(), HoursError> {
        let mut days = None;
        let mut times = None;
        for word in span.split_ascii_whitespace() {
            let is_time = word.starts_with(|c: char| c.is_ascii_digit());
            let place_is_free = if is_time { times.is_none() } else { days.is_none() };
            if !place_is_free || (times.is_some() && !is_time) {
                return Err(HoursError(format!("{word:?} is one word too many")));
            }
            match is_time {
                true => times = Some(parse_times(word)?),
                false => days = Some(parse_days(word)?),
            }
        }
        if days.is_none() && times.is_none() {
            return Err(HoursError("nothing is there".into()));
        }
        let days = days.unwrap_or([true; 7]);
        let (from, to) = times.unwrap_or((0, DAY_MINUTES));
        let length = if to > from { to - from } else { to + DAY_MINUTES - from };
        for (day, _) in days.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let begin = day * usize::from(DAY_MINUTES) + usize::from(from);
            for ahead in 0..usize::from(length) {
                self.minutes[(begin + ahead) % WEEK_MINUTES] = true;
            }
        }
        Ok(())
    }
}

fn parse_days(word: &str) -> Result<[bool; 7], HoursError> {
    let mut days = [false; 7];
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_day(first)?, parse_day(last)?);
        let mut day = first;
        days[day] = true;
        while day != last {
            day = (day + 1) % 7;
            days[day] = true;
        }
    }
    Ok(days)
}

fn parse_day(word: &str) -> Result<usize, HoursError> {
    DAYS.iter().position(|day| word.eq_ignore_ascii_case(day)).ok_or_else(|| {
        HoursError(format!("{word:?} is no day (mon, tue, wed, thu, fri, sat, sun)"))
    })
}

/// Minutes since midnight; both from 00:00 to 24:00, and not the same.
fn parse_times(word: &str) -> Result<(u16, u16), HoursError> {
    let (from, to) =
        word.split_once('-').ok_or_else(|| HoursError(format!("{word:?} has no end")))?;
    let (from, to) = (parse_time(from)?, parse_time(to)?);
    if from == to || from == DAY_MINUTES {
        return Err(HoursError(format!("{word:?} holds no minute")));
    }
    Ok((from, to))
}

fn parse_time(word: &str) -> Result<u16, HoursError> {
    let refuse = || HoursError(format!("{word:?} is no time from 00:00 to 24:00"));
    let (hour, minute) = word.split_once(':').ok_or_else(refuse)?;
    let number = |text: &str| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten().ok_or_else(refuse)
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let at = hour * 60 + minute;
    if minute > 59 || at > DAY_MINUTES { Err(refuse()) } else { Ok(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{Timestamp, Unit, tz::TimeZone};
    use proptest::prelude::*;

    fn at(day: &str, time: &str) -> LocalTime {
        let weekday = DAYS.iter().position(|known| *known == day).expect("a day");
        LocalTime { weekday: weekday as u8, minute: parse_time(time).expect("a time") }
    }

    fn hours(spans: &[&str]) -> Hours {
        Hours::parse(spans.iter().copied()).expect("hours")
    }

    #[test]
    fn nights_begin_on_the_days_that_are_named() {
        let hours = hours(&["mon-fri 19:00-07:00", "sat,sun"]);
        for (day, time, inside) in [
            ("mon", "06:59", false),
            ("mon", "18:59", false),
            ("mon", "19:00", true),
            ("tue", "06:59", true),
            ("tue", "07:00", false),
            ("fri", "19:00", true),
            ("sat", "06:59", true),
            ("sat", "12:00", true),
            ("sun", "23:59", true),
            ("mon", "00:00", false),
        ] {
            assert_eq!(hours.contain(at(day, time)), inside, "{day} {time}");
        }
        assert_eq!(hours.minutes_to_change(at("mon", "18:00")), Some(60));
        assert_eq!(hours.minutes_to_change(at("fri", "19:00")), Some(5 * 60 + 2 * 24 * 60));
    }

    #[test]
    fn a_sunday_night_reaches_into_monday_and_days_wrap() {
        let night = hours(&["sun 22:00-06:00"]);
        assert!(night.contain(at("mon", "05:59")) && !night.contain(at("mon", "06:00")));
        assert!(!night.contain(at("sun", "05:00")));
        let wrapped = hours(&["SAT-mon"]);
        let inside: Vec<bool> = DAYS.iter().map(|day| wrapped.contain(at(day, "12:00"))).collect();
        assert_eq!(inside, [true, false, false, false, false, true, true]);
        let always = hours(&["00:00-24:00"]);
        assert_eq!(always.minutes_to_change(at("wed", "12:00")), None);
    }

    #[test]
    fn what_is_no_hours_says_what_is_expected() {
        for (text, says) in [
            ("", "nothing is there"),
            ("monday", "\"monday\" is no day"),
            ("mon-", "\"\" is no day"),
            ("19:00", "has no end"),
            ("19:00-25:00", "\"25:00\""),
            ("19:60-20:00", "\"19:60\""),
            ("7-9", "\"7\" is no time"),
            ("+7:00-9:00", "is no day"),
            ("08:00-08:00", "holds no minute"),
            ("24:00-08:00", "holds no minute"),
            ("mon tue", "one word too many"),
            ("08:00-09:00 mon", "one word too many"),
            ("mon 08:00-09:00 10:00-11:00", "one word too many"),
        ] {
            let error = Hours::parse([text]).expect_err(text).to_string();
            assert!(error.contains(says) && error.contains("\"sat,sun\""), "{text}: {error}");
        }
    }

    /// What a clock on the wall shows in Berlin, by the rule that has held since 1996.
    fn berlin(text: &str) -> LocalTime {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
        let zoned = text.parse::<Timestamp>().expect("a time").to_zoned(zone);
        let zoned = zoned.round(Unit::Minute).expect("rounds");
        LocalTime {
            weekday: zoned.weekday().to_monday_zero_offset() as u8,
            minute: zoned.hour() as u16 * 60 + zoned.minute() as u16,
        }
    }

    #[test]
    fn a_change_of_the_clocks_neither_loses_nor_lengthens_an_end() {
        let hours = hours(&["22:00-02:30"]);
        // In spring the clock goes from 01:59 to 03:00: the end at 02:30 is passed all the same.
        assert!(hours.contain(berlin("2026-03-29T00:59:00Z")));
        assert!(!hours.contain(berlin("2026-03-29T01:00:00Z")));
        // In autumn 02:00 to 02:59 comes twice, and both first halves are inside.
        assert!(hours.contain(berlin("2026-10-25T00:29:00Z")));
        assert!(!hours.contain(berlin("2026-10-25T00:45:00Z")));
        assert!(hours.contain(berlin("2026-10-25T01:29:00Z")));
        assert!(!hours.contain(berlin("2026-10-25T01:30:00Z")));
    }

    proptest! {
        #[test]
        fn a_span_holds_what_counting_on_from_its_begin_reaches(
            day in 0_usize..7, from in 0_u16..1440, length in 1_u16..1440, ask in 0_u16..10080,
        ) {
            let to = (from + length) % 1440;
            let text = format!(
                "{} {:02}:{:02}-{:02}:{:02}", DAYS[day], from / 60, from % 60, to / 60, to % 60
            );
            let hours = Hours::parse([text.as_str()]).expect("hours");
            let at = LocalTime { weekday: (ask / 1440) as u8, minute: ask % 1440 };
            let since = (ask + 10080 - (day as u16 * 1440 + from)) % 10080;
            prop_assert_eq!(hours.contain(at), since < length);
        }

        #[test]
        fn no_text_panics(text in ".{0,24}") {
            let _ = Hours::parse([text.as_str()]);
        }
    }
}
