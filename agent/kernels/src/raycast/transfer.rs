//! What values look like.

use thiserror::Error;

use super::grid::Lanes;
use crate::image::Rgba;
use crate::limits::STEEPNESS_MAX;

/// Entries of a table of colours: as many as the nearest caches of processors hold beside voxels.
const TABLE_ENTRIES: usize = 4096;
/// Entries of the table of a steep look.
const TABLE_ENTRIES_MAX: usize = 16 * TABLE_ENTRIES;

/// What is rounded of a number of single precision that a few others were put together to, as a share
/// of it.
const ROUNDED: f64 = 1.0 / (1 << 22) as f64;

/// What one value looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControlPoint {
    /// The value.
    pub value: f32,
    /// Red, green, blue, from 0 to 1; not premultiplied.
    pub colour: [f32; 3],
    /// What a layer as thick as the transfer function's unit holds back, from 0 to 1.
    pub opacity: f32,
}

/// What values look like: linear between control points, and constant outside them. Two points of
/// one value make a jump.
///
/// # Invariants
/// There is a point; values do not fall; all numbers are finite, colours and opacities from 0
/// to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    points: Vec<ControlPoint>,
    unit: f64,
}

/// Why something is not a transfer function.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum TransferError {
    /// No point at all.
    #[error("a transfer function without a point says nothing: give at least one")]
    Empty,
    /// A number out of its range.
    #[error("control point {0}: give a finite value, and colours and opacity from 0 to 1")]
    Point(usize),
    /// Points out of order.
    #[error("control point {0} has a smaller value than the one before it: sort them by value")]
    Order(usize),
    /// A thickness that is none.
    #[error("opacity unit {0}: give the thickness that opacities are of, above 0")]
    Unit(f64),
}

impl Transfer {
    /// A transfer function by its control points. Their opacities are those of a layer as thick
    /// as `unit`, in the unit of the spacing.
    ///
    /// # Errors
    /// There is no point, they are not sorted, or a number is out of its range.
    pub fn new(points: Vec<ControlPoint>, unit: f64) -> Result<Self, TransferError> {
        if points.is_empty() {
            return Err(TransferError::Empty);
        }
        if !(unit > 0.0 && unit.is_finite()) {
            return Err(TransferError::Unit(unit));
        }
        let is_share = |share: f32| (0.0..=1.0).contains(&share);
        let is_wrong = |point: &ControlPoint| {
            !point.value.is_finite()
                || !is_share(point.opacity)
                || !point.colour.iter().all(|share| is_share(*share))
        };
        if let Some(at) = points.iter().position(is_wrong) {
            return Err(TransferError::Point(at));
        }
        if let Some(at) = points.windows(2).position(|pair| pair[1].value < pair[0].value) {
            return Err(TransferError::Order(at + 1));
        }
        Ok(Self { points, unit })
    }

    /// Colour and opacity of a value, in a layer as thick as the unit; not premultiplied. At a
    /// jump, what comes after it.
    #[must_use]
    pub fn at(&self, value: f32) -> ([f32; 3], f32) {
        let after = self.points.partition_point(|point| point.value <= value);
        let of = |point: &ControlPoint| (point.colour, point.opacity);
        match (after.checked_sub(1).map(|at| &self.points[at]), self.points.get(after)) {
            (Some(from), Some(to)) => {
                // Above zero: `from` is at most the value, and `to` is above it.
                let share = (value - from.value) / (to.value - from.value);
                let mix = |from: f32, to: f32| from + share * (to - from);
                let colour = [0, 1, 2].map(|channel| mix(from.colour[channel], to.colour[channel]));
                (colour, mix(from.opacity, to.opacity))
            }
            (Some(point), None) | (None, Some(point)) => of(point),
            (None, None) => ([0.0; 3], 0.0),
        }
    }

    /// The greatest opacity of a value from `low` to `high`, in a layer as thick as the unit.
    pub(crate) fn greatest_opacity(&self, low: f32, high: f32) -> f32 {
        let between = |point: &&ControlPoint| (low..=high).contains(&point.value);
        let points = self.points.iter().filter(between).map(|point| point.opacity);
        points.chain([low, high].map(|value| self.at(value).1)).fold(0.0, f32::max)
    }

    /// The values between which opacities are above 0; none where all are 0.
    pub(crate) fn seen_values(&self) -> Option<[f32; 2]> {
        let is_seen = |point: &ControlPoint| point.opacity > 0.0;
        let first = self.points.iter().position(is_seen)?;
        let last = self.points.iter().rposition(is_seen)?;
        let from = first.checked_sub(1).map_or(f32::NEG_INFINITY, |at| self.points[at].value);
        let to = self.points.get(last + 1).map_or(f32::INFINITY, |point| point.value);
        Some([from, to])
    }

    /// Whether two processors that round in different ways see the same of volumes that have so many
    /// voxels along their longest side, in samples that stand for `step` of the way: whether what they
    /// find in the table may differ by no more than a picture may.
    pub(crate) fn is_sure(&self, step: f64, side: usize) -> bool {
        let (scale, entries) = self.entries(step);
        // Where the next voxel is as far away as the table is long, places differ by what is rounded
        // of positions, and values by what is rounded of numbers as large as these.
        let size = self.points.iter().map(|point| point.value.abs()).fold(0.0, f32::max);
        let positions = (side * entries.len()) as f64 * ROUNDED;
        let values = f64::from(size * scale) * ROUNDED;
        let apart = 1 + (positions + values) as usize;
        steepest(&entries, 1) <= STEEPNESS_MAX && steepest(&entries, apart) <= 2.0 * STEEPNESS_MAX
    }

    /// The table for samples that stand for `step` of the way.
    pub(super) fn table(&self, step: f64) -> Table {
        let (scale, entries) = self.entries(step);
        Table::new(self.points.first().map_or(0.0, |point| point.value), scale, entries)
    }

    /// Entries for samples that stand for `step` of the way, and how many there are for each one of
    /// value: more than usual where which of two neighbours a value is rounded to would be seen, unless
    /// that is a jump, of which more entries make no less.
    fn entries(&self, step: f64) -> (f32, Vec<Rgba>) {
        let usual = self.so_many_entries(TABLE_ENTRIES, step);
        let steepness = steepest(&usual.1, 1);
        if steepness <= STEEPNESS_MAX {
            return usual;
        }
        let most = self.so_many_entries(TABLE_ENTRIES_MAX, step);
        if steepest(&most.1, 1) <= 0.5 * steepness { most } else { usual }
    }

    fn so_many_entries(&self, count: usize, step: f64) -> (f32, Vec<Rgba>) {
        // Outside of its points a function is constant: an entry on each side is enough. The second
        // entry is the first point to the bit, so that what is clear there stays clear.
        let value = |point: Option<&ControlPoint>| point.map_or(0.0, |point| point.value);
        let (first, end) = (value(self.points.first()), value(self.points.last()));
        let size = f64::from(first.abs().max(end.abs()));
        let span = f64::from(end) - f64::from(first);
        // A jump by itself is somewhere in a span wide enough for the numbers to be told apart.
        let span = if span > 0.0 { span.max(size * 1e-5) } else { size.max(0.5) * 4e-3 };
        let width = span / (count - 3) as f64;
        let scale = (1.0 / width) as f32;
        let exponent = (step / self.unit) as f32;
        let entries = (0..count)
            .map(|entry| {
                let value = f64::from(first) + (entry as f64 - 1.0) * width;
                let (colour, opacity) = self.at(value as f32);
                // What shines through a thicker layer is a power of what shines through a thin one.
                let opacity = 1.0 - (1.0 - opacity).powf(exponent);
                let [red, green, blue] = colour.map(|channel| channel * opacity);
                [red, green, blue, opacity]
            })
            .collect();
        (scale, entries)
    }
}

/// The most that two entries so far apart differ by, as it reaches a picture: by themselves, and by
/// what they let through of something as bright as there is.
fn steepest(entries: &[Rgba], apart: usize) -> f32 {
    let between = |(from, to): (&Rgba, &Rgba)| {
        let [red, green, blue, opacity] = [0, 1, 2, 3].map(|channel| to[channel] - from[channel]);
        let colours = [red, green, blue].into_iter();
        colours.fold(opacity.abs(), |most, colour| {
            most.max(colour.abs()).max((colour - opacity).abs())
        })
    };
    let apart = apart.min(entries.len() - 1);
    entries.iter().zip(&entries[apart..]).map(between).fold(0.0, f32::max)
}

/// Premultiplied colour and opacity of one step, by value.
#[derive(Debug)]
pub(super) struct Table {
    /// The value of the second entry.
    pub(super) first: f32,
    /// Entries for each one of value.
    pub(super) scale: f32,
    /// One more than there are values: what is not there.
    pub(super) entries: Box<[Rgba]>,
    /// The last entry of a value.
    pub(super) last: f32,
    /// The entry of what is not there.
    pub(super) clear: u32,
    /// Whether some of the first or last entries cannot be seen.
    pub(super) has_clear: bool,
    /// What stands for an entry that can be seen is between these.
    seen: (f32, f32),
    /// Entries before each that can be seen.
    seen_before: Vec<u32>,
}

impl Table {
    fn new(first: f32, scale: f32, mut entries: Vec<Rgba>) -> Self {
        let count = entries.len();
        let mut seen_before = Vec::with_capacity(count + 1);
        let mut seen = 0_u32;
        seen_before.push(seen);
        for entry in &entries {
            seen += u32::from(entry[3] > 0.0);
            seen_before.push(seen);
        }
        let is_seen = |entry: &Rgba| entry[3] > 0.0;
        let first_seen = entries.iter().position(is_seen).unwrap_or(count);
        let last_seen = entries.iter().rposition(is_seen).unwrap_or(0);
        // As far as numbers are rounded to one of these.
        let seen = (first_seen as f32 - 0.5, last_seen as f32 + 0.5);
        entries.push([0.0; 4]);
        Self {
            first,
            scale,
            entries: entries.into(),
            last: (count - 1) as f32,
            clear: u32::try_from(count).expect("few entries"),
            has_clear: first_seen > 0 || last_seen + 1 < count,
            seen,
            seen_before,
        }
    }

    /// Whether any value between two can be seen.
    pub(super) fn is_seen(&self, low: f32, high: f32) -> bool {
        let (low, high) = (self.entry(low), self.entry(high));
        self.seen_before[high + 1] > self.seen_before[low]
    }

    /// Whether any of these places in the table may be seen.
    #[inline(always)]
    pub(super) fn is_any_seen<const N: usize>(&self, places: &Lanes<N>) -> bool {
        let mut is_seen = false;
        for place in places {
            is_seen |= (*place >= self.seen.0) & (*place <= self.seen.1);
        }
        is_seen
    }

    /// Where a value is among the entries. By the first point, which is exact, and not by what
    /// stands before it, which is rounded: by many entries, where few values are far from zero.
    #[inline(always)]
    pub(super) const fn place(&self, value: f32) -> f32 {
        (value - self.first) * self.scale + 1.0
    }

    fn entry(&self, value: f32) -> usize {
        self.place(value).clamp(0.0, self.last).round_ties_even() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f32, opacity: f32) -> ControlPoint {
        ControlPoint { value, colour: [1.0, 0.5, 0.0], opacity }
    }

    #[test]
    fn what_is_not_a_transfer_function_is_refused() {
        assert_eq!(Transfer::new(vec![], 1.0), Err(TransferError::Empty));
        let one = || vec![point(1.0, 0.5)];
        assert_eq!(Transfer::new(one(), 0.0), Err(TransferError::Unit(0.0)));
        for (value, opacity) in [(f32::NAN, 0.5), (0.0, 1.5), (0.0, f32::NAN), (0.0, -0.1)] {
            let points = vec![point(0.0, 0.0), point(value, opacity)];
            assert_eq!(Transfer::new(points, 1.0), Err(TransferError::Point(1)));
        }
        let falling = vec![point(1.0, 0.0), point(0.0, 0.0)];
        assert_eq!(Transfer::new(falling, 1.0), Err(TransferError::Order(1)));
    }

    #[test]
    fn values_are_mixed_between_points_and_jump_where_two_are_at_one_value() {
        let points = vec![point(0.0, 0.0), point(2.0, 0.5), point(2.0, 1.0)];
        let transfer = Transfer::new(points, 1.0).expect("a function");
        let opacities = [-1.0, 0.0, 1.0, 2.0, 3.0].map(|value| transfer.at(value).1);
        assert_eq!(opacities, [0.0, 0.0, 0.25, 1.0, 1.0]);
    }

    #[test]
    fn opacity_does_not_depend_on_how_fine_the_steps_are() {
        let transfer = Transfer::new(vec![point(0.0, 0.4)], 2.0).expect("a function");
        for step in [0.1, 0.5, 1.0, 2.0] {
            let table = transfer.table(step);
            let through = (1.0 - table.entries[7][3]).powf((2.0 / step) as f32);
            assert!((through - 0.6).abs() < 1e-4, "{step}: {through}");
        }
    }

    #[test]
    fn a_table_knows_which_values_can_be_seen() {
        let points = vec![point(0.0, 0.0), point(100.0, 0.0), point(110.0, 0.5), point(120.0, 0.0)];
        let table = Transfer::new(points, 1.0).expect("a function").table(1.0);
        assert!(!table.is_seen(0.0, 99.0) && !table.is_seen(121.0, 255.0));
        assert!(table.is_seen(0.0, 255.0) && table.is_seen(110.0, 110.0));
    }

    #[test]
    fn samples_that_cannot_be_seen_are_known_without_the_table() {
        let points = vec![point(0.0, 0.0), point(100.0, 0.0), point(110.0, 0.5), point(120.0, 0.0)];
        let table = Transfer::new(points, 1.0).expect("a function").table(1.0);
        let place = |value: f32| table.place(value);
        assert!(table.has_clear);
        assert!(!table.is_any_seen(&[place(0.0), place(99.0), place(121.0)]));
        assert!(table.is_any_seen(&[place(0.0), place(110.0), place(121.0)]));
        for (at, entry) in table.entries.iter().enumerate().filter(|(_, entry)| entry[3] > 0.0) {
            assert!(table.is_any_seen(&[at as f32]), "{at}: {entry:?}");
        }
        let fog = Transfer::new(vec![point(0.0, 0.1), point(9.0, 0.2)], 1.0).expect("a function");
        assert!(!fog.table(1.0).has_clear);
        let none = Transfer::new(vec![point(0.0, 0.0)], 1.0).expect("a function").table(1.0);
        assert!(none.has_clear && !none.is_any_seen(&[0.0, 1.0, 4095.0]));
    }

    #[test]
    fn a_steep_look_has_more_entries_unless_it_jumps_and_is_sure_of_small_volumes_sooner() {
        let ramp = |from: f32, to: f32| {
            let points = vec![point(from, 0.0), point(to, 0.9), point(from + 195.0, 0.9)];
            Transfer::new(points, 1.0).expect("a function")
        };
        for (to, entries, sure_sides) in [
            (160.0, TABLE_ENTRIES, &[64, 1024][..]),
            (62.0, TABLE_ENTRIES_MAX, &[64]),
            (60.1, TABLE_ENTRIES_MAX, &[]),
            (60.0, TABLE_ENTRIES, &[]),
        ] {
            let ramp = ramp(60.0, to);
            assert_eq!(ramp.table(1.0).clear as usize, entries, "{to}");
            for side in [64, 1024] {
                assert_eq!(ramp.is_sure(1.0, side), sure_sides.contains(&side), "{to}, {side}");
            }
        }
        // Numbers so large are rounded to what is seen of the ramp.
        assert!(!ramp(8e6, 8e6 + 30.0).is_sure(1.0, 64));
    }

    #[test]
    fn a_jump_is_in_the_table_wherever_it_is() {
        for value in [0.0, 1.0, -3.0, 60_000.0] {
            let points = vec![point(value, 0.0), point(value, 1.0)];
            let table = Transfer::new(points, 1.0).expect("a function").table(1.0);
            let off = 1e-2_f32.max(value.abs() * 1e-3);
            assert!(!table.is_seen(value - 5.0 * off, value - off), "{value}");
            assert!(table.is_seen(value + off, value + off), "{value}");
        }
    }
}
