//! Tables of numbers as text, with commas in between.
//!
//! # Invariants
//! A file is never in memory, but one field of it at a time; room for its numbers is made when it is
//! known how many there are, and that they fit into what is free.

use std::fmt::Write;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use thiserror::Error;

use super::excerpt;
use crate::limits::{TABLE_BYTES_MAX, TABLE_FIELD_BYTES_MAX, TABLE_NAMES_MAX};
use crate::memory::{self, MemoryError};
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
    /// Its numbers need more memory than is free.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Something longer than any number.
    #[error("line {line}: more than {TABLE_FIELD_BYTES_MAX} bytes without a comma: is it a table?")]
    Field {
        /// From 1.
        line: usize,
    },
    /// Something that is no text.
    #[error("line {line} is not UTF-8: save it as such")]
    Text {
        /// From 1.
        line: usize,
    },
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

/// A table that was read.
#[derive(Debug)]
pub(super) struct Table {
    /// What its first line calls the first columns; empty where that line has numbers.
    pub(super) names: Vec<String>,
    pub(super) numbers: Matrix,
}

/// Reads a table. The first line may be one of names: one that has no number.
pub(super) fn read(path: &Path, free_bytes: &dyn Fn() -> u64) -> Result<Table, TableError> {
    let file = plain_file::open(path)?;
    let mut text = BufReader::with_capacity(BUFFER_BYTES, file);
    let count = count(text.by_ref().take(TABLE_BYTES_MAX + 1))?;
    let what = || format!("a table of {count} numbers");
    let numbers = memory::room(what, count, free_bytes())?;
    text.rewind()?;
    parse(text.take(TABLE_BYTES_MAX), numbers)
}

/// What is read of a file in one go.
const BUFFER_BYTES: usize = 64 << 10;

/// How many numbers, or names, there are in a text.
fn count(mut text: impl BufRead) -> Result<usize, TableError> {
    let (mut count, mut bytes, mut is_blank) = (0, 0, true);
    loop {
        let buffer = text.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        for byte in buffer {
            match byte {
                b',' => count += 1,
                b'\n' if is_blank => {}
                b'\n' => {
                    count += 1;
                    is_blank = true;
                    continue;
                }
                _ => {}
            }
            is_blank &= byte.is_ascii_whitespace();
        }
        let length = buffer.len();
        bytes += length as u64;
        text.consume(length);
    }
    if bytes > TABLE_BYTES_MAX {
        return Err(TableError::TooLarge);
    }
    Ok(count + usize::from(!is_blank))
}

/// Parses a text whose numbers there is room for.
fn parse(text: impl BufRead, room: Vec<f64>) -> Result<Table, TableError> {
    let mut fields = Fields { text, field: Vec::new(), line: 1 };
    let mut lines = Lines { numbers: room, ..Lines::default() };
    loop {
        let end = fields.next()?;
        let line = fields.line;
        let field = fields.trimmed()?;
        let is_blank = lines.found == 0 && end != End::Comma && field.is_empty();
        if !is_blank {
            lines.add(field, line)?;
        }
        match end {
            End::Comma => {}
            End::Line => {
                lines.end(line)?;
                fields.line += 1;
            }
            End::File => {
                lines.end(line)?;
                return lines.table();
            }
        }
    }
}

/// What a field ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Comma,
    Line,
    File,
}

/// The fields of a text, one after the other.
struct Fields<R> {
    text: R,
    /// The one at hand.
    field: Vec<u8>,
    /// From 1.
    line: usize,
}

impl<R: BufRead> Fields<R> {
    /// Goes on to the next one, and says how it ends.
    fn next(&mut self) -> Result<End, TableError> {
        self.field.clear();
        loop {
            let buffer = self.text.fill_buf()?;
            if buffer.is_empty() {
                return Ok(End::File);
            }
            let end = buffer.iter().position(|byte| matches!(byte, b',' | b'\n'));
            let length = end.unwrap_or(buffer.len());
            if self.field.len() + length > TABLE_FIELD_BYTES_MAX {
                return Err(TableError::Field { line: self.line });
            }
            self.field.extend_from_slice(&buffer[..length]);
            let ended = end.map(|at| if buffer[at] == b',' { End::Comma } else { End::Line });
            self.text.consume(length + usize::from(ended.is_some()));
            if let Some(end) = ended {
                return Ok(end);
            }
        }
    }

    /// The one at hand, without space around it.
    fn trimmed(&self) -> Result<&str, TableError> {
        let field = str::from_utf8(&self.field);
        let field = field.map_err(|_| TableError::Text { line: self.line })?;
        // What some programs put before the first line to say that it is UTF-8.
        let field = if self.line == 1 { field.trim_start_matches('\u{feff}') } else { field };
        Ok(field.trim())
    }
}

/// What is known of a table's lines so far.
#[derive(Default)]
struct Lines {
    names: Vec<String>,
    numbers: Vec<f64>,
    /// Lines of numbers.
    rows: usize,
    /// Fields in each line; none before the first one has ended.
    columns: Option<usize>,
    /// Fields of the line at hand.
    found: usize,
}

impl Lines {
    /// Adds a field to the line at hand.
    fn add(&mut self, field: &str, line: usize) -> Result<(), TableError> {
        let number = field.parse::<f64>();
        let is_first = self.columns.is_none();
        let is_named =
            is_first && if self.found == 0 { number.is_err() } else { !self.names.is_empty() };
        let wrong = |field: &str| Err(TableError::Number { line, field: excerpt::name(field) });
        match number {
            Ok(_) if is_named => return wrong(&self.names[0]),
            Ok(number) => {
                if self.numbers.len() == self.numbers.capacity() {
                    let grown = io::Error::other("it has grown meanwhile: try again");
                    return Err(TableError::Read(grown));
                }
                self.numbers.push(number);
            }
            Err(_) if is_named => {
                if self.names.len() < TABLE_NAMES_MAX {
                    self.names.push(field.to_owned());
                }
            }
            Err(_) => return wrong(field),
        }
        self.found += 1;
        Ok(())
    }

    /// Ends the line at hand, unless there is nothing in it.
    fn end(&mut self, line: usize) -> Result<(), TableError> {
        let found = std::mem::take(&mut self.found);
        if found == 0 {
            return Ok(());
        }
        let is_of_names = self.columns.is_none() && !self.names.is_empty();
        let expected = *self.columns.get_or_insert(found);
        if found != expected {
            return Err(TableError::Width { line, found, expected });
        }
        self.rows += usize::from(!is_of_names);
        Ok(())
    }

    fn table(self) -> Result<Table, TableError> {
        let Self { names, numbers, rows, columns, .. } = self;
        if rows == 0 {
            return Err(TableError::Empty);
        }
        let numbers = Matrix::new(rows, columns.unwrap_or(0), numbers)?;
        Ok(Table { names, numbers })
    }
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

    fn parsed(text: &str) -> Result<Table, TableError> {
        let room = Vec::with_capacity(count(text.as_bytes())?);
        parse(text.as_bytes(), room)
    }

    #[test]
    fn a_table_is_read_back_as_it_was_written() {
        let matrix = Matrix::new(2, 2, vec![0.1, -3e200, 5e-324, 7.0]).expect("finite");
        let written = text(&numbered("a", 2), &matrix);
        assert!(written.starts_with(b"a1,a2\n0.1,"));
        let read = parsed(str::from_utf8(&written).expect("text")).expect("a table");
        assert_eq!((read.numbers, read.names), (matrix, numbered("a", 2)));
        let read = parsed(" 1 , 2 \r\n\n3,4\n").expect("a table");
        assert_eq!((read.numbers.numbers(), read.names.len()), (&[1.0, 2.0, 3.0, 4.0][..], 0));
        let marked = parsed("\u{feff}1,2").expect("a table");
        assert_eq!(marked.numbers.numbers(), [1.0, 2.0]);
    }

    #[test]
    fn what_is_no_table_is_told_with_its_line() {
        let told = |text: &str| parsed(text).expect_err("refused").to_string();
        assert_eq!(told("a,b\n1,2\n3,x\n"), "line 3: \"x\" is not a number");
        assert_eq!(told("1,b\n"), "line 1: \"b\" is not a number");
        assert_eq!(told("\na,2\n"), "line 2: \"a\" is not a number");
        assert_eq!(told("1,2\n,\n"), "line 2: \"\" is not a number");
        assert_eq!(told("a,b\na,b\n"), "line 2: \"a\" is not a number");
        assert_eq!(told("1,2\n3\n"), "line 2 has 1 numbers, and those before it 2");
        assert_eq!(told("a,b\n1,2,3\n"), "line 2 has 3 numbers, and those before it 2");
        assert_eq!(told("a,b\n"), "there is no line of numbers in it");
        assert_eq!(told(" \n\n"), "there is no line of numbers in it");
        let long = told(&format!("1,2\n3,{}", "4".repeat(TABLE_FIELD_BYTES_MAX + 1)));
        assert!(long.starts_with("line 2: more than 4096 bytes without a comma"), "{long}");
        let nan = told("1,2\n3,nan\n");
        assert!(nan.starts_with("row 1, column 1: NaN"), "{nan}");
        let bytes = parse(&b"1\n\xff\n"[..], Vec::new()).expect_err("refused").to_string();
        assert!(bytes.starts_with("read: it has grown"), "{bytes}");
        let bytes = parse(&b"1\n\xff\n"[..], Vec::with_capacity(2)).expect_err("refused");
        assert!(bytes.to_string().starts_with("line 2 is not UTF-8"), "{bytes}");
    }

    #[test]
    fn numbers_are_counted_before_there_is_room_for_them() {
        let texts =
            ["1,2\n3,4", "1,2\r\n3,4\r\n", "\n 1,2 \n\n \t\n3,4\n\n", "1\n2\n3\n4\n", "1,2,3,4"];
        for text in texts {
            assert_eq!(count(text.as_bytes()).expect("a table"), 4, "{text:?}");
            assert_eq!(parsed(text).expect("a table").numbers.numbers(), [1.0, 2.0, 3.0, 4.0]);
        }
        assert_eq!(count(&b" \n"[..]).expect("a table"), 0);
    }

    #[test]
    fn a_table_that_does_not_fit_into_what_is_free_is_refused_in_numbers() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "a,b\n".to_owned() + &"1,2\n".repeat(1 << 17))
            .expect("written");
        let told = |free: u64| read(file.path(), &|| free).map(|table| table.numbers.rows());
        let error = told(1 << 20).expect_err("there is too little");
        assert!(matches!(error, TableError::Memory(_)));
        let words = "a table of 262146 numbers takes at least 3 MiB of memory, and 1 MiB are free";
        assert_eq!(error.to_string(), words);
        assert_eq!(told(3 << 20).expect("enough"), 1 << 17);
    }
}
