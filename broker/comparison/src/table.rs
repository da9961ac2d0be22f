//! Tables with commas between their fields.

use crate::kind::RELATIVE;
use crate::limits::{NUMBER_BYTES_MAX, TABLE_COLUMNS_MAX};

/// Whether two tables are alike: text is equal, and numbers are near.
pub(crate) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let (Ok(one), Ok(other)) = (str::from_utf8(one), str::from_utf8(other)) else { return false };
    let Some(scales) = scales(one) else { return false };
    let mut lines = (one.split('\n'), other.split('\n'));
    loop {
        match (lines.0.next(), lines.1.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if lines_are_alike(one, other, &scales) => {}
            _ => return false,
        }
    }
}

/// The largest number of each column, signs aside; none where they are too many.
fn scales(table: &str) -> Option<Vec<f64>> {
    let mut scales: Vec<f64> = Vec::new();
    for line in table.split('\n') {
        for (column, field) in line.split(',').enumerate() {
            if column == TABLE_COLUMNS_MAX {
                return None;
            }
            if column == scales.len() {
                scales.push(0.0);
            }
            scales[column] = number(field).map_or(scales[column], |n| scales[column].max(n.abs()));
        }
    }
    Some(scales)
}

/// Whether two lines are alike. The first has no more fields than there are scales.
fn lines_are_alike(one: &str, other: &str, scales: &[f64]) -> bool {
    let mut fields = (one.split(','), other.split(','));
    for scale in scales {
        match (fields.0.next(), fields.1.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => match (number(one), number(other)) {
                (Some(one), Some(other)) if (one - other).abs() <= RELATIVE * scale => {}
                _ => return false,
            },
            _ => return false,
        }
    }
    fields.0.next().is_none() && fields.1.next().is_none()
}

/// A field as a number, if it is one and nothing beside it.
fn number(field: &str) -> Option<f64> {
    let field = (field.len() <= NUMBER_BYTES_MAX).then_some(field)?;
    field.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "count,score\n1,0.5\n2,-1000\n4,\n";

    fn is_like(other: &str) -> bool {
        are_alike(ONE.as_bytes(), other.as_bytes())
    }

    #[test]
    fn numbers_are_near_as_seen_from_the_largest_of_their_column() {
        assert!(is_like(&ONE.replace("0.5", "0.5009")));
        assert!(!is_like(&ONE.replace("0.5", "0.502")));
        assert!(is_like(&ONE.replace("-1000", "-1000.0005")));
        assert!(!is_like(&ONE.replace("-1000", "1000")));
        assert!(!is_like(&ONE.replace("\n2,", "\n2.00001,")));
    }

    #[test]
    fn names_lines_and_fields_are_equal() {
        assert!(!is_like(&ONE.replace("score", "scores")));
        assert!(!is_like(&ONE.replace("4,\n", "4\n")));
        assert!(!is_like(&ONE.replace("4,\n", "4,,\n")));
        assert!(!is_like(&ONE.replace("4,\n", "4,0\n")));
        assert!(!is_like(&ONE.replace("4,\n", "4,")));
        assert!(!is_like(&ONE.replace("4,\n", "")));
        assert!(!is_like(&ONE.replace("score\n", "score\r\n")));
        assert!(!is_like(&format!("{ONE}5,1\n")));
        assert!(!are_alike(b"1,1", b"1,1,1") && !are_alike(b"1,1,1", b"1,1"));
    }

    #[test]
    fn what_is_no_number_is_near_none() {
        for field in ["NaN", "inf", "-inf", ""] {
            assert!(!is_like(&ONE.replace("0.5", field)), "{field:?}");
            let table = ONE.replace("0.5", field);
            assert!(are_alike(table.as_bytes(), table.replace("1000", "1000.0001").as_bytes()));
        }
    }

    #[test]
    fn a_table_of_too_many_columns_is_like_nothing() {
        let with = |first: &str, columns| format!("{first}{}", ",1".repeat(columns - 1));
        let are =
            |columns| are_alike(with("1", columns).as_bytes(), with("1.0", columns).as_bytes());
        assert!(are(TABLE_COLUMNS_MAX));
        assert!(!are(TABLE_COLUMNS_MAX + 1));
    }
}
