//! What is where in a table: names, an index, numbers.
//!
//! Programs that write tables add a column that numbers the lines, and a first line that numbers the
//! columns. These are no data: taken for such, they would be what varies most.

use std::io::BufRead;

use super::TableError;
use super::cells::{Cells, End};
use super::names::Names;

/// What a text is, as far as it is known before its numbers are.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// What columns are called, those of an index too; none where nothing is.
    pub(super) names: Option<Names>,
    /// Columns in a line, with those of an index, and without an empty last one.
    pub(super) columns: usize,
    /// How many columns at the left are an index.
    pub(super) index_columns: usize,
    /// Lines of numbers.
    pub(super) rows: usize,
    /// What was taken for something else than numbers, and what it was taken for.
    pub(super) remarks: Vec<String>,
}

impl Layout {
    /// How many numbers there are.
    pub(super) const fn count(&self) -> usize {
        self.rows.saturating_mul(self.columns - self.index_columns)
    }
}

/// What a cell is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Empty,
    /// A number without a fraction, as counts are written.
    Whole,
    Number,
    Word,
}

fn sort(cell: &str) -> Sort {
    let digits = cell.strip_prefix(['-', '+']).unwrap_or(cell);
    if cell.is_empty() {
        Sort::Empty
    } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Sort::Whole
    } else if cell.parse::<f64>().is_ok() {
        Sort::Number
    } else {
        Sort::Word
    }
}

/// What a text's first line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Names,
    Numbers,
    /// Numbers between quotes: names, if those of the next line are not.
    Quoted,
    /// 0, 1, 2 and so on: names, if those of the next line are other than whole.
    CountsUp,
}

/// What is known of the line at hand.
#[derive(Debug, Default)]
struct Line {
    cells: usize,
    is_last_empty: bool,
    has_unquoted: bool,
    has_other_than_whole: bool,
    /// Its first cell that is of no index, where that is a count.
    count: Option<i64>,
}

/// Looks at a text from its beginning to its end. Names need no more than the bytes that are free.
pub(super) fn layout<R: BufRead>(
    cells: &mut Cells<R>,
    free_bytes: u64,
) -> Result<Layout, TableError> {
    let mut survey = Survey { free_bytes, ..Survey::default() };
    let mut line = Line::default();
    loop {
        let end = cells.next()?;
        let (cell, number, is_quoted) = (cells.cell(), cells.line(), cells.is_quoted());
        let is_blank = line.cells == 0 && end != End::Cell && cell.is_empty();
        if !is_blank {
            survey.add(&mut line, &cell, is_quoted, number)?;
            if end != End::Cell {
                survey.end(&std::mem::take(&mut line), number)?;
            }
        }
        if end == End::File {
            return survey.layout();
        }
    }
}

/// What is known of a text so far.
#[derive(Debug, Default)]
struct Survey {
    free_bytes: u64,
    layout: Layout,
    /// The line of the first cells, and what it is; none before it has ended.
    first: Option<(usize, First)>,
    /// Cells of the first line, unless it begins with a number.
    names: Names,
    is_kept: bool,
    /// How many of its cells are which.
    words: usize,
    numbers: usize,
    quoted_numbers: usize,
    /// Whether its cells are 0, 1, 2 and so on, also after one without a name.
    counts_up: bool,
    /// Whether it ends with an empty cell.
    is_open: bool,
    /// Whether the second line was looked at for what the first one is.
    is_settled: bool,
    /// What the first column of numbers counts the lines from, while it does.
    counted_from: Option<i64>,
}

impl Survey {
    fn add(
        &mut self,
        line: &mut Line,
        cell: &str,
        is_quoted: bool,
        number: usize,
    ) -> Result<(), TableError> {
        let (at, sort) = (line.cells, sort(cell));
        line.cells += 1;
        line.is_last_empty = sort == Sort::Empty;
        line.has_unquoted |= !is_quoted && sort != Sort::Empty;
        line.has_other_than_whole |= !matches!(sort, Sort::Whole | Sort::Empty);
        let index = self.layout.index_columns;
        if at == index {
            line.count = cell.parse().ok();
        }
        if self.first.is_none() {
            return self.add_first(at, cell, sort, is_quoted);
        }
        if at < index && sort == Sort::Number {
            return Err(TableError::Nameless { line: number, column: at + 1 });
        }
        Ok(())
    }

    fn add_first(
        &mut self,
        at: usize,
        cell: &str,
        sort: Sort,
        is_quoted: bool,
    ) -> Result<(), TableError> {
        let is_number = matches!(sort, Sort::Number | Sort::Whole);
        if at == 0 {
            // A line of numbers may be long, and nothing but its sort is needed.
            self.is_kept = !is_number || is_quoted;
            self.counts_up = is_nameless(cell) || cell == "0";
        } else if sort != Sort::Empty {
            let before = usize::from(self.names.get(0).is_some_and(is_nameless));
            self.counts_up &= cell.parse() == Ok(at - before);
        }
        if self.is_kept {
            self.names.push(cell, self.free_bytes)?;
        }
        self.words += usize::from(sort == Sort::Word && !is_nameless(cell));
        self.numbers += usize::from(is_number);
        self.quoted_numbers += usize::from(is_number && is_quoted);
        self.is_open = sort == Sort::Empty;
        Ok(())
    }

    /// Ends a line with something in it.
    fn end(&mut self, line: &Line, number: usize) -> Result<(), TableError> {
        let Some((_, first)) = self.first else { return self.end_first(line, number) };
        let columns = self.layout.columns;
        if line.cells != columns && !(line.cells == columns + 1 && line.is_last_empty) {
            return Err(TableError::Width {
                line: number,
                found: line.cells - usize::from(line.is_last_empty && line.cells > 1),
                expected: columns,
                hint: self.width_hint(line),
            });
        }
        if !std::mem::replace(&mut self.is_settled, true) {
            self.settle(first, line)?;
        }
        self.end_numbers(line);
        Ok(())
    }

    /// Counts a line of numbers.
    fn end_numbers(&mut self, line: &Line) {
        let row = i64::try_from(self.layout.rows).unwrap_or(i64::MAX);
        let from = line.count.map(|count| count.wrapping_sub(row));
        if row == 0 {
            self.counted_from = from.filter(|from| matches!(from, 0 | 1));
        } else if from != self.counted_from {
            self.counted_from = None;
        }
        self.layout.rows += 1;
    }

    fn end_first(&mut self, line: &Line, number: usize) -> Result<(), TableError> {
        let index = self.names.iter().take_while(|name| is_nameless(name)).count();
        self.layout.columns = line.cells - usize::from(self.is_open && line.cells > 1);
        let are_quoted = self.numbers == self.quoted_numbers;
        let first = match (self.words > 0, self.numbers > 0) {
            (true, false) => First::Names,
            (true, true) if are_quoted => First::Names,
            (true, true) if self.is_kept => {
                let word = self.names.iter().find(|name| sort(name) == Sort::Word);
                let word = super::shown(word.unwrap_or_default());
                return Err(TableError::Mixed { line: number, word });
            }
            (true, true) => First::Numbers,
            (false, true) if index == 1 && self.counts_up => First::Names,
            (false, true) if index > 0 && are_quoted => First::Names,
            (false, true) if self.counts_up => First::CountsUp,
            (false, true) if are_quoted => First::Quoted,
            (false, true) => First::Numbers,
            (false, false) if self.names.iter().any(|name| !name.is_empty()) => First::Names,
            (false, false) => First::Numbers,
        };
        self.first = Some((number, first));
        if first == First::Names {
            self.take_names(index);
        } else {
            self.end_numbers(line);
        }
        Ok(())
    }

    /// Takes the first line for names, so many of which are those of an index.
    fn take_names(&mut self, index: usize) {
        let columns = self.layout.columns;
        // An index alone is no table.
        let index = if index < columns { index } else { 0 };
        if index > 0 {
            let which = match index {
                1 => "its first column has".to_owned(),
                _ => format!("its first {index} columns have"),
            };
            self.layout.remarks.push(format!("{which} no name: taken for an index and left out"));
        }
        if self.counts_up && self.numbers > 0 {
            let last = columns - index - 1;
            self.layout.remarks.push(format!(
                "its first line counts the columns from 0 to {last}: taken for their names"
            ));
        }
        let names = std::mem::take(&mut self.names);
        self.layout.names = Some(if self.is_kept { names } else { Names::counted(columns) });
        self.layout.index_columns = index;
        self.layout.rows = 0;
    }

    /// Decides what the first line is, by the second one.
    fn settle(&mut self, first: First, second: &Line) -> Result<(), TableError> {
        let is_of_names = match first {
            First::Names | First::Numbers => return Ok(()),
            First::Quoted => second.has_unquoted,
            First::CountsUp if second.has_other_than_whole => true,
            // Of fewer columns numbers may be so by chance.
            First::CountsUp if self.layout.columns > 3 => {
                return Err(TableError::CountsColumns { last: self.layout.columns - 1 });
            }
            First::CountsUp => false,
        };
        if is_of_names {
            self.take_names(0);
        }
        Ok(())
    }

    /// What may be wrong with a line of another length.
    fn width_hint(&self, line: &Line) -> &'static str {
        let is_of_names = self.layout.names.is_some() && self.layout.rows == 0;
        if is_of_names && line.cells == self.layout.columns + 1 && !self.is_open {
            ": where the first column numbers the lines, take it out (in pandas index=False, in R \
             row.names=FALSE)"
        } else if self.is_open || line.is_last_empty {
            ": one of the lines ends with an empty cell, give each line as many cells"
        } else {
            ": give each line as many"
        }
    }

    fn layout(mut self) -> Result<Layout, TableError> {
        if self.layout.rows == 0 || self.layout.columns == self.layout.index_columns {
            return Err(TableError::Empty);
        }
        let (rows, columns) = (self.layout.rows, self.layout.columns - self.layout.index_columns);
        if let Some(from) = self.counted_from.filter(|_| rows >= COUNTED_ROWS_MIN && columns > 1) {
            let first = self.layout.index_columns;
            let Some(names) = &self.layout.names else {
                return Err(TableError::CountsLines { from, rows });
            };
            let name = names.get(first).unwrap_or_default();
            let name = super::shown(name);
            self.layout.remarks.push(format!(
                "its column {name} counts the lines from {from}: take it out if it is no variable"
            ));
        }
        Ok(self.layout)
    }
}

/// Fewer lines may be counted by chance.
const COUNTED_ROWS_MIN: usize = 5;

/// Whether a name is that of an index: none, or what pandas makes of none.
fn is_nameless(name: &str) -> bool {
    let name = name.trim();
    name.is_empty() || name == "Unnamed: 0" || name.starts_with("Unnamed: 0.")
}
