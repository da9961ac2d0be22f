//! The largest eigenvalues of a symmetric matrix that nothing is known of but what it makes of some
//! vectors, and that has none below zero.
//!
//! A block of vectors, a few more than are wanted, is multiplied with the matrix again and again, so
//! that what belongs to large eigenvalues grows; Chebyshev's polynomials make it grow faster than
//! powers do. From time to time the best approximations in what the block spans are found. Source:
//! Zhou, Saad, Tiago, Chelikowsky: Self-consistent-field calculations using Chebyshev-filtered
//! subspace iteration.
//!
//! # Invariants
//! What is multiplied does not depend on how long anything took: the same matrix has the same result.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, Par, Side};

use super::eigen::{Eigen, above_zero, rank};
use crate::dice::Dice;
use crate::limits::{
    SUBSPACE_APART, SUBSPACE_DEGREE_MAX, SUBSPACE_EXTRA_MIN, SUBSPACE_GROWTH_MAX,
    SUBSPACE_RESIDUAL, SUBSPACE_ROUNDING,
};

/// The purpose of the dice that make the first vectors.
const START: u64 = 6;

/// A block of vectors on its way to eigenvectors.
#[derive(Debug)]
pub(super) struct Subspace {
    count: usize,
    /// What is to be multiplied.
    block: Mat<f64>,
    stage: Stage,
    found: Option<(Vec<f64>, Mat<f64>)>,
}

/// What is done with the next product.
#[derive(Debug)]
enum Stage {
    /// The block is at right angles: its best approximations are found.
    Approximate,
    /// The block is the polynomial of one degree, and `before` that of one less.
    Filter { before: Mat<f64>, filter: Filter, ratio: f64, left: usize },
    /// Nothing: all are found, or cannot be.
    Over,
}

/// What keeps eigenvalues from zero to a border small.
#[derive(Debug, Clone, Copy)]
struct Filter {
    centre: f64,
    /// Half of what is from zero to the border.
    reach: f64,
    /// Scales polynomials to one at the largest eigenvalue.
    first_ratio: f64,
    degree: usize,
}

impl Filter {
    fn new(largest: f64, border: f64) -> Self {
        let reach = (border / 2.0).max(largest * f64::EPSILON).max(f64::MIN_POSITIVE);
        let outside = ((largest - reach) / reach).max(1.0 + f64::EPSILON);
        // Vectors of small eigenvalues keep some digits beside those of the largest.
        let degree = (2.0 * SUBSPACE_GROWTH_MAX).ln() / outside.acosh();
        let degree = (degree.min(SUBSPACE_DEGREE_MAX as f64) as usize).max(1);
        Self { centre: reach, reach, first_ratio: 1.0 / outside, degree }
    }
}

impl Subspace {
    /// Vectors of so many parts, for the eigenvectors of the `count` largest eigenvalues.
    pub(super) fn new(side: usize, count: usize) -> Self {
        let width = Self::width(side, count);
        let mut dice = Dice::new(0, START);
        let block = Mat::from_fn(side, width, |_, _| dice.unit() - 0.5);
        Self { count, block: at_right_angles(block), stage: Stage::Approximate, found: None }
    }

    /// Vectors of the block.
    pub(super) fn width(side: usize, count: usize) -> usize {
        (count + (count / 2).max(SUBSPACE_EXTRA_MIN)).min(side)
    }

    /// What is to be multiplied with the matrix next.
    pub(super) const fn block(&self) -> &Mat<f64> {
        &self.block
    }

    /// Whether no further product is wanted: all are found, or cannot be.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Whether all are found.
    #[cfg(test)]
    pub(super) const fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Goes on with what the matrix makes of the block.
    pub(super) fn take(&mut self, product: Mat<f64>) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Approximate => self.approximate(&product),
            Stage::Filter { before, filter, ratio, left } => {
                self.grow(product, &before, filter, ratio, left);
            }
            Stage::Over => {}
        }
    }

    /// The eigenvalues, of a matrix whose entries are sums of `terms` products, and eigenvectors of
    /// those above zero; `None` while they are not found.
    pub(super) fn into_found(self, terms: usize) -> Option<Eigen> {
        let (values, vectors) = self.found?;
        let values = above_zero(values, terms);
        let vectors = vectors.subcols(0, rank(&values)).to_owned();
        Some(Eigen { values, vectors })
    }

    /// The best approximations in what the block spans, and how good they are.
    fn approximate(&mut self, product: &Mat<f64>) {
        let width = self.block.ncols();
        let mut inner = Mat::zeros(width, width);
        multiply(&mut inner, self.block.transpose(), product.as_ref());
        // What fails once would fail again.
        let Ok(solution) = inner.self_adjoint_eigen(Side::Lower) else { return };
        // The largest first.
        let turn = Mat::from_fn(width, width, |row, i| solution.U()[(row, width - 1 - i)]);
        let values: Vec<f64> =
            (0..width).map(|i| solution.S().column_vector()[width - 1 - i]).collect();
        let zeros = || Mat::zeros(product.nrows(), width);
        let (mut vectors, mut products) = (zeros(), zeros());
        multiply(&mut vectors, self.block.as_ref(), turn.as_ref());
        multiply(&mut products, product.as_ref(), turn.as_ref());
        if are_found(&values[..self.count], values[width - 1], &vectors, &products) {
            let kept = vectors.subcols(0, self.count).to_owned();
            self.found = Some((values[..self.count].to_vec(), kept));
            return;
        }
        let filter = Filter::new(values[0].max(0.0), values[width - 1].max(0.0));
        // The first degree is here already.
        self.block = vectors;
        let before = std::mem::replace(&mut self.block, products);
        let scale = filter.first_ratio / filter.reach;
        combine(&mut self.block, &before, scale, -filter.centre * scale);
        self.goes_on(before, filter, filter.first_ratio, filter.degree - 1);
    }

    /// The polynomial of one degree more.
    fn grow(
        &mut self,
        mut product: Mat<f64>,
        before: &Mat<f64>,
        filter: Filter,
        ratio: f64,
        left: usize,
    ) {
        let next = 1.0 / (2.0 / filter.first_ratio - ratio);
        let scale = 2.0 * next / filter.reach;
        combine(&mut product, &self.block, scale, -filter.centre * scale);
        combine(&mut product, before, 1.0, -ratio * next);
        let before = std::mem::replace(&mut self.block, product);
        self.goes_on(before, filter, next, left - 1);
    }

    fn goes_on(&mut self, before: Mat<f64>, filter: Filter, ratio: f64, left: usize) {
        if left > 0 {
            self.stage = Stage::Filter { before, filter, ratio, left };
        } else {
            let block = std::mem::replace(&mut self.block, Mat::new());
            self.block = at_right_angles(block);
            self.stage = Stage::Approximate;
        }
    }
}

/// Whether the first vectors of a block, whose last one has the eigenvalue `last`, are as near to
/// eigenvectors as is asked for: nothing of their products is outside of what the block spans, but
/// for what rounding leaves, and a share of how far their eigenvalues are from those outside.
fn are_found(values: &[f64], last: f64, vectors: &Mat<f64>, products: &Mat<f64>) -> bool {
    let (count, largest) = (values.len(), values[0].max(0.0));
    let mut inside = Mat::zeros(vectors.ncols(), count);
    multiply(&mut inside, vectors.transpose(), products.subcols(0, count));
    let mut spanned = Mat::zeros(vectors.nrows(), count);
    multiply(&mut spanned, vectors.as_ref(), inside.as_ref());
    (0..count).all(|i| {
        let parts = products.col(i).iter().zip(spanned.col(i).iter());
        let outside = parts.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
        // Of what is nearer to each other than this, either is as good.
        let apart = SUBSPACE_APART * (values[i].max(0.0) * largest).sqrt();
        let limit = SUBSPACE_RESIDUAL * (values[i] - last).max(apart);
        outside <= limit.max(SUBSPACE_ROUNDING * largest)
    })
}

/// `a` times a number and `b` times another.
fn combine(a: &mut Mat<f64>, b: &Mat<f64>, of_a: f64, of_b: f64) {
    for i in 0..a.ncols() {
        let parts = a.col_as_slice_mut(i).iter_mut().zip(b.col_as_slice(i));
        parts.for_each(|(a, b)| *a = of_a * *a + of_b * *b);
    }
}

fn multiply(to: &mut Mat<f64>, left: faer::MatRef<'_, f64>, right: faer::MatRef<'_, f64>) {
    matmul(to.as_mut(), Accum::Replace, left, right, 1.0, Par::Seq);
}

/// Vectors of length one at right angles that span what these do.
fn at_right_angles(mut vectors: Mat<f64>) -> Mat<f64> {
    for i in 0..vectors.ncols() {
        let parts = vectors.col_as_slice_mut(i);
        let largest = parts.iter().fold(0.0_f64, |most, part| most.max(part.abs()));
        if largest > 0.0 {
            parts.iter_mut().for_each(|part| *part /= largest);
        }
    }
    vectors.qr().compute_thin_Q()
}

#[cfg(test)]
mod tests {
    use super::super::eigen;
    use super::*;
    use crate::limits::DEVICE_SOLUTION_PRODUCTS_MAX;

    /// A symmetric matrix of these eigenvalues.
    fn matrix(values: &[f64]) -> Mat<f64> {
        let side = values.len();
        let turn = at_right_angles(Mat::from_fn(side, side, |row, column| {
            (1.0 + (row * side + column) as f64 * 0.618_033_988_749).fract() - 0.5
                + f64::from(u8::from(row == column))
        }));
        let scaled = Mat::from_fn(side, side, |row, i| turn[(row, i)] * values[i]);
        let mut made = Mat::zeros(side, side);
        multiply(&mut made, scaled.as_ref(), turn.transpose());
        Mat::from_fn(side, side, |row, i| 0.5 * (made[(row, i)] + made[(i, row)]))
    }

    /// The subspace after all its products with a matrix, and how many these were.
    fn iterated(matrix: &Mat<f64>, count: usize, most: usize) -> (Subspace, usize) {
        let mut subspace = Subspace::new(matrix.nrows(), count);
        let mut products = 0;
        while !subspace.is_over() && products < most {
            let mut product = subspace.block().clone();
            multiply(&mut product, matrix.as_ref(), subspace.block().as_ref());
            subspace.take(product);
            products += 1;
        }
        (subspace, products)
    }

    #[test]
    fn eigenvalues_of_all_kinds_are_those_of_the_whole_solution() {
        let side = 120;
        let falling = |share: f64| -> Vec<f64> { (0..side).map(|i| share.powi(i)).collect() };
        let even: Vec<f64> = (0..side).map(|i| 2.0 - f64::from(i) / 100.0).collect();
        let equal: Vec<f64> = (0..side).map(|i| if i < 6 { 3.0 } else { 1.0 }).collect();
        let few: Vec<f64> =
            (0..side).map(|i| if i < 4 { 1.0 / f64::from(1 + i) } else { 0.0 }).collect();
        let far: Vec<f64> =
            (0..side).map(|i| if i == 0 { 1e9 } else { 1.0 / f64::from(i) }).collect();
        for values in [falling(0.5), falling(0.9), falling(0.99), even, equal, few, far] {
            let matrix = matrix(&values);
            let (subspace, products) = iterated(&matrix, 6, 400);
            let found = subspace.into_found(side as usize).expect("found");
            let sure = eigen::largest(&matrix, 6, side as usize).expect("found");
            assert_eq!(found.values.len(), 6);
            assert!(products < 100, "{products} for {values:?}");
            for (found, sure) in found.values.iter().zip(&sure.values) {
                assert!((found - sure).abs() <= 1e-13 * sure.max(values[0]), "{found} {sure}");
            }
            let vectors = &found.vectors;
            assert_eq!(vectors.ncols(), sure.vectors.ncols());
            for i in 0..vectors.ncols() {
                for j in 0..=i {
                    let parts = vectors.col(i).iter().zip(vectors.col(j).iter());
                    let product: f64 = parts.map(|(a, b)| a * b).sum();
                    assert!((product - f64::from(u8::from(i == j))).abs() < 1e-13, "{i} {j}");
                }
                let mut product = Mat::zeros(vectors.nrows(), 1);
                multiply(&mut product, matrix.as_ref(), vectors.subcols(i, 1));
                let parts = product.col(0).iter().zip(vectors.col(i).iter());
                let left = parts.map(|(a, b)| (a - found.values[i] * b).powi(2)).sum::<f64>();
                assert!(left.sqrt() <= 1e-8 * values[0], "{i}: {left:e}");
            }
        }
    }

    /// Eigenvalues of sums of squares and products of numbers that have nothing to do with each
    /// other, of so many columns and twice as many rows, as shares of one: those of which a share of
    /// `i / side` is larger. Source: Marchenko, Pastur: Distribution of eigenvalues for some sets
    /// of random matrices.
    fn of_noise(side: usize) -> Vec<f64> {
        let (low, high) = ((1.0 - 0.5_f64.sqrt()).powi(2), (1.0 + 0.5_f64.sqrt()).powi(2));
        let parts = 200 * side;
        let width = (high - low) / parts as f64;
        let (mut values, mut above) = (Vec::new(), 0.0);
        for part in 0..parts {
            let value = high - (part as f64 + 0.5) * width;
            above +=
                ((high - value) * (value - low)).sqrt() / (std::f64::consts::PI * value) * width;
            while values.len() < side && above * side as f64 > values.len() as f64 + 0.5 {
                values.push(value);
            }
        }
        values.resize(side, low);
        values
    }

    #[test]
    fn a_hundred_of_thousands_are_found_in_noise_before_products_are_given_up() {
        let (side, count) = (4000, 100);
        let values = of_noise(side);
        let mut subspace = Subspace::new(side, count);
        let mut products = 0;
        while !subspace.is_over() && products < 2 * DEVICE_SOLUTION_PRODUCTS_MAX {
            // In the coordinates of its eigenvectors a matrix is diagonal.
            let block = subspace.block();
            let product = Mat::from_fn(side, block.ncols(), |row, i| values[row] * block[(row, i)]);
            subspace.take(product);
            products += 1;
        }
        println!("{products} products with {} vectors each", Subspace::width(side, count));
        assert!(products < 130, "{products}");
        let found = subspace.into_found(side).expect("found");
        for (found, sure) in found.values.iter().zip(&values) {
            assert!((found / sure - 1.0).abs() < 1e-13, "{found} {sure}");
        }
        // Neighbours are 1e-3 of the largest apart.
        for i in 0..count {
            let vector = found.vectors.col_as_slice(i);
            let outside = vector.iter().enumerate().filter(|(at, _)| *at != i);
            let outside = outside.map(|(_, part)| part * part).sum::<f64>().sqrt();
            assert!((vector[i].abs() - 1.0).abs() < 1e-13 && outside < 1e-8, "{i}: {outside:e}");
        }
    }

    #[test]
    fn what_cannot_be_solved_is_given_up() {
        let mut subspace = Subspace::new(90, 5);
        subspace.take(Mat::from_fn(90, subspace.block().ncols(), |_, _| f64::NAN));
        assert!(subspace.is_over() && subspace.into_found(90).is_none());
    }

    #[test]
    fn what_is_not_found_yet_is_not_said() {
        let values: Vec<f64> = (0..90).map(|i| 1.0 - f64::from(i) * 1e-9).collect();
        let (subspace, products) = iterated(&matrix(&values), 5, 3);
        assert_eq!(products, 3);
        assert!(!subspace.is_over() && subspace.into_found(90).is_none());
    }
}
