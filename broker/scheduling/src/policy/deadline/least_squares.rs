//! Linear least squares over terms of which some may be redundant.

/// A column adds something where more than this part of it is left beside the earlier ones.
const RANK_TOLERANCE: f64 = 1e-8;

/// Coefficients `c` that bring `Σ c[j] · columns[j]` nearest to `values`.
///
/// Columns are taken in their order; one that the earlier ones determine gets the coefficient 0.
/// All columns are as long as `values`.
///
/// Source: G. H. Golub, "Numerical methods for solving linear least squares problems", 1965 (QR;
/// here by modified Gram-Schmidt with a second pass).
#[must_use]
pub(super) fn least_squares(columns: &[Vec<f64>], values: &[f64]) -> Vec<f64> {
    let mut basis: Vec<Basis> = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let mut rest = column.clone();
        let mut above = vec![0.0; basis.len()];
        for _ in 0..2 {
            for (earlier, part) in basis.iter().zip(&mut above) {
                let along = dot(&earlier.direction, &rest);
                *part += along;
                subtract(&mut rest, along, &earlier.direction);
            }
        }
        let (length, whole) = (dot(&rest, &rest).sqrt(), dot(column, column).sqrt());
        if length > RANK_TOLERANCE * whole {
            rest.iter_mut().for_each(|value| *value /= length);
            basis.push(Basis { at, direction: rest, above, length });
        }
    }
    let mut left = values.to_vec();
    let mut along: Vec<f64> = basis
        .iter()
        .map(|column| {
            let along = dot(&column.direction, &left);
            subtract(&mut left, along, &column.direction);
            along
        })
        .collect();
    let mut coefficients = vec![0.0; columns.len()];
    for (place, column) in basis.iter().enumerate().rev() {
        let coefficient = along[place] / column.length;
        coefficients[column.at] = coefficient;
        for (part, above) in along.iter_mut().zip(&column.above) {
            *part -= coefficient * above;
        }
    }
    coefficients
}

/// A column that adds something, as an orthonormal direction and its parts.
struct Basis {
    /// Which column.
    at: usize,
    direction: Vec<f64>,
    /// Its parts along the earlier directions.
    above: Vec<f64>,
    /// Its part along its own.
    length: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn subtract(from: &mut [f64], factor: f64, direction: &[f64]) {
    from.iter_mut().zip(direction).for_each(|(value, part)| *value -= factor * part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_its_points_is_found() {
        let columns = [vec![1.0; 3], vec![0.0, 1.0, 2.0]];
        let found = least_squares(&columns, &[5.0, 7.0, 9.0]);
        assert!((found[0] - 5.0).abs() < 1e-12 && (found[1] - 2.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn what_cannot_be_met_is_met_in_the_mean() {
        let found = least_squares(&[vec![1.0; 4]], &[1.0, 2.0, 3.0, 10.0]);
        assert!((found[0] - 4.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn a_redundant_column_gets_nothing() {
        let columns = [vec![1.0; 3], vec![2.0; 3], vec![0.0, 1.0, 3.0]];
        let found = least_squares(&columns, &[1.0, 2.0, 4.0]);
        assert_eq!(found[1], 0.0);
        assert!((found[0] - 1.0).abs() < 1e-12 && (found[2] - 1.0).abs() < 1e-12, "{found:?}");
    }
}
