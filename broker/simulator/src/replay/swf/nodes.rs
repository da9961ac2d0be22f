//! On which nodes jobs run, where their log does not say.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use gleaner_protocol::Time;

/// The nodes of a machine.
///
/// A job gets the node that its processors fill best; one larger than a node gets the emptiest
/// nodes and the rest likewise. So jobs share few nodes, as schedulers of such machines have it.
///
/// # Invariants
/// - `by_free` holds every node with its free cores.
#[derive(Debug)]
pub(super) struct Nodes {
    free: Vec<u32>,
    by_free: BTreeSet<(u32, u32)>,
    ends: BinaryHeap<Reverse<(Time, u32, u32)>>,
    placed: Vec<(u32, u32)>,
}

impl Nodes {
    pub(super) fn new(sizes: &[u32]) -> Self {
        let by_free = (0..).zip(sizes).map(|(node, free)| (*free, node)).collect();
        Self { free: sizes.to_vec(), by_free, ends: BinaryHeap::new(), placed: Vec::new() }
    }

    /// Places a job, after those that end by its beginning have left: nodes with the cores that
    /// it has there. Together they may be fewer than it wants, where the log has more jobs at
    /// once than the machine has room for.
    pub(super) fn place(&mut self, from: Time, until: Time, processors: u32) -> &[(u32, u32)] {
        while let Some(&Reverse((end, node, cores))) = self.ends.peek()
            && end <= from
        {
            self.ends.pop();
            self.change(node, |free| free + cores);
        }
        self.placed.clear();
        let mut missing = processors;
        while missing > 0 {
            let best = self.by_free.range((missing, 0)..).next();
            let Some(&(free, node)) = best.or_else(|| self.by_free.last()) else { break };
            let cores = free.min(missing);
            if cores == 0 {
                break;
            }
            self.change(node, |free| free - cores);
            self.ends.push(Reverse((until, node, cores)));
            self.placed.push((node, cores));
            missing -= cores;
        }
        &self.placed
    }

    fn change(&mut self, node: u32, change: impl Fn(u32) -> u32) {
        let free = &mut self.free[node as usize];
        self.by_free.remove(&(*free, node));
        *free = change(*free);
        self.by_free.insert((*free, node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::Span;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn jobs_fill_nodes_before_they_open_others() {
        let mut nodes = Nodes::new(&[4, 4, 4]);
        assert_eq!(nodes.place(at(0), at(10), 3), [(0, 3)]);
        assert_eq!(nodes.place(at(0), at(20), 1), [(0, 1)]);
        assert_eq!(nodes.place(at(1), at(20), 6), [(2, 4), (1, 2)]);
        assert_eq!(nodes.place(at(2), at(9), 4), [(1, 2)], "two have no room");
        assert_eq!(nodes.place(at(10), at(11), 4), [(0, 3), (1, 1)].map(|(n, c)| (n, c)));
    }
}
