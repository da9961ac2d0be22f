//! The tables *Available*, *Cache* and *Estimate* of the head node.
//!
//! Source: W.-H. Hsu, C.-F. Wang, K.-L. Ma, H. Yu and J. H. Chen, "A Job Scheduling Design for
//! Visualization Services using GPU Clusters", 2012, Section V.

use gleaner_protocol::{Span, Time};
use smallvec::{SmallVec, smallvec};

use super::TestRun;
use super::catalogue::{Catalogue, ChunkIx};
use super::recency::Recency;

/// What is predicted of nodes and chunks. Nodes are numbered as hosts are.
///
/// *Cache* is brought forward with every assignment, by the rule by which nodes drop chunks;
/// *Available* with every assignment, and corrected with every task that ends; *Estimate* with
/// every load that was measured.
///
/// # Invariants
/// - A node is among a chunk's holders where the chunk is among what the node keeps.
#[derive(Debug)]
pub(crate) struct Tables {
    run: TestRun,
    nodes: Vec<NodeRow>,
    chunks: Vec<ChunkRow>,
}

#[derive(Debug)]
struct NodeRow {
    /// `Available[R]`.
    available: Time,
    /// What is kept there once all that is assigned has run.
    kept: Recency<ChunkIx>,
}

#[derive(Debug, Clone)]
struct ChunkRow {
    /// `Cache[c]`: a bit for each node.
    holders: SmallVec<[u64; 2]>,
    /// How many bits those are.
    held: u32,
    bytes: u64,
    /// `Estimate[c]`: the time of a task that loads it.
    estimate: Span,
}

impl ChunkRow {
    fn set(&mut self, node: usize, held: bool) {
        let (word, bit) = (node / 64, 1 << (node % 64));
        if self.holders.len() <= word {
            self.holders.resize(word + 1, 0);
        }
        let was = self.holders[word] & bit != 0;
        if held && !was {
            self.holders[word] |= bit;
            self.held += 1;
        } else if !held && was {
            self.holders[word] &= !bit;
            self.held -= 1;
        }
    }

    fn is_held(&self, node: usize) -> bool {
        self.holders.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }
}

impl Tables {
    pub(crate) fn new(run: TestRun) -> Self {
        Self { run, nodes: Vec::new(), chunks: Vec::new() }
    }

    /// Enters the chunks of datasets that were named since.
    pub(crate) fn extend(&mut self, catalogue: &Catalogue, bytes: u64) {
        let estimate = self.run.render + self.run.load(bytes);
        let row = ChunkRow { holders: smallvec![], held: 0, bytes, estimate };
        self.chunks.resize(catalogue.chunk_count(), row);
    }

    /// Makes room for a node, whose quota is this from now on; it keeps nothing.
    pub(crate) fn reset_node(&mut self, now: Time, node: usize, quota_bytes: u64) {
        while self.nodes.len() <= node {
            self.nodes.push(NodeRow { available: now, kept: Recency::new(0) });
        }
        let kept = std::mem::replace(&mut self.nodes[node].kept, Recency::new(quota_bytes));
        kept.items().for_each(|chunk| self.chunks[chunk.get()].set(node, false));
        self.nodes[node].available = now;
    }

    /// α.
    pub(crate) fn render(&self) -> Span {
        self.run.render
    }

    /// `Available[R]`.
    pub(crate) fn available(&self, node: usize) -> Time {
        self.nodes[node].available
    }

    /// `Estimate[c]`.
    pub(crate) fn estimate(&self, chunk: ChunkIx) -> Span {
        self.chunks[chunk.get()].estimate
    }

    /// How many nodes are in `Cache[c]`.
    pub(crate) fn holder_count(&self, chunk: ChunkIx) -> u32 {
        self.chunks[chunk.get()].held
    }

    /// Whether the node is in `Cache[c]`.
    pub(crate) fn is_held(&self, chunk: ChunkIx, node: usize) -> bool {
        self.chunks[chunk.get()].is_held(node)
    }

    /// The chunks whose `Cache[c]` has the node, in no order that means anything.
    pub(crate) fn kept(&self, node: usize) -> impl Iterator<Item = ChunkIx> + '_ {
        self.nodes[node].kept.items()
    }

    /// What a task on this chunk takes on this node: *t_io* + α, where the first is left out if
    /// the node has the chunk.
    pub(crate) fn predicted(&self, chunk: Option<ChunkIx>, node: usize) -> Span {
        match chunk {
            Some(chunk) if !self.is_held(chunk, node) => self.estimate(chunk),
            _ => self.run.render,
        }
    }

    /// Assigns a task: brings *Available* and *Cache* forward. Returns what it is expected to
    /// take.
    pub(crate) fn assign(&mut self, now: Time, chunk: Option<ChunkIx>, node: usize) -> Span {
        let cost = self.predicted(chunk, node);
        let row = &mut self.nodes[node];
        row.available = row.available.max(now) + cost;
        if let Some(chunk) = chunk {
            let bytes = self.chunks[chunk.get()].bytes;
            let chunks = &mut self.chunks;
            let was_there = row.kept.touch(chunk, bytes, |gone: ChunkIx| {
                chunks[gone.get()].set(node, false);
            });
            if !was_there {
                chunks[chunk.get()].set(node, true);
            }
        }
        cost
    }

    /// Corrects *Available*: the node is done with a task, and has this much left.
    pub(crate) fn correct(&mut self, now: Time, node: usize, left: Span) {
        self.nodes[node].available = now + left;
    }

    /// Notes a measured time of a task that loaded its chunk.
    pub(crate) fn measured(&mut self, chunk: ChunkIx, took: Span) {
        self.chunks[chunk.get()].estimate = took;
    }

    /// Corrects *Cache* by what a node says.
    pub(crate) fn set_held(&mut self, node: usize, chunk: ChunkIx, held: bool) {
        let bytes = self.chunks[chunk.get()].bytes;
        let (chunks, row) = (&mut self.chunks, &mut self.nodes[node]);
        if !held {
            row.kept.remove(chunk);
        } else if !row.kept.contains(chunk) {
            row.kept.touch(chunk, bytes, |gone: ChunkIx| chunks[gone.get()].set(node, false));
        }
        chunks[chunk.get()].set(node, held);
    }

    /// Whether the two sides of *Cache* agree.
    pub(crate) fn is_consistent(&self) -> bool {
        let listed: usize = self.nodes.iter().map(|row| row.kept.len()).sum();
        let counted: usize = self.chunks.iter().map(|row| row.held as usize).sum();
        let agree = |(node, row): (usize, &NodeRow)| {
            row.kept.items().all(|chunk| self.chunks[chunk.get()].is_held(node))
        };
        listed == counted && self.nodes.iter().enumerate().all(agree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_brings_the_tables_forward_and_an_end_corrects_them() {
        let second = Span::from_secs(1);
        let run = TestRun { render: second, load_per_mib: second };
        let mut tables = Tables::new(run);
        let (a, b) = (ChunkIx::from_index(0), ChunkIx::from_index(1));
        let row = ChunkRow {
            holders: smallvec![],
            held: 0,
            bytes: 2 << 20,
            estimate: second + run.load(2 << 20),
        };
        tables.chunks = vec![row; 2];
        tables.reset_node(Time::ZERO, 70, 3 << 20);

        assert_eq!(tables.assign(Time::ZERO, Some(a), 70), Span::from_secs(3));
        assert!(tables.is_held(a, 70) && !tables.is_held(a, 6));
        assert_eq!(tables.assign(Time::ZERO, Some(a), 70), second, "it is there by then");
        assert_eq!(tables.assign(Time::ZERO, Some(b), 70), Span::from_secs(3));
        assert!(!tables.is_held(a, 70), "there is room for one of them");
        assert_eq!(tables.available(70), Time::ZERO + Span::from_secs(7));

        tables.correct(Time::ZERO + second, 70, Span::from_secs(4));
        assert_eq!(tables.available(70), Time::ZERO + Span::from_secs(5));
        tables.measured(a, Span::from_secs(9));
        assert_eq!(tables.predicted(Some(a), 70), Span::from_secs(9));
        tables.set_held(70, b, false);
        assert_eq!((tables.holder_count(b), tables.is_consistent()), (0, true));
    }
}
