//! `mixed-npairs`: a study of brain images on fat, light and GPU nodes.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_scheduling::mixed::{Effort, Rule};

use super::figures::{
    self, BEST, FLOW, FLOW_RATIO, MAKESPAN, OVER_BOUND, RATIO, UNTRIED, UTILIZATION, WORST, higher,
    mean,
};
use super::profile::Profile;
use super::workload::Workload;
use crate::dice::Dice;
use crate::parameters::{Parameter, Settings};
use crate::scenario::{Metric, Numbers, Order, Outcome, Progress, Scenario};

const POLICIES: &[&str] = &[
    "fcfs",
    "torque",
    "mct",
    "sjf",
    "ljf",
    "min-min",
    "max-min",
    "sufferage",
    "sufferage-step",
    "gleaner",
];

const FAT: Metric = higher("utilization_percent_fat", "the same of the fat nodes");
const LIGHT: Metric = higher("utilization_percent_light", "the same of the light nodes");
const GPU: Metric = higher("utilization_percent_gpu", "the same of the GPU nodes");
const METRICS: &[Metric] = &[
    MAKESPAN,
    RATIO,
    FLOW,
    FLOW_RATIO,
    BEST,
    WORST,
    OVER_BOUND,
    UNTRIED,
    UTILIZATION,
    FAT,
    LIGHT,
    GPU,
];

/// What is said of the times: what is so, nothing, or something wrong.
const TIMES: &[&str] = &["true", "missing", "wrong"];
/// Up to so many times too long or too short is what is wrong.
const WRONG_MAX: f64 = 4.0;
/// Stream of chance for the order of the jobs and for what is wrong.
const SAYINGS: u64 = 0x6d69_7865_645f_0002;
/// Stream of chance for when jobs come.
const ARRIVALS: u64 = 0x6d69_7865_645f_0003;

/// Principal components of the first job and of the last one that are published.
const PUBLISHED: (u64, u64) = (2, 100);
const NODES: &str = "R. S. Nakhjavani et al., \"Porting a Neuro-Imaging Application to a CPU-GPU Cluster\", 2014, Section V";
const CALIBRATED: &str = "calibrated together with the others: the published figures of times are curves without numbers, so a straight line in the components for each was searched on a grid (growth 0.2 to 2, speed-ups 3 to 5, fat nodes 2 to 40 % slower) for the least distance from the published ratios of Sufferage to Torque, FCFS and MCT first, then of Min-Min, Max-Min, SJF and LJF; it then gives the published 44 % gain over a cluster without GPUs within 3 points";

/// Jobs that differ in the number of principal components, 2 and up.
///
/// Source: R. S. Nakhjavani, S. Sharify, A. B. Hashemi, A. W. Lu, C. Amza and S. Strother,
/// "Porting a Neuro-Imaging Application to a CPU-GPU Cluster", 2014.
pub(crate) struct Npairs;

impl Scenario for Npairs {
    fn name(&self) -> &'static str {
        "mixed-npairs"
    }

    fn about(&self) -> &'static str {
        "99 jobs of a brain image study on 3 fat, 3 light and 2 GPU nodes"
    }

    fn parameters(&self) -> Vec<Parameter> {
        let nodes = |name, count, about| Parameter::count(name, count, (0, 100), about, NODES);
        let mut list = vec![
            nodes("fat_nodes", 3, "nodes with four CPUs of 8 cores"),
            nodes("light_nodes", 3, "nodes with two CPUs of 8 cores"),
            nodes("gpu_nodes", 2, "nodes with a GPU"),
            Parameter::count(
                "components_min",
                PUBLISHED.0,
                (1, 2000),
                "principal components of the first job; there is one job for each number",
                NODES,
            ),
            Parameter::count(
                "components_max",
                PUBLISHED.1,
                (1, 2000),
                "principal components of the last job",
                NODES,
            ),
            Parameter::file(
                "profile",
                "measured times, as gleaner kernel profile npairs writes them, of one size and for kinds fat, light and gpu; then light_s, growth, the speed-ups and fat_factor say nothing",
            ),
            Parameter::number(
                "light_s",
                1000.0,
                (1.0, 100_000.0),
                "time of a job of 2 components on a light node, in seconds",
                "a round number: only ratios of makespans are published",
            ),
            Parameter::number(
                "growth",
                1.0,
                (0.0, 100.0),
                "how much longer than that the job of 100 components takes on a light node, in parts of it",
                CALIBRATED,
            ),
            Parameter::number(
                "gpu_speedup_first",
                3.2,
                (0.1, 100.0),
                "how many times as fast as a light node a GPU node runs a job of 2 components",
                CALIBRATED,
            ),
            Parameter::number(
                "gpu_speedup_100",
                4.3,
                (0.1, 100.0),
                "the same for the job of 100 components; 3 to 7 times are published",
                CALIBRATED,
            ),
            Parameter::number(
                "fat_factor",
                1.05,
                (0.1, 100.0),
                "time on a fat node over that on a light node; over 1 in the published figure",
                CALIBRATED,
            ),
            Parameter::word(
                "times",
                TIMES,
                "what the policies are told of the times: true ones, nothing (missing), or of each application on each kind of node up to 4 times too much or too little (wrong); then jobs come in random order, and as many plans as there are jobs share search_entries",
                "a submitter who knows, who does not, and who is mistaken",
            ),
            Parameter::count(
                "applications",
                9,
                (1, 2000),
                "applications that the jobs are of, those of nearly as many components of one; only times that are missing or wrong depend on it",
                "a batch of several programs, each with eleven jobs",
            ),
            Parameter::number(
                "arrivals_s",
                0.0,
                (0.0, 1e6),
                "seconds between two jobs on average, at a constant rate and in random order; 0: all come at once",
                "the published batch is there at once",
            ),
        ];
        list.extend(figures::parameters());
        list
    }

    fn policies(&self) -> &'static [&'static str] {
        POLICIES
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn run(&self, order: &Order<'_>, progress: &dyn Progress) -> Result<Outcome, String> {
        let workload = workload(order.settings, order.seed)?;
        if workload.kinds.is_empty() {
            return Err("mixed-npairs needs a node: one of fat_nodes, light_nodes and gpu_nodes must be above 0".into());
        }
        let is_told = order.settings.word("times") == "true";
        let plans = if is_told && order.settings.number("arrivals_s") == 0.0 {
            1
        } else {
            workload.jobs() as u64
        };
        let reference = figures::reference(&workload, Rule::Sufferage, Effort::default())?;
        let outcome = figures::contest(&workload, plans, order, progress, |used| {
            let of_kind = |kind: &str| {
                let machines = workload.kinds.iter().zip(used);
                machines.filter(|(of, _)| *of == kind).map(|(_, used)| *used).collect::<Vec<_>>()
            };
            let kinds = [
                (FAT.name, of_kind("fat")),
                (LIGHT.name, of_kind("light")),
                (GPU.name, of_kind("gpu")),
            ];
            let there = kinds.into_iter().filter(|(_, used)| !used.is_empty());
            there.map(|(name, used)| (name, mean(&used))).collect::<Numbers>()
        });
        let mut outcome = outcome?;
        for (_, numbers) in &mut outcome.policies {
            numbers.insert(RATIO.name, numbers[MAKESPAN.name] / reference.makespan());
            numbers.insert(FLOW_RATIO.name, numbers[FLOW.name] / reference.flow());
        }
        Ok(outcome)
    }
}

fn workload(settings: &Settings, seed: u64) -> Result<Workload, String> {
    let (first, last) = (settings.count("components_min"), settings.count("components_max"));
    if first > last {
        return Err(format!(
            "components_min is {first}, components_max {last}: set it to {first} or more"
        ));
    }
    let profile = settings.file("profile").map(Profile::read).transpose()?;
    let mut kinds = Vec::new();
    for (kind, count) in [("fat", "fat_nodes"), ("light", "light_nodes"), ("gpu", "gpu_nodes")] {
        kinds.extend((0..settings.count(count)).map(|_| kind.to_owned()));
    }
    let mut jobs: Vec<u64> = (first..=last).collect();
    let told = settings.word("times");
    let mut dice = Dice::new(seed, SAYINGS);
    if told != "true" || settings.number("arrivals_s") > 0.0 {
        dice.shuffle(&mut jobs);
    }
    let mut times = Vec::new();
    for components in &jobs {
        for kind in &kinds {
            let time_s = match &profile {
                Some(profile) => profile.seconds(kind, *components)?,
                None => published_s(settings, kind, *components),
            };
            times.push((time_s * 1e6).round() as u64);
        }
    }
    let applications = settings.count("applications");
    let application = |components: u64| {
        (components - first) * applications.min(jobs.len() as u64) / jobs.len() as u64
    };
    let work: Vec<(usize, u64)> =
        jobs.iter().map(|components| (application(*components) as usize, *components)).collect();
    let said = match told {
        "missing" => None,
        "wrong" => Some(wrong(&kinds, &times, &work, &mut dice)),
        _ => Some(times.clone()),
    };
    let mut comes_us = vec![0; jobs.len()];
    let (arrivals_s, mut now_s) = (settings.number("arrivals_s"), 0.0);
    if arrivals_s > 0.0 {
        let mut dice = Dice::new(seed, ARRIVALS);
        for comes_us in &mut comes_us {
            now_s += dice.exponential(arrivals_s);
            *comes_us = (now_s * 1e6) as u64;
        }
    }
    Ok(Workload { kinds, times, said, work, comes_us })
}

/// Times of which those of each application on each kind of node are wrong by a factor.
fn wrong(kinds: &[String], times: &[u64], work: &[(usize, u64)], dice: &mut Dice) -> Vec<u64> {
    let mut factors: BTreeMap<(usize, &str), f64> = BTreeMap::new();
    let most = libm::log(WRONG_MAX);
    let places =
        work.iter().flat_map(|(application, _)| kinds.iter().map(|kind| (*application, &kind[..])));
    for place in places.clone().collect::<BTreeSet<_>>() {
        factors.insert(place, libm::exp(dice.uniform(-most, most)));
    }
    let said = times.iter().zip(places);
    said.map(|(time, place)| ((*time as f64 * factors[&place]).round() as u64).max(1)).collect()
}

/// How long a job takes by the calibrated lines, in seconds.
pub(crate) fn published_s(settings: &Settings, kind: &str, components: u64) -> f64 {
    let number = |name| settings.number(name);
    let (first, last) = PUBLISHED;
    let at = (components as f64 - first as f64) / (last - first) as f64;
    // Beyond what is published the lines go on, though never to a standstill.
    let light = number("light_s") * (1.0 + number("growth") * at).max(0.1);
    let speedup = number("gpu_speedup_first");
    let speedup = (speedup + (number("gpu_speedup_100") - speedup) * at).max(0.1);
    match kind {
        "fat" => light * number("fat_factor"),
        "gpu" => light / speedup,
        _ => light,
    }
}

#[cfg(test)]
mod tests {
    use gleaner_scheduling::mixed::BatchConfig;

    use super::*;
    use crate::mixed::world;
    use crate::parameters::Value;
    use crate::scenario::Quiet;

    fn run(seed: u64, search_entries: u64) -> Outcome {
        run_of(POLICIES, seed, search_entries)
    }

    fn run_of(policies: &'static [&'static str], seed: u64, search_entries: u64) -> Outcome {
        let mut settings = Settings::defaults(&Npairs.parameters());
        settings.set("search_entries", Value::Count(search_entries));
        let order = Order { settings: &settings, seed, policies, measure: false };
        Npairs.run(&order, &Quiet).expect("the defaults run")
    }

    fn makespan(outcome: &Outcome, policy: &str) -> f64 {
        let found = outcome.policies.iter().find(|(name, _)| *name == policy);
        found.expect("it was asked for").1["makespan"]
    }

    #[test]
    fn the_published_policies_stand_as_published_and_ours_is_before_them() {
        let outcome = run(1, 20_000_000);
        let below = |policy: &str| {
            100.0 * (1.0 - makespan(&outcome, "sufferage") / makespan(&outcome, policy))
        };
        for (policy, published, within) in
            [("torque", 47.0, 3.0), ("fcfs", 9.0, 2.0), ("mct", 4.0, 2.0)]
        {
            let got = below(policy);
            assert!((got - published).abs() <= within, "{policy}: {got:.1} % below");
        }
        assert!(makespan(&outcome, "min-min") < makespan(&outcome, "sjf"));
        assert!(makespan(&outcome, "max-min") < makespan(&outcome, "ljf"));
        // With a fiftieth of the search; the whole of it is under half a percent over the bound.
        let over = makespan(&outcome, "gleaner") / outcome.bound["makespan"];
        assert!(over <= 1.02, "{over}");
    }

    #[test]
    fn the_same_seed_gives_the_same_and_another_other_orders() {
        // One of a queue, one of a whole batch, and ours: all policies take too long for this.
        let run = || run_of(&["fcfs", "sufferage", "gleaner"], 1, 0);
        let first = run();
        assert_eq!(run(), first);
        let other = run_of(&["fcfs"], 2, 0);
        assert_ne!(makespan(&first, "fcfs"), makespan(&other, "fcfs"));
    }

    #[test]
    fn the_invariants_hold_after_every_event_under_every_policy() {
        let mut settings = Settings::defaults(&Npairs.parameters());
        let runs = TIMES.iter().flat_map(|times| Rule::ALL.map(|rule| (*times, rule)));
        for (times, rule) in runs {
            settings.set("times", Value::Word(times, TIMES));
            let workload = workload(&settings, 1).expect("the defaults");
            let arrival: Vec<_> = (0..workload.jobs()).rev().collect();
            let config = BatchConfig {
                rule,
                effort: Effort { entries: 100_000, ..Effort::default() },
                steps_max: usize::MAX,
                steps_at_once: usize::MAX,
                rest_ns_per_step: 0,
            };
            let record = world::run(&workload, &arrival, config, true)
                .unwrap_or_else(|error| panic!("{} {times}: {error}", rule.as_str()));
            assert!(record.busy_us.iter().all(|busy| *busy <= record.makespan_us));
        }
    }

    /// The mean and the worst ratio to true times of ours over these seeds, with the search of a farm.
    fn ratios(times: &'static str, arrivals_s: f64, metric: &str) -> (f64, f64) {
        let mut settings = Settings::defaults(&Npairs.parameters());
        settings.set("times", Value::Word(times, TIMES));
        settings.set("arrivals_s", Value::Number(arrivals_s));
        settings.set("search_entries", Value::Count(50_000 * 99));
        let of_seed = |seed| {
            let order = Order { settings: &settings, seed, policies: &["gleaner"], measure: false };
            let outcome = Npairs.run(&order, &Quiet).expect("a run");
            let numbers = &outcome.policies[0].1;
            let is_batch = times == "missing" && arrivals_s == 0.0;
            assert!(!is_batch || numbers["untried_at_once"] == 1.0, "{numbers:?}");
            numbers[metric]
        };
        let ratios: Vec<f64> = (0..4).map(of_seed).collect();
        (mean(&ratios), ratios.into_iter().fold(0.0, f64::max))
    }

    #[test]
    fn missing_and_wrong_times_cost_little() {
        for (times, most) in [("missing", 1.05), ("wrong", 1.10)] {
            let (mean, worst) = ratios(times, 0.0, "ratio_to_true_times");
            assert!(mean <= most && worst <= 1.25, "{times}: {mean}, worst {worst}");
        }
        for (times, most) in [("missing", 1.15), ("wrong", 1.20)] {
            let (mean, _) = ratios(times, 130.0, "flow_ratio_to_true_times");
            assert!(mean <= most, "{times}: {mean} of the flow");
        }
    }

    #[test]
    fn what_is_said_is_wrong_by_application_and_kind() {
        let mut settings = Settings::defaults(&Npairs.parameters());
        settings.set("times", Value::Word("wrong", TIMES));
        let workload = workload(&settings, 7).expect("a workload");
        let mut off: BTreeMap<(usize, &str), Vec<f64>> = BTreeMap::new();
        for job in 0..workload.jobs() {
            for (machine, kind) in workload.kinds.iter().enumerate() {
                let said = workload.said_us(job, machine).expect("something is said") as f64;
                let ratio = said / workload.time_us(job, machine) as f64;
                off.entry((workload.work[job].0, kind)).or_default().push(ratio);
            }
        }
        assert_eq!(off.len(), 9 * 3);
        for ratios in off.values() {
            assert!(ratios.iter().all(|ratio| (ratio / ratios[0] - 1.0).abs() < 1e-6));
            assert!((0.249..4.001).contains(&ratios[0]), "{ratios:?}");
        }
        assert!(off.values().any(|of| of[0] < 0.5) && off.values().any(|of| of[0] > 2.0));
    }

    /// Nodes of one kind, as they were measured: the bound is all work over them.
    #[test]
    fn measured_times_are_taken_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let lines = "kernel,part,size,kind,seconds\nnpairs,1,9x9,fat,10\nnpairs,5,9x9,fat,50\n";
        std::io::Write::write_all(&mut file, lines.as_bytes()).expect("written");
        let mut settings = Settings::defaults(&Npairs.parameters());
        let path = file.path().to_str().expect("a plain path");
        settings.set("profile", Value::File(path.into()));
        let run = |settings: &Settings| {
            let order = Order { settings, seed: 1, policies: &["mct"], measure: false };
            Npairs.run(&order, &Quiet)
        };
        let error = run(&settings).expect_err("light nodes were not measured");
        assert!(error.contains("set light_nodes=0"), "{error}");
        settings.set("light_nodes", Value::Count(0));
        settings.set("gpu_nodes", Value::Count(0));
        let error = run(&settings).expect_err("100 components were not measured");
        assert!(error.contains("of fat nodes it has 1 to 5 components"), "{error}");
        settings.set("components_min", Value::Count(1));
        settings.set("components_max", Value::Count(5));
        let outcome = run(&settings).expect("a run");
        // 10, 20, 30, 40 and 50 seconds on three nodes.
        assert!((outcome.bound["makespan"] - 50.0).abs() < 1e-6, "{outcome:?}");
        assert_eq!(makespan(&outcome, "mct"), 70.0);
        settings.set("components_min", Value::Count(6));
        assert!(run(&settings).expect_err("no jobs").contains("set it to 6 or more"));
    }
}
