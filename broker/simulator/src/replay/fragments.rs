//! How long idle cores stay idle.

use gleaner_protocol::{Span, Time};

use super::trace::Trace;

/// The lengths of all fragments: times in which one core was idle without a break.
///
/// The cores of a host are alike: what became idle last becomes busy first.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    lengths: Vec<Span>,
}

impl Fragments {
    /// The fragments of a trace, before any quiet period. One at its end is as long as it was
    /// seen.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut since: Vec<Vec<Time>> = vec![Vec::new(); trace.hosts.len()];
        let mut lengths = Vec::new();
        let mut note = |from: Time, until: Time| {
            if from < until {
                lengths.push(until.since(from));
            }
        };
        for change in &trace.changes {
            let idle = &mut since[change.host as usize];
            let cores = change.idle() as usize;
            while idle.len() > cores {
                let from = idle.pop().expect("there are more than that");
                note(from, change.at);
            }
            idle.resize(cores, change.at);
        }
        since.into_iter().flatten().for_each(|from| note(from, trace.end));
        lengths.sort_unstable();
        Self { lengths }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lengths.len()
    }

    /// The length that this share of the fragments does not exceed; zero where there are none.
    pub(crate) fn percentile(&self, percent: usize) -> Span {
        let rank = (self.lengths.len() * percent).div_ceil(100).saturating_sub(1);
        self.lengths.get(rank).copied().unwrap_or_default()
    }

    /// Idle core-time, in core-microseconds.
    pub(crate) fn core_us(&self) -> u128 {
        sum(&self.lengths)
    }

    /// Idle core-time in fragments longer than `least`.
    pub(crate) fn core_us_longer_than(&self, least: Span) -> u128 {
        sum(&self.lengths[self.lengths.partition_point(|length| *length <= least)..])
    }
}

fn sum(lengths: &[Span]) -> u128 {
    lengths.iter().map(|length| u128::from(length.as_micros())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::bookings::{Booking, lay_out};
    use crate::replay::trace::TraceHost;

    #[test]
    fn what_became_idle_last_becomes_busy_first() {
        let at = |minutes: u64| Time::ZERO + Span::from_secs(60 * minutes);
        let booking =
            |cores, from, until| Booking { host: 0, cores, from: at(from), until: at(until) };
        let hosts = vec![TraceHost { name: "a".into(), cores: 3 }];
        // At minute 30 one render follows another without a gap.
        let bookings = [booking(2, 5, 30), booking(1, 30, 40), booking(3, 50, 55)];
        let trace = lay_out("log", hosts, &bookings, at(0), at(60)).expect("a trace");
        let fragments = Fragments::of(&trace);
        let minutes: Vec<_> = fragments.lengths.iter().map(|s| s.as_secs_f64() / 60.0).collect();
        assert_eq!(minutes, [5.0, 5.0, 5.0, 5.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(fragments.core_us(), trace.core_time().known - trace.core_time().busy);
        assert_eq!(fragments.percentile(50), Span::from_secs(300));
        assert_eq!(fragments.percentile(90), Span::from_secs(3000));
        assert_eq!(fragments.core_us_longer_than(Span::from_secs(600)), 70 * 60_000_000);
        assert_eq!(Fragments::default().percentile(50), Span::ZERO);
    }
}
