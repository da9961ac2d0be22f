//! Tables, JSON and progress bars.

use std::io::IsTerminal;

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
    let text = serde_json::to_string_pretty(value).expect("our own types serialise");
    println!("{text}");
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
