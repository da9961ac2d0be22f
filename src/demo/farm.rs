//! A stand-in for a farm manager: renders the planned frames on the farm's hosts, each as a real
//! process, and with harvest calls the real hooks before and after each.

use std::path::{Path, PathBuf};

use anyhow::Context;
use futures_util::future::try_join_all;
use gleaner_protocol::{Span, Time, boottime};

use super::cluster::{Cluster, Host};
use super::frame::Size;
use super::others::machine_cpu;
use super::plan::{Plan, PlannedFrame};
use super::renderer::Renderer;
use super::show::Show;
use crate::child::{Child, Log};
use crate::release_watch::{self, Release, ReleaseWatch};

/// The farm, and what it renders.
pub(super) struct Farm<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) renderer: &'a Renderer,
    pub(super) size: Size,
    pub(super) threads: u32,
    pub(super) logs: FarmLogs,
    pub(super) show: &'a Show,
}

/// What the farm's processes log into; open from the start, for making a file may take long.
pub(super) struct FarmLogs {
    hooks: Log,
    renders: Log,
}

impl FarmLogs {
    /// New ones in `folder`.
    pub(super) fn create(folder: &Path) -> anyhow::Result<Self> {
        let (hooks, renders) = (Log::create(folder, "hooks")?, Log::create(folder, "renders")?);
        Ok(Self { hooks, renders })
    }
}

/// One of the two times that all frames are rendered.
#[derive(Debug, Clone)]
pub(super) struct FarmPhase {
    /// In order of their numbers.
    pub(super) frames: Vec<FrameRun>,
    pub(super) length: Span,
    /// CPU time that all programs of the machine used in it, the renders too.
    pub(super) machine_cpu: Span,
}

/// One render.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRun {
    /// From the farm's decision to the end of the render, preflight included.
    pub(super) took: Span,
    /// CPU time of the render.
    pub(super) cpu: Span,
    /// How the host was freed; none where no hooks were called.
    pub(super) release: Option<Release>,
    /// Harvested processes that worked on its cores when it ended.
    pub(super) intruders: usize,
}

impl Farm<'_> {
    /// Renders one frame: how long it takes where nothing else runs.
    pub(super) async fn measure(
        &self,
        frame: u32,
        size: Size,
        output: &Path,
    ) -> anyhow::Result<Span> {
        let cpu = self.render(frame, size, output).await?;
        Ok(Span::from_micros(cpu.as_micros() / u64::from(self.threads)))
    }

    /// Renders the whole plan into `folder`; `hooks` says whether hooks are called.
    pub(super) async fn render_all(
        &self,
        plan: &Plan,
        folder: &Path,
        hooks: bool,
    ) -> anyhow::Result<FarmPhase> {
        let (start, cpu_before) = (boottime(), machine_cpu());
        let hosts = self.cluster.farm().iter().enumerate();
        let queues = hosts.map(|(index, host)| async move {
            let mut runs = Vec::new();
            for frame in plan.frames.iter().filter(|frame| frame.host == index) {
                wait_until(start + frame.starts).await;
                let run = self.run(host, frame, &frame_path(folder, frame.number), hooks).await;
                runs.push((frame.number, run.with_context(|| format!("frame {}", frame.number))?));
                self.show.frame_done();
            }
            anyhow::Ok(runs)
        });
        let mut runs: Vec<(u32, FrameRun)> =
            try_join_all(queues).await?.into_iter().flatten().collect();
        wait_until(start + plan.length).await;
        runs.sort_unstable_by_key(|(number, _)| *number);
        let frames = runs.into_iter().map(|(_, run)| run).collect();
        let used_us = machine_cpu().as_micros().saturating_sub(cpu_before.as_micros());
        let machine_cpu = Span::from_micros(used_us);
        Ok(FarmPhase { frames, length: boottime() - start, machine_cpu })
    }

    async fn run(
        &self,
        host: &Host,
        frame: &PlannedFrame,
        output: &Path,
        hooks: bool,
    ) -> anyhow::Result<FrameRun> {
        if !hooks {
            let start = boottime();
            self.show.render_starts(&host.name, frame.number, frame.cores);
            let cpu = self.render(frame.number, self.size, output).await?;
            self.show.render_ends(&host.name);
            let took = boottime() - start;
            tracing::debug!(frame = frame.number, %took, %cpu, "rendered");
            return Ok(FrameRun { took, cpu, release: None, intruders: 0 });
        }
        let booking = format!("demo:{}", frame.number);
        let run_dir = host.run_dir()?;
        let allowed = host.cores.saturating_sub(frame.cores) as usize;
        let watch = ReleaseWatch::start(run_dir.clone(), allowed).await?;
        let start = boottime();
        self.hook("preflight", host, &booking, frame).await?;
        watch.hook_ended();
        let hook = boottime() - start;
        self.show.render_starts(&host.name, frame.number, frame.cores);
        let cpu = self.render(frame.number, self.size, output).await?;
        let took = boottime() - start;
        let intruders = release_watch::working_now(&run_dir).saturating_sub(allowed);
        self.show.render_ends(&host.name);
        self.hook("postflight", host, &booking, frame).await?;
        let release = watch.finish();
        self.show.released(release);
        let released = release.took.unwrap_or_default();
        tracing::debug!(frame = frame.number, %hook, %released, %took, %cpu, "rendered with harvest");
        Ok(FrameRun { took, cpu, release: Some(release), intruders })
    }

    async fn hook(
        &self,
        kind: &str,
        host: &Host,
        booking: &str,
        frame: &PlannedFrame,
    ) -> anyhow::Result<()> {
        let command = self.cluster.hook(kind, host, booking, frame.cores);
        let name = format!("the {kind} hook on {}", host.name);
        Child::start(&name, command, &self.logs.hooks)?.success().await
    }

    /// One render process; its CPU time.
    async fn render(&self, frame: u32, size: Size, output: &Path) -> anyhow::Result<Span> {
        let program = &self.cluster.program;
        let command = self.renderer.command(program, frame, size, self.threads, output);
        let line = Child::start("a render", command, &self.logs.renders)?.last_line().await?;
        let micros = line.strip_prefix("cpu_us ").and_then(|micros| micros.parse().ok());
        micros.map(Span::from_micros).with_context(|| format!("a render said {line:?} at its end"))
    }
}

/// Where a frame's picture lies.
pub(super) fn frame_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("frame{number:03}.png"))
}

/// The farm manager's own clock: when it decides that a render is due.
async fn wait_until(due: Time) {
    tokio::time::sleep(due.since(boottime()).into()).await;
}
