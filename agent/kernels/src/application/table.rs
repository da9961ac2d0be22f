//! Tables of numbers as text, with commas in between.

use std::fmt::Write;
use std::io::{self, Read};
use std::path::Path;

use thiserror::Error;

use crate::limits::TABLE_BYTES_MAX;
use crate::pca::{Matrix, MatrixError};
use crate::plain_file;

/// Why a file is not a table.
#[derive(Debug, Error)]
pub enum TableError {
    /// It cannot be read.
    #[error("read: {0}")]
    Read(#[from] io::Error),
    /// More than is read.
    #[error("it is larger than {TABLE_BYTES_MAX} bytes")]
    TooLarge,
    /// Something that is not a number.
    #[error("line {line}: {field:?} is not a number")]
    Number {
        /// From 1.
        line: usize,
        /// What stands there.
        field: String,
    },
    /// Lines of different length.
    #[error("line {line} has {found} numbers, and those before it {expected}")]
    Width {
        /// From 1.
        line: usize,
        /// Numbers in it.
        found: usize,
        /// Numbers in others.
        expected: usize,
    },
    /// No numbers at all.
    #[error("there is no line of numbers in it")]
    Empty,
    /// Something that is a number and yet none.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
}

/// Reads a table. The first line may be one of names: one that has no number.
pub(super) fn read(path: &Path) -> Result<Matrix, TableError> {
    let mut text = String::new();
    plain_file::open(path)?.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        return Err(TableError::TooLarge);
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Matrix, TableError> {
    let mut numbers = Vec::new();
    let (mut rows, mut columns) = (0, 0);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (at, line) in lines {
        let fields = line.split(',').map(|field| (field.trim(), field.trim().parse::<f64>()));
        if rows == 0 && fields.clone().all(|(_, number)| number.is_err()) && columns == 0 {
            columns = fields.count();
            continue;
        }
        let before = numbers.len();
        for (field, number) in fields {
            let told = || field.chars().take(40).collect();
            let number = number.map_err(|_| TableError::Number { line: at + 1, field: told() })?;
            numbers.push(number);
        }
        let found = numbers.len() - before;
        if columns != 0 && found != columns {
            return Err(TableError::Width { line: at + 1, found, expected: columns });
        }
        (rows, columns) = (rows + 1, found);
    }
    if rows == 0 {
        return Err(TableError::Empty);
    }
    Ok(Matrix::new(rows, columns, numbers)?)
}

/// A table as text.
pub(super) fn text(names: &[String], matrix: &Matrix) -> Vec<u8> {
    let mut text = names.join(",");
    text.push('\n');
    for row in 0..matrix.rows() {
        for (column, number) in matrix.row(row).iter().enumerate() {
            let comma = if column == 0 { "" } else { "," };
            // Into memory: it cannot fail.
            let _ = write!(text, "{comma}{number}");
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// The names of so many columns, numbered from 1.
pub(super) fn numbered(name: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{name}{number}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_back_as_it_was_written() {
        let matrix = Matrix::new(2, 2, vec![0.1, -3e200, 5e-324, 7.0]).expect("finite");
        let written = text(&numbered("a", 2), &matrix);
        assert!(written.starts_with(b"a1,a2\n0.1,"));
        let read = parse(str::from_utf8(&written).expect("text")).expect("a table");
        assert_eq!(read, matrix);
        assert_eq!(parse(" 1 , 2 \r\n\n3,4\n").expect("a table").numbers(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn what_is_no_table_is_told_with_its_line() {
        let told = |text: &str| parse(text).expect_err("refused").to_string();
        assert_eq!(told("a,b\n1,2\n3,x\n"), "line 3: \"x\" is not a number");
        assert_eq!(told("1,2\n3\n"), "line 2 has 1 numbers, and those before it 2");
        assert_eq!(told("a,b\n1,2,3\n"), "line 2 has 3 numbers, and those before it 2");
        assert_eq!(told("a,b\n"), "there is no line of numbers in it");
        assert!(
            told("1,2\n3,nan\n").starts_with("row 1, column 1: NaN"),
            "{}",
            told("1,2\n3,nan\n")
        );
    }
}
