//! How the numbers of several runs spread.

use gleaner_protocol::student_975;

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
}
