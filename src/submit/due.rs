//! When a job is due, as people say it.

use std::str::FromStr;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SpanRelativeTo, Timestamp, ToSpan, Unit, Zoned};

/// A due time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// So many milliseconds after the broker has accepted the job.
    In(u64),
    /// At this time, in milliseconds of UTC.
    At(u64),
}

/// Latest due time, in milliseconds.
const LATEST_MS: i64 = 365 * 86_400_000;

impl FromStr for Due {
    type Err = String;

    /// `45m`, `2h 30m`; `17:30`, the next time that the clock here shows it; `2026-11-27 17:30`; or a
    /// time with its zone, `2026-11-27T17:30Z`.
    fn from_str(text: &str) -> Result<Self, String> {
        read(text.trim(), &now())
    }
}

/// Now, here: what the clock on the wall shows is what people mean.
fn now() -> Zoned {
    crate::wall_clock::now()
}

fn read(text: &str, now: &Zoned) -> Result<Due, String> {
    // A span may be written with colons, too; here they make a time of day.
    let span = (!text.contains(':')).then(|| text.parse::<jiff::Span>().ok()).flatten();
    if let Some(span) = span {
        let days = SpanRelativeTo::days_are_24_hours();
        let ms = span.total((Unit::Millisecond, days)).map_err(|error| error.to_string())?;
        if ms < 1.0 {
            return Err(format!("{text} is no time from now on"));
        }
        if ms > LATEST_MS as f64 {
            return Err(format!("{text} is more than a year: nobody can say so far ahead"));
        }
        return Ok(Due::In(ms as u64));
    }
    let due = if let Ok(at) = text.parse::<Timestamp>() {
        at
    } else if let Ok(at) = text.parse::<Zoned>() {
        at.timestamp()
    } else if let Some(at) = is_local(text).then(|| text.parse::<DateTime>().ok()).flatten() {
        zoned(at, now.time_zone())?
    } else if let Some(time) = is_local(text).then(|| text.parse::<Time>().ok()).flatten() {
        let today = zoned(now.date().to_datetime(time), now.time_zone())?;
        let tomorrow = || now.date().checked_add(1.day()).map_err(|error| error.to_string());
        match today > now.timestamp() {
            true => today,
            false => zoned(tomorrow()?.to_datetime(time), now.time_zone())?,
        }
    } else {
        return Err(
            "expected a span as in 45m or 2h, a time as in 17:30, or a date with a time, as \
                    in \"2026-11-27 17:30\" or 2026-11-27T17:30Z"
                .into(),
        );
    };
    let left_ms = due.as_millisecond() - now.timestamp().as_millisecond();
    if left_ms <= 0 {
        return Err(format!("{text} is past: here it is {}", now.strftime("%Y-%m-%d %H:%M:%S %Z")));
    }
    if left_ms > LATEST_MS {
        return Err(format!("{text} is more than a year from now: nobody can say so far ahead"));
    }
    Ok(Due::At(u64::try_from(due.as_millisecond()).unwrap_or(0)))
}

/// Whether it has a time of day and no zone: one in brackets that is none is not left out.
fn is_local(text: &str) -> bool {
    text.contains(':') && !text.contains('[')
}

fn zoned(at: DateTime, zone: &TimeZone) -> Result<Timestamp, String> {
    let at = zone.to_zoned(at).map_err(|error| error.to_string())?;
    Ok(at.timestamp())
}

/// By how many seconds a date of HTTP is ahead of the clock here.
pub(super) fn seconds_ahead(date: &str) -> Option<i64> {
    let at = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(at.timestamp().as_second() - now().timestamp().as_second())
}

/// Milliseconds of UTC as people here read them.
pub(crate) fn here(utc_ms: u64) -> String {
    let at = i64::try_from(utc_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let Some(at) = at else { return utc_ms.to_string() };
    let (now, at) = (now(), at.to_zoned(now().time_zone().clone()));
    let format = if at.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    at.strftime(format).to_string()
}

/// Milliseconds of UTC for programs: `2026-11-27T17:30:00Z`.
pub(crate) fn utc(utc_ms: u64) -> String {
    let at = i64::try_from(utc_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or(utc_ms.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        format!("{text}[Europe/Berlin]").parse().expect("a time")
    }

    fn due(text: &str) -> Result<String, String> {
        let now = at("2026-11-26T16:00:00");
        Ok(match read(text, &now)? {
            Due::In(ms) => format!("in {ms}"),
            Due::At(ms) => utc(ms),
        })
    }

    #[test]
    fn spans_times_and_dates_are_read() {
        for (text, expected) in [
            ("45m", "in 2700000"),
            ("2h 30m", "in 9000000"),
            ("1d", "in 86400000"),
            ("17:30", "2026-11-26T16:30:00Z"),
            ("15:00", "2026-11-27T14:00:00Z"),
            ("17:30:02", "2026-11-26T16:30:02Z"),
            ("2026-11-27 17:30", "2026-11-27T16:30:00Z"),
            ("2026-11-27T17:30", "2026-11-27T16:30:00Z"),
            ("2026-11-27T17:30Z", "2026-11-27T17:30:00Z"),
            ("2026-11-27T17:30-05:00", "2026-11-27T22:30:00Z"),
            ("2026-11-27T17:30[America/New_York]", "2026-11-27T22:30:00Z"),
        ] {
            assert_eq!(due(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_date_of_http_is_compared_with_the_clock_here() {
        let date = now().with_time_zone(TimeZone::UTC).strftime("%a, %d %b %Y %H:%M:%S GMT");
        let ahead_s = seconds_ahead(&date.to_string()).expect("a date");
        assert!((-60..=1).contains(&ahead_s), "{ahead_s}");
        assert_eq!(seconds_ahead("yesterday"), None);
    }

    #[test]
    fn what_is_past_too_far_or_nothing_is_refused_with_what_would_do() {
        for (text, said) in [
            ("", "expected a span"),
            ("soon", "expected a span"),
            ("25:00", "expected a span"),
            ("-5m", "no time from now on"),
            ("0s", "no time from now on"),
            ("400d", "more than a year"),
            ("2026-11-26 15:59", "is past: here it is 2026-11-26 16:00:00 CET"),
            ("2031-01-01 12:00", "more than a year from now"),
            ("2026-11-27T17:30[Mars/Olympus]", "expected a span"),
            ("2026-11-27", "expected a span"),
        ] {
            let error = due(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
