//! The list of scenarios, for people and for programs.

use serde::Serialize;

use crate::nearest::{UnknownName, unknown};
use crate::parameters::{Parameter, Value};
use crate::scenario::{Better, Scenario};
use crate::{deadline, fragment, mixed, replay, replication, studio, visualization};

/// All scenarios, family by family.
pub fn scenarios() -> impl Iterator<Item = &'static dyn Scenario> {
    let families = [
        fragment::SCENARIOS,
        visualization::SCENARIOS,
        replication::SCENARIOS,
        mixed::SCENARIOS,
        deadline::SCENARIOS,
        studio::SCENARIOS,
        replay::SCENARIOS,
    ];
    families.into_iter().flatten().copied()
}

/// The scenario of this name.
///
/// # Errors
/// None has it; with those that come nearest.
pub fn scenario_named(name: &str) -> Result<&'static dyn Scenario, UnknownName> {
    scenarios().find(|scenario| scenario.name() == name).ok_or_else(|| {
        // These are run as scenarios are, and may have been meant.
        let names = scenarios().map(Scenario::name).chain(["promises", "storm"]);
        unknown("scenario", name, None, names.collect())
    })
}

/// A scenario as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioPage {
    /// Its name.
    pub scenario: &'static str,
    /// What it models.
    pub about: &'static str,
    /// Its policies, what others do first.
    pub policies: &'static [&'static str],
    /// What can be set.
    pub parameters: Vec<ParameterPage>,
    /// What it measures.
    pub metrics: Vec<MetricPage>,
}

/// A parameter as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterPage {
    /// Its name.
    pub name: &'static str,
    /// `count`, `number`, `flag`, `file` or `word`.
    pub kind: &'static str,
    /// Its unit; none where it counts or compares.
    pub unit: Option<&'static str>,
    /// What it is where nobody sets it; an empty file is none.
    pub default: Value,
    /// Which values it can have, in words.
    pub expected: String,
    /// Least value of a number.
    pub min: Option<f64>,
    /// Greatest value of a number.
    pub max: Option<f64>,
    /// The words that it can be.
    pub words: Option<&'static [&'static str]>,
    /// What it is.
    pub about: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
}

/// A metric as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricPage {
    /// Its name.
    pub name: &'static str,
    /// Its unit; none where it counts or compares.
    pub unit: Option<&'static str>,
    /// `higher`, `lower` or `neither`.
    pub better: &'static str,
    /// What it says.
    pub about: &'static str,
}

impl ScenarioPage {
    /// The page of a scenario.
    #[must_use]
    pub fn of(scenario: &dyn Scenario) -> Self {
        let metrics = scenario.metrics().iter().map(|metric| MetricPage {
            name: metric.name,
            unit: unit_of(metric.name),
            better: match metric.better {
                Better::Higher => "higher",
                Better::Lower => "lower",
                Better::Neither => "neither",
            },
            about: metric.about,
        });
        Self {
            scenario: scenario.name(),
            about: scenario.about(),
            policies: scenario.policies(),
            parameters: scenario.parameters().iter().map(ParameterPage::of).collect(),
            metrics: metrics.collect(),
        }
    }
}

impl ParameterPage {
    pub(crate) fn of(parameter: &Parameter) -> Self {
        let (least, greatest) = parameter.range;
        let (kind, is_number, words) = match parameter.default {
            Value::Count(_) => ("count", true, None),
            Value::Number(_) => ("number", true, None),
            Value::Flag(_) => ("flag", false, None),
            Value::File(_) => ("file", false, None),
            Value::Word(_, words) => ("word", false, Some(words)),
        };
        Self {
            name: parameter.name,
            kind,
            unit: unit_of(parameter.name).filter(|_| is_number),
            default: parameter.default.clone(),
            expected: parameter.expected(),
            min: Some(least).filter(|least| is_number && least.is_finite()),
            max: Some(greatest).filter(|greatest| is_number && greatest.is_finite()),
            words,
            about: parameter.about,
            source: parameter.source,
        }
    }
}

/// Ends of names and the units that they stand for.
const UNITS: [(&str, &str); 25] = [
    ("_per_hour", "1/h"),
    ("_per_s", "1/s"),
    ("_core_hours", "core hours"),
    ("_us_per_job", "µs"),
    ("_mb_per_s", "MB/s"),
    ("_mib_per_s", "MiB/s"),
    ("_mb_s", "MB/s"),
    ("_mib_s", "MiB/s"),
    ("_gb_s", "GB/s"),
    ("_percent", "%"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_min", "min"),
    ("_h", "h"),
    ("_hours", "h"),
    ("_days", "d"),
    ("_fps", "frames/s"),
    ("_bytes", "B"),
    ("_kb", "kB"),
    ("_mb", "MB"),
    ("_mib", "MiB"),
    ("_gb", "GB"),
    ("_gib", "GiB"),
    ("_ghz", "GHz"),
];

/// The unit in which a name ends.
#[must_use]
pub fn unit_of(name: &str) -> Option<&'static str> {
    // The longer end says more: `_mb_per_s` is no number of seconds.
    let ends = UNITS.iter().filter(|(end, _)| name.ends_with(end));
    let unit = ends.max_by_key(|(end, _)| end.len()).map(|(_, unit)| *unit);
    // Percents are told of several things, whose names follow.
    unit.or(name.contains("_percent_").then_some("%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_unit() {
        for (name, unit) in [
            ("turnaround_p50_s", Some("s")),
            ("bandwidth_mb_per_s", Some("MB/s")),
            ("server_mb_s", Some("MB/s")),
            ("completion_rate_per_hour", Some("1/h")),
            ("utilization_fat_percent", Some("%")),
            ("utilization_percent_fat", Some("%")),
            ("makespan", None),
            ("hosts", None),
        ] {
            assert_eq!(unit_of(name), unit, "{name}");
        }
    }

    #[test]
    fn every_scenario_has_a_page_that_says_what_its_parameters_are_and_where_they_come_from() {
        let mut complaints = Vec::new();
        let mut complain = |of: &str, what: String| complaints.push(format!("{of}: {what}"));
        let mut names = Vec::new();
        for scenario in scenarios() {
            let page = ScenarioPage::of(scenario);
            let name = page.scenario;
            names.push(name);
            if page.about.is_empty() || page.policies.is_empty() || page.metrics.is_empty() {
                complain(name, "what is it?".to_owned());
            }
            if has_one_twice(page.policies.iter().copied().chain(["all"])) {
                complain(name, format!("a policy is there twice: {:?}", page.policies));
            }
            let words = page.metrics.iter().map(|metric| (metric.name, metric.about));
            let words = words.chain(page.parameters.iter().map(|of| (of.name, of.about)));
            for (what, _) in words.filter(|(_, about)| about.is_empty()) {
                complain(name, format!("what is {what}?"));
            }
            if has_one_twice(page.metrics.iter().map(|metric| metric.name))
                || has_one_twice(page.parameters.iter().map(|parameter| parameter.name))
            {
                complain(name, "a metric or parameter is there twice".to_owned());
            }
            for parameter in &page.parameters {
                let what = parameter.name;
                if parameter.source.is_empty() {
                    complain(name, format!("where is {what} from?"));
                }
                let set = format!("{what}={}", parameter.default);
                let own = crate::setting::settings(scenario, [set.as_str()]);
                if let Err(error) = own
                    && parameter.kind != "file"
                {
                    complain(name, error.to_string());
                }
            }
        }
        if has_one_twice(names.into_iter()) {
            complain("scenarios", "one is there twice".to_owned());
        }
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    fn has_one_twice<'a>(names: impl Iterator<Item = &'a str>) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        !names.into_iter().all(|name| seen.insert(name))
    }

    #[test]
    fn an_unknown_scenario_is_refused() {
        let error = scenario_named("fragment").err().expect("it has two names");
        assert!(error.to_string().starts_with("there is no scenario \"fragment\""), "{error}");
    }
}
