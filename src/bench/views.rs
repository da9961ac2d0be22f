//! `gleaner bench views`: clients that speak the protocol of views, without a browser.
//!
//! Each turns its volume all the time: the newest state is sent as often as a browser would, a frame
//! counts as drawn when it has come.

mod figures;

use std::f64::consts::TAU;
use std::path::Path;
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
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;

use self::figures::{Figures, Seen, Take};
use super::farm::Farm;
use super::link::SlowLink;
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
    /// Layers go through the broker, and not from agent to agent.
    #[arg(long)]
    through_broker: bool,
    /// The first view is on a link of so many megabits a second, after all were measured without.
    #[arg(long, value_name = "MBIT_PER_S")]
    slow_mbit: Option<f64>,
    /// A render takes a host every two seconds, one after the other, for a second.
    #[arg(long)]
    take: bool,
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

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    crate::process::block_on(async {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let path = folder.path();
        let volume = path.join("ripples.nrrd");
        let file = std::fs::File::create(&volume).context("cannot write a volume")?;
        let ripples = Volume::rippled(args.side as usize)?;
        ripples.write_nrrd(std::io::BufWriter::new(file)).context("cannot write a volume")?;
        let (policy, listen) = (args.policy.as_deref(), !args.through_broker);
        let farm = Farm::start(path, args.agents, args.cores, policy, listen).await?;
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
        let turn_all = |first: &str| {
            let brokers = std::iter::once(first).chain(std::iter::repeat(&*farm.broker));
            let brokers: Vec<_> = brokers.take(views.len()).map(str::to_owned).collect();
            try_join_all(views.iter().zip(brokers).map(|(view, of)| turn(of, view, &args)))
        };
        let mut takes = Vec::new();
        let mut seen = match args.take {
            true => tokio::select! {
                seen = turn_all(&farm.broker) => seen?,
                error = take_hosts(&farm, path, &args, &mut takes) => return Err(error),
            },
            false => turn_all(&farm.broker).await?,
        };
        let mut before = Vec::new();
        let link = match args.slow_mbit {
            Some(mbit) => Some(SlowLink::start(&farm.broker, mbit).await?),
            None => None,
        };
        if let Some(link) = &link {
            before = std::mem::replace(&mut seen, turn_all(&link.address).await?);
        }
        let metrics = client.raw("/metrics").await?.text().await.context("no metrics")?;
        farm.shut_down().await;
        let mut figures = Figures::of(&seen, &metrics);
        if let Some(link) = link {
            figures.note_slow(&seen, &before, link.held_bytes_max());
        }
        if args.take {
            figures.note_taken(&seen, &takes);
        }
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

/// How long hosts are left alone, and how long each is taken.
const LEFT: Duration = Duration::from_secs(1);
const TAKEN: Duration = Duration::from_secs(1);

/// Takes hosts as renders do, one after the other, until it is dropped.
async fn take_hosts(
    farm: &Farm,
    folder: &Path,
    args: &Args,
    takes: &mut Vec<Take>,
) -> anyhow::Error {
    // What is measured begins a second after the first picture.
    tokio::time::sleep(WARM_UP.into()).await;
    let mut number = 0;
    loop {
        number += 1;
        let host = format!("host{}", (number - 1) % args.agents + 1);
        tokio::time::sleep(LEFT).await;
        let at = boottime();
        if let Err(error) = farm.hook(folder, "preflight", &host, number).await {
            return error;
        }
        takes.push(Take { at, hook: boottime().since(at) });
        tokio::time::sleep(TAKEN).await;
        if let Err(error) = farm.hook(folder, "postflight", &host, number).await {
            return error;
        }
    }
}

/// Turns one volume for as long as it is measured.
async fn turn(broker: String, view: &ViewStatus, args: &Args) -> anyhow::Result<Seen> {
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
                seen.came.push((now, header.coarse));
                seen.longest = seen.longest.max(frame.len() as u64);
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
