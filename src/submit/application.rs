//! `gleaner submit volume`, `isosurface`, `pca` and `npairs`.

use std::path::PathBuf;

use gleaner_kernels::application::{Application, Parcel};
use gleaner_protocol::job::{ApplicationTask, Comparison, InputFile, JobSpec, Task, Workunits};
use gleaner_protocol::{Digest, KernelName};

use super::{Common, upload};
use crate::client::Client;
use crate::failure::Failure;
use crate::kernel;

/// What is to be done, and how often.
#[derive(Debug, clap::Args)]
pub(super) struct ApplicationArgs {
    /// What to do, as TOML; files that it names to be read are looked for from its folder on.
    spec: PathBuf,
    /// Most memory of one replica, in MiB; beyond, it fails [default: what the host gives a kernel].
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u32>,
    /// When outputs agree.
    #[arg(long, value_enum, default_value = "tolerance", value_name = "CHOICE")]
    compare: Compare,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Compare {
    /// Pictures within 1/255 per channel; tables and volumes within a millionth of the largest
    /// number of a column or file; the rest byte for byte.
    Tolerance,
    /// Byte for byte.
    Exact,
}

impl From<Compare> for Comparison {
    fn from(compare: Compare) -> Self {
        match compare {
            Compare::Tolerance => Self::Tolerance,
            Compare::Exact => Self::Exact,
        }
    }
}

pub(super) const HELP: &str = "\
Example, which works as it stands:
  gleaner kernel sample pca --dir samples
  gleaner submit pca samples/pca.toml --replication 2
  gleaner wait job-1 && gleaner fetch job-1 --output results

The same with volume, isosurface and npairs; `gleaner kernel run` does the same here, without a
broker. The specification and the files that it names are uploaded; fetch writes the files that it
names to be written. Each number of components of npairs is a workunit of its own, and so
is each frame of an animation, [animation] in a volume's specification.

Exit codes:
  0  submitted
  2  the specification, or a file that it names, is wrong: nothing was uploaded
  3  the broker cannot be reached
  5  the broker refused";

/// Uploads what a specification needs; the job.
pub(super) async fn application(
    client: &Client,
    application: Application,
    args: &ApplicationArgs,
) -> anyhow::Result<JobSpec> {
    let (text, folder) = kernel::spec_text(&args.spec)?;
    let parcel = Parcel::pack(application, &text, &folder)
        .map_err(|error| kernel::told(&args.spec, error))?;
    let spec = parcel.spec.into_bytes();
    let kernel = KernelName::new(application.name()).expect("kernels have plain names");
    let task = ApplicationTask {
        kernel,
        spec: Digest::of(&spec),
        inputs: Vec::new(),
        memory_mib: args.memory_mib,
        comparison: args.compare.into(),
    };
    let workunits = parcel.parts.map_or(Workunits::Count(1), Workunits::Items);
    let name = args.spec.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut job = args.common.job(name, Task::Application(task.clone()), workunits);
    // Before anything is uploaded.
    job.check().map_err(|error| Failure::Usage(error.to_string()))?;
    client.put_blob(task.spec, spec).await?;
    let mut inputs = Vec::new();
    for (name, path) in parcel.files {
        let digest = upload(client, &path).await?;
        inputs.push(InputFile { name, digest });
    }
    job.task = Task::Application(ApplicationTask { inputs, ..task });
    Ok(job)
}
