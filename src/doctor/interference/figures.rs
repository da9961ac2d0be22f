//! What the measurements of a row come to.
//!
//! Each figure is a ratio of medians: of the rates without anything beside the probe, over the
//! rates with it. The noise is what the same ratio says of those without, when the odd ones of
//! them are held against the even ones.

use serde::Serialize;

use super::super::load::Load;
use super::Case;
use crate::show;

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// What isolated harvested work, as the agent says.
    pub(super) backend: String,
    cores: u32,
    pub(super) rows: Vec<Row>,
}

/// One probe in one case.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row {
    probe: Load,
    case: Case,
    /// How much slower the probe is beside Gleaner.
    slowdown_percent: f64,
    /// How far two halves of the measurements without anything are apart.
    noise_percent: f64,
    /// How much slower it is beside the same hogs at niceness 19, without Gleaner.
    nice19_percent: f64,
    /// How much slower beside those in the idle scheduling class.
    sched_idle_percent: f64,
    /// Cores' worth of harvested hogs that worked while the probe was measured, on average.
    harvested_cores: f64,
}

/// Rates of one row, in the order in which they were measured.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) off: Vec<f64>,
    pub(super) on: Vec<f64>,
    pub(super) nice19: Vec<f64>,
    pub(super) sched_idle: Vec<f64>,
    pub(super) harvested: Vec<f64>,
}

impl Figures {
    pub(super) const fn new(cores: u32) -> Self {
        Self { backend: String::new(), cores, rows: Vec::new() }
    }

    pub(super) fn print(&self) {
        let Self { backend, cores, .. } = self;
        show::line(format_args!("{cores} cores; harvested work was isolated by {backend}"));
        let rows = self.rows.iter().map(|row| {
            let percent = |value: f64| format!("{value:.2} %");
            [
                row.probe.to_string(),
                name_of(row.case).to_owned(),
                percent(row.slowdown_percent),
                percent(row.noise_percent),
                percent(row.nice19_percent),
                percent(row.sched_idle_percent),
                format!("{:.1}", row.harvested_cores),
            ]
        });
        let header = ["probe", "case", "slower", "noise", "at nice 19", "idle class", "harvested"];
        show::table(header, rows.collect());
    }
}

pub(super) const fn name_of(case: Case) -> &'static str {
    match case {
        Case::Announced => "announced",
        Case::Half => "half",
        Case::Unannounced => "unannounced",
    }
}

impl Series {
    pub(super) fn row(&self, probe: Load, case: Case) -> Row {
        let half = |first: usize| -> Vec<f64> {
            self.off.iter().copied().skip(first).step_by(2).collect()
        };
        Row {
            probe,
            case,
            slowdown_percent: slower_percent(&self.off, &self.on),
            noise_percent: slower_percent(&half(0), &half(1)).abs(),
            nice19_percent: slower_percent(&self.off, &self.nice19),
            sched_idle_percent: slower_percent(&self.off, &self.sched_idle),
            harvested_cores: rounded(
                self.harvested.iter().sum::<f64>() / self.harvested.len().max(1) as f64,
            ),
        }
    }
}

/// How much longer the same work takes at the second rate than at the first.
fn slower_percent(alone: &[f64], beside: &[f64]) -> f64 {
    match (median(alone), median(beside)) {
        (Some(alone), Some(beside)) if beside > 0.0 => rounded((alone / beside - 1.0) * 100.0),
        _ => 0.0,
    }
}

fn median(rates: &[f64]) -> Option<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) =
        (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_made_of_ratios_of_medians() {
        let series = Series {
            off: vec![100.0, 90.0, 102.0, 99.0, 98.0, 1.0],
            on: vec![50.0, 49.5, 3.0],
            nice19: vec![78.8],
            sched_idle: vec![110.0, 90.0],
            harvested: vec![1.0, 2.0],
        };
        let row = series.row(Load::Memory, Case::Half);
        // The median of those without is 98.5, of those with 49.5.
        assert_eq!(row.slowdown_percent, 98.99);
        // 100, 102, 98 against 90, 99, 1.
        assert_eq!(row.noise_percent, 11.11);
        assert_eq!((row.nice19_percent, row.sched_idle_percent), (25.0, -1.5));
        assert_eq!(row.harvested_cores, 1.5);
        let json = serde_json::to_value(&row).expect("plain");
        assert_eq!((&json["probe"], &json["case"]), (&"memory".into(), &"half".into()));
    }

    #[test]
    fn a_median_is_the_middle_or_between_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}
