//! Tables, JSON and progress bars.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// A table with a header.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table.add_rows(rows);
    table
}

/// One JSON document.
pub(crate) fn json(value: &impl Serialize) {
    line(serde_json::to_string_pretty(value).expect("our own types serialise"));
}

/// A line on stdout. Who reads it may have seen enough (`gleaner jobs | head`): then the process
/// ends, as every filter does.
pub(crate) fn line(text: impl Display) {
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
