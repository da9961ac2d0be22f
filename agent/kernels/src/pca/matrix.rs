//! Tables of numbers.

use faer::MatRef;
use thiserror::Error;

/// A table of finite numbers, row by row.
///
/// # Invariants
/// There are rows × columns numbers, all finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) numbers: Vec<f64>,
}

/// Why something is not a matrix.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum MatrixError {
    /// Not as many numbers as the sides say.
    #[error("{found} numbers for a matrix of {rows} x {columns}: correct its size")]
    Count {
        /// What the sides say.
        rows: usize,
        /// As above.
        columns: usize,
        /// What is there.
        found: usize,
    },
    /// A number that is NaN or infinite.
    #[error("row {row}, column {column}: {number} is not a finite number: correct the data")]
    NotFinite {
        /// Where it is.
        row: usize,
        /// As above.
        column: usize,
        /// What it is.
        number: f64,
    },
}

impl Matrix {
    /// A matrix by its numbers, row by row.
    ///
    /// # Errors
    /// There are not as many as the sides say, or one is not finite.
    pub fn new(rows: usize, columns: usize, numbers: Vec<f64>) -> Result<Self, MatrixError> {
        let found = numbers.len();
        if rows.checked_mul(columns) != Some(found) {
            return Err(MatrixError::Count { rows, columns, found });
        }
        if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
            let (row, column) = (at / columns, at % columns);
            return Err(MatrixError::NotFinite { row, column, number: numbers[at] });
        }
        Ok(Self { rows, columns, numbers })
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// All numbers, row by row.
    #[must_use]
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// One row.
    ///
    /// # Panics
    /// There is no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f64] {
        &self.numbers[row * self.columns..(row + 1) * self.columns]
    }

    /// The matrix with a row of this one in each column, which is how it is in memory.
    pub(crate) fn transposed(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.numbers, self.columns, self.rows)
    }
}
