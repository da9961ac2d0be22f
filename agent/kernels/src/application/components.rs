//! Principal components of files.

use std::path::PathBuf;

use serde::Deserialize;

use super::files::{check_distinct, check_name, has_end, series_file};
use super::table::Names;
use super::{ApplicationError, Device, Finished, Inputs, Product, Stages, sides, table};
use crate::limits::GRAM_SIDE_MAX;
use crate::memory::bytes_of;
#[cfg(feature = "gpu")]
use crate::pca::DevicePcaPlan;
use crate::pca::{Matrix, PcaError, PcaPlan};
use crate::volume::Series;

/// What components are found of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PcaSpec {
    data: PathBuf,
    components: usize,
    variances: String,
    scores: String,
    loadings: String,
}

impl PcaSpec {
    fn is_table(&self) -> bool {
        has_end(&self.data.to_string_lossy(), ".csv")
    }

    pub(super) fn check(&self) -> Result<(), ApplicationError> {
        check_name("variances", &self.variances, &[".csv"])?;
        check_name("scores", &self.scores, &[".csv"])?;
        let ends: &[&str] = if self.is_table() { &[".csv"] } else { &[".csv", ".nii", ".nii.gz"] };
        check_name("loadings", &self.loadings, ends)?;
        check_distinct(&self.outputs())
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        vec![("data", &self.data)]
    }

    pub(super) fn outputs(&self) -> Vec<String> {
        vec![self.variances.clone(), self.scores.clone(), self.loadings.clone()]
    }

    /// That there is memory for sums of squares and products, and for what is found of them. What is
    /// no such matrix is told by who would find it.
    fn check_memory(&self, stages: &Stages<'_>, data: &Matrix) -> Result<(), ApplicationError> {
        let (rows, columns) = (data.rows(), data.columns());
        let short = rows.min(columns).min(GRAM_SIDE_MAX);
        let count = self.components.min(short);
        // A processor turns a copy of the sums.
        let sums = match &stages.control.device {
            Device::Processor => 2 * short,
            #[cfg(feature = "gpu")]
            Device::Gpu(_) => short,
        };
        let what = || format!("finding {count} components of {rows} x {columns} numbers");
        let of_sums = bytes_of(&[short, sums + count, size_of::<f64>()]);
        let found = bytes_of(&[rows.max(columns), count, size_of::<f64>()]);
        stages.needs(what, of_sums.saturating_add(found))
    }

    pub(super) fn run(&self, stages: &mut Stages<'_>) -> Result<Finished, ApplicationError> {
        let path = stages.input(&self.data);
        let (data, names, grid) = if self.is_table() {
            let table = stages.table(&path, "")?;
            (table.numbers, table.names, None)
        } else {
            let series = stages.series(&path)?;
            let grid = (series.size(), series.spacing(), series.orientation());
            (series.into_data(), None, Some(grid))
        };
        self.check_memory(stages, &data)?;
        let (rows, size) = (data.rows(), sides(&[data.rows(), data.columns()]));
        let mut summary = Vec::new();
        let told = |error| match error {
            PcaError::Range(_) => ApplicationError::data(&path, error),
            PcaError::NoConvergence => ApplicationError::work(error),
            #[cfg(feature = "gpu")]
            PcaError::Device(error) => ApplicationError::work(error),
            error => ApplicationError::value(error),
        };
        let pca = match stages.control.device.clone() {
            Device::Processor => {
                let plan = PcaPlan::new(data, self.components).map_err(told)?;
                stages.perform_or("components", plan, told)?
            }
            #[cfg(feature = "gpu")]
            Device::Gpu(gpu) => {
                summary.push(format!("found by {}", gpu.name()));
                let plan = DevicePcaPlan::new(gpu, data, self.components).map_err(told)?;
                stages.perform_or("components", plan, told)?
            }
        };
        let (count, asked) = (pca.components.rows(), self.components);
        if count == 0 {
            let problem = format!("its {rows} observations do not vary: are these the right ones?");
            return Err(ApplicationError::data(&path, problem));
        }
        if count < asked {
            return Err(ApplicationError::data(
                &path,
                format!(
                    "{asked} components: its {rows} observations vary in {count} directions only, \
                     ask for no more"
                ),
            ));
        }
        let variances: Vec<f64> =
            pca.eigenvalues.iter().map(|value| value / (rows - 1) as f64).collect();
        summary.push(format!(
            "{count} components of {rows} observations, with variances {}",
            variances
                .iter()
                .map(|variance| format!("{variance:.4}"))
                .collect::<Vec<_>>()
                .join(", ")
        ));
        let numbers = variances.len();
        let variances = Matrix { rows: numbers, columns: 1, numbers: variances };
        let loadings = match grid {
            Some((size, spacing, orientation)) if !has_end(&self.loadings, ".csv") => {
                let series = Series::new(size, spacing, pca.components);
                let series = series.map_err(ApplicationError::work)?.oriented(orientation);
                series_file(&self.loadings, &series).map_err(ApplicationError::work)?
            }
            _ => {
                let numbered = || table::numbered("column", pca.components.columns());
                let names = names.unwrap_or_else(numbered);
                self.product(&self.loadings, &names, &pca.components)
            }
        };
        let scores = table::numbered("component", count);
        let products = vec![
            self.product(
                &self.variances,
                &["variance".to_owned()].into_iter().collect(),
                &variances,
            ),
            self.product(&self.scores, &scores, &pca.scores),
            loadings,
        ];
        products.into_iter().try_for_each(|product| stages.keep(product))?;
        Ok(Finished { size, by: stages.by, summary })
    }

    fn product(&self, name: &str, names: &Names, matrix: &Matrix) -> Product {
        Product { name: name.to_owned(), bytes: table::text(names.iter(), matrix) }
    }
}
