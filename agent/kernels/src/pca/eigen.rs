//! Eigenvalues of sums of squares and products.

use faer::{Mat, Side};

use super::leading::Tridiagonal;
use crate::limits::LEADING_SHARE_MAX;

/// Eigenvalues, the largest first, and the eigenvectors of those above zero, in columns.
#[derive(Debug)]
pub(crate) struct Eigen {
    pub(crate) values: Vec<f64>,
    pub(crate) vectors: Mat<f64>,
}

/// The `count` largest eigenvalues of the lower triangle of `gram`, whose entries are sums of
/// `terms` products; what rounding leaves of those that are zero is zero. `None` where they are
/// not found.
pub(crate) fn largest(gram: &Mat<f64>, count: usize, terms: usize) -> Option<Eigen> {
    let few = gram.nrows() / LEADING_SHARE_MAX;
    let found = if count <= few { solve_few(gram, count, terms) } else { None };
    match found {
        Some(found) => Some(found),
        None => solve_all(gram, count, terms),
    }
}

/// Where it is quicker to find few.
fn solve_few(gram: &Mat<f64>, count: usize, terms: usize) -> Option<Eigen> {
    let matrix = Tridiagonal::of(gram.clone());
    let values = above_zero(matrix.largest(count), terms);
    let vectors = matrix.vectors(&values[..rank(&values)])?;
    Some(Eigen { values, vectors })
}

fn solve_all(gram: &Mat<f64>, count: usize, terms: usize) -> Option<Eigen> {
    let solution = gram.self_adjoint_eigen(Side::Lower).ok()?;
    let (values, vectors) = (solution.S().column_vector(), solution.U());
    let last = vectors.ncols() - 1;
    let values = above_zero((0..count).map(|i| values[last - i]).collect(), terms);
    let rank = rank(&values);
    let vectors = Mat::from_fn(last + 1, rank, |row, i| vectors[(row, last - i)]);
    Some(Eigen { values, vectors })
}

pub(super) fn rank(values: &[f64]) -> usize {
    values.iter().filter(|value| **value > 0.0).count()
}

pub(super) fn above_zero(values: Vec<f64>, terms: usize) -> Vec<f64> {
    let largest = values.first().copied().unwrap_or(0.0);
    let least = largest.max(0.0) * terms as f64 * f64::EPSILON;
    values.into_iter().map(|value| if value > least { value } else { 0.0 }).collect()
}
