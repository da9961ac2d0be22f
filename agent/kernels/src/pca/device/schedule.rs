//! What is done for components on a device, in order.

use std::ops::Range;

use super::layout::Layout;
use crate::limits::DEVICE_PRODUCT_TILE;
use crate::plan::{Slice, Stretch, phases};

/// One thing that is done, in units of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Runs of rows are added up.
    Average,
    /// Runs of rows are centred.
    Centre,
    /// Lines of a slab are sent.
    Send { slab: usize },
    /// Tiles are multiplied: for the first numbers that are summed up, then for the next.
    Multiply(Group),
    /// Tiles come back.
    Fetch(Group),
    /// Eigenvectors are found.
    Solve,
    /// Eigenvectors of a strip are sent.
    Weigh { strip: usize },
    /// Runs of the longer side are multiplied with eigenvectors on the processor.
    Project,
}

/// Tiles whose sums are on the device at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) slab: usize,
    /// The strip of eigenvectors that the slab is multiplied with; none: it is with itself.
    pub(super) strip: Option<usize>,
    /// The first of the tiles.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Whether there are no sums of slabs before this one.
    pub(super) begins: bool,
}

impl Work {
    /// Units of one kind take about as long as each other. How many tiles a device multiplies in
    /// the time of one is up to it; so those of groups of less than half as many are another kind.
    const fn kind(self) -> usize {
        match self {
            Self::Average => 0,
            Self::Centre => 1,
            Self::Send { .. } => 2,
            Self::Fetch(_) => 3,
            Self::Solve => 4,
            Self::Weigh { .. } => 5,
            Self::Project => 6,
            Self::Multiply(group) => 7 + group.count.ilog2() as usize,
        }
    }
}

/// All that is done.
#[derive(Debug)]
pub(super) struct Schedule {
    works: Vec<Work>,
    /// Units of each.
    lengths: Vec<usize>,
}

impl Schedule {
    /// For components of a matrix whose rows come in `runs`, and whose longer side is multiplied
    /// with eigenvectors in `projections` where the processor does that.
    pub(super) fn new(layout: &Layout, runs: usize, components: usize, projections: usize) -> Self {
        let mut all = Self { works: Vec::new(), lengths: Vec::new() };
        all.add(Work::Average, runs);
        all.add(Work::Centre, runs);
        all.sum_up(layout);
        all.add(Work::Solve, 1);
        if layout.is_upright {
            all.weigh(layout, components);
        } else {
            all.add(Work::Project, projections);
        }
        all
    }

    /// Slabs are multiplied with themselves, and sums come back once for as many as can be.
    fn sum_up(&mut self, layout: &Layout) {
        let tiles = layout.gram_tiles().len();
        for from in (0..layout.slabs()).step_by(layout.slabs_summed()) {
            let slabs = from..(from + layout.slabs_summed()).min(layout.slabs());
            for first in (0..tiles).step_by(layout.tiles) {
                let count = layout.tiles.min(tiles - first);
                let group =
                    |slab| Group { slab, strip: None, first, count, begins: slab == slabs.start };
                for slab in slabs.clone() {
                    if first == 0 {
                        self.add(Work::Send { slab }, layout.lines(slab).0);
                    }
                    self.add(Work::Multiply(group(slab)), count * layout.depths_of_layer(slab));
                }
                self.add(Work::Fetch(group(slabs.start)), count);
            }
        }
    }

    /// Slabs are multiplied with eigenvectors, strip by strip.
    fn weigh(&mut self, layout: &Layout, components: usize) {
        let strips = components.div_ceil(DEVICE_PRODUCT_TILE);
        for slab in 0..layout.slabs() {
            if layout.held < layout.slabs() {
                self.add(Work::Send { slab }, layout.lines(slab).0);
            }
            let tiles = layout.weighed_tiles(slab).len();
            for strip in 0..strips {
                if slab == 0 || strips > 1 {
                    let vectors = components - strip * DEVICE_PRODUCT_TILE;
                    self.add(Work::Weigh { strip }, vectors.min(DEVICE_PRODUCT_TILE));
                }
                for first in (0..tiles).step_by(layout.tiles) {
                    let count = layout.tiles.min(tiles - first);
                    let group = Group { slab, strip: Some(strip), first, count, begins: true };
                    self.add(Work::Multiply(group), count * layout.depths_weighed());
                    self.add(Work::Fetch(group), count);
                }
            }
        }
    }

    fn add(&mut self, work: Work, units: usize) {
        self.works.push(work);
        self.lengths.push(units);
    }

    pub(super) fn units(&self) -> u64 {
        self.lengths.iter().sum::<usize>() as u64
    }

    pub(super) fn stretch(&self, unit: u64) -> Stretch {
        let Stretch { kind: at, end } = Stretch::of(unit, &self.lengths);
        Stretch { kind: self.works.get(at).map_or(0, |work| work.kind()), end }
    }

    /// What there is to do in a slice, with the units of each counted from its beginning.
    pub(super) fn parts(&self, slice: &Slice) -> Vec<(Work, Range<usize>)> {
        let parts = phases(slice, &self.lengths).into_iter();
        parts.map(|(at, units)| (self.works[at], units)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Budget;
    use super::*;

    fn layout(short: usize, long: usize, is_upright: bool, matrix_bytes: usize) -> Layout {
        let budget = Budget { slab_bytes: 1 << 20, matrix_bytes, tiles: 2 };
        Layout::new(short, long, is_upright, &budget)
    }

    /// How often slabs are sent, and how many tiles of their sums with themselves come back.
    fn sent_and_fetched(layout: &Layout) -> (usize, usize) {
        let schedule = Schedule::new(layout, 5, 3, 9);
        let sends = schedule.works.iter().filter(|work| matches!(work, Work::Send { .. })).count();
        let fetched = schedule.works.iter().map(|work| match work {
            Work::Fetch(Group { strip: None, count, .. }) => *count,
            _ => 0,
        });
        (sends, fetched.sum())
    }

    #[test]
    fn what_fits_is_sent_once_and_its_sums_come_back_once() {
        // Three slabs, and three tiles in two groups.
        assert_eq!(sent_and_fetched(&layout(100, 3000, true, 3 << 20)), (3, 3));
        assert_eq!(sent_and_fetched(&layout(100, 3000, true, 1 << 20)), (6, 9));
        assert_eq!(sent_and_fetched(&layout(100, 3000, false, 3 << 20)), (3, 3));
        assert_eq!(sent_and_fetched(&layout(100, 3000, false, 1 << 20)), (3, 9));
        // One group, in two layers: the device holds its sums while slabs come and go.
        assert_eq!(sent_and_fetched(&layout(60, 6000, false, 0)), (3, 2));
        assert_eq!(sent_and_fetched(&layout(60, 6000, true, 0)), (6, 2));
    }

    #[test]
    fn a_slice_has_each_unit_once() {
        // Two slabs of 1280, three tiles in two groups, and two strips.
        let schedule = Schedule::new(&layout(100, 2000, true, 2 << 20), 4, 70, 0);
        let units = schedule.units();
        let all = schedule.parts(&Slice::new(0..units));
        let mut one_by_one: Vec<(Work, Range<usize>)> = Vec::new();
        for unit in 0..units {
            let parts = schedule.parts(&Slice::new(unit..unit + 1));
            let [(work, part)] = &parts[..] else { panic!("one unit: {parts:?}") };
            assert_eq!(part.len(), 1);
            assert_eq!(schedule.stretch(unit).kind, work.kind());
            match one_by_one.last_mut() {
                Some((last, range)) if last == work => *range = range.start..part.end,
                _ => one_by_one.push((*work, part.clone())),
            }
        }
        assert_eq!(one_by_one, all);
        let multiplied = |strip| {
            let of = |work: &Work| match work {
                Work::Multiply(group) if group.strip == strip => group.count,
                _ => 0,
            };
            all.iter().map(|(work, _)| of(work)).sum::<usize>()
        };
        assert_eq!(multiplied(None), 2 * 3);
        assert_eq!(multiplied(Some(1)), 2000_usize.div_ceil(DEVICE_PRODUCT_TILE));
        assert!(schedule.parts(&Slice::new(units..units)).is_empty());
    }

    #[test]
    fn groups_that_fill_a_device_by_other_shares_are_of_other_kinds() {
        let kind = |count| {
            let group = Group { slab: 0, strip: None, first: 0, count, begins: true };
            Work::Multiply(group).kind()
        };
        assert_eq!(kind(300), kind(512 - 1));
        assert!(kind(3) < kind(100) && kind(100) < kind(300));
        let others = [Work::Average, Work::Centre, Work::Solve, Work::Project];
        assert!(others.iter().all(|work| work.kind() < kind(1)));
    }
}
