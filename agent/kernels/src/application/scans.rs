//! Prediction and reproducibility of scans in files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Deserialize;

use super::files::{check_distinct, check_name, series_file};
use super::table::{Names, Table};
use super::{ApplicationError, Device, Finished, Inputs, Product, Stages, excerpt, sides};
use crate::limits::{COMPONENT_COUNTS_MAX, NIFTI_SIDE_MAX, SPLITS_MAX};
use crate::memory::bytes_of;
use crate::npairs::{Design, Npairs, NpairsError, NpairsPlan};
use crate::pca::Matrix;
use crate::volume::Series;

/// What scans are analysed, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NpairsSpec {
    scans: PathBuf,
    design: PathBuf,
    components: Vec<usize>,
    splits: usize,
    seed: u64,
    figures: String,
    maps: Option<String>,
}

/// What is said of words in a design.
pub(super) const OF_WORDS: &str =
    ": classes and groups are whole numbers, such as 0 for rest and 1 for a task";

/// Stands for the number of components in the name of a file of maps.
const PLACE: &str = "{components}";

impl NpairsSpec {
    pub(super) fn check(&self) -> Result<(), ApplicationError> {
        check_name("figures", &self.figures, &[".csv"])?;
        let counts = self.components.len();
        if !(1..=COMPONENT_COUNTS_MAX).contains(&counts) {
            return Err(ApplicationError::Value(format!(
                "components = {counts} numbers: give 1 to {COMPONENT_COUNTS_MAX}"
            )));
        }
        if !(1..=SPLITS_MAX).contains(&self.splits) {
            let problem = format!("splits = {}: give 1 to {SPLITS_MAX}", self.splits);
            return Err(ApplicationError::Value(problem));
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = self.components.iter().find(|count| !known.insert(**count)) {
            return Err(ApplicationError::Value(format!(
                "components names {twice} twice: give each number once"
            )));
        }
        let Some(maps) = &self.maps else { return Ok(()) };
        check_name("maps", maps, &[".nii", ".nii.gz"])?;
        if counts > 1 && !maps.contains(PLACE) {
            return Err(ApplicationError::Value(format!(
                "maps = {:?}: {counts} files cannot have one name, put {PLACE} into it",
                excerpt::name(maps)
            )));
        }
        check_distinct(&self.outputs())
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        vec![("scans", &self.scans), ("design", &self.design)]
    }

    pub(super) fn outputs(&self) -> Vec<String> {
        let maps = self.components.iter().filter_map(|count| self.map_name(*count));
        [self.figures.clone()].into_iter().chain(maps).collect()
    }

    /// The name of the file of the maps with so many components, if one is asked for.
    fn map_name(&self, count: usize) -> Option<String> {
        self.maps.as_ref().map(|maps| maps.replace(PLACE, &count.to_string()))
    }

    /// Each number of components is a part.
    pub(super) fn parts(&self) -> Vec<String> {
        self.components.iter().map(usize::to_string).collect()
    }

    /// The part of this name.
    pub(super) fn only(self, part: &str) -> Option<Self> {
        let count = *self.components.iter().find(|count| count.to_string() == part)?;
        Some(Self { components: vec![count], ..self })
    }

    pub(super) fn run(&self, stages: &mut Stages<'_>) -> Result<Finished, ApplicationError> {
        let path = stages.input(&self.design);
        let labels = stages.table(&path, OF_WORDS)?;
        let design = design(&labels).map_err(|error| ApplicationError::data(&path, error))?;
        let path = stages.input(&self.scans);
        let series = stages.series(&path)?;
        let told = |error| match error {
            NpairsError::NoConvergence => ApplicationError::work(error),
            #[cfg(feature = "gpu")]
            NpairsError::Device(error) => ApplicationError::work(error),
            error => ApplicationError::data(&path, error),
        };
        let counts = &self.components;
        NpairsPlan::check(series.data(), &design, counts, self.splits, self.seed).map_err(told)?;
        // The largest first: where it cannot be done, nothing was done in vain.
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|at| Reverse(counts[*at]));
        let mut done: BTreeMap<usize, (Npairs, Option<Product>)> = BTreeMap::new();
        for (turn, at) in order.into_iter().enumerate() {
            let [scans, voxels] = [series.data().rows(), series.data().columns()];
            // Centred ones, their sums of products, and the voxels' means.
            let numbers = scans.saturating_mul(voxels + scans).saturating_add(voxels);
            stages.needs(
                || format!("the analysis of {scans} scans of {voxels} voxels"),
                bytes_of(&[numbers, size_of::<f64>()]),
            )?;
            let (count, data, design) = (counts[at], series.data().clone(), design.clone());
            let plan = match stages.control.device.clone() {
                Device::Processor => NpairsPlan::new(data, design, count, self.splits, self.seed),
                #[cfg(feature = "gpu")]
                Device::Gpu(gpu) => {
                    NpairsPlan::on_device(gpu, data, design, count, self.splits, self.seed)
                }
            };
            let plan = plan.map_err(told)?;
            let stage = format!("{count} components ({} of {})", turn + 1, counts.len());
            let mut npairs = stages.perform_or(&stage, plan, told)?;
            // Maps are as large as scans: those that nobody asked for are not kept.
            let maps = std::mem::replace(
                &mut npairs.maps,
                Matrix { rows: 0, columns: 0, numbers: Vec::new() },
            );
            let file = match self.map_name(count) {
                Some(name) => {
                    let maps = Series::new(series.size(), series.spacing(), maps);
                    let maps = maps.map_err(ApplicationError::work)?;
                    let maps = maps.oriented(series.orientation());
                    Some(series_file(&name, &maps).map_err(ApplicationError::work)?)
                }
                None => None,
            };
            done.insert(at, (npairs, file));
        }
        let (found, maps): (Vec<Npairs>, Vec<Option<Product>>) = done.into_values().unzip();
        let figures = figures(&self.figures, &found);
        let mut products = [figures].into_iter().chain(maps.into_iter().flatten());
        products.try_for_each(|product| stages.keep(product))?;
        let mut summary = Vec::new();
        #[cfg(feature = "gpu")]
        if let Device::Gpu(gpu) = &stages.control.device {
            summary.push(format!("scans multiplied by {}", gpu.name()));
        }
        summary.extend(found.iter().map(|npairs| {
            format!(
                "{} components: prediction {:.3}, reproducibility {:.3}",
                npairs.components, npairs.prediction, npairs.reproducibility[0]
            )
        }));
        let size = sides(&[series.data().rows(), series.data().columns()]);
        Ok(Finished { size, by: stages.by, summary })
    }
}

/// A design out of its table: a class in each line, and a group where there are two columns, in this
/// order where their names do not say another one.
pub(super) fn design(table: &Table) -> Result<Design, String> {
    let labels = &table.numbers;
    if labels.columns() > 2 {
        let found = labels.columns();
        return Err(format!("{found} numbers in a line: give class and group of a scan"));
    }
    if labels.rows() > usize::from(NIFTI_SIDE_MAX) {
        let found = labels.rows();
        return Err(format!("{found} scans: a series has {NIFTI_SIDE_MAX} at most"));
    }
    let called: Vec<&str> = table.names.iter().flat_map(Names::iter).collect();
    let names: Vec<String> = called.iter().map(|name| name.to_ascii_lowercase()).collect();
    let is_turned = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["class"] | ["class", "group"] => false,
        ["group", "class"] => true,
        _ => return Err(unknown_names(&called)),
    };
    let mut columns = [Vec::new(), Vec::new()];
    for row in 0..labels.rows() {
        for (column, label) in labels.row(row).iter().enumerate() {
            // Beyond that, neighbours are the same number.
            if label.fract() != 0.0 || label.abs() > 2_f64.powi(53) {
                return Err(format!("scan {}: {label} is not a whole number", row + 1));
            }
            columns[column].push(*label as i64);
        }
    }
    if is_turned {
        columns.reverse();
    }
    let [classes, groups] = &columns;
    let groups = (labels.columns() == 2).then_some(groups.as_slice());
    Design::new(classes, groups).map_err(|error| error.to_string())
}

/// That names of columns are not those of a design.
fn unknown_names(names: &[&str]) -> String {
    let names: Vec<String> =
        names.iter().map(|name| format!("{:?}", excerpt::name(name))).collect();
    format!(
        "its columns are called {}: call them class and group, or class where each scan is a group \
         by itself, or leave the names out and give them in this order",
        names.join(" and ")
    )
}

/// A line for each number of components.
fn figures(name: &str, found: &[Npairs]) -> Product {
    let variates = found.iter().map(|npairs| npairs.reproducibility.len()).max().unwrap_or(0);
    let mut names =
        ["components", "prediction", "right", "splits", "voxels"].map(str::to_owned).to_vec();
    names.extend((1..=variates).map(|variate| format!("reproducibility{variate}")));
    let mut text = names.join(",");
    text.push('\n');
    for npairs in found {
        let mut fields = vec![
            npairs.components.to_string(),
            npairs.prediction.to_string(),
            npairs.right.to_string(),
            npairs.splits.len().to_string(),
            npairs.voxels.to_string(),
        ];
        // Few components have fewer variates.
        fields.extend(
            (0..variates)
                .map(|j| npairs.reproducibility.get(j).map_or(String::new(), f64::to_string)),
        );
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    Product { name: name.to_owned(), bytes: text.into_bytes() }
}
