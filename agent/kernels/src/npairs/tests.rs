use faer::{Mat, Side};
use gleaner_protocol::Time;

use super::splits::{Split, splits};
use super::{Design, Npairs, NpairsError, NpairsPlan, Synthetic, SyntheticError};
use crate::dice::Dice;
use crate::pca::{Matrix, Pca, PcaPlan};
use crate::volume::read_nifti_series;
use crate::{Outcome, Pace, Plan, Preempt, Slice, run};

const SEED: u64 = 5;

fn done<P: Plan>(plan: Box<P>) -> Result<P::Output, P::Error> {
    match run(plan, &Preempt::new(), &mut Pace::new(), || Time::ZERO, &mut |_| ())? {
        Outcome::Done(output) => Ok(output),
        Outcome::Stopped { .. } => panic!("nobody asked"),
    }
}

fn npairs(
    data: &Matrix,
    design: &Design,
    components: usize,
    count: usize,
) -> Result<Npairs, NpairsError> {
    done(NpairsPlan::new(data.clone(), design.clone(), components, count, SEED)?)
}

/// Scans around 50 of each class by turns: noise, and along each pattern what the class has there.
fn planted(scans: usize, patterns: &[Vec<f64>], class_means: &[&[f64]], seed: u64) -> Matrix {
    let mut dice = Dice::new(seed, 9);
    let voxels = patterns[0].len();
    let mut numbers = Vec::new();
    for scan in 0..scans {
        let means = class_means[scan % class_means.len()];
        for voxel in 0..voxels {
            let signal: f64 = patterns.iter().zip(means).map(|(p, mean)| p[voxel] * mean).sum();
            numbers.push(50.0 + signal + dice.normal());
        }
    }
    Matrix::new(scans, voxels, numbers).expect("finite")
}

fn by_turns(scans: usize, classes: i64) -> Design {
    let labels: Vec<i64> = (0_i64..).take(scans).map(|scan| scan % classes).collect();
    Design::new(&labels, None).expect("a design")
}

/// A pattern of length one that sums to zero.
fn wave(voxels: usize, turns: usize) -> Vec<f64> {
    let angle = |voxel: usize| std::f64::consts::TAU * (turns * voxel) as f64 / voxels as f64;
    (0..voxels).map(|voxel| angle(voxel).sin() * (2.0 / voxels as f64).sqrt()).collect()
}

fn rows(data: &Matrix, scans: &[usize]) -> Matrix {
    let numbers = scans.iter().flat_map(|scan| data.row(*scan).to_vec()).collect();
    Matrix::new(scans.len(), data.columns(), numbers).expect("finite")
}

/// One half, by the definitions: voxels, covariances and their inverse.
struct Plain {
    pca: Pca,
    /// Components by variates.
    directions: Mat<f64>,
    /// Classes by variates.
    means: Mat<f64>,
    shares: Vec<f64>,
}

fn plain(data: &Matrix, design: &Design, scans: &[usize], count: usize) -> Plain {
    let half = rows(data, scans);
    let pca = done(PcaPlan::new(half, count).expect("a plan")).expect("components");
    let classes = design.class_count();
    let counts = design.counts(scans);
    let mut centres = Mat::<f64>::zeros(classes, count);
    for (i, scan) in scans.iter().enumerate() {
        for q in 0..count {
            let class = design.class(*scan);
            centres[(class, q)] += pca.scores.row(i)[q] / counts[class] as f64;
        }
    }
    let within = Mat::from_fn(count, count, |a, b| -> f64 {
        let apart =
            |i: usize, q: usize| pca.scores.row(i)[q] - centres[(design.class(scans[i]), q)];
        (0..scans.len()).map(|i| apart(i, a) * apart(i, b)).sum()
    });
    let between = Mat::from_fn(count, count, |a, b| -> f64 {
        (0..classes).map(|k| counts[k] as f64 * centres[(k, a)] * centres[(k, b)]).sum()
    });
    // The root of the inverse of what varies within, and the eigenvectors between two of them.
    let solved = within.self_adjoint_eigen(Side::Lower).expect("eigenvalues");
    let (values, vectors) = (solved.S().column_vector(), solved.U());
    let root = Mat::from_fn(count, count, |a, b| {
        (0..count).map(|q| vectors[(a, q)] * vectors[(b, q)] / values[q].sqrt()).sum::<f64>()
    });
    let solved = (&root * between * &root).self_adjoint_eigen(Side::Lower).expect("eigenvalues");
    let variates = (classes - 1).min(count);
    let free = ((scans.len() - classes) as f64).sqrt();
    let leading = Mat::from_fn(count, variates, |q, j| solved.U()[(q, count - 1 - j)] * free);
    let directions = &root * leading;
    let means = &centres * &directions;
    let shares = counts.iter().map(|count| *count as f64 / scans.len() as f64).collect();
    Plain { pca, directions, means, shares }
}

impl Plain {
    fn map(&self, j: usize) -> Vec<f64> {
        let (components, count) = (&self.pca.components, self.directions.nrows());
        (0..components.columns())
            .map(|v| (0..count).map(|q| components.row(q)[v] * self.directions[(q, j)]).sum())
            .collect()
    }

    fn probability(&self, scan: &[f64], class: usize) -> f64 {
        let centred: Vec<f64> =
            scan.iter().zip(&self.pca.means).map(|(x, mean)| x - mean).collect();
        let scores: Vec<f64> = (0..self.directions.ncols())
            .map(|j| self.map(j).iter().zip(&centred).map(|(a, b)| a * b).sum())
            .collect();
        let likely = |k: usize| {
            let apart = scores.iter().enumerate().map(|(j, s)| (s - self.means[(k, j)]).powi(2));
            self.shares[k] * (-apart.sum::<f64>() / 2.0).exp()
        };
        likely(class) / (0..self.shares.len()).map(likely).sum::<f64>()
    }
}

fn standard(map: &[f64]) -> Vec<f64> {
    let count = map.len() as f64;
    let mean = map.iter().sum::<f64>() / count;
    let spread = (map.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
    map.iter().map(|x| (x - mean) / spread).collect()
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (standard(a), standard(b));
    a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
}

/// Both maps of a variate, the second one turned so that classes are in the same order.
fn maps(halves: &[Plain; 2], j: usize) -> [Vec<f64>; 2] {
    let [first, second] = halves;
    let same: f64 =
        (0..first.shares.len()).map(|k| first.means[(k, j)] * second.means[(k, j)]).sum();
    [first.map(j), second.map(j).into_iter().map(|x| x * same.signum()).collect()]
}

#[test]
fn figures_are_those_of_the_definitions() {
    let patterns = [wave(50, 1), wave(50, 3)];
    for (classes, means) in [
        (2, &[&[0.0, 0.0][..], &[3.0, 0.0]][..]),
        (3, &[&[6.0, 0.0][..], &[-6.0, 2.5], &[-6.0, -2.5]]),
    ] {
        let data = planted(31, &patterns, means, 1);
        let design = by_turns(31, classes);
        let count = 5;
        let found = npairs(&data, &design, count, 4).expect("figures");
        let all: Vec<Split> = splits(&design, 4, SEED);
        assert_eq!((all.len(), found.splits.len(), found.voxels), (4, 4, 50));
        let mut expected_map = vec![0.0; 50];
        for (split, figures) in all.iter().zip(&found.splits) {
            let halves = [0, 1].map(|side| plain(&data, &design, &split[side], count));
            for side in 0..2 {
                let others = &split[1 - side];
                let told: f64 = others
                    .iter()
                    .map(|scan| halves[side].probability(data.row(*scan), design.class(*scan)))
                    .sum();
                let expected = told / others.len() as f64;
                assert!((figures.prediction[side] - expected).abs() < 1e-9, "{expected}");
            }
            for j in 0..halves[0].directions.ncols() {
                let [first, second] = maps(&halves, j);
                let expected = correlation(&first, &second);
                let found = figures.reproducibility[j];
                assert!((found - expected).abs() < 1e-9, "variate {j}: {found} {expected}");
            }
            let [first, second] = maps(&halves, 0);
            // The reference has the last class on the side above zero, of two.
            let sign = (halves[0].means[(1, 0)] - halves[0].means[(0, 0)]).signum();
            let noise = (2.0 * (1.0 - correlation(&first, &second))).sqrt();
            for (v, (a, b)) in standard(&first).iter().zip(standard(&second)).enumerate() {
                expected_map[v] += sign * (a + b) / noise / 4.0;
            }
        }
        if classes == 2 {
            for (found, expected) in found.maps.row(0).iter().zip(&expected_map) {
                assert!((found - expected).abs() < 1e-8, "{found} {expected}");
            }
        }
        assert_eq!(found.reproducibility.len(), halves_variates(classes));
        let mean = found.splits.iter().map(|s| s.reproducibility[0]).sum::<f64>() / 4.0;
        assert!((found.reproducibility[0] - mean).abs() < 1e-12);
    }
}

fn halves_variates(classes: i64) -> usize {
    usize::try_from(classes - 1).expect("few")
}

/// What one component tells of classes along one pattern, for many scans and voxels. With n scans
/// in a half, v voxels, and classes at ±√strength in noise of variance one.
///
/// Source: Benaych-Georges, Nadakuditi: The singular values and vectors of low rank perturbations
/// of large rectangular random matrices, 2012.
struct Expected {
    reproducibility: f64,
    prediction: f64,
}

fn expected(strength: f64, scans: f64, voxels: f64) -> Expected {
    let ratio = voxels / scans;
    let above = 1.0 - ratio / strength.powi(2);
    let along = above / (1.0 + ratio / strength);
    let between = above / (1.0 + 1.0 / strength);
    let variance = (1.0 + strength) * (1.0 + ratio / strength);
    let within = variance * (1.0 - between) * scans / (scans - 2.0);
    // The odds of the right class are exp(slope x), and x is normal around the middle.
    let slope = 2.0 * (variance * between).sqrt() / within;
    let middle = (strength * along).sqrt();
    let step = 1e-3;
    let density = |x: f64| (-(x - middle).powi(2) / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let prediction = (-10_000..10_000)
        .map(|i| f64::from(i) * step)
        .map(|x| density(x) / (1.0 + (-slope * x).exp()));
    Expected { reproducibility: along, prediction: prediction.sum::<f64>() * step }
}

#[test]
fn figures_of_planted_activation_are_those_that_theory_expects() {
    for (strength, scans, voxels) in [(2.0, 200, 100), (4.0, 200, 800), (1.5, 400, 120)] {
        let apart = f64::sqrt(strength);
        let expected = expected(strength, scans as f64, voxels as f64);
        let runs = 6;
        let (mut reproducibility, mut prediction) = (0.0, 0.0);
        for seed in 0..runs {
            let data = planted(2 * scans, &[wave(voxels, 2)], &[&[-apart], &[apart]], seed);
            let found = npairs(&data, &by_turns(2 * scans, 2), 1, 2).expect("figures");
            reproducibility += found.reproducibility[0] / runs as f64;
            prediction += found.prediction / runs as f64;
        }
        let is_near = |found: f64, expected: f64, by: f64| (found - expected).abs() < by;
        assert!(is_near(reproducibility, expected.reproducibility, 0.025), "{reproducibility}");
        assert!(is_near(prediction, expected.prediction, 0.015), "{prediction}");
    }
}

#[test]
fn what_is_not_there_is_neither_told_nor_reproduced() {
    let data = planted(80, &[wave(300, 1)], &[&[0.0], &[0.0]], 3);
    let found = npairs(&data, &by_turns(80, 2), 10, 40).expect("figures");
    assert!((found.prediction - 0.5).abs() < 0.05, "{}", found.prediction);
    assert!((found.right - 0.5).abs() < 0.08, "{}", found.right);
    assert!(found.reproducibility[0].abs() < 0.08, "{:?}", found.reproducibility);
}

#[test]
fn classes_of_different_size_are_likely_as_their_shares_say() {
    // Of what cannot be told, the class of two thirds is told for all.
    let data = planted(90, &[wave(40, 1)], &[&[0.0], &[0.0], &[0.0]], 4);
    let labels: Vec<i64> = (0_i64..90).map(|scan| i64::from(scan % 3 == 0)).collect();
    let design = Design::new(&labels, None).expect("a design");
    let found = npairs(&data, &design, 1, 10).expect("figures");
    assert!((found.right - 2.0 / 3.0).abs() < 0.05, "{}", found.right);
    assert!((found.prediction - 5.0 / 9.0).abs() < 0.05, "{}", found.prediction);
}

fn brain() -> (Synthetic, Design) {
    let synthetic =
        Synthetic { size: [16, 14, 10], subjects: 4, scans: 20, ..Synthetic::default() };
    let design = Design::new(&synthetic.classes(), Some(&synthetic.groups())).expect("a design");
    (synthetic, design)
}

#[test]
fn activation_is_found_where_it_was_planted() {
    let (mut synthetic, design) = brain();
    synthetic.effect = 4.0;
    let series = synthetic.series().expect("scans");
    let found = npairs(series.data(), &design, 2, 10).expect("figures");
    // Four subjects have three ways to be split.
    assert_eq!(found.splits.len(), 3);
    assert!(found.prediction > 0.95 && found.right > 0.95, "{}", found.prediction);
    assert!(found.reproducibility[0] > 0.4, "{:?}", found.reproducibility);
    let activation = synthetic.activation();
    let brain = series.data().row(0).iter().filter(|number| **number != 0.0).count();
    assert_eq!(found.voxels, brain);
    let map = found.maps.row(0);
    // Voxels outside have no part in it, and those most active stand out of the others.
    for (v, number) in map.iter().enumerate() {
        assert_eq!(*number == 0.0, series.data().row(0)[v] == 0.0, "voxel {v}");
    }
    let mean_where = |is: &dyn Fn(f64) -> bool| {
        let (sum, count) = (0..map.len())
            .filter(|v| map[*v] != 0.0 && is(activation[*v]))
            .fold((0.0, 0), |(sum, count), v| (sum + map[v], count + 1));
        sum / f64::from(count)
    };
    let bright = mean_where(&|effect| effect > 2.0);
    let dark = mean_where(&|effect| effect < -2.0);
    let others = mean_where(&|effect| effect == 0.0);
    assert!(bright > 2.0 && dark < -2.0 && others.abs() < 0.2, "{bright} {dark} {others}");
}

#[test]
fn classes_are_told_with_as_many_components_as_were_planted() {
    let synthetic = Synthetic::default();
    let design = Design::new(&synthetic.classes(), Some(&synthetic.groups())).expect("a design");
    let series = synthetic.series().expect("scans");
    let found = [1, 2].map(|count| npairs(series.data(), &design, count, 10).expect("figures"));
    // The first component is drift and the second one is activation.
    let [one, two] = &found;
    assert!((one.prediction - 0.5).abs() < 0.1, "{}", one.prediction);
    assert!(two.prediction > 0.9, "{}", two.prediction);
    assert!(two.splits.iter().all(|split| split.reproducibility[0] > 0.2), "{:?}", two.splits);
}

#[test]
fn scans_give_the_same_figures_out_of_a_file() {
    let (synthetic, design) = brain();
    let series = synthetic.series().expect("scans");
    let mut file = Vec::new();
    series.write_nifti(&mut file).expect("memory");
    let read = read_nifti_series(&file[..]).expect("a series");
    assert_eq!((read.size(), read.data().rows()), (synthetic.size, 80));
    let ours = npairs(series.data(), &design, 4, 10).expect("figures");
    let theirs = npairs(read.data(), &design, 4, 10).expect("figures");
    // In single precision, to a 16 millionth of a thousand.
    assert!((ours.prediction - theirs.prediction).abs() < 1e-4);
    assert!((ours.reproducibility[0] - theirs.reproducibility[0]).abs() < 1e-4);
    assert_eq!(ours.voxels, theirs.voxels);
}

#[test]
fn voxels_that_do_not_vary_make_no_difference() {
    let data = planted(40, &[wave(60, 1)], &[&[0.0], &[3.0]], 2);
    let mut numbers = Vec::new();
    for scan in 0..40 {
        numbers.extend(data.row(scan));
        numbers.extend([0.1; 20]);
    }
    let wide = Matrix::new(40, 80, numbers).expect("finite");
    let design = by_turns(40, 2);
    let plain = npairs(&data, &design, 3, 5).expect("figures");
    let wide = npairs(&wide, &design, 3, 5).expect("figures");
    assert_eq!(wide.voxels, 60);
    assert!((plain.prediction - wide.prediction).abs() < 1e-9);
    assert!((plain.reproducibility[0] - wide.reproducibility[0]).abs() < 1e-9);
    assert!(wide.maps.row(0)[60..].iter().all(|number| *number == 0.0));
}

#[test]
fn slices_of_any_size_give_the_same_figures_and_a_wish_ends_them() {
    let data = planted(40, &[wave(5000, 1)], &[&[0.0], &[3.0]], 2);
    let plan = || NpairsPlan::new(data.clone(), by_turns(40, 2), 3, 5, SEED).expect("a plan");
    let whole = {
        let mut plan = plan();
        plan.run(&Slice::new(0..plan.units())).expect("figures");
        plan.finish().expect("figures")
    };
    assert_eq!(done(plan()).expect("figures"), whole);
    let preempt = Preempt::new();
    let asked = preempt.clone();
    let outcome = run(plan(), &preempt, &mut Pace::new(), || Time::ZERO, &mut |permille| {
        if permille > 300 {
            asked.ask();
        }
    });
    assert!(matches!(outcome, Ok(Outcome::Stopped { done, units }) if done < units), "{outcome:?}");
}

#[cfg(feature = "gpu")]
mod on_a_device {
    use super::*;
    use crate::gpu::GpuError;
    use crate::gpu::tests::{open, software};

    /// What votes tolerate, as a share of the largest number of a column, or of a file of maps.
    const TOLERANCE: f64 = 1e-6;

    fn plan(data: &Matrix, design: &Design, components: usize) -> Box<NpairsPlan> {
        let plan =
            NpairsPlan::on_device(software(), data.clone(), design.clone(), components, 8, SEED);
        plan.expect("a plan")
    }

    fn assert_near(ours: f64, theirs: f64, largest: f64) {
        assert!((ours - theirs).abs() <= TOLERANCE * largest, "{ours} {theirs}");
    }

    /// Each table has one line, so that a number is the largest of its column.
    fn assert_alike(ours: &Npairs, theirs: &Npairs) {
        assert_eq!((ours.voxels, ours.splits.len()), (theirs.voxels, theirs.splits.len()));
        assert_near(ours.prediction, theirs.prediction, ours.prediction);
        assert_near(ours.right, theirs.right, ours.right);
        for (ours, theirs) in ours.reproducibility.iter().zip(&theirs.reproducibility) {
            assert_near(*ours, *theirs, ours.abs());
        }
        let (ours, theirs) = (ours.maps.numbers(), theirs.maps.numbers());
        let largest = ours.iter().fold(0.0_f64, |most, number| most.max(number.abs()));
        assert!(ours.len() == theirs.len() && largest > 0.0);
        ours.iter().zip(theirs).for_each(|(ours, theirs)| assert_near(*ours, *theirs, largest));
    }

    #[test]
    fn figures_and_maps_are_those_of_the_processor() {
        let (synthetic, design) = brain();
        let series = synthetic.series().expect("scans");
        for components in [1, 2, 8, 30] {
            let ours = npairs(series.data(), &design, components, 8).expect("figures");
            let theirs = done(plan(series.data(), &design, components)).expect("figures");
            assert_alike(&ours, &theirs);
        }
        // More scans than voxels, of three classes, and in more than one tile.
        let means = [&[6.0, 0.0][..], &[-6.0, 2.5], &[-6.0, -2.5]];
        let data = planted(150, &[wave(50, 1), wave(50, 3)], &means, 1);
        let design = by_turns(150, 3);
        let ours = npairs(&data, &design, 5, 8).expect("figures");
        assert_alike(&ours, &done(plan(&data, &design, 5)).expect("figures"));
    }

    #[test]
    fn slices_of_any_size_give_the_same_figures() {
        let data = planted(70, &[wave(3000, 1)], &[&[0.0], &[3.0]], 2);
        let design = by_turns(70, 2);
        let mut at_once = plan(&data, &design, 3);
        at_once.run(&Slice::new(0..at_once.units())).expect("figures");
        let mut one_by_one = plan(&data, &design, 3);
        let units = one_by_one.units();
        (0..units).for_each(|unit| one_by_one.run(&Slice::new(unit..unit + 1)).expect("figures"));
        assert_eq!(one_by_one.finish().expect("figures"), at_once.finish().expect("figures"));
    }

    #[test]
    fn a_device_that_is_lost_is_an_error_and_what_makes_no_sense_is_not_sent_there() {
        let data = planted(20, &[wave(30, 1)], &[&[0.0], &[1.0]], 2);
        let gpu = open();
        let new = |count| {
            NpairsPlan::on_device(gpu.clone(), data.clone(), by_turns(20, 2), count, 3, SEED)
        };
        let mut halfway = new(2).expect("a plan");
        gpu.device().destroy();
        let error = halfway.run(&Slice::new(0..halfway.units())).expect_err("it is lost");
        assert!(matches!(error, NpairsError::Device(GpuError::Lost { .. })), "{error:?}");
        let error = new(2).expect_err("it is lost");
        assert!(matches!(error, NpairsError::Device(GpuError::Lost { .. })), "{error:?}");
        let error = new(9).expect_err("too many");
        assert!(matches!(error, NpairsError::Components { most: 8, .. }), "{error:?}");
    }
}

#[test]
fn what_has_no_figures_is_told() {
    let data = planted(20, &[wave(30, 1)], &[&[0.0], &[1.0]], 2);
    let design = by_turns(20, 2);
    let new =
        |data: &Matrix, count| NpairsPlan::new(data.clone(), design.clone(), count, 3, 1).err();
    let most = NpairsError::Components { asked: 9, most: 8, scans: 10, classes: 2 };
    assert_eq!(new(&data, 9), Some(most));
    assert!(matches!(new(&data, 0), Some(NpairsError::Components { asked: 0, .. })));
    let fewer = rows(&data, &[0, 1, 2]);
    assert_eq!(new(&fewer, 2), Some(NpairsError::Scans { classes: 20, scans: 3 }));
    let flat = Matrix::new(20, 3, vec![0.1; 60]).expect("finite");
    assert_eq!(npairs(&flat, &design, 2, 3).err(), Some(NpairsError::Constant(3)));
    // Two voxels have two components.
    let narrow = planted(20, &[vec![0.6, -0.8]], &[&[0.0], &[1.0]], 2);
    let rank = NpairsError::Rank { asked: 3, rank: 2, scans: 20 };
    assert_eq!(npairs(&narrow, &design, 3, 3).err(), Some(rank));
    // Scans of a class that are all the same.
    let numbers = (0..40).map(|at| if at / 2 % 2 == 1 && at % 2 == 0 { 5.0 } else { 1.0 });
    let noiseless = Matrix::new(20, 2, numbers.collect()).expect("finite");
    let none = NpairsError::NoneWithin { asked: 1, scans: 20 };
    assert_eq!(npairs(&noiseless, &design, 1, 3).err(), Some(none));
    let huge = (0..40).map(|at| if at % 3 == 0 { 1e200 } else { 0.0 }).collect();
    let huge = Matrix::new(20, 2, huge).expect("finite");
    assert!(matches!(npairs(&huge, &design, 1, 3), Err(NpairsError::Range(_))));
    // Each subject did one thing only, and there are too few of one.
    let classes = [[0; 6], [1; 6]].concat();
    let groups = [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 5];
    let design = Design::new(&classes, Some(&groups)).expect("a design");
    let data = rows(&data, &(0..12).collect::<Vec<_>>());
    let error = NpairsPlan::new(data, design, 1, 3, 1).err();
    assert_eq!(error, Some(NpairsError::NoSplit));
}

#[test]
fn scans_that_cannot_be_made_are_told() {
    let series = |synthetic: Synthetic| synthetic.series().err();
    let small = Synthetic { size: [4, 28, 20], ..Synthetic::default() };
    assert!(matches!(series(small), Some(SyntheticError::Size { .. })));
    let many = Synthetic { subjects: usize::MAX, ..Synthetic::default() };
    assert!(matches!(series(many), Some(SyntheticError::Size { .. })));
    let none = Synthetic { block: 0, ..Synthetic::default() };
    assert!(matches!(series(none), Some(SyntheticError::Size { .. })));
    let loud = Synthetic { noise: f64::NAN, ..Synthetic::default() };
    assert!(matches!(series(loud), Some(SyntheticError::Numbers { .. })));
}
