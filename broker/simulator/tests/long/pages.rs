//! Every scenario as it stands: it keeps to its page, repeats itself, and ends in time.

use gleaner_protocol::{Span, boottime};
use gleaner_simulator::{
    Experiment, Quiet, Scenario, ScenarioPage, Seeds, Settings, policies, scenario_named, scenarios,
};

/// How long a run of a scenario may take on one core.
const LIMIT: Span = Span::from_secs(10);
/// The same of the largest one, with 6.8 million tasks and eight policies.
const LARGEST_LIMIT: Span = Span::from_secs(60);
const LARGEST: &str = "visualization-4";

fn experiment(scenario: &'static dyn Scenario) -> Experiment {
    Experiment {
        scenario,
        settings: Settings::defaults(&scenario.parameters()),
        policies: policies(scenario, ["all"]).expect("all of them"),
        seeds: Seeds::One(1),
        measure: false,
        threads: std::num::NonZero::<usize>::MIN,
    }
}

/// Scenarios that need a file of the user's.
const OF_A_FILE: [&str; 2] = ["mixed-etc", "replay"];

#[test]
fn a_scenario_that_needs_a_file_says_so() {
    for name in OF_A_FILE {
        let scenario = scenario_named(name).expect("it is listed");
        let page = ScenarioPage::of(scenario);
        let file = page.parameters.iter().find(|parameter| parameter.kind == "file");
        let file = file.expect("it has one").name;
        let error = experiment(scenario).run(&Quiet).expect_err("none is given").to_string();
        assert!(error.contains(file), "{name} does not say that {file} is missing: {error}");
    }
}

#[test]
fn every_scenario_keeps_to_its_page_repeats_itself_and_ends_in_time() {
    let mut complaints = Vec::new();
    for scenario in scenarios().filter(|scenario| !OF_A_FILE.contains(&scenario.name())) {
        let (name, page) = (scenario.name(), ScenarioPage::of(scenario));
        let began = boottime();
        let first = experiment(scenario).run(&Quiet).unwrap_or_else(|error| panic!("{error}"));
        let took = boottime().since(began);
        println!("{name}: {:.1} s", took.as_secs_f64());
        if took > if name == LARGEST { LARGEST_LIMIT } else { LIMIT } {
            complaints.push(format!("{name} takes {:.1} s", took.as_secs_f64()));
        }
        let ran: Vec<&str> = first.policies.iter().map(|(policy, _)| *policy).collect();
        if ran != page.policies {
            complaints.push(format!("{name} ran {ran:?} and lists {:?}", page.policies));
        }
        let known = |metric: &str| page.metrics.iter().any(|listed| listed.name == metric);
        let numbers = first.policies.iter().map(|(_, numbers)| numbers).chain([&first.bound]);
        for metric in numbers.flat_map(|numbers| numbers.keys()).filter(|metric| !known(metric)) {
            complaints.push(format!("{name} does not list {metric}"));
        }
        for metric in &page.metrics {
            // What only `--measure` brings is listed too.
            let measured = metric.name.starts_with("scheduling_");
            let brought = first.policies.iter().any(|(_, of)| of.contains_key(metric.name));
            if brought == measured {
                let is = if brought { "brings" } else { "does not bring" };
                complaints.push(format!("{name} {is} {}", metric.name));
            }
        }
        let again = experiment(scenario).run(&Quiet).unwrap_or_else(|error| panic!("{error}"));
        if again != first {
            complaints.push(format!("{name} does not repeat itself"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
