// What `double.rs` asks for. Before it stands the other double.wgsl.

// Two numbers of double precision each, the lower word of each first.
@group(0) @binding(0) var<storage, read> given: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> results: array<array<vec2<u32>, 6>>;

fn unpacked(words: vec2<u32>) -> Double {
    let negative = (words.y >> 31u) == 1u;
    if (words.y << 1u) == 0u && words.x == 0u {
        return zero(negative);
    }
    let digits = wide_left(vec2(words.y, words.x), 11u);
    return Double(digits | ONE, i32((words.y >> 20u) & 0x7ffu) - 1023, negative);
}

fn packed(a: Double) -> vec2<u32> {
    let sign = u32(a.negative) << 31u;
    if is_zero(a) {
        return vec2(0u, sign);
    }
    let digits = wide_right(a.mantissa, 11u);
    return vec2(digits.y, sign | (u32(a.exponent + 1023) << 20u) | (digits.x & 0xfffffu));
}

@compute @workgroup_size(1)
fn doubles(@builtin(workgroup_id) group: vec3<u32>) {
    let at = group.x;
    let a = unpacked(given[at].xy);
    let b = unpacked(given[at].zw);
    results[at][0] = packed(sum(a, b));
    results[at][1] = packed(difference(a, b));
    results[at][2] = packed(product(a, b));
    results[at][3] = packed(quotient(a, b));
    results[at][4] = packed(root(Double(a.mantissa, a.exponent, false)));
    results[at][5] = vec2(to_single(a), 0u);
}
