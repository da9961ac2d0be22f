mod products;

use std::sync::Arc;

use gleaner_protocol::Time;

use super::fixed::Fixed;
use super::layout::{Budget, Layout, Tile};
use super::multiplier::{Depths, Multiplier, Place, Rows, TILE_SUMS};
use super::plan::SOLVED;
use super::solution::DeviceSolution;
use super::{DeviceGram, DevicePcaPlan};
use crate::gpu::tests::{open, software, with_room};
use crate::gpu::{Gpu, GpuError};
use crate::limits::{DEVICE_PRODUCT_DEPTH, DEVICE_PRODUCT_TILE, DEVICE_STAGING_BYTES};
use crate::pca::tests::{assert_principal, data, done, dot, pca};
use crate::pca::{Gram, Matrix, Pca, PcaError};
use crate::{Outcome, Pace, Plan, Preempt, Slice, run};
use products::solving;

/// What votes over floating point tolerate, as a share of the largest number beside it.
const TOLERANCE: f64 = 1e-6;
/// How near eigenvalues are, as a share of the largest one.
const EIGENVALUES: f64 = 1e-11;

/// The half whose digits are as far below zero as they can be together.
const LOWEST: i32 = -(511 << 20) - (512 << 10) - 512;

fn on_device(data: Matrix, count: usize) -> Result<Pca, PcaError> {
    done(DevicePcaPlan::new(software(), data, count)?)
}

/// Asserts that two matrices are alike column by column, as votes are taken over tables.
fn assert_columns(what: &str, one: &Matrix, other: &Matrix, tolerance: f64) {
    assert_eq!((one.rows(), one.columns()), (other.rows(), other.columns()), "{what}");
    for column in 0..one.columns() {
        let pairs = (0..one.rows()).map(|row| (one.row(row)[column], other.row(row)[column]));
        let largest = pairs.clone().fold(0.0_f64, |largest, (one, _)| largest.max(one.abs()));
        for (row, (one, other)) in pairs.enumerate() {
            let apart = (one - other).abs();
            assert!(apart <= tolerance * largest, "{what} {row} {column}: {one} {other}");
        }
    }
}

fn assert_alike(ours: &Pca, theirs: &Pca, tolerance: f64) {
    assert_eq!(ours.means, theirs.means);
    assert_eq!(ours.eigenvalues.len(), theirs.eigenvalues.len());
    let largest = ours.eigenvalues[0];
    for (ours, theirs) in ours.eigenvalues.iter().zip(&theirs.eigenvalues) {
        assert!((ours - theirs).abs() <= EIGENVALUES * largest, "{ours} {theirs}");
    }
    assert_columns("scores", &ours.scores, &theirs.scores, tolerance);
    assert_columns("components", &ours.components, &theirs.components, tolerance);
}

/// The digits of a number, as it should be cut.
fn digits(number: Fixed) -> [i128; 6] {
    let cut = |half: i32| {
        let last = (half + 512).rem_euclid(1024) - 512;
        let rest = (half - last) / 1024;
        let middle = (rest + 512).rem_euclid(1024) - 512;
        [(rest - middle) / 1024, middle, last]
    };
    let ([a, b, c], [d, e, f]) = (cut(number.high), cut(number.low));
    [a, b, c, d, e, f].map(i128::from)
}

#[test]
fn sums_on_a_device_are_those_of_all_digits() {
    let mut state = 7_u64;
    let mut dice = |below: i32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (state >> 33) % (2 * below as u64 + 1);
        i32::try_from(i64::try_from(share).expect("small") - i64::from(below)).expect("small")
    };
    let (rows, side) = (DEVICE_PRODUCT_TILE + 3, DEVICE_PRODUCT_DEPTH + 21);
    let budget = Budget {
        slab_bytes: 1 << 20,
        matrix_bytes: 1 << 20,
        tiles: 3,
        solved_side: usize::MAX,
        solved_products: 0,
    };
    for is_upright in [true, false] {
        let layout = Layout::new(rows, side, is_upright, &budget);
        let multiplier = Multiplier::new(software(), &layout).expect("a device");
        let strides = layout.strides(0);
        let mut numbers = vec![Fixed { high: 0, low: 0 }; rows * side];
        for row in 0..rows {
            for depth in 0..side {
                numbers[row * strides[0] + depth * strides[1]] = match row % 4 {
                    // All digits are as large as can be, and of one sign or of both.
                    0 => Fixed { high: LOWEST, low: LOWEST },
                    1 if depth % 2 == 0 => Fixed { high: 1 << 29, low: -(1 << 29) },
                    1 => Fixed { high: -(1 << 29), low: 1 << 29 },
                    _ => Fixed { high: dice(1 << 29), low: dice(1 << 29) },
                };
            }
        }
        multiplier.send(Place::Slab(0), 0, &numbers).expect("sent");
        multiplier.place_tiles(&layout.gram_tiles()).expect("sent");
        let (all, end) = (Rows { count: rows, strides }, side);
        for begin in (0..side).step_by(DEVICE_PRODUCT_DEPTH) {
            let range = begin..begin + DEVICE_PRODUCT_DEPTH;
            let depths = Depths { range, layer: side, end, begins: begin == 0 };
            let right = (Place::Slab(0), all);
            multiplier.multiply((0, all), right, &depths, 0..3).expect("multiplied");
        }
        let sums = multiplier.fetch(0..3).expect("sums");
        for (tile, Tile { row: r, column: c, .. }) in layout.gram_tiles().into_iter().enumerate() {
            for at in 0..TILE_SUMS {
                let row = r * DEVICE_PRODUCT_TILE + at / DEVICE_PRODUCT_TILE;
                let column = c * DEVICE_PRODUCT_TILE + at % DEVICE_PRODUCT_TILE;
                let mut expected = [0_i128; 2];
                for first in (0..side).step_by(DEVICE_PRODUCT_DEPTH) {
                    let mut last = 0;
                    for depth in first..(first + DEVICE_PRODUCT_DEPTH).min(side) {
                        if row >= rows || column >= rows {
                            continue;
                        }
                        let number = |row| digits(numbers[row * strides[0] + depth * strides[1]]);
                        for (i, a) in number(row).into_iter().enumerate() {
                            for (j, b) in number(column).into_iter().enumerate() {
                                match i + j {
                                    0..6 => {
                                        expected[(i + j) / 3] +=
                                            (a * b) << (20 - 10 * ((i + j) % 3));
                                    }
                                    6 => last += a * b,
                                    _ => {}
                                }
                            }
                        }
                    }
                    // Of these there is what is left when they are rounded to those before.
                    expected[1] += (last + 512).div_euclid(1024);
                }
                let found = [0, 1].map(|word| sums[(2 * tile + word) * TILE_SUMS + at]);
                assert_eq!(found.map(i128::from), expected, "{row} {column}");
            }
        }
    }
}

/// How far `found` is from the sum of products, which is known to twice the digits of double
/// precision.
///
/// Source: Ogita, Rump, Oishi: Accurate Sum and Dot Product, 2005.
fn apart(found: f64, one: &[f64], other: &[f64]) -> f64 {
    let (mut sum, mut rest) = (0.0, 0.0);
    for (a, b) in one.iter().zip(other) {
        let product = a * b;
        let more: f64 = sum + product;
        let part = more - sum;
        rest += (sum - (more - part)) + (product - part) + a.mul_add(*b, -product);
        sum = more;
    }
    ((sum - found) + rest).abs()
}

#[test]
fn sums_of_a_device_are_as_near_to_the_exact_ones_as_those_of_a_processor() {
    let (rows, terms) = (12, 3000);
    let plain = data(rows, terms, 0.0);
    type Factor = fn(usize, usize) -> f64;
    let kinds: [(&str, Factor); 4] = [
        ("even", |_, _| 1.0),
        ("of one large number", |row, at| if at == 100 * row { 1e4 } else { 1.0 }),
        ("of columns that are smaller and smaller", |_, at| (-(at as f64) / 100.0).exp2()),
        ("of large rows and small ones", |row, _| [1.0, 1e-3, 1e-6][row % 3]),
    ];
    for (kind, factor) in kinds {
        let number = |row: usize, at: usize| plain.row(row)[at] * factor(row, at) / 3000.0;
        let numbers = (0..rows * terms).map(|at| number(at / terms, at % terms)).collect();
        let data = Matrix::new(rows, terms, numbers).expect("finite");
        let mut ours = Gram::new(rows, terms);
        ours.add(0..ours.blocks(), data.transposed().transpose(), 1.0);
        let mut theirs = DeviceGram::of_rows(software(), rows, terms).expect("a device");
        let largest = |row: usize| data.row(row).iter().fold(0.0_f64, |most, n| most.max(n.abs()));
        theirs.scale(1.0, &(0..rows).map(largest).collect::<Vec<_>>());
        theirs.add(0..theirs.units(), &data).expect("sums");
        let [ours, theirs] = [ours.take(), theirs.take()].map(|sums| {
            let mut most = 0.0_f64;
            for (i, j) in (0..rows).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let lengths = (sums[(i, i)] * sums[(j, j)]).sqrt();
                most = most.max(apart(sums[(i, j)], data.row(i), data.row(j)) / lengths);
            }
            most / f64::EPSILON
        });
        // Of the last bit; twelve parts come back.
        assert!(theirs <= 2.0 && theirs <= 1.5 * ours, "{kind}: {theirs} {ours}");
    }
}

#[test]
fn a_device_finds_what_the_processor_finds() {
    for (rows, columns, count) in [
        (60, 20, 20),
        (20, 60, 10),
        (300, 7, 3),
        (5, 300, 4),
        (2, 1, 1),
        (9, 9, 8),
        (90, 80, 10),
        (70, 120, 8),
    ] {
        for mean in [0.0, 100.0, -1e5] {
            let data = data(rows, columns, mean);
            let ours = pca(data.clone(), count).expect("components");
            let theirs = on_device(data.clone(), count).expect("components");
            assert_alike(&ours, &theirs, 1e-8);
            if mean == 0.0 {
                assert_principal(&data, &theirs);
            }
        }
    }
}

#[test]
fn top_eigenvalues_far_from_zero_are_those_of_double_precision() {
    for mean in [0.0, 100.0] {
        let data = data(200, 150, mean);
        let ours = pca(data.clone(), 10).expect("components");
        let theirs = on_device(data, 10).expect("components");
        for (ours, theirs) in ours.eigenvalues.iter().zip(&theirs.eigenvalues) {
            assert!((ours / theirs - 1.0).abs() < EIGENVALUES, "{ours} {theirs}");
        }
        assert_alike(&ours, &theirs, TOLERANCE);
    }
}

#[test]
fn a_matrix_that_is_larger_than_a_device_goes_there_slab_by_slab() {
    for (rows, columns, count) in [(150, 70, 5), (70, 150, 5), (100, 80, 66)] {
        let data = data(rows, columns, 10.0);
        let ours = pca(data.clone(), count).expect("components");
        for matrix_bytes in [0, 1 << 30] {
            // Forty of the longer side in a slab, and tiles in groups of two.
            let slab_bytes = 40 * 8 * rows.min(columns);
            let budget = Budget {
                slab_bytes,
                matrix_bytes,
                tiles: 2,
                solved_side: usize::MAX,
                solved_products: 0,
            };
            let plan = DevicePcaPlan::within(software(), data.clone(), count, &budget);
            let theirs = done(plan.expect("a plan")).expect("components");
            assert_alike(&ours, &theirs, 1e-7);
        }
    }
}

#[test]
fn columns_of_a_wide_matrix_that_are_smaller_than_others_by_far_are_as_on_the_processor() {
    for (rows, columns) in [(30, 200), (60, 40)] {
        let mut numbers = data(rows, columns, 0.0).numbers().to_vec();
        for row in numbers.chunks_exact_mut(columns) {
            row.iter_mut().skip(1).step_by(3).for_each(|number| *number *= 1e-6);
        }
        let data = Matrix::new(rows, columns, numbers).expect("finite");
        let ours = pca(data.clone(), 5).expect("components");
        let theirs = on_device(data, 5).expect("components");
        // Loadings of a column are a column of their table.
        assert_alike(&ours, &theirs, TOLERANCE / 10.0);
    }
}

#[test]
fn few_sums_of_many_products_are_summed_up_in_layers() {
    for (rows, columns) in [(5000, 30), (30, 2500), (2, 1300), (130, 1300)] {
        let data = data(rows, columns, 100.0);
        let ours = pca(data.clone(), 1).expect("components");
        // In slabs of 512 and less of the longer side, and in one. The first has more tiles of scores than
        // come back at once, and the last more of sums.
        for slab_bytes in [512 * 8 * rows.min(columns), 1 << 27] {
            let budget = Budget {
                slab_bytes,
                matrix_bytes: 1 << 27,
                tiles: 7,
                solved_side: usize::MAX,
                solved_products: 0,
            };
            let plan = DevicePcaPlan::within(software(), data.clone(), 1, &budget);
            let theirs = done(plan.expect("a plan")).expect("components");
            assert_alike(&ours, &theirs, TOLERANCE / 10.0);
        }
        let theirs = on_device(data, 1).expect("components");
        assert_alike(&ours, &theirs, TOLERANCE / 10.0);
    }
}

#[test]
fn components_are_the_same_from_slices_of_any_size() {
    // One step of each sum, and several, of which a slice has as many as it can in one dispatch.
    let few = Budget {
        slab_bytes: 1 << 20,
        matrix_bytes: 1 << 22,
        tiles: 5,
        solved_side: usize::MAX,
        solved_products: 0,
    };
    for (rows, columns, budget) in
        [(300, 70, None), (400, 150, Some(few)), (70, 400, Some(few)), (100, 70, Some(solving(3)))]
    {
        let budget = budget.unwrap_or_else(|| Budget::of(&software()));
        let data = data(rows, columns, 5.0);
        let plan = || DevicePcaPlan::within(software(), data.clone(), 4, &budget).expect("a plan");
        let mut at_once = plan();
        let units = at_once.units();
        at_once.run(&Slice::new(0..units)).expect("the device goes on");
        let at_once = at_once.finish().expect("components");
        let mut one_by_one = plan();
        for unit in 0..units {
            one_by_one.run(&Slice::new(unit..unit + 1)).expect("the device goes on");
        }
        assert_eq!(one_by_one.finish().expect("components"), at_once, "{rows} x {columns}");
    }
}

#[test]
fn columns_of_all_sizes_and_those_that_do_not_vary_are_as_on_the_processor() {
    let mut numbers = data(60, 8, 0.0).numbers().to_vec();
    for row in numbers.chunks_exact_mut(8) {
        row[2] = 0.1;
        row[4] *= 1e-5;
        row[5] = row[0] + row[1];
        row[6] *= 1e-120;
    }
    let data = Matrix::new(60, 8, numbers).expect("finite");
    let ours = pca(data.clone(), 8).expect("components");
    let theirs = on_device(data, 8).expect("components");
    // One is constant, one is the sum of two, and one is too small to be seen.
    assert_eq!((ours.components.rows(), theirs.components.rows()), (5, 5));
    assert_eq!((ours.eigenvalues[5], theirs.eigenvalues[5]), (0.0, 0.0));
    for (ours, theirs) in ours.eigenvalues.iter().zip(&theirs.eigenvalues).take(4) {
        assert!((ours - theirs).abs() <= EIGENVALUES * ours, "{ours} {theirs}");
    }
    // The fifth is so much smaller that rounding turns it, here as there.
    assert!((0..5).all(|i| theirs.components.row(i)[2] == 0.0));
    let none = Matrix::new(4, 3, vec![0.1; 12]).expect("finite");
    let none = on_device(none, 2).expect("an answer");
    assert_eq!((none.eigenvalues, none.components.rows()), (vec![0.0; 2], 0));
}

#[test]
fn components_whose_roots_are_apart_are_alike_and_others_are_in_one_plane() {
    // Scores at right angles, of lengths that are apart by `apart`, in three directions.
    let rows = 96;
    let wave = |k: f64, row: usize| (k * 2.0 * std::f64::consts::PI * row as f64 / 96.0).cos();
    let (s, t) = (0.48, 0.64);
    let directions = [[0.6, 0.8, 0.0], [-t, s, 0.6], [s, -0.36, 0.8]];
    let of = |apart: f64| {
        let numbers = (0..rows).flat_map(|row| {
            let scores = [wave(1.0, row), wave(2.0, row) * (1.0 - apart), wave(5.0, row) * 0.3];
            [0, 1, 2]
                .map(|column| (0..3).map(|i| scores[i] * directions[i][column]).sum::<f64>() + 3.0)
        });
        let data = Matrix::new(rows, 3, numbers.collect()).expect("finite");
        (pca(data.clone(), 3).expect("components"), on_device(data, 3).expect("components"))
    };
    let (ours, theirs) = of(1e-5);
    assert_alike(&ours, &theirs, TOLERANCE);
    // Equal ones: any two at right angles in the plane will do.
    let (ours, theirs) = of(0.0);
    for i in 0..3 {
        let (ours, theirs) = (ours.eigenvalues[i], theirs.eigenvalues[i]);
        assert!((ours / theirs - 1.0).abs() < EIGENVALUES, "{ours} {theirs}");
    }
    for i in 0..2 {
        let parts = (0..2).map(|j| dot(theirs.components.row(i), ours.components.row(j)).powi(2));
        assert!((parts.sum::<f64>() - 1.0).abs() < 1e-9);
    }
}

#[test]
fn very_large_and_very_small_numbers_are_squared_without_loss() {
    let plain = pca(data(40, 6, 0.0), 3).expect("components");
    for scale in [1e140, 1e-140] {
        let numbers = data(40, 6, 0.0).numbers().iter().map(|number| number * scale).collect();
        let scaled = on_device(Matrix::new(40, 6, numbers).expect("finite"), 3);
        let scaled = scaled.expect("components");
        for (scaled, plain) in scaled.eigenvalues.iter().zip(&plain.eigenvalues) {
            assert!((scaled / scale / scale / plain - 1.0).abs() < 1e-9);
        }
        assert_columns("components", &plain.components, &scaled.components, 1e-8);
    }
    let numbers = data(40, 6, 0.0).numbers().iter().map(|number| number * 1e200).collect();
    let error = on_device(Matrix::new(40, 6, numbers).expect("finite"), 3);
    assert!(matches!(error, Err(PcaError::Range(_))), "{error:?}");
    let error = on_device(data(4, 9, 0.0), 4);
    assert!(matches!(error, Err(PcaError::Components { .. })), "{error:?}");
}

#[test]
fn who_finds_components_on_a_device_stops_when_asked() {
    let plan = DevicePcaPlan::new(software(), data(150, 130, 0.0), 3).expect("a plan");
    let (preempt, units) = (Preempt::new(), plan.units());
    let mut slices = 0;
    let outcome = run(plan, &preempt, &mut Pace::new(), || Time::ZERO, &mut |_| {
        slices += 1;
        if slices == 8 {
            preempt.ask();
        }
    });
    let Ok(Outcome::Stopped { done, units: of }) = outcome else { panic!("it went on") };
    assert!(done < units && of == units, "{done} of {units}");
}

/// Where a plan has just begun to multiply.
fn halfway(gpu: &Arc<Gpu>) -> (Box<DevicePcaPlan>, u64) {
    let plan = DevicePcaPlan::new(gpu.clone(), data(150, 130, 0.0), 3);
    let mut plan = plan.expect("a plan");
    let kinds = |plan: &DevicePcaPlan, unit| plan.stretch(unit).kind;
    let multiplies = (0..plan.units()).find(|unit| kinds(&plan, *unit) >= 9).expect("some");
    plan.run(&Slice::new(0..multiplies + 1)).expect("the device goes on");
    (plan, multiplies + 1)
}

#[test]
fn a_device_that_is_lost_in_the_middle_is_an_error() {
    let gpu = open();
    let (mut plan, done) = halfway(&gpu);
    let units = plan.units();
    gpu.device().destroy();
    let error = plan.run(&Slice::new(done..units)).expect_err("it is lost");
    assert!(matches!(&error, PcaError::Device(GpuError::Lost { .. })), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("llvmpipe") && told.contains("was lost"), "{told}");
    let error = DevicePcaPlan::new(gpu, data(9, 9, 0.0), 1).expect_err("it is lost");
    assert!(matches!(&error, PcaError::Device(GpuError::Lost { .. })), "{error:?}");
}

#[test]
fn a_device_is_asked_for_no_more_than_it_binds() {
    let gpu = software();
    let budget = Budget::of(&gpu);
    // The longest and the widest that there can be.
    let sides = [(1, 1 << 28), (16_384, 1 << 20), (16_384, 16_384)];
    for (short, long, wide) in sides.into_iter().flat_map(|(a, b)| [(a, b, true), (a, b, false)]) {
        let layout = Layout::new(short, long, wide, &budget);
        let bound = gpu.device().limits().max_storage_buffer_binding_size;
        assert!((layout.slab_numbers() * 8) as u64 <= bound, "{layout:?}");
        assert!((short * DEVICE_PRODUCT_TILE * 8) as u64 <= bound);
        assert!((layout.tiles * TILE_SUMS * 16) as u64 <= bound);
        let held = layout.held * layout.slab_numbers() * 8;
        assert!(layout.lines(0).1 * 8 <= DEVICE_STAGING_BYTES);
        assert!(held <= budget.matrix_bytes.max(budget.slab_bytes), "{layout:?}");
    }
}

#[test]
fn a_device_is_asked_for_no_more_than_others_leave() {
    let (all, some) = (Budget::of(&software()), Budget::of(&with_room(50 << 20)));
    assert!(all.slab_bytes > 50 << 20);
    assert_eq!((some.slab_bytes, some.matrix_bytes), (50 << 20, 50 << 20));
}

/// Waves along a side, each at right angles to the others and of length one; all but the first are
/// around zero.
fn wave(side: usize, number: usize, at: usize) -> f64 {
    let turns = (2 * at + 1) as f64 * number as f64 / (2 * side) as f64;
    (std::f64::consts::PI * turns).cos() * (2.0 / side as f64).sqrt()
}

#[test]
fn what_is_said_of_how_near_components_are_holds() {
    // Roots a hundred-thousandth of the largest apart, down to a ten-thousandth of it; and those
    // that are large enough for columns with loadings of 2e-7, where these are eigenvectors.
    let all = [1.0, 0.7, 0.7 - 1e-5, 1.1e-3, 1e-4, 1e-4 - 1e-5];
    let large = [1.0, 0.7, 0.7 - 1e-5, 0.2, 0.1, 0.1 - 1e-5];
    let cases =
        [(90, 40, 1.0, all), (40, 90, 1.0, all), (40, 90, 1e-6, all), (90, 40, 1e-6, large)];
    for (rows, columns, small, roots) in cases {
        let number = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let of_root = |(k, root): (usize, &f64)| {
                root * wave(rows, 2 * k + 3, row) * wave(columns, 3 * k + 2, column)
            };
            let sum: f64 = roots.iter().enumerate().map(of_root).sum();
            (2 * (column % 5)) as f64 + sum * if column % 3 == 1 { small } else { 1.0 }
        };
        let numbers: Vec<f64> = (0..rows * columns).map(number).collect();
        let data = Matrix::new(rows, columns, numbers.clone()).expect("finite");
        let ours = pca(data.clone(), 5).expect("components");
        for budget in [Budget::of(&software()), solving(20)] {
            let plan = DevicePcaPlan::within(software(), data.clone(), 5, &budget);
            let theirs = done(plan.expect("a plan")).expect("components");
            assert_alike(&ours, &theirs, TOLERANCE);
            let sure = ours.eigenvalues.iter().zip(&theirs.eigenvalues).take(4);
            sure.for_each(|(ours, theirs)| assert!((ours / theirs - 1.0).abs() < 1e-8));
        }
        // A processor that adds up in another order.
        let turned = numbers.rchunks(columns).flatten().copied().collect();
        let turned = Matrix::new(rows, columns, turned).expect("finite");
        let turned = pca(turned, 5).expect("components");
        assert_columns("turned", &ours.components, &turned.components, TOLERANCE);
    }
}

/// The largest difference of a column, as a share of its largest number, of all columns.
fn farthest(one: &Matrix, other: &Matrix) -> f64 {
    let of_column = |column: usize| {
        let pairs = (0..one.rows()).map(|row| (one.row(row)[column], other.row(row)[column]));
        let largest = pairs.clone().fold(0.0_f64, |most, (one, _)| most.max(one.abs()));
        pairs.fold(0.0_f64, |most, (one, other)| most.max((one - other).abs())) / largest
    };
    (0..one.columns()).map(of_column).fold(0.0, f64::max)
}

#[test]
fn where_rounding_decides_a_device_is_one_more_processor() {
    // Five roots, each so near to the next that processors do not agree on more than a few digits.
    let (rows, columns) = (300, 40);
    let (mut another, mut device) = (0.0, 0.0);
    for turn in 0..6 {
        let number = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let of_root = |k: usize| {
                let root = 1.0 - 1e-8 * k as f64;
                root * wave(rows, 2 * k + 3 + turn, row) * wave(columns, 3 * k + 2 + turn, column)
            };
            (column % 5) as f64 + (0..5).map(of_root).sum::<f64>()
        };
        let numbers: Vec<f64> = (0..rows * columns).map(number).collect();
        let data = Matrix::new(rows, columns, numbers.clone()).expect("finite");
        let ours = pca(data.clone(), 4).expect("components");
        let theirs = on_device(data, 4).expect("components");
        // A processor that adds up in another order.
        let turned = numbers.rchunks(columns).flatten().copied().collect();
        let turned = Matrix::new(rows, columns, turned).expect("finite");
        let turned = pca(turned, 4).expect("components");
        another += farthest(&ours.components, &turned.components);
        device += farthest(&ours.components, &theirs.components);
    }
    assert!(another > 6e-9, "nothing was left to rounding: {another}");
    assert!(device < 4.0 * another, "{device} {another}");
}
