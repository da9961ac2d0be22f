//! How many vertices and triangles there are, and where those of each block begin.

/// What a device has counted in a block: vertices, those of them that were made with the slab before,
/// triangles, and nothing.
pub(super) type Counted = [u32; 4];

/// What is to be made of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) block: usize,
    pub(super) vertices: usize,
    pub(super) triangles: usize,
}

/// What a slab has of a mesh, block by block.
#[derive(Debug, Default)]
pub(super) struct Tally {
    counted: Vec<Counted>,
    /// Of the blocks in which anything is to be made.
    shares: Vec<Share>,
    /// Vertices and triangles before each of these.
    before: Vec<u64>,
    all: u64,
    /// How many of the shares were handed out.
    given: usize,
}

impl Tally {
    /// Adds what was counted in the next blocks.
    pub(super) fn add(&mut self, counted: &[Counted]) {
        for [vertices, shared, triangles, _] in counted {
            let block = self.counted.len();
            let (vertices, triangles) = (vertices - shared, *triangles);
            if vertices + triangles > 0 {
                let [vertices, triangles] = [vertices, triangles].map(|count| count as usize);
                self.before.push(self.all);
                self.all += (vertices + triangles) as u64;
                self.shares.push(Share { block, vertices, triangles });
            }
            self.counted.push([vertices + shared, *shared, triangles, 0]);
        }
    }

    /// Vertices that are to be made.
    pub(super) fn vertices(&self) -> u64 {
        self.shares.iter().map(|share| share.vertices as u64).sum()
    }

    /// The number of each block's first vertex, where `first` is that of the first one that is to be
    /// made: those that were made with the slab before are right before it.
    pub(super) fn numbers(&self, first: u32) -> Vec<u32> {
        let shared: u32 = self.counted.iter().map(|[_, shared, ..]| shared).sum();
        let mut next = first - shared;
        let number = |[vertices, ..]: &Counted| {
            let number = next;
            next += vertices;
            number
        };
        self.counted.iter().map(number).collect()
    }

    /// The shares that have their turn by the end of the first `part` of `parts` equal parts of all
    /// vertices and triangles, but for those that had it before.
    pub(super) fn due(&mut self, part: usize, parts: usize) -> Vec<Share> {
        let until = u128::from(self.all) * part as u128 / parts.max(1) as u128;
        let end = self.before.partition_point(|before| u128::from(*before) < until);
        let due = self.shares[self.given.min(end)..end].to_vec();
        self.given = self.given.max(end);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        let mut tally = Tally::default();
        tally.add(&[[5, 5, 0, 0], [7, 2, 4, 0], [0, 0, 0, 0]]);
        tally.add(&[[0, 0, 3, 0], [6, 0, 12, 0]]);
        tally
    }

    #[test]
    fn vertices_are_numbered_on_from_those_of_the_slab_before() {
        assert_eq!(tally().vertices(), 11);
        assert_eq!(tally().numbers(20), [13, 18, 25, 25, 25]);
        assert_eq!(Tally::default().numbers(0), [0_u32; 0]);
    }

    #[test]
    fn each_share_has_its_turn_once_in_parts_that_are_alike() {
        let blocks = |shares: Vec<Share>| -> Vec<usize> {
            shares.into_iter().map(|share| share.block).collect()
        };
        let mut whole = tally();
        assert_eq!(blocks(whole.due(1, 1)), [1, 3, 4]);
        assert!(whole.due(1, 1).is_empty());
        // They begin at 0, 9 and 12 of 30.
        let mut parts = tally();
        let due: Vec<_> = (1..=5).map(|part| blocks(parts.due(part, 5))).collect();
        assert_eq!(due, [vec![1], vec![3], vec![4], vec![], vec![]]);
        assert!(Tally::default().due(3, 3).is_empty());
    }
}
