//! The cells of a text, one after the other.

use std::borrow::Cow;
use std::io::BufRead;

use super::TableError;
use super::text::decoded;
use crate::limits::TABLE_FIELD_BYTES_MAX;

/// What a cell ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Cell,
    Line,
    File,
}

/// The cells of a text. A line ends with a line feed, a carriage return, or both; a cell between quotes
/// may have separators and ends of lines in it.
pub(super) struct Cells<R> {
    text: R,
    separator: u8,
    /// The one at hand.
    cell: Vec<u8>,
    is_quoted: bool,
    /// The line that it ends in, from 1.
    line: usize,
    /// Whether the last cell has ended its line.
    is_line_over: bool,
    /// Whether a carriage return was the last byte.
    is_after_return: bool,
}

/// Where in a cell its next byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    Plain,
    /// Between quotes.
    Quoted,
    /// After a quote that ends it, or the first one of two that stand for one.
    Closed,
}

impl<R: BufRead> Cells<R> {
    pub(super) fn new(text: R, separator: u8) -> Self {
        Self {
            text,
            separator,
            cell: Vec::new(),
            is_quoted: false,
            line: 1,
            is_line_over: false,
            is_after_return: false,
        }
    }

    /// The line of the cell at hand, from 1.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    /// Whether the cell at hand is between quotes.
    pub(super) const fn is_quoted(&self) -> bool {
        self.is_quoted
    }

    /// The text of the cell at hand, without space around it.
    pub(super) fn cell(&self) -> Cow<'_, str> {
        decoded(if self.is_quoted { &self.cell[..] } else { self.cell.trim_ascii() })
    }

    /// Goes on to the next cell, and says how it ends.
    pub(super) fn next(&mut self) -> Result<End, TableError> {
        self.cell.clear();
        self.is_quoted = false;
        self.line += usize::from(std::mem::take(&mut self.is_line_over));
        let began = self.line;
        let mut at = At::Start;
        loop {
            let buffer = self.text.fill_buf()?;
            if buffer.is_empty() {
                return match at {
                    At::Quoted => Err(TableError::Quote { line: began }),
                    _ => Ok(End::File),
                };
            }
            let (mut used, mut end) = (0, None);
            for byte in buffer.iter().copied() {
                used += 1;
                if std::mem::take(&mut self.is_after_return) && byte == b'\n' {
                    continue;
                }
                self.is_after_return = byte == b'\r';
                let is_line_end = matches!(byte, b'\r' | b'\n');
                at = match (at, byte) {
                    (At::Quoted, b'"') => At::Closed,
                    (At::Quoted, _) => {
                        self.line += usize::from(is_line_end);
                        self.cell.push(byte);
                        At::Quoted
                    }
                    _ if is_line_end => {
                        end = Some(End::Line);
                        break;
                    }
                    (_, byte) if byte == self.separator => {
                        end = Some(End::Cell);
                        break;
                    }
                    (At::Start, b'"') => {
                        self.is_quoted = true;
                        At::Quoted
                    }
                    (At::Closed, b'"') => {
                        self.cell.push(b'"');
                        At::Quoted
                    }
                    (At::Start | At::Closed, b' ' | b'\t') => at,
                    _ => {
                        self.cell.push(byte);
                        At::Plain
                    }
                };
                if self.cell.len() > TABLE_FIELD_BYTES_MAX {
                    return Err(match at {
                        At::Quoted => TableError::Quote { line: began },
                        _ => TableError::Field { line: self.line },
                    });
                }
            }
            self.text.consume(used);
            if let Some(end) = end {
                self.is_line_over = end == End::Line;
                return Ok(end);
            }
        }
    }
}

/// What separates the cells of a text, by how it begins: what two lines have alike often. Commas may be
/// in numbers, the others are not.
pub(super) fn separator(begins: &[u8]) -> u8 {
    let mut lines = begins
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .filter(|line| !line.trim_ascii().is_empty())
        .take(2)
        .map(|line| SEPARATORS.map(|separator| count(line, separator)));
    let Some(first) = lines.next() else { return b',' };
    let second = lines.next().unwrap_or(first);
    let is_alike = |at: &usize| first[*at] > 0 && first[*at] == second[*at];
    let alike = (0..SEPARATORS.len()).find(is_alike);
    let most = || (0..SEPARATORS.len()).rev().max_by_key(|at| first[*at] + second[*at]);
    alike.or_else(most).map_or(
        b',',
        |at| {
            if first[at] + second[at] > 0 { SEPARATORS[at] } else { b',' }
        },
    )
}

/// In the order in which they are taken for one.
const SEPARATORS: [u8; 3] = [b'\t', b';', b','];

/// How often a separator is in a line, outside of quotes. A tab beside another separator is space.
fn count(line: &[u8], separator: u8) -> usize {
    let (mut count, mut is_quoted, mut last) = (0, false, 0);
    for (at, byte) in line.iter().copied().enumerate() {
        if byte == b'"' {
            is_quoted = !is_quoted;
        } else if byte == separator && !is_quoted {
            let next = line[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
            let is_space = separator == b'\t'
                && (matches!(last, b',' | b';') || matches!(next, Some(b',' | b';')));
            count += usize::from(!is_space);
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_separates_cells_is_seen_by_two_lines() {
        for (text, expected) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n1;2\n", b';'),
            ("a\tb\n1\t2\n", b'\t'),
            ("\n\n1;2\r\n", b';'),
            ("1,5;2,5\n3,5;4,5\n", b';'),
            ("a;b\n1,5;2,5\n", b';'),
            ("1,5\t2,5\n", b'\t'),
            ("1,\t2\n3,\t4\n", b','),
            ("1\t,2\n3\t,4\n", b','),
            ("\"a;b\",c\n1,2\n", b','),
            ("a (m;s),b,c\n1,2,3\n", b','),
            ("alpha\n1\n", b','),
            ("\ta\tb\n0\t1\t2\n", b'\t'),
            ("a;b;\n1;2\n", b';'),
            ("", b','),
        ] {
            assert_eq!(char::from(separator(text.as_bytes())), char::from(expected), "{text:?}");
        }
    }

    #[test]
    fn cells_are_told_with_the_line_that_they_end_in() {
        let text = "a , \"b \"\"c\"\"\"\r\n\r\"d,\ne\" ,\tf\n1,2\r3,";
        let mut cells = Cells::new(text.as_bytes(), b',');
        let mut found = Vec::new();
        loop {
            let end = cells.next().expect("a cell");
            found.push((cells.line(), cells.cell().into_owned(), cells.is_quoted(), end));
            if end == End::File {
                break;
            }
        }
        let expected = [
            (1, "a", false, End::Cell),
            (1, "b \"c\"", true, End::Line),
            (2, "", false, End::Line),
            (4, "d,\ne", true, End::Cell),
            (4, "f", false, End::Line),
            (5, "1", false, End::Cell),
            (5, "2", false, End::Line),
            (6, "3", false, End::Cell),
            (6, "", false, End::File),
        ];
        let expected =
            expected.map(|(line, cell, quoted, end)| (line, cell.to_owned(), quoted, end));
        assert_eq!(found, expected);
    }
}
