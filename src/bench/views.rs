//! `gleaner bench views`: clients that speak the protocol of views, without a browser.
//!
//! Each turns its volume all the time: the newest state is sent as often as a browser would, a frame
//! counts as drawn when it has come.

use std::f64::consts::TAU;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use futures_util::{SinkExt, StreamExt};
use gleaner_kernels::volume::Volume;
use gleaner_protocol::{
    FrameHeader, NewView, Span, Time, TransferPoint, ViewCamera, ViewShading, ViewState,
    ViewStatus, ViewWish, boottime,
};
use serde::Serialize;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;

use super::farm::Farm;
use crate::client::{Client, Format};
use crate::show;
use crate::view::Kernel;

/// Turns volumes as people do in browsers, and says how many pictures come how soon.
///
/// A broker and agents run on this machine meanwhile, and nothing of them stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Views at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    views: u32,
    /// Size of the pictures, in pixels.
    #[arg(long, default_value = "512x384", value_name = "WIDTHxHEIGHT", value_parser = size)]
    size: [u32; 2],
    /// What draws them.
    #[arg(long, default_value = "synthetic", value_name = "KERNEL")]
    kernel: Kernel,
    /// Voxels along each side of the volume.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1024))]
    side: u32,
    /// Size of its bricks, in MiB.
    #[arg(long, default_value_t = 16, value_name = "MIB")]
    chunk_mib: u32,
    /// Whether surfaces are lit.
    #[arg(long)]
    shaded: bool,
    /// Agents.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    agents: u32,
    /// Cores of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: u32,
    /// The policy of the rendering lane.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// How long it is measured, after a second without.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// For people, or for programs.
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once('x').map(|(width, height)| (width.parse(), height.parse()));
    match sides {
        Some((Ok(width), Ok(height))) => Ok([width, height]),
        _ => Err("give it as WIDTHxHEIGHT, such as 512x384".into()),
    }
}

/// How often a state is sent: as often as most screens are painted.
const STATE_EVERY: Duration = Duration::from_micros(16_667);
/// What is not measured at first.
const WARM_UP: Span = Span::from_secs(1);
/// How long the first picture may take.
const FIRST_MAX: Duration = Duration::from_secs(60);

/// What came of it: of each view where a list, else of all.
#[derive(Debug, Serialize)]
struct Figures {
    views: usize,
    /// Frames drawn a second.
    fps: Vec<f64>,
    /// From a state's sending to its frame.
    input_to_drawn_ms_p50: f64,
    input_to_drawn_ms_p95: f64,
    first_picture_ms: f64,
    first_full_picture_ms: Option<f64>,
    /// States that newer ones came in the place of.
    dropped_before: u64,
    /// Of all frames that were drawn, those that were not sent, or not drawn by the client.
    rendered_undrawn_share: f64,
    out_of_order: u64,
    coarse_share: f64,
    /// The smallest and the largest width of pictures.
    width: [u32; 2],
    hit_rate: f64,
    bytes_per_frame: f64,
}

/// What one view saw.
#[derive(Debug, Default)]
struct Seen {
    drawn: u64,
    coarse: u64,
    latencies_us: Vec<u64>,
    first_us: u64,
    first_full_us: Option<u64>,
    dropped: u64,
    out_of_order: u64,
    widths: Vec<u32>,
    hits: u64,
    parts: u64,
    bytes: u64,
    measured_s: f64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    crate::process::block_on(async {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let path = folder.path();
        let volume = path.join("ripples.nrrd");
        let file = std::fs::File::create(&volume).context("cannot write a volume")?;
        let ripples = Volume::rippled(args.side as usize)?;
        ripples.write_nrrd(std::io::BufWriter::new(file)).context("cannot write a volume")?;
        let farm = Farm::start(path, args.agents, args.cores, args.policy.as_deref()).await?;
        let chunk_mib = args.chunk_mib.to_string();
        let volume = volume.display().to_string();
        let add = ["dataset", "add", &volume, "--name", "bench", "--chunk-mib", &chunk_mib];
        farm.run(path, &add).await?;
        let client = Client::local(&farm.broker)?;
        let new = NewView { dataset: "bench".into(), kernel: args.kernel.into() };
        let mut views = Vec::new();
        for _ in 0..args.views {
            views.push(client.post::<ViewStatus>("/v1/views", &new).await?);
        }
        let seen = try_join_all(views.iter().map(|view| turn(&farm.broker, view, &args))).await;
        let metrics = client.raw("/metrics").await?.text().await.context("no metrics")?;
        farm.shut_down().await;
        let figures = Figures::of(&seen?, &metrics);
        match args.format {
            Format::Json => show::json(&figures),
            Format::Table => {
                for line in serde_json::to_string_pretty(&figures)?.lines() {
                    show::line(line.trim_matches(['{', '}', ',', ' ']));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Turns one volume for as long as it is measured.
async fn turn(broker: &str, view: &ViewStatus, args: &Args) -> anyhow::Result<Seen> {
    let url = format!("{}/v1/views/{}/live", broker.replacen("http", "ws", 1), view.view);
    // As browsers do: what is small is sent at once.
    let (mut socket, _) = connect_async_with_config(url, None, true).await.context("no view")?;
    let begun = boottime();
    let mut ticks = tokio::time::interval(STATE_EVERY);
    let mut sent: Vec<Time> = Vec::new();
    let (mut seen, mut last, mut from) = (Seen::default(), None, None);
    let mut dropped_before = 0;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let seq = sent.len() as u64;
                sent.push(boottime());
                let wish = ViewWish::State(Box::new(state(view, args, seq)));
                socket.send(Message::text(serde_json::to_string(&wish)?)).await?;
            }
            message = socket.next() => {
                let message = message.context("the view has ended")??;
                let Message::Binary(frame) = message else {
                    if let Message::Text(news) = &message {
                        tracing::info!("{news}");
                    }
                    continue;
                };
                let now = boottime();
                let (length, rest) = frame.split_first_chunk::<4>().context("a frame is cut off")?;
                let header = rest.get(..u32::from_le_bytes(*length) as usize);
                let header: FrameHeader = serde_json::from_slice(header.context("it is cut off")?)?;
                let drawn = ViewWish::Drawn(header.seq);
                socket.send(Message::text(serde_json::to_string(&drawn)?)).await?;
                if last.is_none() {
                    seen.first_us = now.since(begun).as_micros();
                }
                if !header.coarse {
                    seen.first_full_us.get_or_insert(now.since(begun).as_micros());
                }
                seen.out_of_order += u64::from(last.is_some_and(|last| header.seq < last));
                last = Some(header.seq);
                let since = *from.get_or_insert(now + WARM_UP);
                if now < since {
                    dropped_before = header.dropped;
                    continue;
                }
                let asked = sent.get(header.seq as usize).context("a frame of no state")?;
                seen.latencies_us.push(now.since(*asked).as_micros());
                seen.drawn += 1;
                seen.coarse += u64::from(header.coarse);
                seen.dropped = header.dropped - dropped_before;
                seen.widths.push(header.size[0]);
                seen.hits += u64::from(header.hits);
                seen.parts += u64::from(header.parts);
                seen.bytes += frame.len() as u64;
            }
            () = tokio::time::sleep(FIRST_MAX), if last.is_none() => bail!("no picture has come"),
        }
        let now = boottime();
        if let Some(from) = from
            && now > from + Span::from_secs(args.seconds)
        {
            seen.measured_s = now.since(from).as_secs_f64();
            return Ok(seen);
        }
    }
}

/// A state of an orbit around the volume.
fn state(view: &ViewStatus, args: &Args, seq: u64) -> ViewState {
    let sides = [0, 1, 2].map(|axis| f64::from(view.size[axis]) * view.spacing[axis]);
    let target = sides.map(|side| side / 2.0);
    let far = 2.2 * sides.into_iter().fold(0.0, f64::max);
    let angle = TAU * seq as f64 / 600.0;
    let eye = [target[0] + far * angle.sin(), target[1] + 0.4 * far, target[2] + far * angle.cos()];
    let point =
        |value: f32, opacity: f32| TransferPoint { value, colour: [0.9, 0.6, 0.3], opacity };
    let [low, high] = view.range;
    let at = |part: f32| low + part * (high - low);
    ViewState {
        seq,
        camera: ViewCamera { eye, target, up: [0.0, 1.0, 0.0], fov_degrees: 30.0 },
        transfer: vec![point(at(0.6), 0.0), point(at(0.7), 0.5), point(at(1.0), 0.8)],
        opacity_unit: 1.0,
        shading: args.shaded.then_some(ViewShading {
            ambient: 0.3,
            diffuse: 0.7,
            specular: 0.2,
            shininess: 20,
        }),
        clip: [[0.0, 1.0]; 3],
        background: [0.0; 3],
        step: 0,
        size: args.size,
        moving: true,
    }
}

impl Figures {
    fn of(seen: &[Seen], metrics: &str) -> Self {
        let mut all: Vec<u64> = seen.iter().flat_map(|of| of.latencies_us.clone()).collect();
        all.sort_unstable();
        let percentile = |part: f64| {
            let at = ((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1));
            all.get(at).map_or(0.0, |us| *us as f64 / 1e3)
        };
        let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        let counted = |name: &str| -> u64 {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        let undrawn = counted("gleaner_frames_dropped_total ");
        let widths = || seen.iter().flat_map(|of| of.widths.iter().copied());
        let ms = |us: u64| us as f64 / 1e3;
        Self {
            views: seen.len(),
            fps: seen.iter().map(|of| of.drawn as f64 / of.measured_s.max(1e-9)).collect(),
            input_to_drawn_ms_p50: percentile(0.5),
            input_to_drawn_ms_p95: percentile(0.95),
            first_picture_ms: ms(seen.iter().map(|of| of.first_us).max().unwrap_or(0)),
            first_full_picture_ms: seen.iter().map(|of| of.first_full_us).max().flatten().map(ms),
            dropped_before: sum(|of| of.dropped),
            rendered_undrawn_share: share(undrawn, undrawn + counted("gleaner_frames_total ")),
            out_of_order: sum(|of| of.out_of_order),
            coarse_share: share(sum(|of| of.coarse), sum(|of| of.drawn)),
            width: [widths().min().unwrap_or(0), widths().max().unwrap_or(0)],
            hit_rate: share(sum(|of| of.hits), sum(|of| of.parts)),
            bytes_per_frame: share(sum(|of| of.bytes), sum(|of| of.drawn)),
        }
    }
}
