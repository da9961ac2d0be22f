//! Every scenario as it stands: it keeps to its page, repeats itself, and ends in time.

use gleaner_simulator::{
    Comparison, Experiment, Quiet, Scenario, ScenarioPage, Seeds, Settings, policies,
    scenario_named, scenarios,
};

use crate::cpu_s;

/// How long a run of a scenario under one policy may take on one core, in seconds of its thread.
const LIMIT_S: f64 = 10.0;
/// The same of the largest one, with 424,000 jobs of 6.8 million tasks.
const LARGEST_LIMIT_S: f64 = 60.0;
const LARGEST: &str = "visualization-4";
/// One run of this is five: of all lanes, and of four lanes alone.
const OF_LANES: &str = "studio";
/// One that is larger still: where each node has a task of each job, as under this policy, there
/// are 10.9 million of them.
const LARGER: (&str, &str) = ("visualization-3", "fcfsu");

fn experiment(scenario: &'static dyn Scenario, policy: &str) -> Experiment {
    Experiment {
        scenario,
        settings: Settings::defaults(&scenario.parameters()),
        policies: policies(scenario, [policy]).expect("it is one of the scenario's, or all"),
        seeds: Seeds::One(1),
        measure: false,
        threads: std::num::NonZero::<usize>::MIN,
    }
}

fn run(experiment: &Experiment) -> Comparison {
    experiment.run(&Quiet).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether a metric is brought by `--measure` alone; it is listed too.
fn is_only_measured(metric: &str) -> bool {
    metric.ends_with("_us_per_job")
}

/// Whether a metric is one of batch jobs, of which the first scenario has none but those that are
/// asked for.
fn is_of_others(scenario: &str, metric: &str) -> bool {
    scenario == "visualization-1" && metric.starts_with("batch_")
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
        let error = experiment(scenario, "all").run(&Quiet).expect_err("none is given").to_string();
        assert!(error.contains(file), "{name} does not say that {file} is missing: {error}");
    }
}

#[test]
fn every_scenario_keeps_to_its_page_repeats_itself_and_ends_in_time() {
    let mut complaints = Vec::new();
    for scenario in scenarios().filter(|scenario| !OF_A_FILE.contains(&scenario.name())) {
        let (name, page) = (scenario.name(), ScenarioPage::of(scenario));
        let first = run(&experiment(scenario, "all"));
        for (policy, numbers) in &first.policies {
            let began_s = cpu_s();
            let alone = run(&experiment(scenario, policy));
            let took_s = cpu_s() - began_s;
            println!("{name} {policy}: {took_s:.1} s");
            let is_large = [LARGEST, OF_LANES].contains(&name) || (name, *policy) == LARGER;
            if took_s > if is_large { LARGEST_LIMIT_S } else { LIMIT_S } {
                complaints.push(format!("{name} takes {took_s:.1} s for {policy}"));
            }
            if alone.policies != [(*policy, numbers.clone())] {
                complaints.push(format!("{name} does not repeat itself for {policy}"));
            }
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
        for metric in page.metrics.iter().map(|metric| metric.name) {
            let brought = first.policies.iter().any(|(_, of)| of.contains_key(metric));
            let expected = !is_only_measured(metric) && !is_of_others(name, metric);
            if brought != expected {
                let is = if brought { "brings" } else { "does not bring" };
                complaints.push(format!("{name} {is} {metric}"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
