//! How the numbers of several runs spread.

/// Mean, confidence and extremes of numbers, in bounded memory.
///
/// Source: B. P. Welford, "Note on a Method for Calculating Corrected Sums of Squares and
/// Products", 1962.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Of one number.
    #[must_use]
    pub const fn of(number: f64) -> Self {
        Self { count: 1, mean: number, squares: 0.0, min: number, max: number }
    }

    /// One more number.
    pub fn add(&mut self, number: f64) {
        self.count += 1;
        let off = number - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (number - self.mean);
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }

    /// How many numbers.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; the number itself where there is one only.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The least of them.
    #[must_use]
    pub const fn min(&self) -> f64 {
        self.min
    }

    /// The greatest of them.
    #[must_use]
    pub const fn max(&self) -> f64 {
        self.max
    }

    /// Half the width of the 95 % confidence interval of the mean; none of one number.
    #[must_use]
    pub fn ci95(&self) -> Option<f64> {
        let freedom = self.count.checked_sub(1).filter(|freedom| *freedom > 0)?;
        let variance = self.squares.max(0.0) / freedom as f64;
        Some(student_975(freedom) * (variance / self.count as f64).sqrt())
    }
}

/// Quantiles at 97.5 % of Student's distribution with 1, 2, … degrees of freedom.
const STUDENT_975: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
    2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
    2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
];

/// The quantile at 97.5 % of the normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// The quantile at 97.5 % of Student's distribution.
///
/// Source: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 1964, 26.7.5, for
/// what the table does not have.
fn student_975(freedom: u64) -> f64 {
    let tabled = usize::try_from(freedom - 1).ok().and_then(|place| STUDENT_975.get(place));
    if let Some(quantile) = tabled {
        return *quantile;
    }
    let (normal, freedom) = (NORMAL_975, freedom as f64);
    let square = normal * normal;
    let first = normal * (square + 1.0) / 4.0;
    let second = normal * ((5.0 * square + 16.0) * square + 3.0) / 96.0;
    let third = normal * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0;
    normal + (first + (second + third / freedom) / freedom) / freedom
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f64]) -> Spread {
        let mut spread = Spread::of(numbers[0]);
        numbers[1..].iter().for_each(|number| spread.add(*number));
        spread
    }

    #[test]
    fn one_number_is_told_as_it_is() {
        let spread = Spread::of(0.1 + 0.2);
        assert_eq!((spread.mean(), spread.ci95()), (0.1 + 0.2, None));
    }

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        let spread = of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((spread.mean(), spread.min(), spread.max()), (5.0, 2.0, 9.0));
        // Corrected deviation sqrt(32/7), t = 2.364624 at 7 degrees of freedom.
        let expected = 2.364_624 * (32.0_f64 / 7.0 / 8.0).sqrt();
        assert!((spread.ci95().expect("eight numbers") - expected).abs() < 1e-9);
        assert_eq!(of(&[3.0; 40]).ci95(), Some(0.0));
    }

    #[test]
    fn the_quantiles_go_on_where_the_table_ends() {
        // Published: 2.0395 at 31, 2.0003 at 60, 1.9799 at 120, the normal one without end.
        for (freedom, quantile) in [(31, 2.0395), (60, 2.0003), (120, 1.9799), (1 << 40, 1.96)] {
            assert!((student_975(freedom) - quantile).abs() < 6e-5, "{freedom}");
        }
        assert!((1..200).all(|freedom| student_975(freedom) > student_975(freedom + 1)));
    }
}
