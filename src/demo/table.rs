//! The demo's figures for people.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use super::figures::Figures;

/// One row per figure, with what it means.
pub(super) fn of(figures: &Figures) -> Table {
    let percent = |value: f64| format!("{value:.1} %");
    let millis = |value: f64| format!("{value:.1} ms");
    let rows = [
        (
            "render_frames",
            figures.render_frames.to_string(),
            "frames, each rendered without and with harvest",
        ),
        (
            "render_slowdown",
            percent(figures.render_slowdown_percent),
            "longer with harvest, preflight included",
        ),
        (
            "utilization_without",
            percent(figures.utilization_without_percent),
            "of this machine, by renders alone",
        ),
        (
            "utilization_with",
            percent(figures.utilization_with_percent),
            "by renders and accepted harvested work",
        ),
        (
            "workunits_completed",
            figures.workunits_completed.to_string(),
            "decided, two equal results of three each",
        ),
        (
            "results_correct",
            figures.results_correct.to_string(),
            "positions with the published count",
        ),
        (
            "results_wrong",
            figures.results_wrong.to_string(),
            "positions with another one; must be 0",
        ),
        (
            "preemptions",
            figures.preemptions.to_string(),
            "preflights that stopped running replicas",
        ),
        (
            "release_ms_p50",
            millis(figures.release_ms_p50),
            "hook start to last replica stopped, median",
        ),
        ("release_ms_p99", millis(figures.release_ms_p99), "99th percentile"),
        (
            "replicas_aborted",
            figures.replicas_aborted.to_string(),
            "given back or taken back before they ended",
        ),
        ("lost", figures.lost.to_string(), "accepted workunits and results gone; must be 0"),
    ];
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.add_rows(rows.map(|(name, value, meaning)| [name.into(), value, meaning.to_owned()]));
    if let Some(values) = table.column_mut(1) {
        values.set_cell_alignment(CellAlignment::Right);
    }
    table
}
