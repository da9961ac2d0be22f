//! What is done on a device, in order.

use std::ops::Range;

use super::layout::Layout;
use crate::limits::DEVICE_PRODUCT_TILE;
use crate::plan::{Slice, Stretch, phases};

/// One thing that is done, in units of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Lines of a slab are sent.
    Send { slab: usize },
    /// Eigenvectors of a strip are sent.
    Weigh { strip: usize },
    /// Tiles are multiplied: for the first numbers that are summed up, then for the next.
    Multiply(Group),
    /// Tiles come back.
    Fetch(Group),
}

/// Tiles whose sums are on the device at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) slab: usize,
    /// The first of the tiles.
    pub(super) first: usize,
    pub(super) count: usize,
    /// Whether there are no sums of slabs before this one.
    pub(super) begins: bool,
}

impl Group {
    /// Its tiles among all.
    pub(super) const fn tiles(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

impl Work {
    /// Units of one kind take about as long as each other. How many tiles a device multiplies in
    /// the time of one is up to it; so those of groups of less than half as many are another kind.
    const fn kind(self) -> usize {
        match self {
            Self::Send { .. } => 0,
            Self::Weigh { .. } => 1,
            Self::Fetch(_) => 2,
            Self::Multiply(group) => 3 + group.count.ilog2() as usize,
        }
    }
}

/// All that is done of one kind of products.
#[derive(Debug)]
pub(super) struct Schedule {
    works: Vec<Work>,
    /// Units of each.
    lengths: Vec<usize>,
}

impl Schedule {
    const fn new() -> Self {
        Self { works: Vec::new(), lengths: Vec::new() }
    }

    /// Slabs are multiplied with themselves, and sums come back once for as many as can be.
    pub(super) fn of_sums(layout: &Layout) -> Self {
        let mut all = Self::new();
        let tiles = layout.gram_tiles().len();
        for from in (0..layout.slabs()).step_by(layout.slabs_summed()) {
            let slabs = from..(from + layout.slabs_summed()).min(layout.slabs());
            for first in (0..tiles).step_by(layout.tiles) {
                let count = layout.tiles.min(tiles - first);
                let group = |slab| Group { slab, first, count, begins: slab == slabs.start };
                for slab in slabs.clone() {
                    if first == 0 {
                        all.add(Work::Send { slab }, layout.lines(slab).0);
                    }
                    all.add(Work::Multiply(group(slab)), count * layout.depths_of_layer(slab));
                }
                all.add(Work::Fetch(group(slabs.start)), count);
            }
        }
        all
    }

    /// Slabs, which are there if all can be, are multiplied with eigenvectors, strip by strip.
    pub(super) fn of_scores(layout: &Layout, components: usize) -> Self {
        let mut all = Self::new();
        let strips = components.div_ceil(DEVICE_PRODUCT_TILE);
        for slab in 0..layout.slabs() {
            if layout.held < layout.slabs() {
                all.add(Work::Send { slab }, layout.lines(slab).0);
            }
            let tiles = layout.weighed_tiles(slab).len();
            for strip in 0..strips {
                if slab == 0 || strips > 1 {
                    let vectors = components - strip * DEVICE_PRODUCT_TILE;
                    all.add(Work::Weigh { strip }, vectors.min(DEVICE_PRODUCT_TILE));
                }
                for first in (0..tiles).step_by(layout.tiles) {
                    let count = layout.tiles.min(tiles - first);
                    let group = Group { slab, first, count, begins: true };
                    all.add(Work::Multiply(group), count * layout.depths_weighed());
                    all.add(Work::Fetch(group), count);
                }
            }
        }
        all
    }

    fn add(&mut self, work: Work, units: usize) {
        self.works.push(work);
        self.lengths.push(units);
    }

    pub(super) fn units(&self) -> usize {
        self.lengths.iter().sum()
    }

    pub(super) fn stretch(&self, unit: u64) -> Stretch {
        let Stretch { kind: at, end } = Stretch::of(unit, &self.lengths);
        Stretch { kind: self.works.get(at).map_or(0, |work| work.kind()), end }
    }

    /// What some units are, with those of each counted from its beginning.
    pub(super) fn parts(&self, units: Range<usize>) -> Vec<(Work, Range<usize>)> {
        let slice = Slice::new(units.start as u64..units.end as u64);
        let parts = phases(&slice, &self.lengths).into_iter();
        parts.map(|(at, units)| (self.works[at], units)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Budget;
    use super::*;

    fn layout(short: usize, long: usize, is_upright: bool, matrix_bytes: usize) -> Layout {
        let budget = Budget {
            slab_bytes: 1 << 20,
            matrix_bytes,
            tiles: 2,
            solved_side: 0,
            solved_products: 0,
        };
        Layout::new(short, long, is_upright, &budget)
    }

    /// How often slabs are sent, and how many tiles of their sums with themselves come back.
    fn sent_and_fetched(layout: &Layout) -> (usize, usize) {
        let sums = Schedule::of_sums(layout);
        let scores = layout.is_upright.then(|| Schedule::of_scores(layout, 3));
        let sends = |schedule: &Schedule| {
            schedule.works.iter().filter(|work| matches!(work, Work::Send { .. })).count()
        };
        let fetched = sums.works.iter().map(|work| match work {
            Work::Fetch(Group { count, .. }) => *count,
            _ => 0,
        });
        (sends(&sums) + scores.as_ref().map_or(0, sends), fetched.sum())
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
    fn each_unit_comes_once_and_all_tiles_are_multiplied() {
        // Two slabs of 1280, three tiles in two groups, and two strips.
        let layout = layout(100, 2000, true, 2 << 20);
        let strip = 2000_usize.div_ceil(DEVICE_PRODUCT_TILE);
        for (schedule, tiles) in
            [(Schedule::of_sums(&layout), 2 * 3), (Schedule::of_scores(&layout, 70), 2 * strip)]
        {
            let units = schedule.units();
            let all = schedule.parts(0..units);
            let mut one_by_one: Vec<(Work, Range<usize>)> = Vec::new();
            for unit in 0..units {
                let parts = schedule.parts(unit..unit + 1);
                let [(work, part)] = &parts[..] else { panic!("one unit: {parts:?}") };
                assert_eq!(part.len(), 1);
                assert_eq!(schedule.stretch(unit as u64).kind, work.kind());
                match one_by_one.last_mut() {
                    Some((last, range)) if last == work && range.end == part.start => {
                        range.end = part.end;
                    }
                    _ => one_by_one.push((*work, part.clone())),
                }
            }
            assert_eq!(one_by_one, all);
            let multiplied = all.iter().map(|(work, _)| match work {
                Work::Multiply(group) => group.count,
                _ => 0,
            });
            assert_eq!(multiplied.sum::<usize>(), tiles);
            assert!(schedule.parts(units..units).is_empty());
        }
    }

    #[test]
    fn groups_that_fill_a_device_by_other_shares_are_of_other_kinds() {
        let group = |count| Group { slab: 0, first: 0, count, begins: true };
        let kind = |count| Work::Multiply(group(count)).kind();
        assert_eq!(kind(300), kind(512 - 1));
        assert!(kind(3) < kind(100) && kind(100) < kind(300));
        let others = [Work::Send { slab: 0 }, Work::Weigh { strip: 0 }, Work::Fetch(group(1))];
        assert!(others.iter().all(|work| work.kind() < kind(1)));
    }
}
