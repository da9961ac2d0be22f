//! The working basis of the simplex method and its inverse.

/// A column of the linear program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    /// The makespan itself.
    Makespan,
    /// What a machine has left until the makespan.
    Slack(usize),
    /// The share of a job on a machine.
    Share {
        /// Which job.
        job: usize,
        /// Where.
        machine: usize,
    },
}

/// As many columns as there are machines, and the inverse of the matrix that they are.
///
/// # Invariants
/// - The columns are linearly independent, the makespan is one of them.
#[derive(Debug)]
pub(super) struct Basis {
    columns: Vec<Column>,
    /// Row by row.
    inverse: Vec<f64>,
}

impl Basis {
    /// The makespan at the place of the machine that is done last; slacks of all others.
    pub(super) fn first(machines: usize, last: usize) -> Self {
        let mut columns: Vec<_> = (0..machines).map(Column::Slack).collect();
        columns[last] = Column::Makespan;
        // Its own inverse but for the sign: the makespan's column is -1 throughout.
        let mut inverse = vec![0.0; machines * machines];
        for row in 0..machines {
            inverse[row * machines + row] = 1.0;
            inverse[row * machines + last] = -1.0;
        }
        Self { columns, inverse }
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn row(&self, at: usize) -> &[f64] {
        let size = self.columns.len();
        &self.inverse[at * size..(at + 1) * size]
    }

    fn row_mut(&mut self, at: usize) -> &mut [f64] {
        let size = self.columns.len();
        &mut self.inverse[at * size..(at + 1) * size]
    }

    /// The coordinates of a vector in this basis.
    pub(super) fn coordinates(&self, vector: &[f64], into: &mut Vec<f64>) {
        into.clear();
        let rows = (0..self.columns.len()).map(|at| self.row(at));
        into.extend(rows.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum::<f64>()));
    }

    /// The coordinates of a vector that has `values` on the machines of these numbers, 0 else.
    pub(super) fn coordinates_of(&self, values: &[(usize, f64)], into: &mut Vec<f64>) {
        into.clear();
        let rows = (0..self.columns.len()).map(|at| self.row(at));
        into.extend(
            rows.map(|row| values.iter().map(|(machine, v)| row[*machine] * v).sum::<f64>()),
        );
    }

    /// Puts `column`, of these coordinates, in the place of another.
    pub(super) fn replace(&mut self, at: usize, column: Column, coordinates: &[f64]) {
        self.columns[at] = column;
        let pivot = coordinates[at];
        self.row_mut(at).iter_mut().for_each(|value| *value /= pivot);
        let pivot_row = self.row(at).to_vec();
        for (row, factor) in coordinates.iter().enumerate().filter(|(row, _)| *row != at) {
            if *factor != 0.0 {
                let values = self.row_mut(row).iter_mut().zip(&pivot_row);
                values.for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }

    /// The share at `at` and the key of its job change places: all other shares of the job,
    /// at `others`, are from now on told relative to the new key.
    pub(super) fn swap_key(&mut self, at: usize, others: &[usize], old_key: Column) {
        self.columns[at] = old_key;
        for other in others {
            let added = self.row(*other).to_vec();
            self.row_mut(at).iter_mut().zip(added).for_each(|(value, more)| *value += more);
        }
        self.row_mut(at).iter_mut().for_each(|value| *value = -*value);
    }

    /// Computes the inverse anew from its columns; `false` where rounding errors have made them
    /// dependent.
    pub(super) fn invert(&mut self, vector: impl Fn(Column, &mut [f64])) -> bool {
        let size = self.columns.len();
        let mut matrix = vec![0.0; size * size];
        let mut buffer = vec![0.0; size];
        for (at, column) in self.columns.iter().enumerate() {
            buffer.fill(0.0);
            vector(*column, &mut buffer);
            buffer.iter().enumerate().for_each(|(row, value)| matrix[row * size + at] = *value);
        }
        let Some(inverse) = inverse_of(&mut matrix, size) else { return false };
        self.inverse = inverse;
        true
    }
}

/// By Gauss and Jordan with the greatest pivot of each column.
fn inverse_of(matrix: &mut [f64], size: usize) -> Option<Vec<f64>> {
    let mut inverse = vec![0.0; size * size];
    (0..size).for_each(|at| inverse[at * size + at] = 1.0);
    for step in 0..size {
        let by_size = |a: &usize, b: &usize| {
            matrix[a * size + step].abs().total_cmp(&matrix[b * size + step].abs())
        };
        let pivot_row = (step..size).max_by(by_size)?;
        let pivot = matrix[pivot_row * size + step];
        if pivot.abs() < 1e-13 {
            return None;
        }
        for side in [&mut *matrix, &mut inverse] {
            for at in 0..size {
                side.swap(step * size + at, pivot_row * size + at);
                side[step * size + at] /= pivot;
            }
        }
        for row in (0..size).filter(|row| *row != step) {
            let factor = matrix[row * size + step];
            if factor != 0.0 {
                for side in [&mut *matrix, &mut inverse] {
                    for at in 0..size {
                        side[row * size + at] -= factor * side[step * size + at];
                    }
                }
            }
        }
    }
    Some(inverse)
}
