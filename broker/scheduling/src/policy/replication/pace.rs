//! How fast hosts are, as far as it was measured.

use gleaner_protocol::Span;

use crate::farm::HostIx;

/// Measured rates of the hosts at one job, in workunits per second.
///
/// The published rank is the time for a unit task, `f(u)/c + g(u)/b`, with a moving average over
/// the computing rate c and another over the output's transfer rate b. The core learns of one
/// time per replica, from its lease to its report, and chunks are of one size: the average is
/// over the rate of the whole.
///
/// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation and
/// Replication", 2006, Section IV B.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    rates: Vec<Option<f64>>,
    measured: u32,
    /// The sum of the rates that were measured.
    sum: f64,
}

/// A replica takes no less than this, so that no rate is infinite.
const SHORTEST_S: f64 = 1e-6;

impl Pace {
    /// Takes in one more measurement: `new = old + ρ × (measured − old)`.
    pub(crate) fn measure(&mut self, host: HostIx, took: Span, rho: f64) {
        if self.rates.len() <= host.get() {
            self.rates.resize(host.get() + 1, None);
        }
        let rate = 1.0 / took.as_secs_f64().max(SHORTEST_S);
        let entry = &mut self.rates[host.get()];
        let (before, now) = match *entry {
            Some(before) => (before, before + rho * (rate - before)),
            None => (0.0, rate),
        };
        self.measured += u32::from(entry.is_none());
        self.sum += now - before;
        *entry = Some(now);
    }

    /// The rate of a host; of one that was not measured yet the mean of the others, and one
    /// workunit per second while there is none.
    pub(crate) fn rate(&self, host: HostIx) -> f64 {
        self.measured(host).unwrap_or_else(|| self.mean())
    }

    /// The time of one workunit on a host, in seconds.
    pub(crate) fn unit_s(&self, host: HostIx) -> f64 {
        1.0 / self.rate(host)
    }

    /// The rate of a host where it was measured.
    pub(crate) fn measured(&self, host: HostIx) -> Option<f64> {
        self.rates.get(host.get()).copied().flatten()
    }

    /// The mean of the measured rates.
    pub(crate) fn mean(&self) -> f64 {
        if self.measured == 0 { 1.0 } else { self.sum / f64::from(self.measured) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_measurements_outweigh_old_ones_by_rho_and_unknown_hosts_are_average() {
        let (a, b) = (HostIx::from_index(0), HostIx::from_index(1));
        let mut pace = Pace::default();
        assert_eq!(pace.unit_s(a), 1.0);
        pace.measure(a, Span::from_secs(10), 0.5);
        assert_eq!(pace.unit_s(a), 10.0);
        assert_eq!(pace.unit_s(b), 10.0);
        pace.measure(a, Span::from_secs(5), 0.5);
        assert!((pace.rate(a) - 0.15).abs() < 1e-12, "halfway from 0.1 to 0.2");
        pace.measure(b, Span::from_secs(20), 0.5);
        assert!((pace.mean() - 0.1).abs() < 1e-12);
        assert_eq!(pace.measured(HostIx::from_index(2)), None);
    }
}
