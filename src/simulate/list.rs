//! `gleaner simulate --list`.

use std::process::ExitCode;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use gleaner_simulator::{
    ScenarioPage, Value, promises_page, scenario_named, scenarios, storm_page,
};

use super::usage;
use crate::client::Format;
use crate::show;

/// Columns of a listing where nobody says how wide the terminal is.
const WIDTH: u16 = 100;

/// Lists all scenarios, or one.
pub(super) fn run(scenario: Option<&str>, format: Format) -> anyhow::Result<ExitCode> {
    let pages: Vec<ScenarioPage> = match scenario {
        Some(name) => vec![ScenarioPage::of(scenario_named(name).map_err(usage)?)],
        None => scenarios().map(ScenarioPage::of).chain([promises_page(), storm_page()]).collect(),
    };
    match format {
        Format::Json => show::json(&pages),
        Format::Table => pages.iter().for_each(print),
    }
    Ok(ExitCode::SUCCESS)
}

/// A scenario for people.
fn print(page: &ScenarioPage) {
    show::line(format!("{}: {}", page.scenario, page.about));
    show::line(format!("  policies: {}", page.policies.join(", ")));
    show::line("  metrics:");
    show::lines(table(page.metrics.iter().map(|metric| {
        let better = match metric.better {
            "higher" => "; higher is better",
            "lower" => "; lower is better",
            _ => "",
        };
        [metric.name.to_owned(), format!("{}{better}", metric.about)]
    })));
    if page.parameters.is_empty() {
        show::lines("  no parameters\n");
        return;
    }
    show::line("  parameters:");
    show::lines(table(page.parameters.iter().map(|parameter| {
        let unit = parameter.unit.map(|unit| format!(" {unit}")).unwrap_or_default();
        let default = match &parameter.default {
            Value::File(path) if path.is_empty() => "none".to_owned(),
            value => format!("{value}{unit}"),
        };
        let what = format!(
            "{} [default: {default}; {}]\nfrom: {}",
            parameter.about, parameter.expected, parameter.source
        );
        [parameter.name.to_owned(), what]
    })));
    show::line("");
}

/// Two columns, without blanks at the ends of lines.
fn table(rows: impl Iterator<Item = [String; 2]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.add_rows(rows.map(|[name, what]| [format!("    {name}"), what]));
    table.trim_fmt()
}
