// What rays have seen, in eight bits a channel, to the bit as png_file.rs has it: what is too near to the
// middle between two bytes for a device's division is divided in whole numbers. From the processor's side
// come TILE_WORDS and UNSURE.

@group(0) @binding(0) var<storage, read> pixels: array<vec4<u32>>;
// Of each tile its pixels, then a word for each row: bits of pixels that are left to the processor, and
// from the ninth bit on of those that show something.
@group(0) @binding(1) var<storage, read_write> shown: array<u32>;

const ONE = 0x3f800000u;
const INFINITE = 0x7f800000u;
const DIGITS_END = 0x00800000u;
// Of opacities that are smaller, some devices take some for zero: 2^-100.
const OPACITY_MIN = 0x0d800000u;
// A share of such an opacity that is no byte but zero: below 2^-110.
const COLOUR_MIN = 0x08800000u;
// No byte.
const NONE = 256u;

// Of positive numbers, the first one below the second one or not much above.
fn exact_byte(colour: u32, opacity: u32) -> u32 {
    var left = (colour & (DIGITS_END - 1u)) | DIGITS_END;
    let by = (opacity & (DIGITS_END - 1u)) | DIGITS_END;
    var power = i32(colour >> 23u) - i32(opacity >> 23u);
    if left < by {
        left <<= 1u;
        power -= 1;
    }
    if power >= 0 {
        return 255u;
    }
    // The digits of their quotient, rounded to the nearest or the even one, as all that follows.
    var quotient = 1u;
    left -= by;
    for (var digit = 0u; digit < 23u; digit++) {
        left <<= 1u;
        quotient <<= 1u;
        if left >= by {
            left -= by;
            quotient |= 1u;
        }
    }
    left <<= 1u;
    quotient += u32(left > by || (left == by && (quotient & 1u) == 1u));
    let product = quotient * 255u;
    let more = 8u - countLeadingZeros(product);
    let rest = product & ((1u << more) - 1u);
    let half = 1u << (more - 1u);
    var digits = product >> more;
    digits += u32(rest > half || (rest == half && (digits & 1u) == 1u));
    let below = 23 - power - i32(more);
    if below > 25 {
        return 0u;
    }
    return (digits + (1u << u32(below - 1))) >> u32(below);
}

// A share of an opacity that is above OPACITY_MIN.
fn byte(colour: u32, opacity: u32) -> u32 {
    // Below zero, or next to it.
    if colour > 0x7fffffffu || colour < COLOUR_MIN {
        return 0u;
    }
    if colour >= INFINITE {
        return NONE;
    }
    let near = min(bitcast<f32>(colour) / bitcast<f32>(opacity), 2.0) * 255.0;
    if near >= 255.0 {
        return 255u;
    }
    let whole = floor(near + 0.5);
    if abs(near - whole) < 0.499 {
        return u32(whole);
    }
    return exact_byte(colour, opacity);
}

@compute @workgroup_size(64)
fn show(@builtin(global_invocation_id) id: vec3<u32>) {
    let tile = id.x / 8u;
    let row = id.x % 8u;
    if (tile + 1u) * TILE_WORDS > arrayLength(&shown) {
        return;
    }
    var flags = 0u;
    for (var column = 0u; column < 8u; column++) {
        let at = row * 8u + column;
        let pixel = pixels[tile * 64u + at];
        var word = 0u;
        if (pixel.a & 0x7fffffffu) != 0u {
            var is_sure = pixel.a != UNSURE && pixel.a >= OPACITY_MIN && pixel.a < INFINITE;
            if is_sure {
                let red = byte(pixel.r, pixel.a);
                let green = byte(pixel.g, pixel.a);
                let blue = byte(pixel.b, pixel.a);
                is_sure = max(max(red, green), blue) < NONE;
                word = red | green << 8u | blue << 16u | byte(pixel.a, ONE) << 24u;
            }
            flags |= select(1u << column, 256u << column, is_sure);
        }
        shown[tile * TILE_WORDS + at] = word;
    }
    shown[tile * TILE_WORDS + 64u + row] = flags;
}
