//! Numbers as places on an axis.

/// How many numbers stand below an axis, at most.
const TICKS_MAX: f64 = 5.0;

/// An axis from left to right that begins at 0 or below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    least: f64,
    greatest: f64,
    from: i32,
    to: i32,
}

impl Scale {
    /// On which all of `numbers` have a place between `ends`.
    pub(super) fn of(numbers: impl Iterator<Item = f64>, ends: (i32, i32)) -> Self {
        let (mut least, mut greatest) = (0.0_f64, 0.0_f64);
        for number in numbers {
            (least, greatest) = (least.min(number), greatest.max(number));
        }
        if greatest - least <= 0.0 {
            greatest = 1.0;
        }
        Self { least, greatest, from: ends.0, to: ends.1 }
    }

    /// Where its axis begins and ends.
    pub(super) const fn ends(&self) -> (i32, i32) {
        (self.from, self.to)
    }

    /// Where a number stands.
    pub(super) fn place(&self, number: f64) -> i32 {
        let share = ((number - self.least) / (self.greatest - self.least)).clamp(0.0, 1.0);
        self.from + (share * f64::from(self.to - self.from)).round() as i32
    }

    /// Round numbers at equal distances.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let rough = (self.greatest - self.least) / TICKS_MAX;
        let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
        let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let first = libm::ceil(self.least / step);
        let last = libm::floor(self.greatest / step);
        let mut ticks = Vec::new();
        let mut number = first;
        while number <= last {
            ticks.push(number * step);
            number += 1.0;
        }
        ticks
    }
}

/// A number with the digits that can be told apart in a picture.
pub(super) fn shown(number: f64) -> String {
    let text = match number.abs() {
        0.0 => return "0".to_owned(),
        1e5.. => return format!("{number:.2e}"),
        1000.0.. => format!("{number:.0}"),
        100.0.. => format!("{number:.1}"),
        10.0.. => format!("{number:.2}"),
        1.0.. => format!("{number:.3}"),
        0.001.. => format!("{number:.4}"),
        _ => return format!("{number:.1e}"),
    };
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_between_the_ends_and_ticks_are_round() {
        let scale = Scale::of([30.0, 120.0].into_iter(), (100, 400));
        assert_eq!((scale.place(0.0), scale.place(60.0), scale.place(120.0)), (100, 250, 400));
        assert_eq!(scale.ticks(), [0.0, 50.0, 100.0]);
        let scale = Scale::of([-1.0, 1.0].into_iter(), (0, 100));
        assert_eq!((scale.place(-1.0), scale.place(0.0), scale.place(9.0)), (0, 50, 100));
        assert_eq!(scale.ticks(), [-1.0, -0.5, 0.0, 0.5, 1.0]);
        let scale = Scale::of([0.0].into_iter(), (0, 100));
        assert_eq!(scale.place(0.0), 0);
        assert_eq!(scale.ticks().len(), 6);
    }

    #[test]
    fn a_number_is_short() {
        for (number, text) in [
            (0.0, "0"),
            (14_376_662.18, "1.44e7"),
            (424_000.0, "4.24e5"),
            (1392.0, "1392"),
            (99.954, "99.95"),
            (32.8, "32.8"),
            (7.9, "7.9"),
            (0.0304, "0.0304"),
            (-2.5, "-2.5"),
            (1e-6, "1.0e-6"),
        ] {
            assert_eq!(shown(number), text);
        }
    }
}
