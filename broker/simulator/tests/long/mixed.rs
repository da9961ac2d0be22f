//! Mixed batches: every heuristic on every known matrix, and ours against the bound.

use std::path::PathBuf;

use gleaner_protocol::{Span, boottime};
use gleaner_scheduling::mixed::{Effort, Mapping, Relaxation, Rule, Times};

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
/// What is reached on all of them within the default search; 1.005 on most.
const OVER_BOUND_MAX: f64 = 1.007;
/// How long the default search may take: under a second where nothing else runs.
const SEARCH_MAX: Span = Span::from_secs(5);

/// The folder named by `GLEANER_ETC`, or the two matrices that are here.
fn folder() -> PathBuf {
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/etc");
    std::env::var_os("GLEANER_ETC").map_or_else(here, PathBuf::from)
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
    let mut seen = 0;
    for (name, makespans, bound) in KNOWN {
        let Ok(text) = std::fs::read_to_string(folder().join(name)) else { continue };
        seen += 1;
        let times = matrix(&text);
        for (rule, expected) in RULES.into_iter().zip(makespans) {
            let mapping = rule.map(&times, Effort::default());
            assert_eq!(shown(&mapping), format!("{expected:.2}"), "{name} {}", rule.as_str());
        }
        let relaxation = Relaxation::solve(&times, &Rule::Mct.map(&times, Effort::default()));
        assert_eq!(format!("{:.2}", relaxation.bound() / 1e6), format!("{bound:.2}"), "{name}");
        let began = boottime();
        let ours = Rule::Gleaner.map(&times, Effort::default());
        let took = boottime().since(began);
        let over = ours.makespan() as f64 / relaxation.bound();
        println!("{name}: {} {over:.5} of the bound in {:.2} s", shown(&ours), took.as_secs_f64());
        assert!(over <= OVER_BOUND_MAX, "{name}: {over}");
        assert!(took <= SEARCH_MAX, "{name}: {:.2} s", took.as_secs_f64());
    }
    assert!(seen >= 2, "no known matrix in {}", folder().display());
}
