//! Numbers as a device multiplies them.
//!
//! A number below one, signs aside, is a whole number of 2^-39. Its upper half counts 2^20 of
//! these; the lower one is what is left, from -2^19 to below 2^19. The device cuts each into two
//! digits of ten bits, from -2^9 to 2^9.

/// Bits after the point.
const BITS: u32 = 39;
/// Bits of a lower half.
const LOW_BITS: i32 = 20;
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
    let whole = (number + ROUND).to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let high = (whole + (1 << (LOW_BITS - 1))) >> LOW_BITS;
    Fixed { high: high as i32, low: (whole - (high << LOW_BITS)) as i32 }
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
        let all = 2_f64.powi(39);
        let odd = [0.0, 1.0, -1.0, 0.49, -0.51, 524_287.0, 524_288.0, -524_288.0, -524_289.0];
        let near = (0..2000).map(|i| (f64::from(i) * 0.618_033_988_749).fract() * 2.0 * all - all);
        for number in odd.into_iter().chain([all, -all]).chain(near) {
            let Fixed { high, low } = fixed(number);
            let whole = i64::from(high) * (1 << 20) + i64::from(low);
            assert!((whole as f64 - number).abs() <= 0.5, "{number}: {high} {low}");
            assert!(high.abs() <= 1 << 19 && (-(1 << 19)..1 << 19).contains(&low), "{number}");
        }
    }

    #[test]
    fn numbers_are_below_the_power_of_two_of_their_largest() {
        for largest in [1.0, 0.999, 1.999, 1e-30, 3.0] {
            let power = power_above(largest);
            let share = largest / power;
            assert!((0.5..1.0).contains(&share), "{largest}: {share}");
            assert!(largest * factor(power) < 2_f64.powi(39));
        }
        assert_eq!(power_above(0.0), 1.0);
        assert_eq!(power_above(1e-300), 2_f64.powi(EXPONENT_MIN));
        assert_eq!(fixed(1e-300 * factor(power_above(1e-300))), Fixed { high: 0, low: 0 });
    }
}
