// Double precision in whole numbers: sums, products, quotients and roots are those of IEEE 754, rounded
// to the nearest and ties to even, to the bit on every device. A device's own single precision is not:
// it may round a quotient either way, and a sum and a product in one go.
//
// There is nothing infinite here, and nothing so small that it has fewer digits: exponents have no end.

// What is `mantissa` over 2^63 (its upper word first), times 2^exponent. The first bit is set and the
// last eleven are not; zero has no bits.
struct Double {
    mantissa: vec2<u32>,
    exponent: i32,
    negative: bool,
}

const ONE = vec2(0x80000000u, 0u);
// Of the bits beyond a mantissa's 53: all, and the first one.
const BEYOND: u32 = 0x7ffu;
const HALF: u32 = 0x400u;
// Bits of a quotient or a root: 53, the one after them, and one more as a quotient's first may be none.
const DIGITS: u32 = 55u;
const DIGITS_SHIFT: u32 = 9u;

fn wide_sum(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.y + b.y;
    return vec2(a.x + b.x + u32(low < a.y), low);
}

fn wide_difference(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2(a.x - b.x - u32(a.y < b.y), a.y - b.y);
}

fn wide_less(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

// By 63 at most. A shift of a word by 32 is none, so some are made in two steps.
fn wide_left(a: vec2<u32>, by: u32) -> vec2<u32> {
    if by >= 32u {
        return vec2(a.y << (by - 32u), 0u);
    }
    return vec2((a.x << by) | ((a.y >> 1u) >> (31u - by)), a.y << by);
}

// What is shifted out leaves a one as the last bit.
fn wide_right(a: vec2<u32>, by: u32) -> vec2<u32> {
    if by == 0u {
        return a;
    }
    if by >= 64u {
        return vec2(0u, u32(any(a != vec2(0u))));
    }
    if by >= 32u {
        let lost = a.y | ((a.x << 1u) << (63u - by));
        return vec2(0u, (a.x >> (by - 32u)) | u32(lost != 0u));
    }
    let lost = a.y << (32u - by);
    return vec2(a.x >> by, (a.y >> by) | (a.x << (32u - by)) | u32(lost != 0u));
}

fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let low = a_low * b_low;
    let first = a_high * b_low + (low >> 16u);
    let second = a_low * b_high + (first & 0xffffu);
    let high = a_high * b_high + (first >> 16u) + (second >> 16u);
    return vec2(high, (second << 16u) | (low & 0xffffu));
}

fn zero(negative: bool) -> Double {
    return Double(vec2(0u), 0, negative);
}

fn is_zero(a: Double) -> bool {
    return a.mantissa.x == 0u;
}

// A number of 64 bits, the first of them set, of which the last also stands for all that follow.
fn rounded(mantissa: vec2<u32>, exponent: i32, negative: bool) -> Double {
    let beyond = mantissa.y & BEYOND;
    let kept = vec2(mantissa.x, mantissa.y & ~BEYOND);
    let is_odd = (mantissa.y & (BEYOND + 1u)) != 0u;
    if beyond < HALF || (beyond == HALF && !is_odd) {
        return Double(kept, exponent, negative);
    }
    let more = wide_sum(kept, vec2(0u, BEYOND + 1u));
    if more.x == 0u {
        return Double(ONE, exponent + 1, negative);
    }
    return Double(more, exponent, negative);
}

fn of_whole(number: u32) -> Double {
    if number == 0u {
        return zero(false);
    }
    let leading = countLeadingZeros(number);
    return Double(vec2(number << leading, 0u), 31 - i32(leading), false);
}

// From the bits of a finite number of single precision.
fn of_single(bits: u32) -> Double {
    let negative = (bits >> 31u) == 1u;
    let exponent = i32((bits >> 23u) & 0xffu);
    let fraction = bits & 0x7fffffu;
    if exponent > 0 {
        return Double(vec2((fraction | 0x800000u) << 8u, 0u), exponent - 127, negative);
    }
    // So small that it has fewer digits.
    var small = of_whole(fraction);
    small.exponent -= 149 * i32(fraction != 0u);
    small.negative = negative;
    return small;
}

// The bits of the nearest number of single precision, which is finite.
fn to_single(a: Double) -> u32 {
    let sign = u32(a.negative) << 31u;
    if is_zero(a) {
        return sign;
    }
    var word = a.mantissa.x | u32(a.mantissa.y != 0u);
    // Below 2^-126 there are fewer digits.
    let less = u32(max(-126 - a.exponent, 0));
    word = wide_right(vec2(0u, word), less).y;
    let beyond = word & 0xffu;
    var kept = word >> 8u;
    kept += u32(beyond > 0x80u || (beyond == 0x80u && (kept & 1u) == 1u));
    if less > 0u {
        return sign | kept;
    }
    // The first digit, which is not written down, counts one in the exponent; so does one that is
    // carried there.
    return sign | ((u32(a.exponent + 126) << 23u) + kept);
}

fn negated(a: Double) -> Double {
    return Double(a.mantissa, a.exponent, !a.negative);
}

fn sum(a: Double, b: Double) -> Double {
    if is_zero(a) && is_zero(b) {
        return zero(a.negative && b.negative);
    }
    if is_zero(a) {
        return b;
    }
    if is_zero(b) {
        return a;
    }
    var large = a;
    var small = b;
    if a.exponent < b.exponent
        || (a.exponent == b.exponent && wide_less(a.mantissa, b.mantissa)) {
        large = b;
        small = a;
    }
    let other = wide_right(small.mantissa, u32(large.exponent - small.exponent));
    if large.negative == small.negative {
        let both = wide_sum(large.mantissa, other);
        if !wide_less(both, large.mantissa) {
            return rounded(both, large.exponent, large.negative);
        }
        let carried = wide_right(both, 1u) | ONE;
        return rounded(carried, large.exponent + 1, large.negative);
    }
    let left = wide_difference(large.mantissa, other);
    if all(left == vec2(0u)) {
        return zero(false);
    }
    let leading = select(countLeadingZeros(left.x), 32u + countLeadingZeros(left.y), left.x == 0u);
    return rounded(wide_left(left, leading), large.exponent - i32(leading), large.negative);
}

fn difference(a: Double, b: Double) -> Double {
    return sum(a, negated(b));
}

fn product(a: Double, b: Double) -> Double {
    let negative = a.negative != b.negative;
    if is_zero(a) || is_zero(b) {
        return zero(negative);
    }
    let left = wide_product(a.mantissa.x, b.mantissa.y);
    let right = wide_product(a.mantissa.y, b.mantissa.x);
    let low = wide_product(a.mantissa.y, b.mantissa.y);
    let middle = wide_sum(wide_sum(vec2(0u, low.x), vec2(0u, left.y)), vec2(0u, right.y));
    var high = wide_product(a.mantissa.x, b.mantissa.x);
    high = wide_sum(wide_sum(high, vec2(0u, left.x)), vec2(0u, right.x));
    high = wide_sum(high, vec2(0u, middle.x));
    var rest = middle.y;
    var exponent = a.exponent + b.exponent + 1;
    if high.x < ONE.x {
        high = wide_left(high, 1u) | vec2(0u, rest >> 31u);
        rest <<= 1u;
        exponent -= 1;
    }
    high.y |= u32((rest | low.y) != 0u);
    return rounded(high, exponent, negative);
}

// `b` is not zero.
fn quotient(a: Double, b: Double) -> Double {
    let negative = a.negative != b.negative;
    if is_zero(a) {
        return zero(negative);
    }
    var exponent = a.exponent - b.exponent;
    if all(b.mantissa == ONE) {
        return Double(a.mantissa, exponent, negative);
    }
    // Two bits of room, so that twice the rest of a division has it too.
    let divisor = wide_right(b.mantissa, 2u);
    var rest = wide_right(a.mantissa, 2u);
    if wide_less(rest, divisor) {
        rest = wide_left(rest, 1u);
        exponent -= 1;
    }
    var digits = vec2(0u);
    for (var digit = 0u; digit < DIGITS; digit++) {
        let left = wide_difference(rest, divisor);
        let fits = !wide_less(rest, divisor);
        rest = wide_left(select(rest, left, fits), 1u);
        digits = wide_left(digits, 1u) | vec2(0u, u32(fits));
    }
    let mantissa = wide_left(digits, DIGITS_SHIFT) | vec2(0u, u32(any(rest != vec2(0u))));
    return rounded(mantissa, exponent, negative);
}

// `a` is not below zero.
fn root(a: Double) -> Double {
    if is_zero(a) {
        return a;
    }
    // Two digits make one of the root: with an odd exponent, the first two are those before it.
    var left = wide_right(a.mantissa, u32((a.exponent & 1) == 0));
    var rest = vec2(0u);
    var digits = vec2(0u);
    for (var digit = 0u; digit < DIGITS; digit++) {
        rest = wide_left(rest, 2u) | vec2(0u, left.x >> 30u);
        left = wide_left(left, 2u);
        let tried = wide_left(digits, 2u) | vec2(0u, 1u);
        let fits = !wide_less(rest, tried);
        rest = select(rest, wide_difference(rest, tried), fits);
        digits = wide_left(digits, 1u) | vec2(0u, u32(fits));
    }
    let mantissa = wide_left(digits, DIGITS_SHIFT) | vec2(0u, u32(any(rest != vec2(0u))));
    return rounded(mantissa, a.exponent >> 1u, false);
}
