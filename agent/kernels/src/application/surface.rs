//! Surfaces in volumes.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::faint::one_layer;
use super::files::{check_name, has_end};
use super::{ApplicationError, Device, Finished, Inputs, Product, Stages, sides};
#[cfg(feature = "gpu")]
use crate::gpu::Gpu;
#[cfg(feature = "gpu")]
use crate::isosurface::DeviceIsosurfacePlan;
use crate::isosurface::{
    ExtremesPlan, IsosurfaceError, IsosurfacePlan, Mesh, write_glb, write_ply, write_ply_part,
};
use crate::memory::bytes_of;
use crate::volume::{Brick, BrickPlace, Volume, read_place};

/// What a surface is made of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IsosurfaceSpec {
    volume: PathBuf,
    /// As it is written, so that one that is too large can be told from one that is infinite.
    value: f64,
    mesh: String,
}

impl IsosurfaceSpec {
    pub(super) fn check(&self) -> Result<(), ApplicationError> {
        check_name("mesh", &self.mesh, &[".ply", ".glb"])?;
        let value = self.value;
        if !value.is_finite() {
            return Err(ApplicationError::Value(format!("value = {value:?}: give a finite value")));
        }
        if !self.voxel_value().is_finite() {
            return Err(ApplicationError::Value(format!(
                "value = {value:?}: it is more than single precision holds, which voxels are in: give \
                 one from {:?} to {:?}",
                f32::MIN,
                f32::MAX
            )));
        }
        Ok(())
    }

    /// The value as voxels have it.
    const fn voxel_value(&self) -> f32 {
        self.value as f32
    }

    pub(super) fn inputs(&self) -> Inputs<'_> {
        vec![("volume", &self.volume)]
    }

    pub(super) fn outputs(&self) -> Vec<String> {
        vec![self.mesh.clone()]
    }

    pub(super) fn run(&self, stages: &mut Stages<'_>) -> Result<Finished, ApplicationError> {
        let volume = stages.volume(&self.volume)?;
        let size = sides(&volume.size());
        let path = stages.input(&self.volume);
        let place = read_place(&path).map_err(|error| ApplicationError::data(&path, error))?;
        let mut summary = Vec::new();
        let mesh = match (&place, stages.control.device.clone()) {
            (Some(place), _) => {
                stages.by = gleaner_protocol::Computer::Core;
                self.cut(stages, Brick::placed(volume.clone(), place))?
            }
            (None, Device::Processor) => self.cut(stages, Brick::whole(volume.clone()))?,
            #[cfg(feature = "gpu")]
            (None, Device::Gpu(gpu)) => {
                let (mesh, cut_by) = self.cut_on(gpu, stages, volume.clone())?;
                summary.push(cut_by);
                mesh
            }
        };
        let (triangles, vertices) = (mesh.triangles().len(), mesh.positions().len());
        summary.push(format!("{triangles} triangles between {vertices} vertices"));
        if triangles == 0 {
            summary.push(self.why_none(stages, volume)?);
        } else {
            // The file takes the memory that it had.
            drop(volume);
        }
        // Eight numbers of a vertex, and three of a triangle.
        stages.needs(
            || format!("the file of {triangles} triangles between {vertices} vertices"),
            bytes_of(&[vertices, 32]).saturating_add(bytes_of(&[triangles, 12])),
        )?;
        stages.keep(self.product(&mesh, place.as_ref())?)?;
        Ok(Finished { size, by: stages.by, summary })
    }

    fn cut(&self, stages: &mut Stages<'_>, brick: Brick) -> Result<Mesh, ApplicationError> {
        let size = brick.voxels().size();
        stages.needs(
            || format!("the surface in a volume of {} voxels", sides(&size)),
            IsosurfacePlan::bytes(size.map(|side| side - 1)),
        )?;
        let plan = IsosurfacePlan::new(brick, self.voxel_value()).map_err(told)?;
        stages.perform("surface", plan)
    }

    /// Why no surface goes through a volume.
    fn why_none(
        &self,
        stages: &mut Stages<'_>,
        volume: Arc<Volume>,
    ) -> Result<String, ApplicationError> {
        if let Some(flat) = one_layer(&volume) {
            return Ok(flat);
        }
        let value = self.voxel_value();
        let [low, high] = stages.perform("extremes", ExtremesPlan::new(volume))?;
        let side = if low >= value { "no voxel is" } else { "all voxels are" };
        Ok(format!("{side} below {value}: their values are from {low} to {high}"))
    }

    /// The surface, cut by a GPU where that is made for such a volume, and what cut it.
    #[cfg(feature = "gpu")]
    fn cut_on(
        &self,
        gpu: Arc<Gpu>,
        stages: &mut Stages<'_>,
        volume: Arc<Volume>,
    ) -> Result<(Mesh, String), ApplicationError> {
        let name = gpu.name().to_owned();
        let plan =
            DeviceIsosurfacePlan::new(gpu, volume.clone(), self.voxel_value()).map_err(told)?;
        if let Some(plan) = plan {
            return Ok((stages.perform_or("surface", plan, told)?, format!("cut by {name}")));
        }
        let why =
            format!("cut by the processor, for {name} has no room for four of the volume's layers");
        stages.by = gleaner_protocol::Computer::Core;
        Ok((self.cut(stages, Brick::whole(volume))?, why))
    }

    /// A mesh as the file that its name says; that of a brick is to be put together with others.
    fn product(
        &self,
        mesh: &Mesh,
        place: Option<&BrickPlace>,
    ) -> Result<Product, ApplicationError> {
        let mut bytes = Vec::new();
        if has_end(&self.mesh, ".glb") {
            write_glb(mesh, &mut bytes).map_err(ApplicationError::work)?;
        } else if place.is_some() {
            write_ply_part(mesh, &mut bytes).map_err(ApplicationError::work)?;
        } else {
            write_ply(mesh, &mut bytes).map_err(ApplicationError::work)?;
        }
        let name = match place.and_then(|place| place.step) {
            Some(step) => of_step(&self.mesh, step),
            None => self.mesh.clone(),
        };
        Ok(Product { name, bytes })
    }
}

/// The name of the file of one step.
fn of_step(name: &str, step: u32) -> String {
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    format!("{stem}-{step:04}.{end}")
}

fn told(error: IsosurfaceError) -> ApplicationError {
    match error {
        IsosurfaceError::Value(_) => ApplicationError::value(error),
        IsosurfaceError::Mesh(error) => ApplicationError::work(error),
        #[cfg(feature = "gpu")]
        IsosurfaceError::Device(error) => ApplicationError::work(error),
    }
}
