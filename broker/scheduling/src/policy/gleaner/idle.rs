//! How long hosts stay idle, learnt from how long they did.

use gleaner_protocol::{Origin, Span, Time};

use crate::farm::{Host, HostIx};

/// Lengths up to 2^23 seconds (97 days) are told apart, by half octaves.
const BUCKETS: usize = 48;
/// A host's own past counts so much more than that of its side.
const OWN_WEIGHT: u64 = 4;
/// With fewer lengths to go by, nothing is foretold.
const LENGTHS_MIN: u64 = 8;

/// Past lengths of fragments by host and by side.
#[derive(Debug, Default)]
pub(super) struct IdleTimes {
    hosts: Vec<Past>,
    sides: [Lengths; 2],
}

#[derive(Debug, Default)]
struct Past {
    open_since: Option<Time>,
    /// It kept what it ran when its fragment closed: it will finish, sooner or later.
    keeps: bool,
    lengths: Option<Box<Lengths>>,
}

/// How many lengths fell into each bucket.
#[derive(Debug)]
struct Lengths([u32; BUCKETS]);

impl Default for Lengths {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// The bucket of a length: two for each octave of seconds.
fn bucket(length: Span) -> usize {
    let seconds = (length.as_micros() / 1_000_000).max(1);
    let octave = seconds.ilog2();
    let is_upper = octave > 0 && seconds >> (octave - 1) & 1 == 1;
    (2 * octave as usize + usize::from(is_upper)).min(BUCKETS - 1)
}

impl Lengths {
    /// How many were at least as long.
    fn from(&self, length: Span) -> u64 {
        self.0[bucket(length)..].iter().map(|count| u64::from(*count)).sum()
    }
}

impl IdleTimes {
    /// A host has another fragment, or came or went.
    pub(super) fn changed(&mut self, now: Time, index: HostIx, host: &Host) {
        if self.hosts.len() <= index.get() {
            self.hosts.resize_with(index.get() + 1, Past::default);
        }
        let past = &mut self.hosts[index.get()];
        let is_open = host.connected && host.fragment.cores > 0;
        if host.connected && !is_open {
            past.keeps = !host.finished.is_empty();
        }
        match past.open_since {
            None if is_open => past.open_since = Some(now),
            Some(since) if !is_open => {
                past.open_since = None;
                let at = bucket(now.since(since));
                let own = past.lengths.get_or_insert_default();
                for lengths in [&mut **own, &mut self.sides[side(host.origin())]] {
                    lengths.0[at] = lengths.0[at].saturating_add(1);
                }
            }
            _ => {}
        }
    }

    /// The number of a forgotten host will be that of another one.
    pub(super) fn forget(&mut self, index: HostIx) {
        if let Some(past) = self.hosts.get_mut(index.get()) {
            *past = Past::default();
        }
    }

    /// Whether an open host will more likely than not have done something that takes `span`: it
    /// stays open as long, as far as its past and that of its side tell, or it keeps what it runs
    /// when it closes. Where nothing tells, it will.
    pub(super) fn will_last(&self, now: Time, index: HostIx, host: &Host, span: Span) -> bool {
        let Some(past) = self.hosts.get(index.get()) else { return true };
        let Some(since) = past.open_since.filter(|_| !past.keeps) else { return true };
        let age = now.since(since);
        let count = |length: Span| {
            let own = past.lengths.as_ref().map_or(0, |own| own.from(length));
            OWN_WEIGHT * own + self.sides[side(host.origin())].from(length)
        };
        let as_old = count(age);
        as_old < LENGTHS_MIN || 2 * count(age + span) >= as_old
    }
}

fn side(origin: Origin) -> usize {
    usize::from(origin == Origin::Desktop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_told_apart_by_half_octaves() {
        let of = |seconds| bucket(Span::from_secs(seconds));
        assert_eq!((of(0), of(1), of(2), of(3), of(4), of(5), of(6)), (0, 0, 2, 3, 4, 4, 5));
        assert_eq!((of(600), of(3600)), (18, 23));
        assert_eq!(of(u64::MAX / 1_000_000), BUCKETS - 1);
    }

    #[test]
    fn what_has_lasted_long_is_judged_by_what_lasted_as_long() {
        let mut lengths = Lengths::default();
        for seconds in [60, 60, 60, 7200, 7200] {
            lengths.0[bucket(Span::from_secs(seconds))] += 1;
        }
        assert_eq!(lengths.from(Span::from_secs(1)), 5);
        assert_eq!(lengths.from(Span::from_secs(120)), 2);
        assert_eq!(lengths.from(Span::from_secs(10_000)), 0);
    }
}
