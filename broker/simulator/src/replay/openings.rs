//! From idle cores to cores that are given away: the quiet period and the reserve.
//!
//! The rule of the resource monitor: what is given shrinks at once, and it grows only after a
//! quiet period in which nothing began or ended on the host.
//!
//! The monitor itself knows hooks, samples and epochs, of which a log of another system has none,
//! so this is the same rule over what all logs have. That it stays the same is shown against the
//! monitor: a replay of what it recorded gives away exactly what it gave.

use std::collections::VecDeque;

use gleaner_protocol::{Span, Time};

use super::trace::{Occupation, Trace};

/// A host gives another number of cores from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Time,
    pub(crate) host: u32,
    pub(crate) slots: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Host {
    /// What it could give once it is quiet.
    free: u32,
    given: u32,
    quiet_until: Time,
}

/// All that a farm gives over a trace, in order of time.
pub(crate) fn openings(trace: &Trace, quiet: Span, reserve_cores: u32) -> Vec<Step> {
    let mut giver = Giver {
        hosts: vec![Host::default(); trace.hosts.len()],
        steps: Vec::with_capacity(trace.changes.len()),
        quiet_ends: VecDeque::new(),
    };
    for change in &trace.changes {
        let Occupation { at, host, least_idle, disturbed, shut, .. } = *change;
        giver.end_quiet(at);
        let entry = &mut giver.hosts[host as usize];
        entry.free = change.idle().saturating_sub(reserve_cores);
        if disturbed {
            entry.quiet_until = at + quiet;
            giver.quiet_ends.push_back((at + quiet, host));
        }
        let slots = if shut {
            0
        } else if entry.quiet_until <= at {
            entry.free
        } else {
            entry.given.min(least_idle.saturating_sub(reserve_cores))
        };
        giver.give(at, host, slots);
    }
    giver.end_quiet(trace.end);
    giver.steps
}

struct Giver {
    hosts: Vec<Host>,
    steps: Vec<Step>,
    /// All quiet periods are of one length, so they end in the order in which they began.
    quiet_ends: VecDeque<(Time, u32)>,
}

impl Giver {
    /// What was waiting for the end of a quiet period grows.
    fn end_quiet(&mut self, until: Time) {
        while let Some(&(at, host)) = self.quiet_ends.front()
            && at <= until
        {
            self.quiet_ends.pop_front();
            let entry = self.hosts[host as usize];
            if entry.quiet_until <= at {
                self.give(at, host, entry.free);
            }
        }
    }

    fn give(&mut self, at: Time, host: u32, slots: u32) {
        let entry = &mut self.hosts[host as usize];
        if entry.given != slots {
            entry.given = slots;
            self.steps.push(Step { at, host, slots });
        }
    }
}

/// Core-time that is given, in core-microseconds.
pub(crate) fn given_core_us(trace: &Trace, steps: &[Step]) -> u128 {
    let mut last: Vec<(Time, u32)> = vec![(Time::ZERO, 0); trace.hosts.len()];
    let mut sum = 0;
    for step in steps {
        let (from, slots) = std::mem::replace(&mut last[step.host as usize], (step.at, step.slots));
        sum += u128::from(step.at.since(from).as_micros()) * u128::from(slots);
    }
    for (from, slots) in last {
        sum += u128::from(trace.end.since(from).as_micros()) * u128::from(slots);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::bookings::{Booking, lay_out};
    use crate::replay::trace::TraceHost;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn trace(bookings: &[(u32, u64, u64)]) -> Trace {
        let booking = |&(cores, from, until): &(u32, u64, u64)| Booking {
            host: 0,
            cores,
            from: at(from),
            until: at(until),
        };
        let bookings: Vec<_> = bookings.iter().map(booking).collect();
        let hosts = vec![TraceHost { name: "a".into(), cores: 8 }];
        lay_out("log", hosts, &bookings, at(0), at(1000)).expect("a trace")
    }

    fn steps(trace: &Trace, reserve: u32) -> Vec<(u64, u32)> {
        let steps = openings(trace, Span::from_secs(60), reserve);
        steps.iter().map(|step| (step.at.as_micros() / 1_000_000, step.slots)).collect()
    }

    #[test]
    fn what_is_given_shrinks_at_once_and_grows_after_a_quiet_period() {
        let trace = trace(&[(3, 100, 200), (2, 230, 400)]);
        assert_eq!(steps(&trace, 0), [(60, 8), (100, 5), (290, 6), (460, 8)]);
        assert_eq!(steps(&trace, 2), [(60, 6), (100, 3), (290, 4), (460, 6)]);
        assert_eq!(steps(&trace, 8), []);
        let steps = openings(&trace, Span::from_secs(60), 0);
        let sum = 40 * 8 + 190 * 5 + 170 * 6 + 540 * 8;
        assert_eq!(given_core_us(&trace, &steps), sum * 1_000_000);
    }

    #[test]
    fn a_gap_shorter_than_the_quiet_period_gives_nothing() {
        let trace = trace(&[(8, 100, 200), (8, 259, 400)]);
        assert_eq!(steps(&trace, 0), [(60, 8), (100, 0), (460, 8)]);
    }

    #[test]
    fn no_quiet_period_gives_at_once() {
        let trace = trace(&[(8, 100, 200)]);
        let steps = openings(&trace, Span::ZERO, 0);
        let steps: Vec<_> = steps.iter().map(|step| (step.at, step.slots)).collect();
        assert_eq!(steps, [(at(0), 8), (at(100), 0), (at(200), 8)]);
    }
}
