//! The largest eigenvalues of a symmetric matrix and their eigenvectors, where few are wanted.
//!
//! The matrix is made tridiagonal, the eigenvalues are found by bisection and each eigenvector by
//! inverse iteration, at right angles to those before. Source: Wilkinson: The Algebraic Eigenvalue
//! Problem, 1965.

use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::evd::tridiag::{tridiag_in_place, tridiag_in_place_scratch};
use faer::linalg::householder::{
    apply_block_householder_sequence_on_the_left_in_place_scratch,
    apply_block_householder_sequence_on_the_left_in_place_with_conj,
};
use faer::linalg::qr::no_pivoting::factor::recommended_block_size;
use faer::{Conj, Mat, Par};

use crate::dice::Dice;
use crate::limits::INVERSE_ITERATIONS_MAX;

/// The purpose of the dice that make the vectors that iterations begin with.
const START: u64 = 5;

/// A symmetric matrix of three diagonals, and how to get back from it.
pub(super) struct Tridiagonal {
    diagonal: Vec<f64>,
    /// Beside the diagonal: one number less.
    beside: Vec<f64>,
    basis: Mat<f64>,
    factor: Mat<f64>,
    norm: f64,
}

impl Tridiagonal {
    /// From the lower triangle of a matrix of two rows at least.
    pub(super) fn of(mut matrix: Mat<f64>) -> Self {
        let side = matrix.nrows();
        let block = recommended_block_size::<f64>(side, side);
        let mut factor = Mat::zeros(block, side - 1);
        let scratch = tridiag_in_place_scratch::<f64>(side, Par::Seq, Default::default());
        tridiag_in_place(
            matrix.as_mut(),
            factor.as_mut(),
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(scratch)),
            Default::default(),
        );
        let diagonal: Vec<f64> = (0..side).map(|i| matrix[(i, i)]).collect();
        let beside: Vec<f64> = (1..side).map(|i| matrix[(i, i - 1)]).collect();
        // No eigenvalue is farther from zero (Gershgorin).
        let around = |i: usize| {
            let before = i.checked_sub(1).map_or(0.0, |before| beside[before].abs());
            diagonal[i].abs() + before + beside.get(i).map_or(0.0, |after| after.abs())
        };
        let norm = (0..side).map(around).fold(0.0, f64::max);
        Self { diagonal, beside, basis: matrix, factor, norm }
    }

    /// The `count` largest eigenvalues, the largest first.
    pub(super) fn largest(&self, count: usize) -> Vec<f64> {
        let mut above = self.norm * (1.0 + 1e-12);
        (0..count)
            .map(|i| {
                let (mut low, mut high) = (-self.norm * (1.0 + 1e-12), above);
                while high - low > 2.0 * f64::EPSILON * self.norm {
                    let middle = low + (high - low) / 2.0;
                    if middle <= low || middle >= high {
                        break;
                    }
                    if self.count_above(middle) > i { low = middle } else { high = middle }
                }
                above = high;
                low + (high - low) / 2.0
            })
            .collect()
    }

    /// How many eigenvalues are above a number: as many as pivots of the shifted matrix.
    fn count_above(&self, number: f64) -> usize {
        let mut above = 0;
        let mut pivot = 1.0;
        for (i, diagonal) in self.diagonal.iter().enumerate() {
            let beside = i.checked_sub(1).map_or(0.0, |before| self.beside[before]);
            pivot = diagonal - number - beside * beside / pivot;
            if pivot == 0.0 {
                pivot = -f64::EPSILON * self.norm.max(f64::MIN_POSITIVE);
            }
            above += usize::from(pivot > 0.0);
        }
        above
    }

    /// Eigenvectors of these eigenvalues, of the matrix that it was made of; `None` where one is
    /// not found.
    pub(super) fn vectors(&self, values: &[f64]) -> Option<Mat<f64>> {
        let side = self.diagonal.len();
        let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(values.len());
        for value in values {
            let vector = self.vector(*value, &vectors)?;
            vectors.push(vector);
        }
        let mut whole = Mat::from_fn(side, values.len(), |row, i| vectors[i][row]);
        let scratch: StackReq = apply_block_householder_sequence_on_the_left_in_place_scratch::<f64>(
            side - 1,
            self.factor.nrows(),
            values.len(),
        );
        apply_block_householder_sequence_on_the_left_in_place_with_conj(
            self.basis.as_ref().submatrix(1, 0, side - 1, side - 1),
            self.factor.as_ref(),
            Conj::No,
            whole.as_mut().subrows_mut(1, side - 1),
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(scratch)),
        );
        Some(whole)
    }

    fn vector(&self, value: f64, before: &[Vec<f64>]) -> Option<Vec<f64>> {
        let side = self.diagonal.len();
        let mut dice = Dice::new(before.len() as u64, START);
        let mut vector: Vec<f64> = (0..side).map(|_| dice.unit() - 0.5).collect();
        let mut found = None;
        for _ in 0..INVERSE_ITERATIONS_MAX {
            self.solve(value, &mut vector);
            // Twice, so that what rounding left of the others goes too.
            for other in before.iter().chain(before) {
                let share: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
                vector.iter_mut().zip(other).for_each(|(a, b)| *a -= share * b);
            }
            let length = vector.iter().map(|part| part * part).sum::<f64>().sqrt();
            if !(length > 0.0 && length.is_finite()) {
                return None;
            }
            vector.iter_mut().for_each(|part| *part /= length);
            if found.is_some() {
                // Once more than it takes.
                return Some(vector);
            }
            found = (self.residual(value, &vector) <= 1e-13 * self.norm * (side as f64).sqrt())
                .then_some(());
        }
        None
    }

    /// How far a vector of length one is from being an eigenvector.
    fn residual(&self, value: f64, vector: &[f64]) -> f64 {
        let parts = (0..vector.len()).map(|i| {
            let mut part = (self.diagonal[i] - value) * vector[i];
            if i > 0 {
                part += self.beside[i - 1] * vector[i - 1];
            }
            if let Some(beside) = self.beside.get(i) {
                part += beside * vector[i + 1];
            }
            part * part
        });
        parts.sum::<f64>().sqrt()
    }

    /// Solves the matrix less `value` on its diagonal for a vector, by elimination with exchange
    /// of rows. What is singular is made nearly so.
    fn solve(&self, value: f64, vector: &mut [f64]) {
        let side = self.diagonal.len();
        let least = f64::EPSILON * self.norm.max(f64::MIN_POSITIVE);
        let sure = |pivot: f64| if pivot.abs() < least { least } else { pivot };
        // Each row of the upper triangle has up to three numbers.
        let mut upper = vec![[0.0; 3]; side];
        let after = |i: usize| self.beside.get(i).copied().unwrap_or(0.0);
        let mut row = [self.diagonal[0] - value, after(0), 0.0];
        for i in 0..side - 1 {
            let mut next = [self.beside[i], self.diagonal[i + 1] - value, after(i + 1)];
            if next[0].abs() > row[0].abs() {
                std::mem::swap(&mut row, &mut next);
                vector.swap(i, i + 1);
            }
            row[0] = sure(row[0]);
            let share = next[0] / row[0];
            upper[i] = row;
            vector[i + 1] -= share * vector[i];
            row = [next[1] - share * row[1], next[2] - share * row[2], 0.0];
        }
        upper[side - 1] = [sure(row[0]), 0.0, 0.0];
        for i in (0..side).rev() {
            let mut rest = vector[i];
            for (ahead, number) in upper[i].iter().enumerate().skip(1) {
                if let Some(known) = vector.get(i + ahead) {
                    rest -= number * known;
                }
            }
            vector[i] = rest / upper[i][0];
        }
    }
}
