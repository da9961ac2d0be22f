//! `gleaner submit volume`, `isosurface`, `pca` and `npairs`.

use std::path::{Path, PathBuf};

use gleaner_kernels::application::{self as kernels, Application};
use gleaner_protocol::job::{ApplicationTask, Comparison, InputFile, Task, Workunits};
use gleaner_protocol::limits::INPUT_FILES_MAX;
use gleaner_protocol::{CHUNK_FILE, DatasetName, Digest, KernelName};

use super::input::NamedInput;
use super::parcel::Parcel;
use super::{Chunks, Common};
use crate::failure::Failure;
use crate::{kernel, show};

/// What is to be done, and how often.
#[derive(Debug, clap::Args)]
pub(super) struct ApplicationArgs {
    /// What to do, as TOML; files that it names to be read are looked for from its folder on.
    pub(super) spec: PathBuf,
    #[command(flatten)]
    pub(super) how: How,
}

/// What pictures are taken of: the volume of a specification, or a dataset.
#[derive(Debug, clap::Args)]
pub(super) struct PictureArgs {
    #[command(flatten)]
    pub(super) of: ApplicationArgs,
    /// Dataset of bricks (`gleaner dataset add`), in the place of the volume that the specification names:
    /// each picture is a workunit, of all bricks.
    #[arg(long, value_name = "NAME")]
    pub(super) dataset: Option<DatasetName>,
    /// The step of time of the dataset, from 0.
    #[arg(long, default_value_t = 0, value_name = "STEP", requires = "dataset")]
    pub(super) step: u32,
}

/// What a surface goes through: the volume of a specification, or the bricks of a dataset.
#[derive(Debug, clap::Args)]
pub(super) struct SurfaceArgs {
    /// What to do, as TOML; files that it names to be read are looked for from its folder on.
    #[arg(required_unless_present = "dataset")]
    pub(super) spec: Option<PathBuf>,
    /// Dataset of bricks (`gleaner dataset add`), each of which is a workunit on a host that keeps a copy
    /// of it; fetch puts their meshes together.
    #[arg(long, value_name = "NAME", requires = "value", conflicts_with = "spec")]
    pub(super) dataset: Option<DatasetName>,
    /// What is inside has at least this value.
    #[arg(long, requires = "dataset", allow_negative_numbers = true)]
    pub(super) value: Option<f64>,
    #[command(flatten)]
    pub(super) how: How,
}

/// How it is done.
#[derive(Debug, clap::Args)]
pub(super) struct How {
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

/// A specification with what it needs; the job.
pub(super) fn application(
    application: Application,
    args: &ApplicationArgs,
) -> anyhow::Result<Parcel> {
    let (text, folder) = kernel::spec_text(&args.spec)?;
    let packed = kernels::Parcel::pack(application, &text, &folder)
        .map_err(|error| kernel::told(&args.spec, error))?;
    for remark in &packed.remarks {
        show::note(format_args!("note: {remark}"));
    }
    packed_job(application, args, packed, Vec::new())
}

/// Pictures of the volume of a dataset whose bricks are these; the job.
pub(super) fn of_bricks(args: &ApplicationArgs, bricks: Vec<InputFile>) -> anyhow::Result<Parcel> {
    if bricks.len() > INPUT_FILES_MAX {
        let problem = format!(
            "the dataset has {} bricks, and a job reads {INPUT_FILES_MAX} files at most: add it with larger \
             ones (--chunk-mib)",
            bricks.len()
        );
        return Err(Failure::Usage(problem).into());
    }
    let (text, folder) = kernel::spec_text(&args.spec)?;
    let packed = kernels::Parcel::of_bricks(&text, &folder)
        .map_err(|error| kernel::told(&args.spec, error))?;
    packed_job(Application::Volume, args, packed, bricks)
}

/// The job of a packed specification; `stored` are inputs that the broker has.
fn packed_job(
    application: Application,
    args: &ApplicationArgs,
    packed: kernels::Parcel,
    stored: Vec<InputFile>,
) -> anyhow::Result<Parcel> {
    let spec = packed.spec.into_bytes();
    let task = ApplicationTask {
        kernel: KernelName::new(application.name()).expect("kernels have plain names"),
        spec: Digest::of(&spec),
        inputs: Vec::new(),
        memory_mib: args.how.memory_mib,
        comparison: args.how.compare.into(),
    };
    let workunits =
        packed.parts.map_or(Workunits::Count(1), |parts| Workunits::Items(parts.into()));
    let name = args.spec.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let inputs = packed.files.into_iter().map(|(name, path)| NamedInput { name, path });
    Parcel::pack(vec![spec], &inputs.collect::<Vec<_>>(), |inputs| {
        let inputs = [inputs, stored.clone()].concat();
        let task = ApplicationTask { inputs, ..task.clone() };
        args.how.common.job(name.clone(), Task::Application(task), workunits.clone())
    })
}

/// A surface in each brick of a dataset; the job.
pub(super) fn over_bricks(
    how: &How,
    name: &DatasetName,
    value: f64,
    chunks: Chunks,
) -> anyhow::Result<Parcel> {
    let spec = format!("volume = {CHUNK_FILE:?}\nvalue = {value:?}\nmesh = \"surface.ply\"\n");
    kernels::Task::parse(Application::Isosurface, &spec, Path::new(""))
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let task = ApplicationTask {
        kernel: KernelName::new(Application::Isosurface.name()).expect("kernels have plain names"),
        spec: Digest::of(spec.as_bytes()),
        inputs: Vec::new(),
        memory_mib: how.memory_mib,
        comparison: how.compare.into(),
    };
    let job = |_| {
        let task = Task::Application(task.clone());
        let job =
            how.common.job(format!("{name} at {value}"), task, Workunits::Count(chunks.count));
        how.common.over(Some(chunks.reads), job)
    };
    Parcel::pack(vec![spec.clone().into_bytes()], &[], job)
}
