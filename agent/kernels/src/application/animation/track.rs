//! A number that changes over time, by keys.
//!
//! A cubic between each two keys, without a kink where they meet. Between two keys it is never
//! beyond them and turns at a key only: a field of view stays one, and what two keys in a row have
//! stays as it is from the one to the other.
//!
//! Source: M. Steffen, "A simple method for monotonic interpolation in one dimension", 1990.

/// A number over time.
///
/// # Invariants
/// There are keys, in the order of their times, no two at one.
#[derive(Debug, Clone)]
pub(super) struct Track(Vec<Key>);

#[derive(Debug, Clone, Copy)]
struct Key {
    time: f64,
    value: f64,
    slope: f64,
}

impl Track {
    /// Through pairs of time and value: at least one, in the order of their times, no two at one.
    pub(super) fn new(pairs: &[(f64, f64)]) -> Self {
        debug_assert!(!pairs.is_empty() && pairs.is_sorted_by(|a, b| a.0 < b.0), "{pairs:?}");
        let keys = pairs.iter().enumerate();
        let keys = keys.map(|(at, (time, value))| Key {
            time: *time,
            value: *value,
            slope: slope(pairs, at),
        });
        Self(keys.collect())
    }

    /// The number at a time; that of the first key before it, and that of the last key after it.
    pub(super) fn at(&self, time: f64) -> f64 {
        let keys = &self.0;
        let next = keys.partition_point(|key| key.time <= time).max(1);
        let from = keys[next - 1];
        let Some(to) = keys.get(next) else { return from.value };
        let (width, past) = (to.time - from.time, (time - from.time).max(0.0));
        let rise = (to.value - from.value) / width;
        let cubic = (from.slope + to.slope - 2.0 * rise) / (width * width);
        let square = (3.0 * rise - 2.0 * from.slope - to.slope) / width;
        let value = from.value + past * (from.slope + past * (square + past * cubic));
        // Only rounding leads beyond.
        value.max(from.value.min(to.value)).min(from.value.max(to.value))
    }
}

/// The slope at one of the pairs.
fn slope(pairs: &[(f64, f64)], at: usize) -> f64 {
    // Width and slope of what is between a pair and the next one.
    let interval = |from: usize| {
        let ((t0, v0), (t1, v1)) = (pairs[from], pairs[from + 1]);
        (t1 - t0, (v1 - v0) / (t1 - t0))
    };
    let last = pairs.len() - 1;
    match (at, last) {
        (_, 0) => 0.0,
        (_, 1) => interval(0).1,
        (0, _) => end(interval(0), interval(1)),
        _ if at == last => end(interval(last - 1), interval(last - 2)),
        _ => {
            let ((h0, s0), (h1, s1)) = (interval(at - 1), interval(at));
            let parabola = (s0 * h1 + s1 * h0) / (h0 + h1);
            if s0 * s1 <= 0.0 {
                return 0.0;
            }
            (2.0 * s0.abs().min(s1.abs()).min(0.5 * parabola.abs())).copysign(s0)
        }
    }
}

/// The slope at an end: that of the parabola through three pairs, as far as it does not turn.
fn end((h0, s0): (f64, f64), (h1, s1): (f64, f64)) -> f64 {
    let share = h0 / (h0 + h1);
    let parabola = s0 * (1.0 + share) - s1 * share;
    if parabola * s0 <= 0.0 { 0.0 } else { parabola.abs().min(2.0 * s0.abs()).copysign(s0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: [(f64, f64); 7] =
        [(0.1, 3.0), (0.2, -1.0), (0.25, -1.0), (0.5, 700.0), (0.7, 710.1), (0.8, 0.3), (0.9, 0.1)];

    fn times(from: f64, to: f64) -> impl Iterator<Item = f64> {
        (0..=200).map(move |step| from + (to - from) * f64::from(step) / 200.0)
    }

    #[test]
    fn keys_are_hit_exactly_and_hold_before_and_after() {
        let track = Track::new(&PAIRS);
        for (time, value) in PAIRS {
            assert_eq!(track.at(time), value);
        }
        assert_eq!((track.at(0.0), track.at(1.0)), (3.0, 0.1));
        let one = Track::new(&[(0.5, 7.0)]);
        assert_eq!([0.0, 0.5, 1.0].map(|time| one.at(time)), [7.0; 3]);
    }

    #[test]
    fn between_two_keys_it_goes_one_way_and_between_equal_ones_none() {
        let track = Track::new(&PAIRS);
        for pair in PAIRS.windows(2) {
            let ((from, a), (to, b)) = (pair[0], pair[1]);
            let values: Vec<f64> = times(from, to).map(|time| track.at(time)).collect();
            // Rounding of numbers of this size.
            let is_past = |before: f64, after: f64| (after - before) * (b - a).signum() < -1e-9;
            assert!(!values.windows(2).any(|two| is_past(two[0], two[1])), "{pair:?}: {values:?}");
            assert!(values.iter().all(|value| (a.min(b)..=a.max(b)).contains(value)));
        }
        assert!(times(0.2, 0.25).all(|time| track.at(time) == -1.0));
    }

    #[test]
    fn it_has_no_kink_and_what_is_straight_stays_straight() {
        let track = Track::new(&PAIRS);
        for (time, _) in &PAIRS[1..6] {
            let near = 1e-7;
            let before = (track.at(*time) - track.at(time - near)) / near;
            let after = (track.at(time + near) - track.at(*time)) / near;
            assert!((before - after).abs() < 0.1, "{time}: {before} {after}");
        }
        for straight in [
            &[(0.0, 0.0), (1.0, 360.0)][..],
            &[(0.0, 0.0), (0.25, 90.0), (0.375, 135.0), (1.0, 360.0)][..],
        ] {
            let track = Track::new(straight);
            assert!(times(0.0, 1.0).all(|time| (track.at(time) - 360.0 * time).abs() < 1e-9));
        }
    }

    #[test]
    fn slopes_are_those_of_the_source() {
        let slopes = |pairs: &[(f64, f64)]| -> Vec<f64> {
            (0..pairs.len()).map(|at| slope(pairs, at)).collect()
        };
        // A parabola is met where it is steep on both sides; its end is as flat as it is.
        assert_eq!(slopes(&[(0.0, 0.0), (1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]), [0.0, 2.0, 4.0, 6.0]);
        // At most twice the flatter side, and at an end twice the only one.
        assert_eq!(slopes(&[(0.0, 0.0), (1.0, 1.0), (2.0, 11.0)])[1], 2.0);
        assert_eq!(slopes(&[(0.0, 0.0), (1.0, 10.0), (2.0, 0.0)]), [20.0, 0.0, -20.0]);
    }
}
