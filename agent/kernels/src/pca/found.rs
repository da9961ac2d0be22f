//! What comes out: components with their scores.

use faer::Mat;

use super::matrix::Matrix;
use super::observations::Observations;
use crate::limits::SIGN_SHARE;

/// The principal components of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Pca {
    /// The mean of each column.
    pub means: Vec<f64>,
    /// Eigenvalues of the centred matrix' sums of squares and products, the largest first, as many
    /// as were asked for. Divided by the number of rows less one they are variances.
    pub eigenvalues: Vec<f64>,
    /// A component in each row; none for eigenvalues that are zero. Exactly zero in columns that do
    /// not vary.
    pub components: Matrix,
    /// The scores of each row of data, in as many columns as there are components.
    pub scores: Matrix,
}

impl Pca {
    /// Of eigenvalues, the eigenvectors of those above zero, and the products of the centred matrix
    /// with these.
    pub(super) fn of(
        observations: Observations,
        eigenvalues: Vec<f64>,
        vectors: Mat<f64>,
        products: Mat<f64>,
    ) -> Self {
        let rank = vectors.ncols();
        let (rows, columns) = (observations.data.rows, observations.data.columns);
        let is_upright = observations.is_upright();
        // The length of a component's scores is the root of its eigenvalue.
        let lengths: Vec<f64> = eigenvalues.iter().map(|value| value.sqrt()).collect();
        let (components, scores) =
            if is_upright { (vectors, products) } else { (products, vectors) };
        let component = |i: usize, column: usize| {
            components[(column, i)] / if is_upright { 1.0 } else { lengths[i] }
        };
        let signs: Vec<f64> = (0..rank).map(|i| sign(components.col_as_slice(i))).collect();
        let mut numbers = Vec::with_capacity(rank * columns);
        for (i, sign) in signs.iter().enumerate() {
            numbers.extend(observations.varies.iter().enumerate().map(|(column, varies)| {
                // What rounding leaves there is noise, and another one on each processor.
                if *varies { sign * component(i, column) } else { 0.0 }
            }));
        }
        let mut projected = Vec::with_capacity(rows * rank);
        for row in 0..rows {
            projected.extend(
                (0..rank).map(|i| {
                    signs[i] * scores[(row, i)] * if is_upright { 1.0 } else { lengths[i] }
                }),
            );
        }
        Self {
            means: observations.means,
            eigenvalues,
            components: Matrix { rows: rank, columns, numbers },
            scores: Matrix { rows, columns: rank, numbers: projected },
        }
    }
}

/// What a component is multiplied with, so that the first of its largest numbers is above zero.
/// Numbers that are about as large as the largest one are taken for the same, as which of them is
/// larger may be a matter of rounding.
fn sign(component: &[f64]) -> f64 {
    let largest = component.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
    let first = component.iter().find(|number| number.abs() >= SIGN_SHARE * largest);
    if first.is_some_and(|number| *number < 0.0) { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_does_not_turn_a_component_around() {
        let (half, more) = (0.5_f64.sqrt(), 0.5_f64.sqrt().next_up());
        assert_eq!(sign(&[-half, half]), -1.0);
        assert_eq!(sign(&[-half, more]), -1.0);
        assert_eq!(sign(&[-more, half]), -1.0);
        assert_eq!(sign(&[half, -more]), 1.0);
        assert_eq!(sign(&[-0.1, 0.0, 0.9, -0.2]), 1.0);
        assert_eq!(sign(&[0.1, 0.0, -0.9, 0.2]), -1.0);
        assert_eq!(sign(&[0.0, 0.0]), 1.0);
    }
}
