//! What a device computes in whole numbers, beside what the processor computes.

use wgpu::BufferUsages;

use crate::dice::Dice;
use crate::gpu::tests::software;
use crate::gpu::{Program, READ, Staging, WRITTEN, side};

/// What comes out for two numbers: their sum, difference, product and quotient, the root of the first
/// one without its sign, and that one as a number of single precision.
type Results = [u64; 6];

fn expected([a, b]: [f64; 2]) -> Results {
    let single = (a as f32).to_bits().into();
    let doubles = [a + b, a - b, a * b, a / b, a.abs().sqrt()].map(f64::to_bits);
    [doubles[0], doubles[1], doubles[2], doubles[3], doubles[4], single]
}

fn found(pairs: &[[f64; 2]]) -> Vec<Results> {
    let gpu = software();
    let source = [include_str!("../double.wgsl"), include_str!("double.wgsl")].concat();
    let read = gpu.checked("numbers", || {
        let program = Program::new(&gpu, "doubles", &source, &[READ, WRITTEN]);
        let (bytes, made) = (size_of_val(pairs), pairs.len() * size_of::<Results>());
        let given = gpu.buffer("given", bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST);
        let results = gpu.buffer("results", made, BufferUsages::STORAGE | BufferUsages::COPY_SRC);
        let back = gpu.buffer("back", made, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        let staging = Staging::new(&gpu, bytes);
        let copy = staging.packed(&gpu, &[(&given, 0, bytemuck::cast_slice(pairs))])?;
        let resources = [&given, &results].map(|buffer| buffer.as_entire_binding());
        let bound = program.bind(&gpu, resources);
        let submission = gpu.submitted("doubles", |commands| {
            copy(commands);
            program.dispatch(commands, &bound, pairs.len());
            commands.copy_buffer_to_buffer(&results, 0, &back, 0, made as u64);
        });
        gpu.read(&back, made as u64, submission)
    });
    assert!(side(pairs.len()) < 65_536);
    bytemuck::pod_collect_to_vec(&read.expect("results"))
}

/// Numbers that are apart by so much that all kinds of rounding occur.
fn pairs() -> Vec<[f64; 2]> {
    let mut dice = Dice::new(11, 0);
    let mut number = |bits: u32, exponents: usize| {
        let digits = dice.below(1 << bits) as f64;
        let exponent = dice.below(2 * exponents + 1) as f64 - exponents as f64;
        let sign = if dice.below(2) == 0 { -1.0 } else { 1.0 };
        sign * digits * exponent.exp2()
    };
    let mut pairs = Vec::new();
    for (bits, exponents) in [(53, 3), (53, 60), (3, 60), (24, 30), (12, 2), (53, 0), (2, 2)] {
        for _ in 0..3000 {
            let (a, b) = (number(bits, exponents), number(bits, exponents));
            // A quotient of zero is not asked for.
            pairs.push([a, if b == 0.0 { 3.0 } else { b }]);
        }
    }
    let corners =
        [0.0, -0.0, 1.0, 1.0_f64.next_down(), 1.0_f64.next_up(), 2.0, 0.5_f64.next_up(), -3.0];
    let halves = [1.0 + 2.0_f64.powi(-24), 1.0 + 3.0 * 2.0_f64.powi(-24), 2.0_f64.powi(-53)];
    let singles =
        [-126, -127, -149, -150, -151, 127].map(|power| 2.0_f64.powi(power) * (1.5 - 1e-9));
    let corners = [&corners[..], &halves, &singles].concat();
    for a in &corners {
        pairs.extend(corners.iter().filter(|b| **b != 0.0).map(|b| [*a, *b]));
    }
    pairs
}

#[test]
fn double_precision_in_whole_numbers_is_the_processors_to_the_bit() {
    let pairs = pairs();
    for (pair, found) in pairs.iter().zip(found(&pairs)) {
        let expected = expected(*pair);
        assert_eq!(found.map(f64::from_bits), expected.map(f64::from_bits), "{pair:?}");
        assert_eq!(found, expected, "{pair:?}");
    }
}
