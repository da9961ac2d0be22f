// Sums of products of whole numbers of sixty bits, tile by tile.
//
// A number is two halves of thirty bits, and each half three digits of ten, from -512 to 512. So a
// product of digits is at most 2^18, and sums of DEPTH of these are whole numbers that f32 holds:
// no order of the additions and no fusion of them with the products makes a difference. STEP products
// of digits whose places add up to the same are added up as i32, and those of three such orders,
// shifted to their places, as one integer of 64 bits in two words. Of the order after these, which
// has squares that are all above zero, there is what is left when it is rounded to the one before
// it, step by step: how many steps a dispatch takes makes no difference either. All later orders are
// left out.
//
// In front of this stands: const TILE, sides of a tile; const STEP, a multiple of DEPTH.

// Numbers of each row that are multiplied from one load to the next.
const DEPTH: u32 = 16u;
// Each invocation has four rows and four columns of a tile.
const QUADS: u32 = TILE / 4u;
// From one depth to the next in what a workgroup shares.
const PITCH: u32 = QUADS + 1u;
const DIGITS_OF_HALF: u32 = 3u;
const LAST_DIGIT: u32 = 5u;
const LAST_ORDER: u32 = 6u;
const ORDERS_OF_WORD: u32 = 3u;
const DIGIT_BITS: u32 = 10u;
// Half of what the lower two digits of a half count.
const HALF_DIGITS: i32 = (512 << 10) + 512;

// One side of the products: `rows` rows that are multiplied with each row of the other side. The
// lower halves of all numbers are `plane` after the upper ones.
struct Side {
    rows: u32,
    row_stride: u32,
    depth_stride: u32,
    plane: u32,
}

// What one dispatch sums up: numbers `depths.x` to before `depths.y` of each row, counted from the
// first of a tile's layer, of which there is one each `layer` numbers; of `end` numbers in all. For
// tiles from `first_tile` on; `is_first` where there are no sums yet.
struct Piece {
    left: Side,
    right: Side,
    depths: vec2<u32>,
    layer: u32,
    end: u32,
    first_tile: u32,
    is_first: u32,
    padding: vec2<u32>,
}

@group(0) @binding(0) var<uniform> piece: Piece;
// The row, the column and the layer of each tile.
@group(0) @binding(1) var<storage, read> tiles: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> lefts: array<i32>;
@group(0) @binding(3) var<storage, read> rights: array<i32>;
// Of each tile the upper orders of all its sums, then the lower ones.
@group(0) @binding(4) var<storage, read_write> sums: array<vec2<u32>>;

var<workgroup> left: array<vec4<f32>, DEPTH * PITCH>;
var<workgroup> right: array<vec4<f32>, DEPTH * PITCH>;

// The digit of this place. With half of each lower digit added, no digit borrows from the one before
// it; without that half again, its bits are those of a number with a sign. Of the first one, what is
// above is all sign.
fn digit(half: i32, place: u32) -> f32 {
    let within = place % DIGITS_OF_HALF;
    let bits = (half + HALF_DIGITS) ^ HALF_DIGITS;
    let shift = (DIGITS_OF_HALF - 1u - within) * DIGIT_BITS;
    return f32(extractBits(bits, shift, DIGIT_BITS + select(0u, 2u, within == 0u)));
}

fn left_digit(row: u32, depth: u32, place: u32) -> f32 {
    if row >= piece.left.rows || depth >= piece.end {
        return 0.0;
    }
    let at = row * piece.left.row_stride + depth * piece.left.depth_stride;
    return digit(lefts[at + place / DIGITS_OF_HALF * piece.left.plane], place);
}

fn right_digit(row: u32, depth: u32, place: u32) -> f32 {
    if row >= piece.right.rows || depth >= piece.end {
        return 0.0;
    }
    let at = row * piece.right.row_stride + depth * piece.right.depth_stride;
    return digit(rights[at + place / DIGITS_OF_HALF * piece.right.plane], place);
}

// Which quad of rows, and which depth, an invocation loads: neighbours load what is side by side.
fn loaded(thread: u32, depth_stride: u32) -> vec2<u32> {
    if depth_stride == 1u {
        return vec2(thread / DEPTH, thread % DEPTH);
    }
    return vec2(thread % QUADS, thread / QUADS);
}

// What an order's sums count in the one before it.
fn rounded(values: vec4<i32>) -> vec4<i32> {
    return (values + (1 << (DIGIT_BITS - 1u))) >> vec4(DIGIT_BITS);
}

// Adds `value` times 2^shift to a sum; shift is 20 at most.
fn add(at: u32, value: i32, shift: u32, is_first: bool) {
    let low = bitcast<u32>(value) << shift;
    let high = bitcast<u32>((value >> 12u) >> (20u - shift));
    if is_first {
        sums[at] = vec2(low, high);
        return;
    }
    let before = sums[at];
    let after = before.x + low;
    sums[at] = vec2(after, before.y + high + u32(after < low));
}

fn add_four(at: u32, values: vec4<i32>, shift: u32, is_first: bool) {
    add(at, values.x, shift, is_first);
    add(at + 1u, values.y, shift, is_first);
    add(at + 2u, values.z, shift, is_first);
    add(at + 3u, values.w, shift, is_first);
}

@compute @workgroup_size(QUADS * QUADS)
fn products(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tile = piece.first_tile + group.x;
    let placed = tiles[tile];
    let corner = placed.xy * TILE;
    let first_depth = placed.z * piece.layer + piece.depths.x;
    let end_depth = min(placed.z * piece.layer + piece.depths.y, piece.end);
    let own = vec2(thread / QUADS, thread % QUADS);
    let from_left = loaded(thread, piece.left.depth_stride);
    let from_right = loaded(thread, piece.right.depth_stride);
    // A tile without products has sums too.
    var step = first_depth;
    loop {
        let end_step = min(step + STEP, end_depth);
        let begins = piece.is_first == 1u && step == first_depth;
        for (var order = 0u; order <= LAST_ORDER; order++) {
            var whole_0 = vec4<i32>();
            var whole_1 = vec4<i32>();
            var whole_2 = vec4<i32>();
            var whole_3 = vec4<i32>();
            for (var place = max(order, LAST_DIGIT) - LAST_DIGIT; place <= min(order, LAST_DIGIT); place++) {
                for (var depth = step; depth < end_step; depth += DEPTH) {
                    var row = corner.x + 4u * from_left.x;
                    var at = depth + from_left.y;
                    left[from_left.y * PITCH + from_left.x] = vec4(
                        left_digit(row, at, place),
                        left_digit(row + 1u, at, place),
                        left_digit(row + 2u, at, place),
                        left_digit(row + 3u, at, place),
                    );
                    row = corner.y + 4u * from_right.x;
                    at = depth + from_right.y;
                    right[from_right.y * PITCH + from_right.x] = vec4(
                        right_digit(row, at, order - place),
                        right_digit(row + 1u, at, order - place),
                        right_digit(row + 2u, at, order - place),
                        right_digit(row + 3u, at, order - place),
                    );
                    workgroupBarrier();
                    var sum_0 = vec4<f32>();
                    var sum_1 = vec4<f32>();
                    var sum_2 = vec4<f32>();
                    var sum_3 = vec4<f32>();
                    for (var d = 0u; d < DEPTH; d++) {
                        let a = left[d * PITCH + own.x];
                        let b = right[d * PITCH + own.y];
                        sum_0 += a.x * b;
                        sum_1 += a.y * b;
                        sum_2 += a.z * b;
                        sum_3 += a.w * b;
                    }
                    whole_0 += vec4<i32>(sum_0);
                    whole_1 += vec4<i32>(sum_1);
                    whole_2 += vec4<i32>(sum_2);
                    whole_3 += vec4<i32>(sum_3);
                    workgroupBarrier();
                }
            }
            if order == LAST_ORDER {
                whole_0 = rounded(whole_0);
                whole_1 = rounded(whole_1);
                whole_2 = rounded(whole_2);
                whole_3 = rounded(whole_3);
            }
            let word = min(order / ORDERS_OF_WORD, 1u);
            let within = order - word * ORDERS_OF_WORD;
            let shift = (ORDERS_OF_WORD - 1u - min(within, ORDERS_OF_WORD - 1u)) * DIGIT_BITS;
            let is_first = begins && within == 0u;
            let first = ((2u * tile + word) * TILE + 4u * own.x) * TILE + 4u * own.y;
            add_four(first, whole_0, shift, is_first);
            add_four(first + TILE, whole_1, shift, is_first);
            add_four(first + 2u * TILE, whole_2, shift, is_first);
            add_four(first + 3u * TILE, whole_3, shift, is_first);
        }
        step += STEP;
        if step >= end_depth {
            break;
        }
    }
}
