//! Which hosts have a copy of which chunk.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_protocol::{ChunkId, DatasetId};

use super::HostIx;

/// Chunk copies, and those on their way.
///
/// # Invariants
/// - No chunk is on its way to a host that has it.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    held: BTreeMap<ChunkId, BTreeSet<HostIx>>,
    moving: BTreeSet<(HostIx, ChunkId)>,
}

impl Copies {
    pub(crate) fn holders(&self, chunk: ChunkId) -> impl Iterator<Item = HostIx> {
        self.held.get(&chunk).into_iter().flatten().copied()
    }

    pub(crate) fn is_held(&self, chunk: ChunkId, host: HostIx) -> bool {
        self.held.get(&chunk).is_some_and(|hosts| hosts.contains(&host))
    }

    /// Chunks of a dataset by the hosts that have them.
    pub(crate) fn of_dataset(&self, dataset: DatasetId) -> BTreeMap<HostIx, Vec<ChunkId>> {
        let of_dataset = self.held.range(ChunkId { dataset, index: 0 }..);
        let mut by_host: BTreeMap<HostIx, Vec<ChunkId>> = BTreeMap::new();
        for (chunk, hosts) in of_dataset.take_while(|(of, _)| of.dataset == dataset) {
            hosts.iter().for_each(|host| by_host.entry(*host).or_default().push(*chunk));
        }
        by_host
    }

    pub(crate) fn is_moving(&self, chunk: ChunkId, to: HostIx) -> bool {
        self.moving.contains(&(to, chunk))
    }

    /// Chunks on their way to a host.
    pub(crate) fn moving_to(&self, host: HostIx) -> impl Iterator<Item = ChunkId> {
        let all = ChunkId { dataset: DatasetId::new(0), index: 0 };
        let from = self.moving.range((host, all)..);
        from.take_while(move |(to, _)| *to == host).map(|(_, chunk)| *chunk)
    }

    /// The host of each copy.
    pub(crate) fn all_holders(&self) -> impl Iterator<Item = HostIx> {
        self.held.values().flatten().copied()
    }

    /// Nothing is on its way to a host any more.
    pub(crate) fn end_moves(&mut self, to: HostIx) {
        let chunks: Vec<_> = self.moving_to(to).collect();
        for chunk in chunks {
            self.moving.remove(&(to, chunk));
        }
    }

    /// Notes a copy on its way; `false` where there is nothing to move.
    pub(crate) fn begin_move(&mut self, chunk: ChunkId, from: HostIx, to: HostIx) -> bool {
        let may = self.is_held(chunk, from) && !self.is_held(chunk, to);
        may && self.moving.insert((to, chunk))
    }

    /// Notes that a host has a copy or has none; whether that is news.
    pub(crate) fn set(&mut self, host: HostIx, chunk: ChunkId, held: bool) -> bool {
        let was_moving = self.moving.remove(&(host, chunk));
        let changed = if held {
            self.held.entry(chunk).or_default().insert(host)
        } else if let Some(hosts) = self.held.get_mut(&chunk) {
            let removed = hosts.remove(&host);
            if hosts.is_empty() {
                self.held.remove(&chunk);
            }
            removed
        } else {
            false
        };
        changed || was_moving
    }
}
