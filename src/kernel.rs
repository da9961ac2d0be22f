//! `gleaner kernel`.

mod profile;
mod times;

use std::fs::{self, Permissions};
use std::io::Write;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gleaner_kernels::application::{
    Application, ApplicationError, Control, Device, Finished, Product, Task, read_spec, sample,
};
#[cfg(feature = "gpu")]
use gleaner_kernels::gpu::Gpu;
use gleaner_kernels::{Preempt, Threads, free_bytes};
use gleaner_protocol::{boottime, error_chain};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::process::Stops;
use crate::{process, show};

/// Runs the built-in kernels here, without a broker.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Does what a specification says, and writes the files that it names.
    #[command(after_help = HELP)]
    Run(RunArgs),
    /// Measures how long each part of a specification takes here, as a profile of this kind of host.
    #[command(after_help = profile::HELP)]
    Profile(profile::Args),
    /// Shows how long kernels took on the hosts of a broker, or writes that down as a profile.
    #[command(after_help = times::HELP)]
    Times(times::Args),
    /// Writes a commented specification, and data that it works with.
    #[command(after_help = HELP)]
    Sample(SampleArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Which kernel.
    #[arg(value_parser = application())]
    kernel: Application,
    /// What to do, as TOML; files that it names to be read are looked for from its folder on.
    spec: PathBuf,
    /// Folder of the files that are written; it is made where there is none [default: that of the
    /// specification].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    how: How,
}

/// What computes, and how.
#[derive(Debug, Clone, clap::Args)]
struct How {
    /// What computes it.
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceKind,
    /// A part of the name of the GPU to be used, one that is only software too [default: the
    /// strongest kind that there is].
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// How many threads share the work; what comes out is the same for any number.
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZero<usize>,
}

#[derive(Debug, clap::Args)]
struct SampleArgs {
    /// Which kernel.
    #[arg(value_parser = application())]
    kernel: Application,
    /// Folder of the files; it is made where there is none.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Where all chance comes from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DeviceKind {
    /// The processor.
    Cpu,
    /// A GPU with a Vulkan driver.
    Gpu,
}

const HELP: &str = "\
Examples, which work as they stand:
  gleaner kernel sample volume --dir samples && gleaner kernel run volume samples/volume.toml
  gleaner kernel sample isosurface --dir samples && gleaner kernel run isosurface samples/isosurface.toml
  gleaner kernel sample pca --dir samples && gleaner kernel run pca samples/pca.toml
  gleaner kernel sample npairs --dir samples && gleaner kernel run npairs samples/npairs.toml

The specification that is written explains every key. Nothing that is there is overwritten by
sample; run replaces what it wrote before, each file at once, but nothing that it reads.
An animation of volume, [animation] in its specification, is a file per frame, each written as soon
as it is done. Ctrl-C ends a run after the part that it is at, a second one in the middle of it; the
frames that are done stay.

Exit codes:
  0  done
  1  it failed, or was stopped
  2  the specification, or a file that it names, is wrong";

/// Who may read and write a file, before the process's mask.
const MODE: u32 = 0o666;

fn application() -> impl TypedValueParser<Value = Application> {
    let names = Application::ALL.map(Application::name);
    PossibleValuesParser::new(names)
        .map(|name| Application::named(&name).expect("only names of applications are possible"))
}

pub(crate) fn run(args: Args, quiet: bool) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => process::block_on(run_task(args, quiet)),
        What::Profile(args) => process::block_on(profile::run(args, quiet)),
        What::Times(args) => times::run(args),
        What::Sample(args) => write_sample(&args),
    }
}

async fn run_task(args: RunArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let RunArgs { kernel, spec, output, how } = args;
    how.check()?;
    let (text, folder) = spec_text(&spec)?;
    let task = Task::parse(kernel, &text, &folder).map_err(|error| told(&spec, error))?;
    let output = output.unwrap_or(folder);
    let output = if output.as_os_str().is_empty() { PathBuf::from(".") } else { output };
    let check = || task.check_outputs(&spec, &output).map_err(|error| told(&spec, error));
    check()?;
    if !output.is_dir() {
        make_folder(&output)?;
        // What its path leads to could not be told before.
        check()?;
    }
    let bar = bar(quiet);
    let done = perform(task, &how, Some(output), &bar, &mut Stops::new()).await;
    bar.finish_and_clear();
    let Some((done, written)) = done? else { given_up(&spec) };
    done.iter().flat_map(|done| &done.summary).for_each(show::line);
    // What is whole stays, also where the rest has failed.
    written.iter().for_each(|path| show::line(path.display()));
    done.map_err(|error| told(&spec, error))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a folder of files that are written, and those around it.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        let problem = "it is no folder: name another one with --output";
        return Err(Failure::Usage(format!("{}: {problem}", folder.display())).into());
    }
    let cannot =
        || format!("cannot make the folder {}: name another one with --output", folder.display());
    fs::create_dir_all(folder).with_context(cannot)
}

/// What came out of a task, and the files that were written.
type Performed = (Result<Finished, ApplicationError>, Vec<PathBuf>);

/// Runs a task, whose files go to a folder or are let go of; none where it did not end in time
/// after a stop.
async fn perform(
    task: Task,
    how: &How,
    output: Option<PathBuf>,
    bar: &ProgressBar,
    stops: &mut Stops,
) -> anyhow::Result<Option<Performed>> {
    let How { device, adapter, threads } = how.clone();
    let threads = Threads::new(threads)?;
    let preempt = Preempt::new();
    let work = tokio::task::spawn_blocking({
        let (bar, preempt) = (bar.clone(), preempt.clone());
        move || {
            let mut written = Vec::new();
            let done = threads.run(|| {
                let mut shown = |stage: &str, permille: u16| {
                    bar.set_position(permille.into());
                    if bar.message() != stage {
                        bar.set_message(stage.to_owned());
                    }
                };
                let mut keep = |product: Product| {
                    let Some(folder) = &output else { return Ok(()) };
                    let path =
                        write(folder, &product).map_err(|error| error_chain(error.as_ref()))?;
                    written.push(path);
                    Ok(())
                };
                task.run(&mut Control {
                    device: opened(device, adapter.as_deref())?,
                    preempt: &preempt,
                    clock: &boottime,
                    free_bytes: &free_bytes,
                    progress: &mut shown,
                    keep: &mut keep,
                })
            });
            (done, written)
        }
    });
    let done = ended(work, async || stops.next().await, || preempt.ask()).await;
    done.transpose().context("the kernel panicked")
}

/// Ends this process: what works is a thread that nobody can end but with it.
fn given_up(spec: &Path) -> ! {
    eprintln!("error: {}: stopped, in the middle of a part", spec.display());
    std::process::exit(1);
}

impl How {
    /// Refuses a device that this program is not made for, and threads without end.
    fn check(&self) -> Result<(), Failure> {
        Threads::check(self.threads)
            .map_err(|error| Failure::Usage(format!("--threads: {error}")))?;
        let problem = match self.device {
            DeviceKind::Cpu if self.adapter.is_some() => {
                "--adapter names a GPU: give --device gpu too".to_owned()
            }
            DeviceKind::Gpu if !cfg!(feature = "gpu") => {
                "this program was built without GPUs: leave --device out, or build it with `cargo \
                 build --release --features gpu`"
                    .to_owned()
            }
            DeviceKind::Cpu | DeviceKind::Gpu => return Ok(()),
        };
        Err(Failure::Usage(problem))
    }
}

/// The device, ready to compute.
#[cfg(feature = "gpu")]
fn opened(device: DeviceKind, adapter: Option<&str>) -> Result<Device, ApplicationError> {
    match device {
        DeviceKind::Cpu => Ok(Device::Processor),
        DeviceKind::Gpu => {
            let gpu = Gpu::open(adapter).map_err(|error| ApplicationError::Work(error.into()))?;
            Ok(Device::Gpu(gpu))
        }
    }
}

/// The device, which is the processor.
#[cfg(not(feature = "gpu"))]
const fn opened(_: DeviceKind, _: Option<&str>) -> Result<Device, ApplicationError> {
    Ok(Device::Processor)
}

/// What comes out of `work`, which the first stop asks to end and the second one does not wait for.
async fn ended<T>(
    work: impl Future<Output = T>,
    mut stop: impl AsyncFnMut(),
    ask: impl FnOnce(),
) -> Option<T> {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return Some(done),
        () = stop() => ask(),
    }
    tokio::select! {
        done = &mut work => Some(done),
        () = stop() => None,
    }
}

/// A specification, and the folder from which on it names files.
pub(crate) fn spec_text(spec: &Path) -> anyhow::Result<(String, PathBuf)> {
    let text = read_spec(spec)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", spec.display())))?;
    Ok((text, spec.parent().unwrap_or(Path::new("")).to_owned()))
}

/// An error with the specification that led to it.
pub(crate) fn told(spec: &Path, error: ApplicationError) -> anyhow::Error {
    if matches!(error, ApplicationError::Memory(_)) {
        let path = spec.display();
        anyhow::anyhow!("{path}: {error}: run it where more is free, or make it smaller")
    } else if error.is_usage() {
        Failure::Usage(format!("{}: {error}", spec.display())).into()
    } else {
        anyhow::Error::from(error).context(spec.display().to_string())
    }
}

/// A bar on stderr, if somebody is looking.
fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = show::progress(1000, "");
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {eta:>4} {wide_msg}")
        .expect("the template is right");
    bar.with_style(style)
}

/// Writes a file of which nothing is there until all of it is; where it is.
fn write(folder: &Path, product: &Product) -> anyhow::Result<PathBuf> {
    let path = folder.join(&product.name);
    let cannot = || format!("cannot write {}", path.display());
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder)
        .with_context(cannot)?;
    file.write_all(&product.bytes).with_context(cannot)?;
    file.persist(&path).with_context(cannot)?;
    Ok(path)
}

fn write_sample(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    let products = sample(args.kernel, args.seed)?;
    fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot make the folder {}", args.dir.display()))?;
    for product in &products {
        let path = args.dir.join(&product.name);
        // The same volume may be there for another kernel.
        let is_same = || fs::read(&path).is_ok_and(|bytes| bytes == product.bytes);
        if path.exists() && !is_same() {
            bail!("{} is there already: name another folder with --dir", path.display());
        }
    }
    for product in &products {
        show::line(write(&args.dir, product)?.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_second_stop_waits_for_nothing() {
        let (stops, asked) = (Cell::new(0), Cell::new(false));
        let stop = async || stops.set(stops.get() + 1);
        let done = ended(pending::<()>(), stop, || asked.set(true)).await;
        assert_eq!((done, stops.get(), asked.get()), (None, 2, true));
    }

    #[tokio::test]
    async fn a_first_stop_waits_for_what_comes_out() {
        let asked = Cell::new(false);
        let work = std::future::poll_fn(|_| match asked.get() {
            true => std::task::Poll::Ready(7),
            false => std::task::Poll::Pending,
        });
        let stop = async || {
            if asked.get() {
                pending::<()>().await;
            }
        };
        assert_eq!(ended(work, stop, || asked.set(true)).await, Some(7));
        let nobody = async || pending().await;
        assert_eq!(ended(ready(8), nobody, || panic!("nobody asked")).await, Some(8));
    }
}
