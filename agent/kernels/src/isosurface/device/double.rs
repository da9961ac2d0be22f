//! Numbers of double precision for a device, in whole numbers.

/// A number as `double.wgsl` has it: the upper word of its digits and the lower one, the exponent,
/// and whether it is below zero.
pub(super) type Double = [u32; 4];

/// The number of a device for one that is above zero and has all its digits.
pub(super) const fn double(number: f64) -> Double {
    let bits = number.to_bits();
    let digits = bits << 11 | 1 << 63;
    let exponent = (bits >> 52) as i32 - 1023;
    [(digits >> 32) as u32, digits as u32, exponent.cast_unsigned(), 0]
}
