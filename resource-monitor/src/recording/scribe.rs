//! From what the monitor heard and decided to lines.

use std::collections::BTreeMap;
use std::fs;

use gleaner_protocol::farm::{FarmEvent, HookKind};
use gleaner_protocol::recording::{
    ClosedLine, Head, HostLine, Line, OpenedLine, PollLine, RenderLine, VERSION,
};
use gleaner_protocol::{HostName, Time, boot_id};

use crate::{Effect, Input, Rules};

/// Says what an input and its effects are worth writing down. Has no clock and no file.
#[derive(Debug, Default)]
pub struct Scribe {
    /// What is given of each host, as it was written last: confirmations are no news.
    given: BTreeMap<HostName, u32>,
}

impl Scribe {
    /// What begins a recording of a monitor with these rules.
    #[must_use]
    pub fn head(now: Time, rules: &Rules) -> Line {
        Line::Recording(head(now, rules))
    }

    /// What was heard.
    #[must_use]
    pub fn heard(now: Time, input: &Input) -> Option<Line> {
        let t_us = now.as_micros();
        match input {
            Input::Hook(event) => {
                let line = RenderLine {
                    t_us,
                    host: event.host.clone(),
                    booking: event.booking.clone(),
                    cores: event.resources.cores,
                };
                Some(match event.kind {
                    HookKind::Preflight => Line::Preflight(line),
                    HookKind::Postflight => Line::Postflight(line),
                })
            }
            Input::Poll { source, answer, .. } => {
                let listed = answer.as_ref().map_or(&[][..], |answer| &answer.hosts);
                Some(Line::Poll(PollLine {
                    t_us,
                    source: source.clone(),
                    hosts: answer.as_ref().map(|answer| answer.hosts.len() as u64),
                    bookings: listed.iter().map(|host| host.bookings.len() as u64).sum(),
                }))
            }
            Input::Sample(_) | Input::Orders(_) | Input::Tick => None,
        }
    }

    /// What was decided, or was found to be so.
    pub fn decided(&mut self, now: Time, effect: &Effect) -> Option<Line> {
        let t_us = now.as_micros();
        match effect {
            Effect::Occupied(occupied) => Some(Line::Host(HostLine {
                t_us,
                host: occupied.host.clone(),
                cores: occupied.cores,
                busy: occupied.busy,
                seen: occupied.seen,
                disturbed: occupied.disturbed,
                shut: occupied.shut,
            })),
            Effect::Tell(FarmEvent::FragmentOpened { host, cores, .. }) => {
                let before = self.given.insert(host.clone(), *cores);
                let line = OpenedLine { t_us, host: host.clone(), cores: *cores };
                (before != Some(*cores)).then_some(Line::Opened(line))
            }
            Effect::Tell(FarmEvent::FragmentClosed { host, reason }) => {
                // Of one that was closed already it is no news.
                self.given.remove(host)?;
                let (host, reason) = (host.clone(), reason.clone());
                Some(Line::Closed(ClosedLine { t_us, host, reason }))
            }
            Effect::Rendering(_) => None,
        }
    }
}

/// The head of a recording that begins now.
pub(super) fn head(now: Time, rules: &Rules) -> Head {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
    Head {
        version: VERSION,
        t_us: now.as_micros(),
        boot: boot_id(),
        booted_s: booted.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
        continued: false,
        quiet_us: rules.quiet.as_micros(),
        reserve_cores: rules.reserve_cores,
    }
}
