//! `gleaner bench views`: clients that speak the protocol of views, without a browser.
//!
//! Each turns its volume all the time: the newest state is sent as often as a browser would, a frame
//! counts as drawn when it has come.

mod figures;
mod turn;
mod wishes;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use gleaner_kernels::volume::Volume;
use gleaner_protocol::api::DatasetStatus;
use gleaner_protocol::{
    NewView, RecordedVolume, RecordingStep, Span, ViewKernel, ViewStatus, boottime,
};
use gleaner_simulator::ViewRecording;
use tokio::time::timeout;

use self::figures::{Figures, Take};
use self::wishes::Wishes;
use super::farm::Farm;
use super::link::SlowLink;
use crate::client::{Client, Format};
use crate::failure::Failure;
use crate::show;
use crate::view::{Kernel, Recording};

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
    /// What draws them [default: synthetic, or as recorded].
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Kernel>,
    /// Voxels along each side of the volume [default: 64, or as recorded].
    #[arg(long, value_parser = clap::value_parser!(u32).range(i64::from(SIDE_MIN)..=i64::from(SIDE_MAX)))]
    side: Option<u32>,
    /// Size of its bricks, in MiB [default: 16, or as recorded].
    #[arg(long, value_name = "MIB")]
    chunk_mib: Option<u32>,
    /// Whether surfaces are lit.
    #[arg(long)]
    shaded: bool,
    /// Agents.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    agents: u32,
    /// Cores of each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    cores: u32,
    /// Memory of each for bricks, in MiB [default: what agents of desktops give].
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u64>,
    /// The policy of the rendering lane.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Layers go through the broker, and not from agent to agent.
    #[arg(long)]
    through_broker: bool,
    /// Views begin at once, while copies of the volume still come to their hosts.
    #[arg(long)]
    at_once: bool,
    /// The first view is on a link of so many megabits a second, after all were measured without.
    #[arg(long, value_name = "MBIT_PER_S")]
    slow_mbit: Option<f64>,
    /// A render takes a host every two seconds, one after the other, for a second.
    #[arg(long)]
    take: bool,
    /// Does what people did, which `gleaner view --record` wrote down, in the place of turning all the time.
    /// All look at one volume, as large as theirs.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["views", "size", "shaded", "slow_mbit", "seconds"])]
    replay: Option<PathBuf>,
    /// On this broker, which asks for no token, in the place of one of its own: views are of the datasets that
    /// were recorded.
    #[arg(long, value_name = "URL", requires = "replay", conflicts_with_all = ["side", "chunk_mib", "agents", "cores", "memory_mib", "policy", "through_broker", "at_once", "take"])]
    broker: Option<String>,
    /// Writes down what is done, into a new file, as `gleaner view --record` does.
    #[arg(long, value_name = "FILE", conflicts_with = "slow_mbit")]
    record: Option<PathBuf>,
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
const FIRST_MAX: Span = Span::from_secs(60);
/// Voxels along a side of the volume.
const SIDE_MIN: u32 = 16;
const SIDE_MAX: u32 = 1024;

/// What is turned, and by whom.
struct Plan {
    side: u32,
    chunk_mib: u32,
    /// What draws each view, of which dataset, and what is wanted.
    clients: Vec<(NewView, Wishes)>,
}

/// The volume that is turned.
const DATASET: &str = "bench";

impl Plan {
    fn of(args: &Args) -> anyhow::Result<Self> {
        let Some(path) = &args.replay else {
            let kernel = args.kernel.unwrap_or(Kernel::Synthetic).into();
            let orbit = || {
                let new = NewView { dataset: DATASET.into(), kernel };
                (new, Wishes::Orbit { size: args.size, shaded: args.shaded })
            };
            return Ok(Self {
                side: args.side.unwrap_or(64),
                chunk_mib: args.chunk_mib.unwrap_or(16),
                clients: (0..args.views).map(|_| orbit()).collect(),
            });
        };
        let recording = ViewRecording::read(&path.to_string_lossy()).map_err(Failure::Usage)?;
        let volumes = || recording.views.iter().map(|view| &view.volume);
        let side = volumes().flat_map(|volume| volume.size).max().unwrap_or(SIDE_MIN);
        let brick = volumes().map(|volume| volume.brick_bytes).max().unwrap_or(1);
        let mib = u32::try_from(brick.div_ceil(1 << 20)).unwrap_or(u32::MAX);
        let kernel = args.kernel.map(ViewKernel::from);
        let starts = recording.views.iter().filter_map(|view| view.states.first());
        let start = starts.map(|(at, _)| *at).min().unwrap_or(Span::ZERO);
        let clients = recording.views.into_iter().map(|mut view| {
            for (at, _) in &mut view.states {
                *at = Span::from_micros(at.as_micros() - start.as_micros());
            }
            view
        });
        Ok(Self {
            side: args.side.unwrap_or(side.clamp(SIDE_MIN, SIDE_MAX)),
            chunk_mib: args.chunk_mib.unwrap_or(mib),
            clients: clients
                .map(|view| {
                    let RecordedVolume { dataset, kernel: recorded, .. } = &view.volume;
                    let dataset = args.broker.as_ref().map_or(DATASET, |_| dataset.as_str());
                    let kernel = kernel.unwrap_or(*recorded);
                    (NewView { dataset: dataset.into(), kernel }, Wishes::Recorded(view))
                })
                .collect(),
        })
    }
}

/// Writes down what clients want to see.
struct Recorder {
    recording: RefCell<Recording>,
    views: Vec<String>,
}

impl Recorder {
    fn begin(path: &Path, views: &[ViewStatus]) -> anyhow::Result<Self> {
        let recording = RefCell::new(Recording::create(path)?);
        let names = views.iter().map(|view| view.view.clone());
        let recorder = Self { recording, views: names.collect() };
        for view in views {
            recorder.note(view, RecordingStep::Opened(RecordedVolume::from(view.clone())))?;
        }
        Ok(recorder)
    }

    fn end(&self, views: &[ViewStatus]) -> anyhow::Result<()> {
        views.iter().try_for_each(|view| self.note(view, RecordingStep::Closed))?;
        self.recording.borrow_mut().flush()
    }

    /// What finds no room is left out.
    fn note(&self, view: &ViewStatus, what: RecordingStep) -> anyhow::Result<()> {
        let number = self.views.iter().position(|name| *name == view.view);
        let number = u32::try_from(number.unwrap_or_default()).unwrap_or(u32::MAX);
        self.recording.borrow_mut().note(number, what).map(drop)
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = Plan::of(&args)?;
    crate::process::block_on(async {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let path = folder.path();
        let farm = match &args.broker {
            Some(_) => None,
            None => Some(begin(path, &args, &plan).await?),
        };
        let own = farm.as_ref().map(|farm| farm.broker.clone());
        let broker = own.or(args.broker.clone()).expect("one of them is there");
        let client = Client::local(&broker)?;
        let mut views = Vec::new();
        for (new, _) in &plan.clients {
            views.push(client.post::<ViewStatus>("/v1/views", new).await?);
        }
        let recorder = args.record.as_deref().map(|path| Recorder::begin(path, &views));
        let recorder = recorder.transpose()?;
        let (seconds, recorder) = (args.seconds, recorder.as_ref());
        let turn_all = |first: &str| {
            let brokers = std::iter::once(first).chain(std::iter::repeat(&*broker));
            let brokers: Vec<_> = brokers.take(views.len()).map(str::to_owned).collect();
            let wishes = plan.clients.iter().map(|(_, wishes)| wishes);
            let all = views.iter().zip(wishes).zip(brokers);
            try_join_all(
                all.map(|((view, wishes), of)| turn::turn(of, view, wishes, seconds, recorder)),
            )
        };
        let mut takes = Vec::new();
        let mut seen = match &farm {
            Some(farm) if args.take => tokio::select! {
                seen = turn_all(&broker) => seen?,
                error = take_hosts(farm, path, &args, &mut takes) => return Err(error),
            },
            _ => turn_all(&broker).await?,
        };
        let mut before = Vec::new();
        let link = match args.slow_mbit {
            Some(mbit) => Some(SlowLink::start(&broker, mbit).await?),
            None => None,
        };
        if let Some(link) = &link {
            before = std::mem::replace(&mut seen, turn_all(&link.address).await?);
        }
        if let Some(recorder) = recorder {
            recorder.end(&views)?;
        }
        let metrics = client.raw("/metrics").await?.text().await.context("no metrics")?;
        if let Some(farm) = farm {
            farm.shut_down().await;
        }
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

/// A broker and agents, with a volume to be turned.
async fn begin(path: &Path, args: &Args, plan: &Plan) -> anyhow::Result<Farm> {
    let volume = path.join("ripples.nrrd");
    let file = std::fs::File::create(&volume).context("cannot write a volume")?;
    let ripples = Volume::rippled(plan.side as usize)?;
    ripples.write_nrrd(std::io::BufWriter::new(file)).context("cannot write a volume")?;
    let (policy, listen) = (args.policy.as_deref(), !args.through_broker);
    let farm = Farm::start(path, args.agents, args.cores, args.memory_mib, policy, listen).await?;
    let chunk_mib = plan.chunk_mib.to_string();
    let volume = volume.display().to_string();
    let add = ["dataset", "add", &volume, "--name", DATASET, "--chunk-mib", &chunk_mib];
    farm.run(path, &add).await?;
    if !args.at_once {
        let client = Client::local(&farm.broker)?;
        let placed = timeout(PLACED_MAX, placed(&client, args.agents)).await;
        placed.context("hosts do not get their copies of the volume")??;
    }
    Ok(farm)
}

/// How long hosts may take until they have their copies of a volume, and how often they are asked.
const PLACED_MAX: Duration = Duration::from_secs(300);
const PLACED_LOOK: Duration = Duration::from_millis(100);

/// Waits until each chunk of the volume has its copies, as it has on a farm before somebody looks at it.
async fn placed(client: &Client, agents: u32) -> anyhow::Result<()> {
    loop {
        let volume: DatasetStatus = client.get(&format!("/v1/datasets/{DATASET}")).await?;
        let copies = usize::from(volume.copies).min(agents as usize);
        if volume.copied.iter().take(copies).all(|chunks| *chunks == 0) {
            return Ok(());
        }
        tokio::time::sleep(PLACED_LOOK).await;
    }
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
