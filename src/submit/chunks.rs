//! Jobs over a dataset: a workunit for each chunk.

use gleaner_kernels::application::Application;
use gleaner_protocol::job::{InputFile, JobSpec, Lane};
use gleaner_protocol::{Profile, Reads};

use super::application::{
    ApplicationArgs, PictureArgs, SurfaceArgs, application, of_bricks, over_bricks,
};
use super::parcel::Parcel;
use super::{Common, Files};
use crate::client::Options;
use crate::dataset;
use crate::failure::Failure;

/// The chunks of a dataset, a workunit each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    pub(super) reads: Reads,
    pub(super) count: u32,
}

impl Common {
    /// The job over the chunks of a dataset.
    pub(super) fn over(&self, chunks: Option<Reads>, job: JobSpec) -> JobSpec {
        let Some(reads) = chunks else { return job };
        let default = if self.due.is_some() { Lane::Deadline } else { Lane::Dataset };
        let profile = Profile { reads: Some(reads), ..job.profile };
        JobSpec { lane: self.lane.unwrap_or(default), profile, ..job }
    }
}

impl Files {
    /// The chunks that its workunits read, if they do.
    pub(super) async fn chunks(&self, common: &Common) -> anyhow::Result<Option<Chunks>> {
        let Some(name) = &self.dataset else { return Ok(None) };
        let client = common.options.client()?;
        let (reads, of) = dataset::reads(&client, name, &common.owner).await?;
        Ok(Some(Chunks { reads, count: of.chunks }))
    }
}

/// Pictures by a specification, of the volume that it names or of a dataset.
pub(super) async fn pictures(args: PictureArgs) -> anyhow::Result<(Parcel, Options)> {
    let PictureArgs { of, dataset: of_dataset, step } = args;
    let options = of.how.common.options.clone();
    let Some(name) = of_dataset else {
        return Ok((application(Application::Volume, &of)?, options));
    };
    let owner = &of.how.common.owner;
    let client = options.client()?;
    let (_, status) = dataset::reads(&client, &name, owner).await?;
    let steps = status.steps.unwrap_or(1).max(1);
    let problem = match status.size {
        None => Some(format!("it is of {}, and pictures are taken of bricks", status.kind)),
        Some(_) if step >= steps => Some(format!("it has {steps} steps, from 0 on")),
        Some(_) => None,
    };
    if let Some(problem) = problem {
        return Err(Failure::Usage(format!("the dataset {name}: {problem}")).into());
    }
    let chunks = dataset::all_chunks(&client, &name, Some(owner)).await?;
    let bricks = (status.chunks / steps) as usize;
    let of_step = chunks.into_iter().skip(step as usize * bricks).take(bricks);
    let bricks = of_step.map(|chunk| InputFile { name: chunk.name, digest: chunk.digest });
    Ok((of_bricks(&of, bricks.collect())?, options))
}

/// A surface by a specification, or in the bricks of a dataset.
pub(super) async fn surface(args: SurfaceArgs) -> anyhow::Result<(Parcel, Options)> {
    let SurfaceArgs { spec, dataset: of_dataset, value, how } = args;
    let options = how.common.options.clone();
    let Some((name, value)) = of_dataset.zip(value) else {
        let spec =
            spec.ok_or_else(|| Failure::Usage("give a specification, or --dataset".into()))?;
        let args = ApplicationArgs { spec, how };
        return Ok((application(Application::Isosurface, &args)?, options));
    };
    let (reads, status) = dataset::reads(&options.client()?, &name, &how.common.owner).await?;
    if status.size.is_none() {
        let kind = status.kind;
        let problem = format!("the dataset {name} is of {kind}, and a surface goes through bricks");
        return Err(Failure::Usage(problem).into());
    }
    Ok((over_bricks(&how, &name, value, Chunks { reads, count: status.chunks })?, options))
}
