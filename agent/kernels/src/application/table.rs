//! Tables of numbers as text, with commas, semicolons or tabs in between.
//!
//! ```text
//! file ── text: UTF-8 ──► cells ──► layout: names, an index, how much ──► numbers
//! ```
//!
//! # Invariants
//! A file is never in memory, but one cell of it at a time, and its names; room for its numbers is made
//! when it is known how many there are, and that they fit into what is free.

mod cells;
mod layout;
mod names;
mod text;

#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::fs::File;
use std::io::{self, BufRead, Read, Seek};
use std::path::Path;

use thiserror::Error;

use self::cells::{Cells, End, separator};
use self::layout::{Layout, layout};
pub(super) use self::names::Names;
use super::excerpt;
use crate::limits::{COLUMNS_SHOWN_MAX, TABLE_BYTES_MAX, TABLE_FIELD_BYTES_MAX};
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
    #[error(
        "line {line}: more than {TABLE_FIELD_BYTES_MAX} bytes without a comma, a semicolon or a tab: \
         is it a table?"
    )]
    Field {
        /// From 1.
        line: usize,
    },
    /// A quote without another one.
    #[error("line {line}: a quote (\") begins a cell, and none ends it: close it or take it out")]
    Quote {
        /// From 1.
        line: usize,
    },
    /// Something that is not a finite number.
    #[error("line {line}, column {column}: {problem}")]
    Cell {
        /// From 1.
        line: usize,
        /// Its number from 1, and its name.
        column: String,
        /// What is wrong, and what to do.
        problem: String,
        /// Whether it is a word.
        is_word: bool,
    },
    /// A first line that is neither of names nor of numbers.
    #[error(
        "line {line}: {word} is not a number, and others in the line are: give each column a name, \
         between quotes where it is a number, or take {word} out"
    )]
    Mixed {
        /// From 1.
        line: usize,
        /// One that is no number.
        word: String,
    },
    /// A column without a name that has numbers as data has.
    #[error(
        "line {line}: column {column} has no name and is not an index, which has whole numbers or \
         words: give it a name, or take it out (in pandas index=False, in R row.names=FALSE)"
    )]
    Nameless {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// A first line that may be of names.
    #[error(
        "its first line counts from 0 to {last}, as pandas writes names of columns that have none: \
         take that line out (in pandas header=False), or give the columns names"
    )]
    CountsColumns {
        /// Its last number.
        last: usize,
    },
    /// A first column that may be an index.
    #[error(
        "its first column counts its {rows} lines from {from}, as an index does: take it out (in \
         pandas index=False), or give the columns names if it is a variable"
    )]
    CountsLines {
        /// Its first number.
        from: i64,
        /// How many lines there are.
        rows: usize,
    },
    /// Lines of different length.
    #[error("line {line} has {found} cells, and those before it {expected}{hint}")]
    Width {
        /// From 1.
        line: usize,
        /// Cells in it.
        found: usize,
        /// Cells in others.
        expected: usize,
        /// What may be the reason.
        hint: &'static str,
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
    /// What its first line calls the columns; none where that line has numbers.
    pub(super) names: Option<Names>,
    pub(super) numbers: Matrix,
    /// What was taken for something else than numbers.
    pub(super) remarks: Vec<String>,
}

impl Table {
    /// Says which columns there are.
    pub(super) fn columns(&self) -> String {
        let count = self.numbers.columns();
        let all = if count == 1 { "1 column".to_owned() } else { format!("{count} columns") };
        let Some(names) = &self.names else { return format!("{all} without names") };
        let first: Vec<String> = names.iter().take(COLUMNS_SHOWN_MAX).map(shown).collect();
        let more = if count > first.len() { ", …" } else { "" };
        format!("{all}: {}{more}", first.join(", "))
    }
}

/// Reads a table. The first line may be one of names.
pub(super) fn read(path: &Path, free_bytes: &dyn Fn() -> u64) -> Result<Table, TableError> {
    let mut file = plain_file::open(path)?;
    let free_bytes = free_bytes();
    let (separator, layout) = look(&mut file, free_bytes)?;
    let count = layout.count();
    let room = memory::room(|| format!("a table of {count} numbers"), count, free_bytes)?;
    file.rewind()?;
    let text = text::text(file.take(TABLE_BYTES_MAX))?;
    let numbers = numbers(Cells::new(text, separator), &layout, room)?;
    let Layout { names, columns, index_columns, rows, remarks } = layout;
    let names = names.map(|names| own(&names, index_columns, columns));
    Ok(Table { names, numbers: Matrix::new(rows, columns - index_columns, numbers)?, remarks })
}

/// Looks at a table that [`read()`] reads, all of it, and holds none of its numbers; what is to be said
/// of it.
pub(super) fn check(path: &Path) -> Result<Vec<String>, TableError> {
    let mut file = plain_file::open(path)?;
    let (separator, layout) = look(&mut file, u64::MAX)?;
    file.rewind()?;
    let text = text::text(file.take(TABLE_BYTES_MAX))?;
    each_number(Cells::new(text, separator), &layout, |_| Ok(()))?;
    Ok(layout.remarks)
}

/// What separates a file's cells, and what is where.
fn look(file: &mut File, free_bytes: u64) -> Result<(u8, Layout), TableError> {
    if file.metadata()?.len() > TABLE_BYTES_MAX {
        return Err(TableError::TooLarge);
    }
    let mut text = text::text(file.take(TABLE_BYTES_MAX))?;
    let separator = separator(text.fill_buf()?);
    Ok((separator, layout(&mut Cells::new(text, separator), free_bytes)?))
}

/// The names of columns that are no index: each has one.
fn own(names: &Names, from: usize, to: usize) -> Names {
    let own = (from..to).map(|at| match names.get(at).unwrap_or_default() {
        "" => format!("column{}", at + 1),
        name => name.to_owned(),
    });
    own.collect()
}

/// All numbers of a text, in the room that there is for them.
fn numbers<R: BufRead>(
    cells: Cells<R>,
    layout: &Layout,
    mut room: Vec<f64>,
) -> Result<Vec<f64>, TableError> {
    each_number(cells, layout, |number| {
        if room.len() == room.capacity() {
            let grown = io::Error::other("it has grown meanwhile: try again");
            return Err(TableError::Read(grown));
        }
        room.push(number);
        Ok(())
    })?;
    Ok(room)
}

/// Hands over the numbers of a text, one after the other.
fn each_number<R: BufRead>(
    mut cells: Cells<R>,
    layout: &Layout,
    mut take: impl FnMut(f64) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let (mut at, mut is_of_names) = (0, layout.names.is_some());
    loop {
        let end = cells.next()?;
        let cell = cells.cell();
        let is_blank = at == 0 && end != End::Cell && cell.is_empty();
        if !is_blank && !is_of_names && (layout.index_columns..layout.columns).contains(&at) {
            match cell.parse::<f64>() {
                Ok(number) if number.is_finite() => take(number)?,
                _ => {
                    let (problem, is_word) = wrong(&cell);
                    let column = column(layout, at);
                    return Err(TableError::Cell { line: cells.line(), column, problem, is_word });
                }
            }
        }
        match end {
            End::Cell => at += 1,
            End::Line => {
                is_of_names &= is_blank;
                at = 0;
            }
            End::File => return Ok(()),
        }
    }
}

/// A column by its number from 1, and its name.
fn column(layout: &Layout, at: usize) -> String {
    let name =
        layout.names.as_ref().and_then(|names| names.get(at)).filter(|name| !name.is_empty());
    match name {
        Some(name) => format!("{} ({})", at + 1, shown(name)),
        None => (at + 1).to_string(),
    }
}

/// Why a cell is not a finite number, and what to do; and whether it is a word.
fn wrong(cell: &str) -> (String, bool) {
    if cell.is_empty() {
        let empty = "the cell is empty: give it a number, or leave out the line or the column";
        return (empty.to_owned(), false);
    }
    let told = excerpt::name(cell);
    let is_missing = ["na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "?", ".", "inf"];
    let plain = cell.trim_start_matches(['-', '+']).to_ascii_lowercase();
    let is_number = |part: &str| part.parse::<f64>().is_ok();
    if is_missing.contains(&cell.to_ascii_lowercase().as_str())
        || is_missing.contains(&plain.as_str())
        || is_number(cell)
    {
        let problem = format!(
            "{told:?} is not a finite number: give it one, or leave out the line or the column"
        );
        return (problem, false);
    }
    let cause = if cell.split_whitespace().count() > 1 && cell.split_whitespace().all(is_number) {
        "numbers with spaces in between: put commas there"
    } else if cell.contains(',') && is_number(&cell.replacen(',', ".", 1)) {
        "a number with a comma: write a point in its place"
    } else if cell.contains([';', '\t']) {
        "separated in another way than the first lines: use one separator for all"
    } else {
        return (format!("{told:?} is not a number"), true);
    };
    (format!("{told:?} is not a number, but {cause}"), false)
}

/// A name as it is shown: its beginning where it is long, without what a terminal would act on.
fn shown(name: &str) -> String {
    let plain =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    excerpt::name(name).chars().map(plain).collect()
}

/// A table as text.
pub(super) fn text<'a>(names: impl IntoIterator<Item = &'a str>, matrix: &Matrix) -> Vec<u8> {
    let mut text = String::new();
    for (column, name) in names.into_iter().enumerate() {
        let comma = if column == 0 { "" } else { "," };
        // Into memory: it cannot fail.
        let _ = write!(text, "{comma}{}", quoted(name));
    }
    text.push('\n');
    for row in 0..matrix.rows() {
        for (column, number) in matrix.row(row).iter().enumerate() {
            let comma = if column == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{number}");
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// A name, between quotes where it would be taken for something else than one.
fn quoted(name: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = !name.is_empty()
        && name.trim() == name
        && name.parse::<f64>().is_err()
        && !name.contains(['"', ',', ';', '\t', '\n', '\r']);
    if is_plain { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")).into() }
}

/// The names of so many columns, numbered from 1.
pub(super) fn numbered(name: &str, count: usize) -> Names {
    (1..=count).map(|number| format!("{name}{number}")).collect()
}
