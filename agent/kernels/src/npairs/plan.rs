//! Prediction and reproducibility, slice by slice.

use std::ops::Range;
#[cfg(feature = "gpu")]
use std::sync::Arc;

use faer::Mat;
use thiserror::Error;

use super::canonical::{Prediction, Products, Variates};
use super::design::Design;
use super::figures::{Npairs, SplitFigures};
use super::gram::ScanGram;
use super::splits::{Split, splits};
#[cfg(feature = "gpu")]
use crate::gpu::{Gpu, GpuError};
use crate::limits::{GRAM_SIDE_MAX, MAP_VOXELS, SCANS_PER_CLASS_MIN, SPLITS_MAX};
#[cfg(feature = "gpu")]
use crate::pca::DeviceGram;
use crate::pca::{Gram, Matrix, scale};
use crate::plan::{Plan, Slice, Stretch, phases};
use crate::threads;

/// Why scans have no figures.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum NpairsError {
    /// Another number of classes than of scans.
    #[error("{classes} classes for {scans} scans: give the class of each scan")]
    Scans {
        /// Classes.
        classes: usize,
        /// Scans.
        scans: usize,
    },
    /// More scans than are solved here.
    #[error("{0} scans: at most {GRAM_SIDE_MAX} are analysed at once")]
    TooMany(usize),
    /// No split, or more than are made here.
    #[error("{0} splits: give 1 to {SPLITS_MAX}")]
    Splits(usize),
    /// No way to split scans.
    #[error(
        "no split in halves gives both {SCANS_PER_CLASS_MIN} scans of each class: give more \
         groups, or groups with scans of several classes"
    )]
    NoSplit,
    /// More components than canonical variates can be made of.
    #[error(
        "{asked} components: the smaller half of {scans} scans of {classes} classes has from 1 to \
         {most}"
    )]
    Components {
        /// What was asked for.
        asked: usize,
        /// How many there can be: the half's scans less the classes.
        most: usize,
        /// Scans of the half.
        scans: usize,
        /// Classes.
        classes: usize,
    },
    /// More components than scans vary in.
    #[error("{asked} components: {scans} scans vary in {rank} directions only, ask for no more")]
    Rank {
        /// What was asked for.
        asked: usize,
        /// Directions in which they vary.
        rank: usize,
        /// The scans of the half in question, or of both.
        scans: usize,
    },
    /// No voxel varies.
    #[error("none of {0} voxels varies from scan to scan: are these the right scans?")]
    Constant(usize),
    /// Classes that look all the same.
    #[error(
        "the classes of {scans} scans do not differ in canonical variate {variate}: are there as \
         many different classes as were named?"
    )]
    NoDifference {
        /// Which, from 0.
        variate: usize,
        /// The scans of the half in question, or of both.
        scans: usize,
    },
    /// Classes that do not vary in themselves.
    #[error(
        "with {asked} components, {scans} scans do not vary within their classes, so that there \
         is nothing to measure by how these differ: ask for fewer components"
    )]
    NoneWithin {
        /// Components.
        asked: usize,
        /// The scans of the half in question, or of both.
        scans: usize,
    },
    /// Squares that are beyond double precision.
    #[error("voxels vary by {0:e}, and its square is beyond double precision: scale the data")]
    Range(f64),
    /// No eigenvalues were found.
    #[error("the eigenvalues do not converge: are some numbers larger than others by far?")]
    NoConvergence,
    /// Nothing comes from the GPU.
    #[cfg(feature = "gpu")]
    #[error(transparent)]
    Device(#[from] GpuError),
}

/// Finds prediction and reproducibility for one number of components. Its units are scans that are
/// averaged, the same that are centred, blocks of products (or steps of a GPU that adds these up),
/// an analysis of all scans, one of each half of each split, and runs of voxels of the maps.
///
/// One analysis is one unit, however long it takes: it is ended with its process.
#[derive(Debug)]
pub struct NpairsPlan {
    data: Matrix,
    design: Design,
    components: usize,
    splits: Vec<Split>,
    sums: Sums,
    gram: ScanGram,
    products: Products,
    /// Of all scans: what those of halves are matched to.
    reference: Option<Variates>,
    first_half: Option<Half>,
    figures: Vec<SplitFigures>,
    /// What each scan counts in the maps.
    weights: Mat<f64>,
    /// What is taken off each map.
    offsets: Vec<f64>,
    maps: Vec<Vec<f64>>,
}

/// The phase whose units are steps of [`ScanGram`].
const PRODUCTS: usize = 2;

/// What is known of the voxels.
#[derive(Debug)]
struct Sums {
    /// The mean of each.
    voxels: Vec<f64>,
    varies: Vec<bool>,
    varying: usize,
    /// The largest centred number of each scan.
    largest: Vec<f64>,
    /// Power of two that centred numbers are multiplied with, so that the largest is about one.
    scale: f64,
    /// The mean over those that vary, of each scan, scaled.
    scans: Vec<f64>,
}

/// One half of a split.
#[derive(Debug)]
struct Half {
    variates: Variates,
    prediction: Prediction,
    /// Mean and standard deviation of each variate's map.
    spreads: Vec<(f64, f64)>,
}

impl NpairsPlan {
    /// Whether scans, one in each row of `data`, can be analysed with each of `counts` components,
    /// as far as is known before any work: what [`Self::new`] would say to each.
    ///
    /// # Errors
    /// There is not a class for each scan, no such split, or the halves cannot have so many
    /// components.
    pub fn check(
        data: &Matrix,
        design: &Design,
        counts: &[usize],
        split_count: usize,
        seed: u64,
    ) -> Result<(), NpairsError> {
        checked_splits(data, design, counts, split_count, seed).map(drop)
    }

    /// Gets ready to analyse scans, one in each row of `data`, with the first `components`
    /// principal components of each half of at most `split_count` splits. The same `seed` gives
    /// the same splits.
    ///
    /// # Errors
    /// There is not a class for each scan, no such split, or the halves cannot have so many
    /// components.
    pub fn new(
        data: Matrix,
        design: Design,
        components: usize,
        split_count: usize,
        seed: u64,
    ) -> Result<Box<Self>, NpairsError> {
        let gram = |scans, voxels| Ok(ScanGram::Processor(Gram::new(scans, voxels)));
        Self::with(data, design, components, split_count, seed, gram)
    }

    /// The same with products that a GPU adds up.
    ///
    /// # Errors
    /// As [`Self::new`]; or the device has no memory left for it, was lost, or refuses.
    #[cfg(feature = "gpu")]
    pub fn on_device(
        gpu: Arc<Gpu>,
        data: Matrix,
        design: Design,
        components: usize,
        split_count: usize,
        seed: u64,
    ) -> Result<Box<Self>, NpairsError> {
        let gram = |scans, voxels| {
            Ok(ScanGram::Device(Box::new(DeviceGram::of_rows(gpu, scans, voxels)?)))
        };
        Self::with(data, design, components, split_count, seed, gram)
    }

    fn with(
        data: Matrix,
        design: Design,
        components: usize,
        split_count: usize,
        seed: u64,
        gram: impl FnOnce(usize, usize) -> Result<ScanGram, NpairsError>,
    ) -> Result<Box<Self>, NpairsError> {
        let splits = checked_splits(&data, &design, &[components], split_count, seed)?;
        let (scans, voxels) = (data.rows(), data.columns());
        let variates = (design.class_count() - 1).min(components);
        Ok(Box::new(Self {
            sums: Sums {
                voxels: vec![0.0; voxels],
                varies: vec![false; voxels],
                varying: 0,
                largest: Vec::with_capacity(scans),
                scale: 1.0,
                scans: Vec::with_capacity(scans),
            },
            gram: gram(scans, voxels)?,
            products: Products::new(&Mat::new(), voxels),
            reference: None,
            first_half: None,
            figures: Vec::with_capacity(splits.len()),
            weights: Mat::zeros(scans, variates),
            offsets: vec![0.0; variates],
            maps: vec![vec![0.0; voxels]; variates],
            data,
            design,
            components,
            splits,
        }))
    }

    fn add_up(&mut self, scan: usize) {
        let (first, row) = (self.data.row(0), self.data.row(scan));
        let Sums { voxels, varies, .. } = &mut self.sums;
        for (v, number) in row.iter().enumerate() {
            voxels[v] += number;
            varies[v] |= *number != first[v];
        }
        if scan + 1 == self.data.rows() {
            let scans = self.data.rows() as f64;
            voxels.iter_mut().for_each(|sum| *sum /= scans);
        }
    }

    fn centre(&mut self, scan: usize) -> Result<(), NpairsError> {
        let columns = self.data.columns;
        let row = &mut self.data.numbers[scan * columns..(scan + 1) * columns];
        let Sums { voxels, varies, .. } = &self.sums;
        let (mut sum, mut largest) = (0.0, 0.0_f64);
        for (v, number) in row.iter_mut().enumerate() {
            // Exactly zero where nothing varies, whatever the mean was rounded to.
            *number = if varies[v] { *number - voxels[v] } else { 0.0 };
            sum += *number;
            largest = largest.max(number.abs());
        }
        self.sums.largest.push(largest);
        self.sums.scans.push(sum);
        if scan + 1 == self.data.rows() {
            self.sums.varying = self.sums.varies.iter().filter(|varies| **varies).count();
            if self.sums.varying == 0 {
                return Err(NpairsError::Constant(columns));
            }
            let largest = self.sums.largest.iter().copied().fold(0.0, f64::max);
            self.sums.scale = scale(largest).map_err(|_| NpairsError::Range(largest))?;
            let share = self.sums.scale / self.sums.varying as f64;
            self.sums.scans.iter_mut().for_each(|sum| *sum *= share);
            self.gram.scale(self.sums.scale, &self.sums.largest);
        }
        Ok(())
    }

    fn analyse_all(&mut self) -> Result<(), NpairsError> {
        self.products = Products::new(&self.gram.take(), self.data.columns());
        let scans: Vec<usize> = (0..self.data.rows()).collect();
        let mut reference = self.products.variates(&self.design, &scans, self.components)?;
        reference.turn();
        self.reference = Some(reference);
        Ok(())
    }

    /// Analyses halves, two of each split.
    fn analyse_halves(&mut self, halves: Range<usize>) -> Result<(), NpairsError> {
        let this = &*self;
        let found = threads::map(halves, |half| this.analyse_half(half / 2, half % 2));
        for half in found {
            let half = half?;
            match self.first_half.take() {
                Some(first) => self.compare(&first, &half),
                None => self.first_half = Some(half),
            }
        }
        Ok(())
    }

    fn analyse_half(&self, split: usize, side: usize) -> Result<Half, NpairsError> {
        let (scans, others) = (&self.splits[split][side], &self.splits[split][1 - side]);
        let mut variates = self.products.variates(&self.design, scans, self.components)?;
        if let Some(reference) = &self.reference {
            variates.match_to(reference);
        }
        let prediction = self.products.predict(&variates, &self.design, others);
        let spreads = (0..variates.count())
            .map(|j| {
                let mean = self.mean(&variates, j);
                let own = (&variates.weights, j);
                let square = self.products.of_maps(own, own) / self.sums.varying as f64;
                (mean, (square - mean * mean).max(0.0).sqrt())
            })
            .collect();
        Ok(Half { variates, prediction, spreads })
    }

    /// The mean over voxels of a variate's map.
    fn mean(&self, variates: &Variates, j: usize) -> f64 {
        let weights = variates.weights.col(j);
        self.sums.scans.iter().enumerate().map(|(scan, mean)| weights[scan] * mean).sum()
    }

    fn compare(&mut self, first: &Half, second: &Half) {
        let halves = [first, second];
        let mut reproducibility = Vec::with_capacity(self.offsets.len());
        for j in 0..self.offsets.len() {
            let [(mean, spread), (other_mean, other_spread)] = halves.map(|half| half.spreads[j]);
            let product =
                self.products.of_maps((&first.variates.weights, j), (&second.variates.weights, j));
            let together = product / self.sums.varying as f64 - mean * other_mean;
            let spreads = spread * other_spread;
            // A map that is the same everywhere is like no other.
            let alike = if spreads > 0.0 { (together / spreads).clamp(-1.0, 1.0) } else { 0.0 };
            reproducibility.push(alike);
            // The sum of both over the root of two, by how much their difference over it spreads.
            let noise = (2.0 * (1.0 - alike).max(f64::EPSILON)).sqrt() * self.splits.len() as f64;
            for half in halves {
                let (mean, spread) = half.spreads[j];
                if spread > 0.0 {
                    for scan in 0..self.weights.nrows() {
                        self.weights[(scan, j)] +=
                            half.variates.weights[(scan, j)] / spread / noise;
                    }
                    self.offsets[j] += mean / spread / noise;
                }
            }
        }
        self.figures.push(SplitFigures {
            prediction: halves.map(|half| half.prediction.probability),
            right: halves.map(|half| half.prediction.right),
            reproducibility,
        });
    }

    /// Units of each phase.
    fn lengths(&self) -> [usize; 6] {
        let (scans, halves) = (self.data.rows(), 2 * self.splits.len());
        let runs = self.data.columns().div_ceil(MAP_VOXELS);
        [scans, scans, self.gram.units(), 1, halves, runs]
    }

    /// Sums up a run of voxels of the maps.
    fn draw(&mut self, run: usize) {
        let voxels = run * MAP_VOXELS..((run + 1) * MAP_VOXELS).min(self.data.columns());
        for (j, map) in self.maps.iter_mut().enumerate() {
            let map = &mut map[voxels.clone()];
            for scan in 0..self.data.rows() {
                let weight = self.weights[(scan, j)] * self.sums.scale;
                let row = &self.data.row(scan)[voxels.clone()];
                map.iter_mut().zip(row).for_each(|(sum, number)| *sum += weight * number);
            }
            for (sum, varies) in map.iter_mut().zip(&self.sums.varies[voxels.clone()]) {
                *sum = if *varies { *sum - self.offsets[j] } else { 0.0 };
            }
        }
    }
}

/// The splits, each half of which can have each of `counts` components.
fn checked_splits(
    data: &Matrix,
    design: &Design,
    counts: &[usize],
    split_count: usize,
    seed: u64,
) -> Result<Vec<Split>, NpairsError> {
    let scans = data.rows();
    if design.scans() != scans {
        return Err(NpairsError::Scans { classes: design.scans(), scans });
    }
    if scans > GRAM_SIDE_MAX {
        return Err(NpairsError::TooMany(scans));
    }
    if data.columns() == 0 {
        return Err(NpairsError::Constant(0));
    }
    if !(1..=SPLITS_MAX).contains(&split_count) {
        return Err(NpairsError::Splits(split_count));
    }
    let splits = splits(design, split_count, seed);
    let Some(least) = splits.iter().flatten().map(Vec::len).min() else {
        return Err(NpairsError::NoSplit);
    };
    let classes = design.class_count();
    let most = least - classes;
    match counts.iter().find(|count| !(1..=most).contains(*count)) {
        Some(&asked) => Err(NpairsError::Components { asked, most, scans: least, classes }),
        None => Ok(splits),
    }
}

impl Plan for NpairsPlan {
    type Output = Npairs;
    type Error = NpairsError;

    fn units(&self) -> u64 {
        self.lengths().iter().sum::<usize>() as u64
    }

    fn stretch(&self, unit: u64) -> Stretch {
        Stretch::within(unit, &self.lengths(), |phase, unit| match phase {
            PRODUCTS => self.gram.stretch(unit),
            _ => None,
        })
    }

    fn run(&mut self, slice: &Slice) -> Result<(), NpairsError> {
        for phase in phases(slice, &self.lengths()) {
            match phase {
                (0, parts) => parts.for_each(|scan| self.add_up(scan)),
                (1, mut parts) => parts.try_for_each(|scan| self.centre(scan))?,
                (PRODUCTS, parts) => self.gram.add(parts, &self.data, self.sums.scale)?,
                (3, _) => self.analyse_all()?,
                (4, parts) => self.analyse_halves(parts)?,
                (_, parts) => parts.for_each(|run| self.draw(run)),
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Npairs, NpairsError> {
        let count = self.figures.len() as f64;
        let mean =
            |of: &dyn Fn(&SplitFigures) -> f64| self.figures.iter().map(of).sum::<f64>() / count;
        let both = |both: &[f64; 2]| (both[0] + both[1]) / 2.0;
        Ok(Npairs {
            components: self.components,
            voxels: self.sums.varying,
            prediction: mean(&|split| both(&split.prediction)),
            right: mean(&|split| both(&split.right)),
            reproducibility: (0..self.maps.len())
                .map(|j| mean(&|split| split.reproducibility[j]))
                .collect(),
            maps: Matrix {
                rows: self.maps.len(),
                columns: self.data.columns(),
                numbers: self.maps.concat(),
            },
            splits: self.figures,
        })
    }
}
