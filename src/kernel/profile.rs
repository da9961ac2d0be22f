//! `gleaner kernel profile`: how long kernels take on hosts of this kind.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use gleaner_kernels::application::{Application, Task};
use gleaner_protocol::{DataSize, HostKind, KernelName, KernelTime, boottime};

use super::{How, application, bar, given_up, perform, spec_text, told};
use crate::failure::Failure;
use crate::process::Stops;
use crate::show;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which kernel.
    #[arg(value_parser = application())]
    kernel: Application,
    /// What to do, as TOML, as for run; the files that come out are not kept.
    spec: PathBuf,
    /// What this kind of host is called.
    #[arg(long, value_name = "NAME")]
    kind: HostKind,
    /// A file that the lines are added to; it is made where there is none [default: they are
    /// printed].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How often each part is measured.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    #[command(flatten)]
    how: How,
}

pub(super) const HELP: &str = "\
A line for each part and each time: kernel,part,size,kind,seconds. A part is a number of components
of npairs, or a frame of an animation; what has no parts has no name there. The size is that of the
data: voxels and pixels of volume (256x256x256@512x512), voxels of isosurface, rows and columns of
pca, scans and voxels of npairs (120x13440). The seconds are those of a replica that computes it: its
files read, its GPU opened.

Example: three kinds of hosts, and how a study would be scheduled on them
  gleaner kernel sample npairs --dir samples
  gleaner kernel profile npairs samples/npairs.toml --kind fat --output times.csv
  (the same on hosts of the kinds light and gpu, the latter with --device gpu)
  gleaner simulate mixed-npairs --set profile=times.csv --set components_min=1 --set components_max=8
A file may have sizes beside each other, but a study is of one: what is simulated takes a file with
one size of npairs.

Exit codes:
  0  done
  1  it failed, or was stopped: the lines that are written are whole
  2  the specification, or a file that it names, is wrong";

pub(super) async fn run(args: Args, quiet: bool) -> anyhow::Result<ExitCode> {
    let Args { kernel, spec, kind, output, times, how } = args;
    how.check()?;
    let (text, folder) = spec_text(&spec)?;
    let task = Task::parse(kernel, &text, &folder).map_err(|error| told(&spec, error))?;
    let parts = task.parts().unwrap_or_default();
    let tasks: Vec<(String, Task)> = match parts.is_empty() {
        true => vec![(String::new(), task)],
        false => parts
            .into_iter()
            .map(|part| Ok((part.clone(), task.clone().only(&part)?)))
            .collect::<Result<_, _>>()
            .map_err(|error| told(&spec, error))?,
    };
    let mut lines = Lines::open(output.as_deref())?;
    let (bar, mut stops) = (bar(quiet), Stops::new());
    for (part, task) in (0..times).flat_map(|_| &tasks) {
        let began = boottime();
        let done = perform(task.clone(), &how, None, &bar, &mut stops).await;
        let run_us = boottime().since(began).as_micros();
        let Some((done, _)) = done? else { given_up(&spec) };
        let size = done.map_err(|error| told(&spec, error))?.size;
        let time = KernelTime {
            kernel: KernelName::new(kernel.name())?,
            part: part.clone(),
            size: DataSize::new(size)?,
            kind: kind.clone(),
            run_us,
        };
        bar.suspend(|| lines.add(&time.to_string()))?;
    }
    bar.finish_and_clear();
    Ok(ExitCode::SUCCESS)
}

/// Where lines go.
struct Lines(Option<(PathBuf, std::fs::File)>);

impl Lines {
    /// Goes on with a file of such lines, or begins one.
    fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            show::line(KernelTime::HEADER);
            return Ok(Self(None));
        };
        let cannot = || format!("cannot write {}", path.display());
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        if !text.is_empty() && text.lines().next() != Some(KernelTime::HEADER) {
            let problem =
                format!("its first line is not {:?}: name another file", KernelTime::HEADER);
            return Err(Failure::Usage(format!("{}: {problem}", path.display())).into());
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut lines = Self(Some((path.to_owned(), file.with_context(cannot)?)));
        if text.is_empty() {
            lines.add(KernelTime::HEADER)?;
        } else if !text.ends_with('\n') {
            lines.add("")?;
        }
        Ok(lines)
    }

    /// Adds a line, whole.
    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        match &mut self.0 {
            None => show::line(line),
            Some((path, file)) => file
                .write_all(format!("{line}\n").as_bytes())
                .with_context(|| format!("cannot write {}", path.display()))?,
        }
        Ok(())
    }
}
