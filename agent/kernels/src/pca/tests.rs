use gleaner_protocol::Time;

use super::{Matrix, MatrixError, Pca, PcaError, PcaPlan};
use crate::{Outcome, Pace, Plan, Preempt, run};

pub(super) fn pca(data: Matrix, count: usize) -> Result<Pca, PcaError> {
    done(PcaPlan::new(data, count)?)
}

pub(super) fn done<P: Plan>(plan: Box<P>) -> Result<P::Output, P::Error> {
    match run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ())? {
        Outcome::Done(output) => Ok(output),
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}

/// Numbers that look random, each column with another spread, around `mean`.
pub(super) fn data(rows: usize, columns: usize, mean: f64) -> Matrix {
    let mut state = 9_u64;
    let mut dice = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let numbers = (0..rows * columns).map(|at| mean + dice() * (1.0 + (at % columns) as f64));
    Matrix::new(rows, columns, numbers.collect()).expect("finite")
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Asserts what makes components and scores of `data` what they are.
pub(super) fn assert_principal(data: &Matrix, pca: &Pca) {
    let (rows, count) = (data.rows(), pca.components.rows());
    let largest = pca.eigenvalues[0];
    for i in 0..count {
        for j in 0..=i {
            let product = dot(pca.components.row(i), pca.components.row(j));
            let expected = f64::from(u8::from(i == j));
            assert!((product - expected).abs() < 1e-9, "{i} {j}: {product}");
            let scores = (0..rows).map(|row| pca.scores.row(row)[i] * pca.scores.row(row)[j]);
            let expected = if i == j { pca.eigenvalues[i] } else { 0.0 };
            let product: f64 = scores.sum();
            assert!((product - expected).abs() < 1e-9 * largest, "{i} {j}: {product} {expected}");
        }
        for row in 0..rows {
            let centred: Vec<f64> =
                data.row(row).iter().zip(&pca.means).map(|(number, mean)| number - mean).collect();
            let score = dot(&centred, pca.components.row(i));
            assert!((score - pca.scores.row(row)[i]).abs() < 1e-8 * largest.sqrt());
        }
    }
    assert!(pca.eigenvalues.is_sorted_by(|a, b| a >= b));
}

#[test]
fn components_of_upright_and_of_flat_matrices_are_principal() {
    for (rows, columns, count) in [
        (60, 20, 20),
        (20, 60, 19),
        (300, 7, 3),
        (5, 300, 4),
        (9, 9, 8),
        (90, 80, 10),
        (70, 120, 8),
    ] {
        let data = data(rows, columns, 3.0);
        let pca = pca(data.clone(), count).expect("components");
        assert_eq!(pca.components.rows(), count);
        assert_principal(&data, &pca);
        // With all components nothing is left of the data.
        if count == (rows - 1).min(columns) {
            for row in 0..rows {
                for column in 0..columns {
                    let parts =
                        (0..count).map(|i| pca.scores.row(row)[i] * pca.components.row(i)[column]);
                    let number = pca.means[column] + parts.sum::<f64>();
                    assert!((number - data.row(row)[column]).abs() < 1e-9);
                }
            }
        }
    }
}

#[test]
fn a_known_matrix_has_its_known_components() {
    // Two directions at right angles, with scores at right angles that sum to zero.
    let (first, second) = ([0.6, 0.8, 0.0], [0.0, 0.0, -1.0]);
    let scores = [[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]];
    let numbers = scores
        .iter()
        .flat_map(|[a, b]| [0, 1, 2].map(|column| 50.0 + a * first[column] + b * second[column]));
    let data = Matrix::new(4, 3, numbers.collect()).expect("finite");
    let pca = pca(data, 3).expect("components");
    for (value, expected) in pca.eigenvalues.iter().zip([36.0, 4.0, 0.0]) {
        assert!((value - expected).abs() < 1e-9, "{:?}", pca.eigenvalues);
    }
    // Only as many components as the rank, and their largest number is above zero.
    assert_eq!(pca.components.rows(), 2);
    for (number, expected) in pca.components.numbers().iter().zip([0.6, 0.8, 0.0, 0.0, 0.0, 1.0]) {
        assert!((number - expected).abs() < 1e-9, "{:?}", pca.components);
    }
}

#[test]
fn how_far_the_data_is_from_zero_makes_no_difference() {
    let near = pca(data(200, 50, 0.0), 10).expect("components");
    for mean in [100.0, -1e5] {
        let far = pca(data(200, 50, mean), 10).expect("components");
        for (far, near) in far.eigenvalues.iter().zip(&near.eigenvalues) {
            assert!((far / near - 1.0).abs() < 1e-9, "{mean}: {far} {near}");
        }
    }
}

#[test]
fn few_components_are_the_first_of_all() {
    let data = data(150, 100, 100.0);
    let all = pca(data.clone(), 100).expect("components");
    let few = pca(data.clone(), 12).expect("components");
    assert_principal(&data, &few);
    for i in 0..12 {
        assert!((few.eigenvalues[i] / all.eigenvalues[i] - 1.0).abs() < 1e-11);
        let cosine = dot(few.components.row(i), all.components.row(i));
        assert!((cosine - 1.0).abs() < 1e-9, "{i}: {cosine}");
    }
}

#[test]
fn components_of_equal_eigenvalues_are_at_right_angles() {
    // Each column varies by itself, by as much as all others.
    let side = 64;
    let numbers = (0..2 * side * side).map(|at| {
        let (row, column) = (at / side, at % side);
        if row / 2 == column { 1.0 - 2.0 * (row % 2) as f64 } else { 0.0 }
    });
    let data = Matrix::new(2 * side, side, numbers.collect()).expect("finite");
    let pca = pca(data.clone(), 6).expect("components");
    assert!(pca.eigenvalues.iter().all(|value| (value - 2.0).abs() < 1e-12));
    assert_principal(&data, &pca);
}

#[test]
fn columns_that_do_not_vary_have_no_part_in_components() {
    // A mean of a tenth is rounded; of all eigenvectors, of few, and of rows.
    for (rows, columns, count, found) in [(30, 5, 5, 4), (90, 64, 3, 3), (9, 40, 8, 8)] {
        let mut numbers = data(rows, columns, 0.0).numbers().to_vec();
        numbers.iter_mut().skip(2).step_by(columns).for_each(|number| *number = 0.1);
        let data = Matrix::new(rows, columns, numbers).expect("finite");
        let pca = pca(data.clone(), count).expect("components");
        assert_eq!(pca.components.rows(), found);
        // Not noise, in which hosts would differ, and not below zero.
        let zero = 0.0_f64.to_bits();
        assert!((0..found).all(|i| pca.components.row(i)[2].to_bits() == zero), "{pca:?}");
        assert_principal(&data, &pca);
        assert!(count == found || pca.eigenvalues[found] == 0.0);
    }
    let none = pca(Matrix::new(4, 3, vec![0.1; 12]).expect("finite"), 2).expect("an answer");
    assert_eq!((none.eigenvalues, none.components.rows()), (vec![0.0; 2], 0));
    assert_eq!((none.scores.rows(), none.scores.columns()), (4, 0));
}

#[test]
fn very_large_and_very_small_numbers_are_squared_without_loss() {
    let plain = pca(data(40, 6, 0.0), 3).expect("components");
    for scale in [1e140, 1e-140] {
        let numbers = data(40, 6, 0.0).numbers().iter().map(|number| number * scale).collect();
        let scaled = pca(Matrix::new(40, 6, numbers).expect("finite"), 3).expect("components");
        for (scaled, plain) in scaled.eigenvalues.iter().zip(&plain.eigenvalues) {
            assert!((scaled / scale / scale / plain - 1.0).abs() < 1e-9);
        }
    }
    for scale in [1e200, 1e-200] {
        let numbers = data(40, 6, 0.0).numbers().iter().map(|number| number * scale).collect();
        let error = pca(Matrix::new(40, 6, numbers).expect("finite"), 3);
        assert!(matches!(error, Err(PcaError::Range(_))), "{error:?}");
    }
}

#[test]
fn what_has_no_components_is_refused() {
    let new = |rows, columns, count| PcaPlan::new(data(rows, columns, 0.0), count).err();
    assert_eq!(new(1, 4, 1), Some(PcaError::TooSmall { rows: 1, columns: 4 }));
    assert_eq!(new(4, 0, 1), Some(PcaError::TooSmall { rows: 4, columns: 0 }));
    for (rows, columns, asked, most) in [(4, 9, 4, 3), (9, 4, 5, 4), (9, 4, 0, 4)] {
        let error = PcaError::Components { asked, most, rows, columns };
        assert_eq!(new(rows, columns, asked), Some(error));
    }
    let count = MatrixError::Count { rows: 2, columns: 3, found: 5 };
    assert_eq!(Matrix::new(2, 3, vec![0.0; 5]), Err(count));
    let told = Matrix::new(2, 2, vec![0.0, 1.0, f64::INFINITY, 0.0]).expect_err("refused");
    assert!(told.to_string().starts_with("row 1, column 0: inf"), "{told}");
}
