use rand::RngExt;
use rand_pcg::Pcg64;

use super::*;
use crate::left_out::LeftOut;

fn features(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn run(pairs: &[(&str, f64)], seconds: f64, ended: bool) -> Run {
    Run {
        application: "x".into(),
        kind: "any".into(),
        features: features(pairs),
        cpu_us: 0,
        wall_us: (seconds * 1e6) as u64,
        peak_memory_mib: None,
        ended,
        at_ms: 0,
    }
}

fn fit(runs: &[Run]) -> Fit {
    Fit::of(runs, Clock::Wall).expect("one ended").0
}

fn seconds(fit: &Fit, pairs: &[(&str, f64)]) -> f64 {
    libm::exp(fit.log_of(&features(pairs))) / 1e6
}

/// A normal number.
fn noise(dice: &mut Pcg64) -> f64 {
    normal::quantile(dice.random_range(0.0..1.0))
}

#[test]
fn the_recorded_segmentation_runs_are_predicted_as_well_as_was_published() {
    let table = include_str!("../../../simulator/src/deadline/segmentation_runs.csv");
    let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let runs: Vec<Run> = rows
        .map(|row| {
            let numbers: Vec<f64> =
                row.split(',').skip(1).map(|word| word.parse().expect("a number")).collect();
            let dimensions = [("dim_x", numbers[0]), ("dim_y", numbers[1]), ("dim_z", numbers[2])];
            run(&dimensions, numbers[3], true)
        })
        .collect();
    assert_eq!(runs.len(), 24);
    let left_out = LeftOut::of(&runs.iter().collect::<Vec<_>>(), Clock::Wall).expect("errors");
    let LeftOut { mean_percent, max_percent, .. } = left_out;
    println!(
        "leave-one-out error of 24 recorded runs: mean {mean_percent:.2} %, largest {max_percent:.2} % \
         (published predictor: 3.73 %, 9.27 %); {}",
        fit(&runs).formula()
    );
    assert!(mean_percent <= 4.0 && max_percent <= 10.0, "{left_out:?}");
}

#[test]
fn a_power_of_a_size_is_found() {
    let runs: Vec<Run> = (1..9)
        .map(|size| {
            let size = f64::from(size * size);
            run(&[("bytes", size), ("threads", 3.0)], 0.5 * size.powf(1.5), true)
        })
        .collect();
    let fit = fit(&runs);
    assert!((seconds(&fit, &[("bytes", 400.0)]) - 4000.0).abs() < 1.0);
    assert_eq!(fit.formula(), "0.500 s × bytes^1.50");
    assert!(fit.spread(&features(&[("bytes", 1e9)])) > fit.spread(&features(&[("bytes", 9.0)])));
    // What is not said is taken for the mean.
    assert!(seconds(&fit, &[]).is_finite());
}

#[test]
fn features_that_say_nothing_are_left_out() {
    let mut dice = Pcg64::new(7, 1);
    let runs: Vec<Run> = (0..60)
        .map(|_| {
            let (size, seed) = (dice.random_range(1.0..50.0), dice.random_range(1.0..1e6));
            let seconds = 3.0 * size * libm::exp(0.05 * noise(&mut dice));
            run(&[("seed", seed), ("size", size), ("zero", 0.0)], seconds, true)
        })
        .collect();
    let fit = fit(&runs);
    assert!(fit.formula().contains("size^1.0") || fit.formula().contains("size^0.99"), "{fit:?}");
    assert!(!fit.formula().contains("zero"), "{}", fit.formula());
    let at = |seed| seconds(&fit, &[("seed", seed), ("size", 10.0)]);
    assert!((at(5.0) / at(5e5) - 1.0).abs() < 0.1, "{}", fit.formula());
    assert!((fit.sigma().expect("many") - 0.05).abs() < 0.01);
}

#[test]
fn few_runs_are_met_in_their_mean_and_no_run_is_no_fit() {
    assert!(Fit::of(&[], Clock::Wall).is_none());
    assert!(Fit::of(&[run(&[("a", 1.0)], 5.0, false)], Clock::Wall).is_none());
    let one = [run(&[("a", 1.0)], 5.0, true)];
    assert!((seconds(&fit(&one), &[("a", 9.0)]) - 5.0).abs() < 1e-6);
    assert!(Fit::of(&one, Clock::Cpu).is_none(), "nobody said its CPU time");
    let two = [run(&[("a", 1.0)], 4.0, true), run(&[("a", 2.0)], 9.0, true)];
    assert!((seconds(&fit(&two), &[("a", 1.0)]) - 6.0).abs() < 1e-3);
    assert_eq!(fit(&one).sigma(), None);
}

#[test]
fn numbers_that_are_no_sizes_may_be_zero_or_negative() {
    let runs: Vec<Run> = (0..20)
        .map(|at| run(&[("level", f64::from(at - 4))], libm::exp(f64::from(at) / 4.0), true))
        .collect();
    let fit = fit(&runs);
    let error = seconds(&fit, &[("level", 4.0)]) / libm::exp(2.0) - 1.0;
    assert!(error.abs() < 1e-3, "{}", fit.formula());
    assert!(seconds(&fit, &[("level", 1e12)]).is_finite());
}

#[test]
fn without_those_that_were_cut_off_slow_work_looks_fast() {
    let mut dice = Pcg64::new(3, 1);
    let truth = |size: f64| 10.0 * size;
    let mut runs = Vec::new();
    for _ in 0..300 {
        let size = dice.random_range(1.0..20.0);
        let took = truth(size) * libm::exp(0.4 * noise(&mut dice));
        // A render comes after some time, whatever runs then.
        let render = dice.random_range(1.0..200.0);
        runs.push(run(&[("size", size)], took.min(render), took < render));
    }
    let ended: Vec<Run> = runs.iter().filter(|run| run.ended).cloned().collect();
    assert!((80..240).contains(&ended.len()), "{}", ended.len());
    let error = |fit: &Fit| {
        let of = |size: f64| libm::log(seconds(fit, &[("size", size)]) / truth(size));
        (of(5.0) + of(10.0) + of(18.0)) / 3.0
    };
    let (naive, careful) = (error(&fit(&ended)), error(&fit(&runs)));
    assert!(naive < -0.1, "{naive}");
    assert!(careful.abs() < 0.6 * naive.abs(), "{careful} instead of {naive}");
}
