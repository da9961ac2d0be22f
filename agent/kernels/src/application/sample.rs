//! Data to try applications with.

use super::files::{Product, series_file};
use super::{Application, ApplicationError, table};
use crate::dice::Dice;
use crate::npairs::Synthetic;
use crate::pca::Matrix;
use crate::volume::{Series, Volume};

/// Files to try an application with: its example specification, and the data that this names. The
/// same seed gives the same data.
///
/// # Errors
/// They cannot be made.
pub fn sample(application: Application, seed: u64) -> Result<Vec<Product>, ApplicationError> {
    let name = format!("{}.toml", application.name());
    let spec = Product { name, bytes: application.example().as_bytes().to_vec() };
    let data = match application {
        Application::Volume | Application::Isosurface => {
            let mut bytes = Vec::new();
            let volume = Volume::rippled(SIDE).map_err(ApplicationError::work)?;
            volume.write_nrrd(&mut bytes).map_err(ApplicationError::work)?;
            vec![Product { name: "ripples.nrrd".to_owned(), bytes }]
        }
        Application::Pca => vec![correlated(seed)],
        Application::Npairs => scans(seed)?,
    };
    Ok([vec![spec], data].concat())
}

/// Voxels along each side of a volume.
const SIDE: usize = 64;

/// Observations of six numbers that vary in three directions, and a little besides.
fn correlated(seed: u64) -> Product {
    let mut dice = Dice::new(seed, 4);
    // How far each number goes along with the three.
    let directions = [
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, 1.0],
    ];
    let mut numbers = Vec::new();
    for _ in 0..200 {
        let scores = [3.0 * dice.normal(), 2.0 * dice.normal(), dice.normal()];
        for direction in &directions {
            let parts = direction.iter().zip(&scores).map(|(share, score)| share * score);
            numbers.push(10.0 + parts.sum::<f64>() + 0.1 * dice.normal());
        }
    }
    let data = Matrix { rows: 200, columns: 6, numbers };
    let bytes = table::text(table::numbered("column", 6).iter(), &data);
    Product { name: "table.csv".to_owned(), bytes }
}

/// Scans of subjects, what they did, and where that is to be seen.
fn scans(seed: u64) -> Result<Vec<Product>, ApplicationError> {
    let synthetic = Synthetic { seed, ..Synthetic::default() };
    let series = synthetic.series().map_err(ApplicationError::work)?;
    let labels = synthetic.classes().into_iter().zip(synthetic.groups());
    let mut design = "class,group\n".to_owned();
    for (class, group) in labels {
        design.push_str(&format!("{class},{group}\n"));
    }
    let scans = series_file("scans.nii", &series).map_err(ApplicationError::work)?;
    let design = Product { name: "design.csv".to_owned(), bytes: design.into_bytes() };
    // What a map should find: where action is brighter or darker, by how much.
    let activation = synthetic.activation();
    let activation = Matrix { rows: 1, columns: activation.len(), numbers: activation };
    let truth = Series::new(series.size(), series.spacing(), activation);
    let truth = series_file("truth.nii", &truth.map_err(ApplicationError::work)?);
    Ok(vec![scans, design, truth.map_err(ApplicationError::work)?])
}
