//! What the resource monitor writes down of a farm, to be replayed: JSON, one [`Line`] each.
//!
//! ```text
//! {"recording":{"version":1,"t_us":81000000,"boot":"5d0c…","booted_s":1790000000,"continued":false,"quiet_us":60000000,"reserve_cores":0}}
//! {"host":{"t_us":81000412,"host":"render01","cores":12,"busy":0,"seen":true,"disturbed":true}}
//! {"opened":{"t_us":141000412,"host":"render01","cores":12}}
//! {"preflight":{"t_us":250113071,"host":"render01","booking":"shot7.4711","cores":8}}
//! {"host":{"t_us":250113071,"host":"render01","cores":12,"busy":8,"seen":true,"disturbed":true}}
//! {"opened":{"t_us":250113071,"host":"render01","cores":4}}
//! ```
//!
//! Times are microseconds since the monitor's machine booted, on the clock that does not jump;
//! `booted_s` places them in the world, as far as that machine knows it.
//!
//! # Invariants
//! - A file begins with a [`Head`], and has another one wherever the monitor was started anew.
//!   From the last line before that one to it, nothing is known of the farm, unless it says that
//!   it continues the line above.
//! - A [`HostLine`] is written whenever what it says changes; the first one of a host after a
//!   head says what the host is like. They alone say how busy the farm was; the other lines say
//!   from what that follows, and what the monitor did.
//! - A line that is cut short is the last one, or stands before a head.
//! - [`OpenedLine`]s and [`ClosedLine`]s say all that the monitor gave away; one that continues
//!   another file begins with those that are open.
//!
//! # What is not in it
//! Why less was given than the quiet period and the reserve of the head allow: what an administrator
//! ordered, stops, groups and schedules, quiet periods that were learned, waits that went on over a
//! restart, and memory. What came of all that stands in what was opened and closed.

use serde::{Deserialize, Serialize};

use crate::{BookingId, HostName};

/// The version that is written.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A recording begins.
    Recording(Head),
    /// What a host is like from now on.
    Host(HostLine),
    /// A hook said that a render begins.
    Preflight(RenderLine),
    /// A hook said that a render has ended.
    Postflight(RenderLine),
    /// The farm was asked what it has booked.
    Poll(PollLine),
    /// Cores of a host were given away, or another number of them.
    Opened(OpenedLine),
    /// None of a host are given away any longer.
    Closed(ClosedLine),
    /// Nothing happened, but the monitor lives.
    Alive(AliveLine),
    /// The disk was too slow.
    Lost(LostLine),
}

impl Line {
    /// When, in microseconds since the monitor's machine booted.
    #[must_use]
    pub const fn t_us(&self) -> u64 {
        match self {
            Self::Recording(Head { t_us, .. })
            | Self::Host(HostLine { t_us, .. })
            | Self::Preflight(RenderLine { t_us, .. })
            | Self::Postflight(RenderLine { t_us, .. })
            | Self::Poll(PollLine { t_us, .. })
            | Self::Opened(OpenedLine { t_us, .. })
            | Self::Closed(ClosedLine { t_us, .. })
            | Self::Alive(AliveLine { t_us })
            | Self::Lost(LostLine { t_us, .. }) => *t_us,
        }
    }
}

/// Begins a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`VERSION`].
    pub version: u32,
    /// When, as in all lines.
    pub t_us: u64,
    /// Which life of the monitor's machine: times of one life are comparable.
    pub boot: String,
    /// When that life began, in seconds since 1970; 0 where the machine does not say.
    pub booted_s: u64,
    /// Whether the same monitor goes on in a new file, and nothing was missed.
    pub continued: bool,
    /// The quiet period of the monitor, in microseconds.
    pub quiet_us: u64,
    /// Cores of every host that it never gives away.
    pub reserve_cores: u32,
}

/// What a host is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLine {
    /// When.
    pub t_us: u64,
    /// Which host.
    pub host: HostName,
    /// Cores that it has.
    pub cores: u32,
    /// Of these, booked by the farm.
    pub busy: u32,
    /// Whether the monitor knows what happens on it: it is heard of, at a known epoch.
    pub seen: bool,
    /// Whether a quiet period begins: a render began or ended, or may have.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disturbed: bool,
    /// Whether what was given of it ends as a whole until that period is over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shut: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A hook's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderLine {
    /// When it came.
    pub t_us: u64,
    /// Of which host.
    pub host: HostName,
    /// Which attempt of which render.
    pub booking: BookingId,
    /// Cores that it books; the whole host where the hook does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
}

/// A farm's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollLine {
    /// When it came.
    pub t_us: u64,
    /// Which farm.
    pub source: String,
    /// Hosts that it listed; none where it could not be asked.
    pub hosts: Option<u64>,
    /// Renders on them.
    pub bookings: u64,
}

/// Cores are given away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenedLine {
    /// When.
    pub t_us: u64,
    /// Of which host.
    pub host: HostName,
    /// How many.
    pub cores: u32,
}

/// None are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosedLine {
    /// When.
    pub t_us: u64,
    /// Of which host.
    pub host: HostName,
    /// Why.
    pub reason: String,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AliveLine {
    /// When.
    pub t_us: u64,
}

/// Lines that could not be written in time. [`HostLine`]s are never among them; only the newest
/// one of a host may stand for several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostLine {
    /// When this was noticed.
    pub t_us: u64,
    /// How many.
    pub lines: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_only_what_matters() {
        let host = HostName::new("render01").expect("a name");
        let line = Line::Host(HostLine {
            t_us: 7,
            host,
            cores: 12,
            busy: 8,
            seen: true,
            disturbed: true,
            shut: false,
        });
        let text = serde_json::to_string(&line).expect("serialises");
        let expected = r#"{"host":{"t_us":7,"host":"render01","cores":12,"busy":8,"seen":true,"disturbed":true}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Line>(&text).expect("parses"), line);
        assert_eq!(line.t_us(), 7);
    }

    #[test]
    fn unknown_words_are_refused() {
        let text = r#"{"alive":{"t_us":7,"mood":"good"}}"#;
        let error = serde_json::from_str::<Line>(text).expect_err("unknown").to_string();
        assert!(error.contains("mood"), "{error}");
    }
}
