//! Canonical variates of principal components.
//!
//! All is said by products of scans: a component, and so a map of canonical variates, is a sum of
//! scans with some weights, and what a scan scores on it is a sum of products with those scans.

use faer::{Mat, Side};

use super::NpairsError;
use super::design::Design;
use crate::limits::WITHIN_SHARE_MIN;
use crate::pca;

/// Products of all scans with each other.
#[derive(Debug)]
pub(super) struct Products {
    /// All of them, not only a triangle.
    sums: Mat<f64>,
    /// What each sum is of: voxels.
    terms: usize,
}

/// Canonical variates of some scans, and how to tell the class of others by them.
#[derive(Debug)]
pub(super) struct Variates {
    /// What each of all scans counts in the map of each variate; zero for scans that these are
    /// not of.
    pub(super) weights: Mat<f64>,
    /// How a variate tells classes apart: a direction among classes, of length one.
    contrasts: Mat<f64>,
    /// The mean score of each class (rows) on each variate.
    means: Mat<f64>,
    /// Logarithm of the share of scans of each class.
    log_shares: Vec<f64>,
}

/// How well the classes of scans were told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    /// Mean probability of the class that is right.
    pub(super) probability: f64,
    /// Share of scans whose most probable class is right.
    pub(super) right: f64,
}

impl Products {
    /// From the lower triangle of sums of `terms` products.
    pub(super) fn new(lower: &Mat<f64>, terms: usize) -> Self {
        let side = lower.nrows();
        let sums = Mat::from_fn(side, side, |i, j| lower[(i.max(j), i.min(j))]);
        Self { sums, terms }
    }

    /// The sum over voxels of the product of two maps, each given by the weights of scans.
    pub(super) fn of_maps(&self, first: (&Mat<f64>, usize), second: (&Mat<f64>, usize)) -> f64 {
        let scans = self.sums.nrows();
        (0..scans)
            .filter(|i| first.0[(*i, first.1)] != 0.0)
            .map(|i| {
                let row: f64 =
                    (0..scans).map(|j| self.sums[(j, i)] * second.0[(j, second.1)]).sum();
                first.0[(i, first.1)] * row
            })
            .sum()
    }

    /// Canonical variates of the first `count` components of `scans`.
    pub(super) fn variates(
        &self,
        design: &Design,
        scans: &[usize],
        count: usize,
    ) -> Result<Variates, NpairsError> {
        let size = scans.len();
        let Some(found) = pca::largest(&self.centred(scans), count, self.terms.max(size)) else {
            return Err(NpairsError::NoConvergence);
        };
        let (values, vectors) = (found.values, found.vectors);
        if vectors.ncols() < count {
            return Err(NpairsError::Rank { asked: count, rank: vectors.ncols(), scans: size });
        }
        // Scores of length one: what varies within classes and between them is all there is.
        let counts = design.counts(scans);
        let class_count = design.class_count();
        let mut means = Mat::<f64>::zeros(class_count, count);
        for (i, scan) in scans.iter().enumerate() {
            let class = design.class(*scan);
            for q in 0..count {
                means[(class, q)] += vectors[(i, q)] / counts[class] as f64;
            }
        }
        let roots: Vec<f64> = counts.iter().map(|count| (*count as f64).sqrt()).collect();
        let between = Mat::from_fn(class_count, class_count, |k, l| {
            let product: f64 = (0..count).map(|q| means[(k, q)] * means[(l, q)]).sum();
            roots[k] * roots[l] * product
        });
        let solution =
            between.self_adjoint_eigen(Side::Lower).map_err(|_| NpairsError::NoConvergence)?;
        let (shares, directions) = (solution.S().column_vector(), solution.U());
        let variates = (class_count - 1).min(count);
        let last = class_count - 1;
        let mut scales = Vec::with_capacity(variates);
        for j in 0..variates {
            let between = shares[last - j];
            if between < f64::EPSILON {
                return Err(NpairsError::NoDifference { variate: j, scans: size });
            }
            let within = 1.0 - between;
            if within < WITHIN_SHARE_MIN {
                return Err(NpairsError::NoneWithin { asked: count, scans: size });
            }
            // Scores vary by one within classes.
            scales.push(((size - class_count) as f64 / within / between).sqrt());
        }
        let contrasts = Mat::from_fn(class_count, variates, |k, j| directions[(k, last - j)]);
        let directions = Mat::from_fn(count, variates, |q, j| {
            let sum: f64 =
                (0..class_count).map(|k| contrasts[(k, j)] * roots[k] * means[(k, q)]).sum();
            sum * scales[j]
        });
        let mut weights = Mat::zeros(self.sums.nrows(), variates);
        for (i, scan) in scans.iter().enumerate() {
            for j in 0..variates {
                let weight: f64 =
                    (0..count).map(|q| vectors[(i, q)] * directions[(q, j)] / values[q]).sum();
                weights[(*scan, j)] = weight;
            }
        }
        let mut variates = Variates {
            log_shares: counts.iter().map(|count| (*count as f64 / size as f64).ln()).collect(),
            means: Mat::zeros(class_count, variates),
            weights,
            contrasts,
        };
        let mut means = Mat::<f64>::zeros(class_count, variates.count());
        for scan in scans {
            let (class, scores) = (design.class(*scan), self.scores(&variates, *scan));
            for (j, score) in scores.into_iter().enumerate() {
                means[(class, j)] += score / counts[class] as f64;
            }
        }
        variates.means = means;
        Ok(variates)
    }

    /// Products of some scans, less their mean.
    fn centred(&self, scans: &[usize]) -> Mat<f64> {
        let size = scans.len() as f64;
        let means: Vec<f64> = scans
            .iter()
            .map(|i| scans.iter().map(|j| self.sums[(*j, *i)]).sum::<f64>() / size)
            .collect();
        let mean = means.iter().sum::<f64>() / size;
        Mat::from_fn(scans.len(), scans.len(), |i, j| {
            self.sums[(scans[i], scans[j])] - means[i] - means[j] + mean
        })
    }

    /// What a scan scores on each variate, from a zero that is the same for all scans.
    fn scores(&self, variates: &Variates, scan: usize) -> Vec<f64> {
        (0..variates.count())
            .map(|j| {
                let weights = variates.weights.col(j);
                (0..self.sums.nrows()).map(|i| self.sums[(i, scan)] * weights[i]).sum()
            })
            .collect()
    }

    /// How well `variates` tell the classes of `scans`, which they should not be of.
    pub(super) fn predict(
        &self,
        variates: &Variates,
        design: &Design,
        scans: &[usize],
    ) -> Prediction {
        let (mut probability, mut right) = (0.0, 0.0);
        for scan in scans {
            let scores = self.scores(variates, *scan);
            let logs: Vec<f64> = variates
                .log_shares
                .iter()
                .enumerate()
                .map(|(class, log_share)| {
                    let apart = scores.iter().enumerate();
                    let squares =
                        apart.map(|(j, score)| (score - variates.means[(class, j)]).powi(2));
                    log_share - squares.sum::<f64>() / 2.0
                })
                .collect();
            // Less the largest one, so that at least one is not too small to be told from zero.
            let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = logs.iter().map(|log| (log - most).exp()).sum();
            let log = logs[design.class(*scan)];
            probability += (log - most).exp() / total;
            right += f64::from(u8::from(log == most));
        }
        let count = scans.len() as f64;
        Prediction { probability: probability / count, right: right / count }
    }
}

impl Variates {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.weights.ncols()
    }

    /// Puts variates in the order of those of `reference` that tell the same classes apart, the
    /// same way around. Classes decide, not maps: maps that are made alike are no measure of how
    /// alike they are.
    pub(super) fn match_to(&mut self, reference: &Self) {
        let count = self.count();
        let cosine = |own: usize, other: usize| -> f64 {
            let classes = 0..self.contrasts.nrows();
            classes.map(|k| self.contrasts[(k, own)] * reference.contrasts[(k, other)]).sum()
        };
        let mut order = vec![(0, 1.0); count];
        let mut pairs: Vec<(usize, usize, f64)> = (0..count)
            .flat_map(|other| (0..count).map(move |own| (own, other)))
            .map(|(own, other)| (own, other, cosine(own, other)))
            .collect();
        while let Some((own, other, cosine)) =
            pairs.iter().copied().max_by(|a, b| a.2.abs().total_cmp(&b.2.abs()))
        {
            order[other] = (own, if cosine < 0.0 { -1.0 } else { 1.0 });
            pairs.retain(|pair| pair.0 != own && pair.1 != other);
        }
        let ordered = |from: &Mat<f64>| {
            Mat::from_fn(from.nrows(), count, |row, j| from[(row, order[j].0)] * order[j].1)
        };
        self.weights = ordered(&self.weights);
        self.contrasts = ordered(&self.contrasts);
        self.means = ordered(&self.means);
    }

    /// Turns variates around whose contrast is against the order of classes, so that the same data
    /// give the same signs everywhere: the largest number of each contrast is above zero, the one
    /// of the last class where two are equal.
    pub(super) fn turn(&mut self) {
        let signs: Vec<f64> = (0..self.count())
            .map(|j| {
                let classes = 0..self.contrasts.nrows();
                let largest = classes.fold(0.0_f64, |largest, k| {
                    let number = self.contrasts[(k, j)];
                    if number.abs() >= largest.abs() * (1.0 - 1e-9) { number } else { largest }
                });
                if largest < 0.0 { -1.0 } else { 1.0 }
            })
            .collect();
        let turned = |from: &Mat<f64>| {
            Mat::from_fn(from.nrows(), from.ncols(), |i, j| from[(i, j)] * signs[j])
        };
        self.weights = turned(&self.weights);
        self.contrasts = turned(&self.contrasts);
        self.means = turned(&self.means);
    }
}
