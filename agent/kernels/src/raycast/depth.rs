//! The order in which the bricks of a volume are seen.

use std::cmp::Ordering;
use std::ops::Range;

use super::camera::Camera;
use crate::volume::Brick;

/// Where a brick is in the order in which a camera sees those of its volume: the nearer is the
/// smaller one.
///
/// It holds among bricks that share out the volume by planes from one side to the other, such as
/// those of one [`Brick::cut`]; where a brick is cut once more by itself, it says nothing of its
/// parts and the others. Those that no ray meets both of may be the same.
#[derive(Debug, Clone, Copy)]
pub struct Depth([f64; 3]);

/// The places of `bricks`, which are [cut](Brick::cut) out of one volume, in the order in which
/// `camera` sees them, the nearest first. Their pictures, put [behind](crate::image::under) each
/// other in this order, are the picture of the volume, from outside and from within: each channel
/// differs by less than a 400th.
#[must_use]
pub fn nearest_first(bricks: &[Brick], camera: &Camera) -> Vec<usize> {
    let mut places: Vec<usize> = (0..bricks.len()).collect();
    places.sort_by_key(|place| Depth::of(&bricks[*place], camera));
    places
}

impl Depth {
    /// That of a brick.
    #[must_use]
    pub fn of(brick: &Brick, camera: &Camera) -> Self {
        Self::of_cells(brick.cells(), brick.whole_size(), brick.voxels().spacing(), camera)
    }

    /// That of a brick of these cells in a volume of `whole` voxels.
    pub(super) fn of_cells(
        cells: &[Range<usize>; 3],
        whole: [usize; 3],
        spacing: [f64; 3],
        camera: &Camera,
    ) -> Self {
        Self(camera.distances(cells, whole, spacing))
    }

    /// As numbers, to be sent.
    pub(crate) const fn numbers(self) -> [f64; 3] {
        self.0
    }

    /// Of [numbers](Self::numbers) that came from elsewhere; none where these are none.
    pub(crate) fn of_numbers(numbers: [f64; 3]) -> Option<Self> {
        numbers.iter().all(|number| number.is_finite()).then_some(Self(numbers))
    }
}

// A brick that is nearer along some axis and no farther along any is before the other: so it is by
// one axis after the other, where no sum is rounded.
impl Ord for Depth {
    fn cmp(&self, other: &Self) -> Ordering {
        let mut axes = self.0.iter().zip(&other.0).map(|(own, other)| own.total_cmp(other));
        axes.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Depth {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Depth {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Depth {}

#[cfg(test)]
mod tests {
    use super::super::Projection;
    use super::*;
    use crate::dice::Dice;
    use crate::volume::{Volume, Voxels};

    fn camera(eye: [f64; 3], target: [f64; 3]) -> Camera {
        let projection = Projection::Perspective { fov_degrees: 60.0 };
        Camera::new(eye, target, [0.3, 1.0, 0.2], projection, [1, 1]).expect("a camera")
    }

    fn bricks(counts: [usize; 3]) -> Vec<Brick> {
        let voxels = Voxels::U8(vec![0; 9 * 7 * 5]);
        let volume = Volume::new([9, 7, 5], [1.0; 3], voxels).expect("a volume");
        Brick::cut(&volume, counts)
    }

    #[test]
    fn a_ray_meets_bricks_in_their_order_also_from_a_border_of_some() {
        let bricks = bricks([3, 4, 2]);
        let mut dice = Dice::new(3, 0);
        let mut met = 0;
        for _ in 0..2000 {
            // Halves, which are exact: every other eye is on a border.
            let mut halves = |most: usize| (dice.below(4 * most) as f64 - most as f64) / 2.0;
            let eye = [halves(18), halves(14), halves(10)];
            let target = [halves(8), halves(6), halves(4)];
            if eye == target {
                continue;
            }
            let order = nearest_first(&bricks, &camera(eye, target));
            let mut last = None;
            for step in 0..=512 {
                let at = [0, 1, 2]
                    .map(|axis| eye[axis] + f64::from(step) / 64.0 * (target[axis] - eye[axis]));
                let holds = |place: &usize| {
                    let cells = bricks[*place].cells();
                    (0..3).all(|axis| {
                        let (low, high) = (cells[axis].start as f64, cells[axis].end as f64);
                        // What is on a border is in the brick that a ray goes on into.
                        match target[axis] >= eye[axis] {
                            true => low <= at[axis] && at[axis] < high,
                            false => low < at[axis] && at[axis] <= high,
                        }
                    })
                };
                let rank = order.iter().position(holds);
                assert!(rank.is_none() || rank >= last, "{eye:?} to {target:?} at {at:?}");
                met += usize::from(rank.is_some() && last.is_some() && rank != last);
                last = rank.or(last);
            }
        }
        assert!(met > 1000, "rays go from brick to brick {met} times only");
    }

    #[test]
    fn the_order_is_the_same_from_ever_so_far() {
        let bricks = bricks([8, 2, 2]);
        let orders = [1e2, 1e9, 1e18, 1e150].map(|far| {
            let camera = camera([far, -far, 2.0 * far], [0.0; 3]);
            let order = nearest_first(&bricks, &camera);
            order.into_iter().map(|place| bricks[place].first()).collect::<Vec<_>>()
        });
        assert_eq!(orders[0][0], [6, 0, 1]);
        assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
    }
}
