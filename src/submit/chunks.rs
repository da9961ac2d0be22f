//! Jobs over a dataset: a workunit for each chunk.

use gleaner_kernels::application::Application;
use gleaner_protocol::job::{JobSpec, Lane};
use gleaner_protocol::{Profile, Reads};

use super::application::{ApplicationArgs, SurfaceArgs, application, over_bricks};
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
