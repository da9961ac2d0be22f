//! Copies on their way between servers.

use std::collections::BTreeMap;

use gleaner_protocol::{ChunkId, Span, Time};
use gleaner_scheduling::Patience;

use super::servers::{Servers, micros};

/// A copy on its way.
#[derive(Debug)]
struct Transfer {
    chunk: ChunkId,
    to: usize,
    from: Vec<usize>,
    size_mb: f64,
    left_mb: f64,
    started: Time,
    patience: Option<Patience>,
    probed: bool,
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) chunk: ChunkId,
    pub(crate) to: usize,
    /// Whether the copy is there; it was given up otherwise.
    pub(crate) held: bool,
}

/// The transfers of now.
///
/// A receiver loads from all who have the chunk at once, each over a path of its own
/// bandwidth; a sender's bandwidth on each of its paths is divided by the number of transfers
/// that it serves. The receiver's side is not shared, since a server receives one copy at a time
/// under the published policy.
///
/// Source: H. Liu, M. Beck and J. Huang, "Dynamic Co-Scheduling of Distributed Computation and
/// Replication", 2006, Section III, item 4: `s / Σ b δ`.
#[derive(Debug, Default)]
pub(crate) struct Network {
    transfers: BTreeMap<u64, Transfer>,
    next: u64,
    /// Transfers that each server serves.
    serving: BTreeMap<usize, u32>,
    /// Up to when transfers have been carried forward.
    now: Time,
}

impl Network {
    /// Starts a transfer from all servers of `from`.
    pub(crate) fn start(
        &mut self,
        now: Time,
        servers: &Servers,
        chunk: ChunkId,
        (from, to): (Vec<usize>, usize),
        size_mb: f64,
        patience: Option<Patience>,
    ) {
        self.carry(now, servers);
        for server in &from {
            *self.serving.entry(*server).or_default() += 1;
        }
        let transfer = Transfer {
            chunk,
            to,
            from,
            size_mb,
            left_mb: size_mb,
            started: now,
            patience,
            probed: patience.is_none(),
        };
        self.transfers.insert(self.next, transfer);
        self.next += 1;
    }

    /// When a transfer ends or is looked at next, as things stand.
    pub(crate) fn next_event(&self, servers: &Servers) -> Option<Time> {
        let events = self.transfers.values().map(|transfer| {
            let done = self.now + micros(transfer.left_mb / self.rate_mb_s(transfer, servers));
            transfer.probe_at().map_or(done, |probe| probe.max(self.now).min(done))
        });
        events.min()
    }

    /// Carries transfers forward; the first that has ended by now, if one has.
    pub(crate) fn advance(&mut self, now: Time, servers: &Servers) -> Option<Arrived> {
        self.carry(now, servers);
        for transfer in self.transfers.values_mut() {
            if transfer.probe_at().is_some_and(|probe| probe <= now) && transfer.is_on_time() {
                transfer.probed = true;
            }
        }
        let (number, held) = self.transfers.iter().find_map(|(number, transfer)| {
            let is_late = transfer.probe_at().is_some_and(|probe| probe <= now);
            // A millionth of a MB is a byte.
            let is_there = transfer.left_mb < 1e-6;
            (is_there || is_late).then_some((*number, is_there))
        })?;
        let transfer = self.transfers.remove(&number).expect("it was found");
        for server in &transfer.from {
            *self.serving.get_mut(server).expect("it serves") -= 1;
        }
        Some(Arrived { chunk: transfer.chunk, to: transfer.to, held })
    }

    fn carry(&mut self, now: Time, servers: &Servers) {
        let passed_s = now.since(self.now).as_secs_f64();
        self.now = now;
        let rates: Vec<f64> =
            self.transfers.values().map(|transfer| self.rate_mb_s(transfer, servers)).collect();
        for (transfer, rate) in self.transfers.values_mut().zip(rates) {
            transfer.left_mb = (transfer.left_mb - rate * passed_s).max(0.0);
        }
    }

    fn rate_mb_s(&self, transfer: &Transfer, servers: &Servers) -> f64 {
        let shares = transfer.from.iter().map(|server| {
            let serving = self.serving.get(server).copied().unwrap_or(1).max(1);
            servers.path_mb_s(*server, transfer.to) / f64::from(serving)
        });
        shares.sum()
    }
}

impl Transfer {
    /// When the first part has to be there.
    fn probe_at(&self) -> Option<Time> {
        let Patience { within, first_permille } = self.patience.filter(|_| !self.probed)?;
        let part = within.as_micros() as f64 * f64::from(first_permille) / 1000.0;
        Some(self.started + Span::from_micros(part as u64))
    }

    fn is_on_time(&self) -> bool {
        let first = self.patience.map_or(0.0, |patience| f64::from(patience.first_permille));
        self.size_mb - self.left_mb >= self.size_mb * first / 1000.0 - 1e-9
    }
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::DatasetId;

    use super::*;
    use crate::replication::servers::Draw;

    fn servers() -> Servers {
        let draw = Draw {
            servers: 5,
            chunks: 5,
            copies: 1,
            speed: 1.0,
            speed_sigma: 0.0,
            overloaded: 0.0,
            overloaded_speed: 1.0,
            least_share: 1.0,
            server_mb_s: 0.5,
            server_sigma: 0.0,
            client_mb_s: 1.0,
            client_sigma: 0.0,
            trace: None,
        };
        Servers::draw(1, &draw)
    }

    fn chunk(index: u32) -> ChunkId {
        ChunkId { dataset: DatasetId::new(1), index }
    }

    /// Carries all transfers to their ends; when each ended, in seconds, and whether it is there.
    fn ends(network: &mut Network, servers: &Servers) -> Vec<(u32, f64, bool)> {
        let mut ends = Vec::new();
        while let Some(at) = network.next_event(servers) {
            if let Some(Arrived { chunk, held, .. }) = network.advance(at, servers) {
                let at_s = at.since(Time::ZERO).as_secs_f64();
                ends.push((chunk.index, libm::round(at_s * 1000.0) / 1000.0, held));
            }
        }
        ends
    }

    #[test]
    fn sources_add_up_and_share_what_they_send() {
        let (servers, mut network) = (servers(), Network::default());
        network.start(Time::ZERO, &servers, chunk(0), (vec![0, 1], 2), 8.0, None);
        assert_eq!(ends(&mut network, &servers), [(0, 8.0, true)], "two times half a MB/s");
        let mut network = Network::default();
        network.start(Time::ZERO, &servers, chunk(0), (vec![0, 1], 2), 8.0, None);
        network.start(Time::ZERO, &servers, chunk(1), (vec![0], 3), 2.0, None);
        // 0.25 + 0.5 MB/s and 0.25 MB/s, until the second is done after 8 s; then 1 MB/s.
        assert_eq!(ends(&mut network, &servers), [(1, 8.0, true), (0, 10.0, true)]);
    }

    #[test]
    fn what_is_too_slow_on_trial_is_given_up() {
        let within =
            |seconds| Some(Patience { within: Span::from_secs(seconds), first_permille: 100 });
        let (servers, mut network) = (servers(), Network::default());
        network.start(Time::ZERO, &servers, chunk(0), (vec![0], 2), 8.0, within(15));
        assert_eq!(ends(&mut network, &servers), [(0, 1.5, false)], "a tenth after a tenth");
        let mut network = Network::default();
        network.start(Time::ZERO, &servers, chunk(0), (vec![0], 2), 8.0, within(17));
        assert_eq!(ends(&mut network, &servers), [(0, 16.0, true)]);
    }
}
