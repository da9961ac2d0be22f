//! Kernels as applications: a specification as TOML, files in, files out.
//!
//! ```text
//! spec.toml ── Task::parse ──► Task ── run ──► stages, each a plan in slices ──► Finished: files
//! ```
//!
//! Files that are read are named from the specification's own folder on. Files that are written
//! have plain names, and whoever runs a task decides where they go.

mod animation;
mod camera;
mod components;
#[cfg(feature = "gpu")]
mod device;
mod excerpt;
mod faint;
mod files;
mod keys;
mod parcel;
mod picture;
mod sample;
mod scans;
mod surface;
mod table;

#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_protocol::{Computer, Time};
use serde::de::DeserializeOwned;
use thiserror::Error as ThisError;
use toml::Table;

pub use files::{NameError, Product, read_spec};
pub use parcel::{Parcel, join_tables, unpack};
pub use sample::sample;
pub use table::TableError;

use self::components::PcaSpec;
use self::picture::VolumeSpec;
use self::scans::NpairsSpec;
use self::surface::IsosurfaceSpec;
use self::table::Table as ReadTable;
#[cfg(feature = "gpu")]
use crate::gpu::{Gpu, GpuError};
use crate::memory::{self, MemoryError};
use crate::pace::Pace;
use crate::plan::{Outcome, Plan, run};
use crate::preempt::Preempt;
use crate::volume::{
    BRICKS, Missing, ReadError, Series, Volume, brick_files, read_bricks, read_grid, read_series,
    read_volume, series_bytes,
};

/// What can be run by a specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Application {
    /// A picture of a volume.
    Volume,
    /// The surface of one value in a volume.
    Isosurface,
    /// Principal components.
    Pca,
    /// Prediction and reproducibility of brain scans.
    Npairs,
}

/// Why an application has no output.
#[derive(Debug, ThisError)]
pub enum ApplicationError {
    /// The specification is not TOML, or a key is missing or of the wrong type.
    #[error("{0}")]
    Syntax(String),
    /// It has a key that is none.
    #[error("unknown key {0}")]
    UnknownKey(String),
    /// A value that is out of range, or does not fit the data.
    #[error("{0}")]
    Value(String),
    /// A name that is none for a file.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A file that would be written in the place of one that is read.
    #[error(
        "{} would be written over {}, which is read: give it another name, or write to another \
         folder", written.display(), read.display()
    )]
    Overwrites {
        /// What would be written.
        written: PathBuf,
        /// What is read, as it was named.
        read: PathBuf,
    },
    /// A file that would be written in the place of a folder.
    #[error("{} would be written, but is a folder: give it another name", .0.display())]
    Folder(PathBuf),
    /// A file that it names gives no data.
    #[error("{}: {problem}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// It needs more memory than is free.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The work cannot be done.
    #[error("{0}")]
    Work(Box<dyn Error + Send + Sync>),
    /// It was asked to stop.
    #[error("stopped: {stage}, after {done} of {units} parts")]
    Stopped {
        /// What it was at.
        stage: String,
        /// Units that were done.
        done: u64,
        /// Units of the stage.
        units: u64,
    },
}

impl ApplicationError {
    fn data(path: &Path, problem: impl ToString) -> Self {
        Self::Data { path: path.to_owned(), problem: problem.to_string() }
    }

    fn value(problem: impl ToString) -> Self {
        Self::Value(problem.to_string())
    }

    fn work(source: impl Error + Send + Sync + 'static) -> Self {
        Self::Work(Box::new(source))
    }

    /// Whether the specification, or what it names, has to be another one.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::Memory(_) | Self::Work(_) | Self::Stopped { .. })
    }

    /// What went wrong with the device, if that is it, so that the processor may still do the work.
    #[cfg(feature = "gpu")]
    #[must_use]
    pub fn of_device(&self) -> Option<&GpuError> {
        match self {
            Self::Work(source) => source.downcast_ref(),
            _ => None,
        }
    }
}

/// What computes a task.
#[derive(Debug, Clone)]
pub enum Device {
    /// The processor.
    Processor,
    /// A GPU.
    #[cfg(feature = "gpu")]
    Gpu(Arc<Gpu>),
}

/// What a task is run with.
pub struct Control<'a> {
    /// Computes it.
    pub device: Device,
    /// Ends it between two slices.
    pub preempt: &'a Preempt,
    /// Time since boot.
    pub clock: &'a dyn Fn() -> Time,
    /// Bytes of memory that it may take beyond what is taken.
    pub free_bytes: &'a dyn Fn() -> u64,
    /// Told the stage and how far it is, in thousandths.
    pub progress: &'a mut dyn FnMut(&str, u16),
    /// Takes each file as soon as it is whole, or says why it cannot: then the task ends.
    pub keep: &'a mut dyn FnMut(Product) -> Result<(), String>,
}

impl std::fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("device", &self.device)
            .field("preempt", self.preempt)
            .finish_non_exhaustive()
    }
}

/// An application with its specification.
#[derive(Debug, Clone)]
pub struct Task {
    spec: Spec,
    folder: PathBuf,
}

#[derive(Debug, Clone)]
enum Spec {
    Volume(VolumeSpec),
    Isosurface(IsosurfaceSpec),
    Pca(PcaSpec),
    Npairs(NpairsSpec),
}

/// What came out of a task, beside its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Of how much: `VOXELS@PIXELS` of a picture, `VOXELS` of a surface, rows and columns of a table,
    /// scans and their voxels; `64x64x64@320x240`, `120x13440`.
    pub size: String,
    /// What has computed it: a GPU leaves a surface that it has no room for to the processor.
    pub by: Computer,
    /// Lines that say in short what came out.
    pub summary: Vec<String>,
}

/// Files that are read, each with the key that names it.
type Inputs<'a> = Vec<(&'static str, &'a Path)>;

/// What the parts of a task share while it runs.
struct Stages<'a> {
    folder: &'a Path,
    control: &'a mut Control<'a>,
    /// Which one of how many alike is at work: progress is told as of all of them.
    turn: (usize, usize),
    /// What computes.
    by: Computer,
    /// What there is to say of the data that was read.
    remarks: Vec<String>,
}

impl Application {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Volume, Self::Isosurface, Self::Pca, Self::Npairs];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|application| application.name() == name)
    }

    /// Its name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Isosurface => "isosurface",
            Self::Pca => "pca",
            Self::Npairs => "npairs",
        }
    }

    /// A commented specification with every key there is; it works with the [`sample()`] data.
    #[must_use]
    pub const fn example(self) -> &'static str {
        match self {
            Self::Volume => include_str!("application/specs/volume.toml"),
            Self::Isosurface => include_str!("application/specs/isosurface.toml"),
            Self::Pca => include_str!("application/specs/pca.toml"),
            Self::Npairs => include_str!("application/specs/npairs.toml"),
        }
    }
}

impl Task {
    /// A task by its specification, whose relative names of files start at `folder`.
    ///
    /// # Errors
    /// It is not TOML, has a key that is unknown, missing or of the wrong type, or names what
    /// cannot be written.
    pub fn parse(
        application: Application,
        text: &str,
        folder: &Path,
    ) -> Result<Self, ApplicationError> {
        let spec = match application {
            Application::Volume => Spec::Volume(checked(application, text, VolumeSpec::check)?),
            Application::Isosurface => {
                Spec::Isosurface(checked(application, text, IsosurfaceSpec::check)?)
            }
            Application::Pca => Spec::Pca(checked(application, text, PcaSpec::check)?),
            Application::Npairs => Spec::Npairs(checked(application, text, NpairsSpec::check)?),
        };
        Ok(Self { spec, folder: folder.to_owned() })
    }

    /// Whether it gives the same on GPUs as on processors, within what
    /// [votes](gleaner_protocol::job::Comparison::Tolerance) tolerate: a picture of a look that jumps
    /// from one value to the next, or nearly, does not, for a sample that stands there may be taken
    /// for one on either side. Nor is it known of one whose volume cannot be read.
    #[must_use]
    pub fn is_alike_on_gpus(&self) -> bool {
        match &self.spec {
            Spec::Volume(spec) => !spec.is_steep(&self.folder),
            Spec::Isosurface(_) | Spec::Pca(_) | Spec::Npairs(_) => true,
        }
    }

    /// Whether a GPU that has yet to be opened may be done with it sooner than a processor: with a
    /// surface where the file of its volume has so many bytes, with all else at any rate. A file that
    /// is not there is the processor's to tell of.
    #[must_use]
    pub fn is_sooner_on_gpus(&self, surface_bytes_min: u64) -> bool {
        let Spec::Isosurface(spec) = &self.spec else { return true };
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        let of_input = |(key, name): (&str, &Path)| {
            let path = self.folder.join(name);
            let data = parcel::data_of(key, &path).ok().flatten();
            bytes(&data.unwrap_or(path))
        };
        spec.inputs().into_iter().map(of_input).sum::<u64>() >= surface_bytes_min
    }

    /// Whether its files can be written to `folder`: none of them in the place of one that is read,
    /// of the `spec` that it was parsed from, or of a folder.
    ///
    /// # Errors
    /// One would be.
    pub fn check_outputs(&self, spec: &Path, folder: &Path) -> Result<(), ApplicationError> {
        let (inputs, outputs) = self.files();
        let inputs = inputs.into_iter().flat_map(|(key, name)| {
            let path = self.folder.join(name);
            // What is wrong with it is told when it is read.
            let data = parcel::data_of(key, &path).ok().flatten();
            [Some(path), data].into_iter().flatten()
        });
        let read: Vec<PathBuf> = inputs.chain([spec.to_owned()]).collect();
        for written in outputs.into_iter().map(|name| folder.join(name)) {
            // What is not there yet is nothing that is read.
            let Ok(place) = written.canonicalize() else { continue };
            if let Some(read) =
                read.iter().find(|read| read.canonicalize().is_ok_and(|read| read == place))
            {
                return Err(ApplicationError::Overwrites { written, read: read.clone() });
            }
            if place.is_dir() {
                return Err(ApplicationError::Folder(written));
            }
        }
        Ok(())
    }

    /// The files that it reads, and the names of those that it writes.
    fn files(&self) -> (Inputs<'_>, Vec<String>) {
        match &self.spec {
            Spec::Volume(spec) => (spec.inputs(), spec.outputs()),
            Spec::Isosurface(spec) => (spec.inputs(), spec.outputs()),
            Spec::Pca(spec) => (spec.inputs(), spec.outputs()),
            Spec::Npairs(spec) => (spec.inputs(), spec.outputs()),
        }
    }

    /// Runs it until it is done or asked to stop.
    ///
    /// # Errors
    /// A file cannot be read or kept, the data do not fit, also not into the memory that is free, or it
    /// was asked to stop.
    pub fn run<'a>(&'a self, control: &'a mut Control<'a>) -> Result<Finished, ApplicationError> {
        let mut stages = Stages::new(&self.folder, control);
        let mut finished = match &self.spec {
            Spec::Volume(spec) => spec.run(&mut stages),
            Spec::Isosurface(spec) => spec.run(&mut stages),
            Spec::Pca(spec) => spec.run(&mut stages),
            Spec::Npairs(spec) => spec.run(&mut stages),
        }?;
        finished.summary.extend(stages.remarks);
        Ok(finished)
    }
}

/// That a file is not a table; `of_words` is said of a word in it.
fn not_a_table(path: &Path, error: TableError, of_words: &str) -> ApplicationError {
    match error {
        TableError::Memory(error) => error.into(),
        TableError::Cell { is_word: true, .. } => {
            ApplicationError::data(path, format!("{error}{of_words}"))
        }
        error => ApplicationError::data(path, error),
    }
}

/// A size as text, its sides beside each other.
fn sides(sides: &[usize]) -> String {
    sides.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}

fn checked<T: DeserializeOwned>(
    application: Application,
    text: &str,
    check: fn(&T) -> Result<(), ApplicationError>,
) -> Result<T, ApplicationError> {
    let syntax = |error: toml::de::Error| ApplicationError::Syntax(excerpt::syntax(&error));
    let table: Table = text.parse().map_err(syntax)?;
    keys::check(&table, application.example())?;
    // From the text, so that what is wrong is told with its line.
    let spec = toml::from_str(text).map_err(syntax)?;
    check(&spec)?;
    Ok(spec)
}

impl<'a> Stages<'a> {
    fn new(folder: &'a Path, control: &'a mut Control<'a>) -> Self {
        let by = match &control.device {
            Device::Processor => Computer::Core,
            #[cfg(feature = "gpu")]
            Device::Gpu(_) => Computer::Gpu,
        };
        Self { folder, control, turn: (0, 1), by, remarks: Vec::new() }
    }
}

impl Stages<'_> {
    /// A file that is read.
    fn input(&self, name: &Path) -> PathBuf {
        self.folder.join(name)
    }

    /// The volume in a file that is read.
    fn volume(&mut self, name: &Path) -> Result<Arc<Volume>, ApplicationError> {
        let path = self.input(name);
        if name == Path::new(BRICKS) {
            return self.volume_of_bricks(&path);
        }
        // What is wrong with a header is told when all of it is read.
        if let Ok(grid) = read_grid(&path) {
            self.needs(|| format!("a volume of {} voxels", sides(&grid.size)), grid.read_bytes)?;
        }
        let volume = read_volume(&path).map_err(|error| ApplicationError::data(&path, error))?;
        if let Some(missing) = volume.missing() {
            self.remark_missing(&path, missing);
        }
        Ok(Arc::new(volume))
    }

    /// The volume whose bricks are in the folder.
    fn volume_of_bricks(&mut self, path: &Path) -> Result<Arc<Volume>, ApplicationError> {
        let told = |error: ReadError| ApplicationError::data(path, error);
        let files = brick_files(self.folder).map_err(|error| told(ReadError::Open(error)))?;
        let bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len());
        // The largest brick is in memory beside the volume, and bricks have rims.
        self.needs(|| format!("a volume of {} bricks", files.len()), bytes.sum())?;
        Ok(Arc::new(read_bricks(&files).map_err(told)?))
    }

    /// The series of volumes in a file that is read.
    fn series(&mut self, path: &Path) -> Result<Series, ApplicationError> {
        self.needs_series(path)?;
        let series = read_series(path).map_err(|error| ApplicationError::data(path, error))?;
        if series.missing() > 0 {
            self.remark_missing(path, Missing { count: series.missing(), value: 0.0 });
        }
        Ok(series)
    }

    fn remark_missing(&mut self, path: &Path, Missing { count, value }: Missing) {
        let remark = format!("{}: {count} voxels are missing and count as {value}", path.display());
        self.remarks.push(remark);
    }

    /// The table in a file; `of_words` is said of a word in it.
    fn table(&mut self, path: &Path, of_words: &str) -> Result<ReadTable, ApplicationError> {
        let table = table::read(path, self.control.free_bytes);
        let table = table.map_err(|error| not_a_table(path, error, of_words))?;
        let said = [table.columns()].into_iter().chain(table.remarks.iter().cloned());
        self.remarks.extend(said.map(|said| format!("{}: {said}", path.display())));
        Ok(table)
    }

    /// That so many bytes of memory are free for something.
    fn needs(&self, what: impl FnOnce() -> String, bytes: u64) -> Result<(), ApplicationError> {
        Ok(memory::check(what, bytes, (self.control.free_bytes)())?)
    }

    /// That the series in a file has room in the memory that is free.
    fn needs_series(&self, path: &Path) -> Result<(), ApplicationError> {
        // What is wrong with a header is told when all of it is read.
        let Ok(([scans, voxels], bytes)) = series_bytes(path) else { return Ok(()) };
        self.needs(|| format!("a series of {scans} volumes of {voxels} voxels"), bytes)
    }

    /// Hands over a file that is whole.
    fn keep(&mut self, product: Product) -> Result<(), ApplicationError> {
        (self.control.keep)(product).map_err(|problem| ApplicationError::Work(problem.into()))
    }

    /// Performs one plan whose errors are not the specification's.
    fn perform<P: Plan>(&mut self, stage: &str, plan: Box<P>) -> Result<P::Output, ApplicationError>
    where
        P::Error: Send + Sync + 'static,
    {
        self.perform_or(stage, plan, ApplicationError::work)
    }

    /// Performs one of many plans that are alike, at the pace of those before it.
    fn perform_at<P: Plan>(
        &mut self,
        pace: &mut Pace,
        stage: &str,
        plan: Box<P>,
    ) -> Result<P::Output, ApplicationError>
    where
        P::Error: Send + Sync + 'static,
    {
        self.perform_with(pace, stage, plan, ApplicationError::work)
    }

    /// Performs one plan; `told` says whose errors are.
    fn perform_or<P: Plan>(
        &mut self,
        stage: &str,
        plan: Box<P>,
        told: impl FnOnce(P::Error) -> ApplicationError,
    ) -> Result<P::Output, ApplicationError> {
        self.perform_with(&mut Pace::new(), stage, plan, told)
    }

    fn perform_with<P: Plan>(
        &mut self,
        pace: &mut Pace,
        stage: &str,
        plan: Box<P>,
        told: impl FnOnce(P::Error) -> ApplicationError,
    ) -> Result<P::Output, ApplicationError> {
        let Control { preempt, clock, progress, .. } = &mut *self.control;
        let (turn, turns) = self.turn;
        let mut shown = |permille: u16| {
            let of_all = (turn * 1000 + usize::from(permille)) / turns;
            progress(stage, u16::try_from(of_all).unwrap_or(1000));
        };
        shown(0);
        match run(plan, preempt, pace, clock, &mut shown) {
            Ok(Outcome::Done(output)) => Ok(output),
            Ok(Outcome::Stopped { done, units }) => {
                Err(ApplicationError::Stopped { stage: stage.to_owned(), done, units })
            }
            Err(error) => Err(told(error)),
        }
    }
}
