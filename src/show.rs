//! Tables, JSON and progress bars.
//!
//! # Invariants
//! - What others wrote reaches a terminal through [`plain()`] only: every line, every cell of a table,
//!   every error.

mod plain;

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

pub(crate) use plain::{cut_end, cut_middle, plain, plain_lines};

/// Most characters of one line of a cell: what is longer is cut, and JSON has all of it.
const CELL_CHARS_MAX: usize = 256;
/// Most characters of a name in a table.
const NAME_CHARS_MAX: usize = 40;

/// What stands in one place of a table.
#[derive(Debug)]
pub(crate) struct Cell(Vec<String>);

impl Cell {
    /// One line for each of these.
    pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> Self {
        Self(lines.into_iter().collect())
    }

    fn text(&self) -> String {
        let safe = |line: &String| cut_end(&plain(line), CELL_CHARS_MAX).into_owned();
        self.0.iter().map(safe).collect::<Vec<_>>().join("\n")
    }
}

impl From<String> for Cell {
    fn from(line: String) -> Self {
        Self(vec![line])
    }
}

/// A name of any length, as it stands in a table.
pub(crate) fn name(name: &str) -> String {
    cut_middle(&plain(name), NAME_CHARS_MAX).into_owned()
}

/// A table with a header, on stdout.
pub(crate) fn table<const N: usize, C: Into<Cell>>(header: [&str; N], rows: Vec<[C; N]>) {
    write(table_of(header, rows));
}

fn table_of<const N: usize, C: Into<Cell>>(header: [&str; N], rows: Vec<[C; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table.add_rows(rows.into_iter().map(|row| row.map(|cell| cell.into().text())));
    table
}

/// A time in milliseconds of UTC, to the second.
pub(crate) fn time(ms: u64) -> String {
    let time = i64::try_from(ms / 1_000).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// One JSON document on stdout, with its strings as they are.
pub(crate) fn json(value: &impl Serialize) {
    write(serde_json::to_string_pretty(value).expect("our own types serialise"));
}

/// One line on stdout.
pub(crate) fn line(text: impl Display) {
    write(plain(&text.to_string()));
}

/// Text of several lines on stdout.
pub(crate) fn lines(text: impl Display) {
    write(plain_lines(&text.to_string()));
}

/// Text that this program made itself, for another one to read.
pub(crate) fn script(text: &str) {
    write(text);
}

/// A line on stderr, of what goes on or went wrong.
pub(crate) fn note(text: impl Display) {
    eprintln!("{}", plain_lines(&text.to_string()));
}

/// Who reads it may have seen enough (`gleaner jobs | head`): then the process ends, as every filter
/// does.
fn write(text: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("error: cannot write to stdout: {error}");
            std::process::exit(1);
        }
    }
}

/// A bar on stderr, if somebody is looking.
pub(crate) fn progress(total: u64, unit: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{{bar:40}} {{pos}}/{{len}} {unit} {{msg}} {{eta}}");
    let style = ProgressStyle::with_template(&template).expect("the template is right");
    ProgressBar::new(total).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_breaks_a_row_and_none_is_without_end() {
        let rows = vec![
            ["job-1".to_owned(), "forged\njob-2\x1b[2J".to_owned()],
            ["job-3".to_owned(), "n".repeat(20_000)],
        ];
        let shown = table_of(["job", "name"], rows).to_string();
        assert!(shown.contains("forged\\njob-2\\x1b[2J"), "{shown}");
        // Four lines of the frame, the header, and a line for each row.
        assert_eq!(shown.lines().count(), 7, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 300), "{shown}");
    }

    #[test]
    fn a_cell_may_have_lines_of_its_own() {
        let cell = Cell::lines(["2".into(), "slurm:7\x07".into()]);
        let shown = table_of(["renders"], vec![[cell]]).to_string();
        assert!(shown.contains("slurm:7\\x07") && shown.lines().count() > 4, "{shown}");
    }

    #[test]
    fn a_name_fits_its_column() {
        assert_eq!(name("a\x07b"), "a\\x07b");
        assert_eq!(name(&"n".repeat(20_000)).chars().count(), NAME_CHARS_MAX);
    }
}
