//! A comparison for people.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use gleaner_simulator::{Better, Comparison, Metric, Scenario, Seeds, Spread, Spreads};

use crate::show;

/// Columns that a page has.
const WIDTH: usize = 100;

/// Prints a row for each policy and one for the bound, and a column for each metric; the other
/// way round where that would be too wide.
pub(super) fn print(scenario: &dyn Scenario, comparison: &Comparison) {
    show::line(format!("{}: {}", comparison.scenario, scenario.about()));
    show::line(told(scenario, comparison));
    show::lines(table(scenario.metrics(), comparison));
}

/// From what it was run: the seeds, and what is not as it is where nobody sets it.
fn told(scenario: &dyn Scenario, comparison: &Comparison) -> String {
    let mut told = match &comparison.seeds {
        Seeds::One(seed) => format!("seed {seed}"),
        several @ Seeds::Several(_) => {
            format!("seeds {several}, means ± 95 % confidence over {}", several.count())
        }
    };
    let parameters = scenario.parameters();
    for (name, value) in comparison.parameters.iter() {
        let default = parameters.iter().find(|parameter| parameter.name == name);
        if default.is_some_and(|parameter| parameter.default != *value) {
            told.push_str(&format!(", {name}={value}"));
        }
    }
    told
}

fn table(metrics: &[Metric], comparison: &Comparison) -> Table {
    let rows = || {
        let policies = comparison.policies.iter().map(|(name, of)| (*name, of));
        policies.chain(Some(("bound", &comparison.bound)).filter(|(_, bound)| !bound.is_empty()))
    };
    // What nobody asked to measure has no column.
    let brought = |metric: &&Metric| rows().any(|(_, of)| of.contains_key(metric.name));
    let metrics: Vec<&Metric> = metrics.iter().filter(brought).collect();
    let places: Vec<Decimals> =
        metrics.iter().map(|metric| Decimals::of(rows().map(|(_, of)| of), metric.name)).collect();
    let heads = metrics.iter().map(|metric| {
        let better = match metric.better {
            Better::Higher => " ↑",
            Better::Lower => " ↓",
            Better::Neither => "",
        };
        format!("{}{better}", metric.name)
    });
    let mut cells: Vec<Vec<String>> = vec![[String::new()].into_iter().chain(heads).collect()];
    for (name, of) in rows() {
        let numbers = metrics.iter().zip(&places).map(|(metric, decimals)| {
            of.get(metric.name).map(|spread| decimals.shown(spread)).unwrap_or_default()
        });
        cells.push([name.to_owned()].into_iter().chain(numbers).collect());
    }
    let table = drawn(cells.clone());
    let width = |table: &Table| table.lines().map(|line| line.chars().count()).max();
    if width(&table) <= Some(WIDTH) {
        return table;
    }
    let turned = (0..cells[0].len())
        .map(|column| cells.iter().map(|row| row[column].clone()).collect())
        .collect();
    Some(drawn(turned)).filter(|turned| width(turned) < width(&table)).unwrap_or(table)
}

/// The first row is the header; numbers stand to the right.
fn drawn(cells: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    let mut rows = cells.into_iter();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(rows.next().unwrap_or_default());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// How many digits the numbers of a column have behind the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decimals {
    Places(usize),
    /// Too small for any: as powers of ten.
    Powers,
}

impl Decimals {
    fn of<'a>(rows: impl Iterator<Item = &'a Spreads>, metric: &str) -> Self {
        let (mut greatest, mut whole) = (0.0_f64, true);
        for spread in rows.filter_map(|row| row.get(metric)) {
            greatest = greatest.max(spread.mean().abs());
            let numbers = [spread.mean(), spread.ci95().unwrap_or_default()];
            whole &= numbers.iter().all(|number| number.fract() == 0.0);
        }
        match greatest {
            _ if whole => Self::Places(0),
            10.0.. => Self::Places(2),
            0.01.. => Self::Places(4),
            _ => Self::Powers,
        }
    }

    fn shown(self, spread: &Spread) -> String {
        let number = |number: f64| match self {
            Self::Places(places) => format!("{number:.places$}"),
            Self::Powers => format!("{number:.2e}"),
        };
        match spread.ci95() {
            Some(ci95) => format!("{} ± {}", number(spread.mean()), number(ci95)),
            None => number(spread.mean()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_simulator::Settings;

    const METRICS: [Metric; 3] = [
        Metric { name: "completed", about: "", better: Better::Higher },
        Metric { name: "wrong_share", about: "", better: Better::Lower },
        Metric { name: "scheduling_us", about: "", better: Better::Lower },
    ];

    fn spreads(completed: &[f64], wrong: f64) -> Spreads {
        let mut first = Spread::of(completed[0]);
        completed[1..].iter().for_each(|number| first.add(*number));
        Spreads::from([("completed", first), ("wrong_share", Spread::of(wrong))])
    }

    fn drawn(seeds: Seeds, plain: Spreads, gleaner: Spreads) -> String {
        let comparison = Comparison {
            scenario: "farm",
            seeds,
            parameters: Settings::default(),
            bound: Spreads::from([("completed", Spread::of(2000.0))]),
            policies: vec![("plain", plain), ("gleaner", gleaner)],
        };
        table(&METRICS, &comparison).to_string()
    }

    #[test]
    fn policies_stand_in_rows_with_the_bound_last_and_without_what_was_not_measured() {
        let text = drawn(Seeds::One(1), spreads(&[800.0], 0.0), spreads(&[1100.0], 1e-6));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("completed ↑") && lines[1].contains("wrong_share ↓"), "{text}");
        assert!(!text.contains("scheduling_us"), "{text}");
        let cells = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(cells(3), ["plain", "800", "0.00e0"], "{text}");
        assert_eq!(cells(5), ["gleaner", "1100", "1.00e-6"], "{text}");
        assert_eq!(cells(7), ["bound", "2000"], "{text}");
    }

    #[test]
    fn a_table_that_would_be_too_wide_is_turned() {
        const MANY: [&str; 6] = [
            "utilization_fat_percent",
            "utilization_gpu_percent",
            "utilization_light_percent",
            "turnaround_p50_s",
            "turnaround_p95_s",
            "completion_rate_per_hour",
        ];
        let metrics = MANY.map(|name| Metric { name, about: "", better: Better::Neither });
        let comparison = Comparison {
            scenario: "farm",
            seeds: Seeds::One(1),
            parameters: Settings::default(),
            bound: Spreads::new(),
            policies: vec![("gleaner", MANY.map(|name| (name, Spread::of(1.5))).into())],
        };
        let text = table(&metrics, &comparison).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().nth(1).expect("a header").trim() == "gleaner", "{text}");
        assert!(MANY.iter().all(|name| text.contains(&format!("\n {name} "))), "{text}");
    }

    #[test]
    fn of_several_seeds_it_shows_the_mean_and_how_sure_it_is() {
        let seeds = Seeds::Several(0..2);
        let text = drawn(seeds, spreads(&[8.0, 9.0], 0.5), spreads(&[11.0, 11.0], 0.25));
        assert!(text.contains("8.50 ± 6.35") && text.contains("11.00 ± 0.00"), "{text}");
        assert!(text.contains("0.5000") && text.contains("0.2500"), "{text}");
    }
}
