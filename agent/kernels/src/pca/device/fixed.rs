//! Numbers as a device multiplies them.
//!
//! A number below one, signs aside, is a whole number of 2^-59. Its upper half counts 2^30 of
//! these; the lower one is what is left, from -2^29 to 2^29. The device cuts each into three digits
//! of ten bits, from -2^9 to 2^9.

/// Bits after the point.
const BITS: u32 = 59;
/// What an upper half counts.
const HALF: f64 = (1_u64 << 30) as f64;
/// Numbers that are smaller than this power of two, where the largest of all are about one, are
/// not told from zero: their squares are beyond double precision, as seen from the largest.
const EXPONENT_MIN: i32 = -200;
/// What the orders of the upper sums count, and those of the lower ones.
const UPPER: f64 = 1.0 / (1_u64 << 38) as f64;
const LOWER: f64 = 1.0 / (1_u128 << 68) as f64;
/// Added to a number below 2^51, it leaves that rounded in the last bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Both halves of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) high: i32,
    pub(super) low: i32,
}

/// Of numbers whose largest one is `largest`: the power of two that all are below.
pub(super) fn power_above(largest: f64) -> f64 {
    let exponent = if largest > 0.0 { libm::frexp(largest).1.max(EXPONENT_MIN) } else { 0 };
    libm::ldexp(1.0, exponent)
}

/// What numbers below `power`, one of two, are multiplied with before they are [`fixed`].
pub(super) fn factor(power: f64) -> f64 {
    (1_u64 << BITS) as f64 / power
}

/// A number, times its factor, as a whole one.
pub(super) fn fixed(number: f64) -> Fixed {
    let high = rounded(number / HALF);
    // Exact: what is left has fewer digits than the number.
    let low = rounded(number - high * HALF);
    Fixed { high: high as i32, low: low as i32 }
}

/// The nearest whole number to one below 2^51.
fn rounded(number: f64) -> f64 {
    (number + ROUND) - ROUND
}

/// A sum of products, of what a device gives back for it: products of digits whose places add up
/// to two at most, and those of the other places.
pub(super) fn sum(upper: i64, lower: i64) -> f64 {
    upper as f64 * UPPER + lower as f64 * LOWER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_nearest_whole_number() {
        let (half, all) = (1 << 29, 2_f64.powi(59));
        let odd = [0.0, 1.0, -1.0, 0.49, -0.51, 1.5e-300, 2_f64.powi(29), -(2_f64.powi(29))];
        let near = (0..2000).map(|i| (f64::from(i) * 0.618_033_988_749).fract() * 2.0 * all - all);
        let small = (0..2000).map(|i| (f64::from(i) * 0.618_033_988_749).fract() * 2e10 - 1e10);
        for number in odd.into_iter().chain([all.next_down(), -all]).chain(near).chain(small) {
            let Fixed { high, low } = fixed(number);
            assert!(high.abs() <= half && low.abs() <= half, "{number}: {high} {low}");
            // Both are exact: one has the other's last bits.
            let rest = number - f64::from(high) * HALF;
            assert!((rest - f64::from(low)).abs() <= 0.5, "{number}: {high} {low}");
        }
    }

    #[test]
    fn numbers_are_below_the_power_of_two_of_their_largest() {
        for largest in [1.0, 0.999, 1.999, 1e-30, 3.0] {
            let power = power_above(largest);
            let share = largest / power;
            assert!((0.5..1.0).contains(&share), "{largest}: {share}");
            assert!(largest * factor(power) < 2_f64.powi(59));
        }
        assert_eq!(power_above(0.0), 1.0);
        assert_eq!(power_above(1e-300), 2_f64.powi(EXPONENT_MIN));
        assert_eq!(fixed(1e-300 * factor(power_above(1e-300))), Fixed { high: 0, low: 0 });
    }
}
