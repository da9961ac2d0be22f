//! `gleaner demo-render`: the render process of the demo's farm, one frame of real work.
//!
//! Its last line on stdout is `cpu_us N`: the CPU time that the frame took.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use gleaner_protocol::Span;
use rustix::time::{ClockId, clock_gettime};

use super::frame::{self, Size};
use super::volume::Volume;

/// What to render.
#[derive(Debug, clap::Args)]
pub(crate) struct RenderArgs {
    /// Which frame.
    #[arg(long)]
    frame: u32,
    /// Width of the picture in pixels.
    #[arg(long, default_value_t = 480, value_parser = clap::value_parser!(u16).range(8..=4096))]
    width: u16,
    /// Height of the picture in pixels.
    #[arg(long, default_value_t = 360, value_parser = clap::value_parser!(u16).range(8..=4096))]
    height: u16,
    /// Threads to render with.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// The PNG file to write.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// A scene for POV-Ray, instead of the built-in volume.
    #[arg(long, value_name = "FILE")]
    povray: Option<PathBuf>,
}

/// Renders the frame.
pub(crate) fn run(args: RenderArgs) -> anyhow::Result<ExitCode> {
    match &args.povray {
        Some(scene) => render_scene(scene, &args)?,
        None => render_volume(&args)?,
    }
    println!("cpu_us {}", own_cpu().as_micros() + children_cpu()?.as_micros());
    Ok(ExitCode::SUCCESS)
}

fn render_volume(args: &RenderArgs) -> anyhow::Result<()> {
    let size = Size { width: args.width.into(), height: args.height.into() };
    let pixels = frame::render(&Volume::neghip(), args.frame, size, args.threads.into());
    File::create(&args.output)
        .and_then(|file| frame::write_png(&pixels, size, BufWriter::new(file)))
        .with_context(|| format!("cannot write frame {}", args.output.display()))
}

fn render_scene(scene: &Path, args: &RenderArgs) -> anyhow::Result<()> {
    let option = |letters: &str, value: &dyn std::fmt::Display| format!("+{letters}{value}");
    let status = Command::new("povray")
        .args([
            option("I", &scene.display()),
            option("O", &args.output.display()),
            option("W", &args.width),
            option("H", &args.height),
            option("WT", &args.threads),
            "+FN".into(),
            "-D".into(),
            "-GA".into(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot start povray")?;
    if !status.success() {
        bail!("povray could not render {}: {status}", scene.display());
    }
    Ok(())
}

fn own_cpu() -> Span {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let micros = time.tv_sec.saturating_mul(1_000_000) + time.tv_nsec / 1_000;
    Span::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// CPU time of what this process has started and waited for.
fn children_cpu() -> anyhow::Result<Span> {
    /// What the kernel counts in, for every program.
    const TICK: Span = Span::from_millis(10);
    let text = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // The name in parentheses may hold spaces; `cutime` and `cstime` are fields 16 and 17 of all.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(TICK.times(ticks))
}
