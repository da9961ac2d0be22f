//! `gleaner dataset add`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use gleaner_protocol::api::{DatasetRequest, DatasetStatus, Me};
use gleaner_protocol::limits::COPIES_MAX;
use gleaner_protocol::{Chunk, DatasetKind, DatasetManifest, DatasetName, Digest, OwnerName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::partition::{Bricks, Made, Partition, Ranges};
use super::{path, print};
use crate::client::{Client, ClientError, Format, Options};
use crate::failure::Failure;
use crate::show;
use crate::submit::input::{NamedInput, OpenInput};

/// Bytes of all chunks that are in memory, in MiB: one that is made takes as much again.
const MEMORY_MIB: u32 = 128;
/// Chunks that are sent at once.
const SENT_AT_ONCE: usize = 4;

pub(super) const HELP: &str = "\
One volume (.nrrd, .nhdr, .nii, .nii.gz) becomes bricks, each an NRRD file of its own with a rim of \
voxels around its cells, and a coarse volume. So does a series with --time-steps. Another single file \
becomes byte ranges of --chunk-mib. Several files stay as they are, a chunk each. --kind says otherwise.

Example:
  gleaner dataset add head.nrrd --name head
  gleaner submit isosurface --dataset head --value 0.4

Exit codes:
  0  it is on the broker's disk
  2  a file cannot be used: nothing was named
  3  the broker cannot be reached
  5  the broker refused";

/// Splits files into chunks, uploads them, and gives them a name.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Its name, which no other dataset of the owner has.
    #[arg(long)]
    name: DatasetName,
    /// Whose it is.
    #[arg(long, env = "GLEANER_OWNER", default_value = "anonymous")]
    owner: OwnerName,
    /// About how large chunks are, in MiB.
    #[arg(long, default_value_t = 16, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    chunk_mib: u32,
    /// Hosts that are to have a copy of each chunk.
    #[arg(long, default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(COPIES_MAX)))]
    copies: u8,
    /// The files are volumes of one size, each a step of time.
    #[arg(long)]
    time_steps: bool,
    /// What the chunks are to be [default: by the files' names].
    #[arg(long, value_enum, conflicts_with = "time_steps")]
    kind: Option<Kind>,
    #[command(flatten)]
    options: Options,
}

/// What the datasets of whoever adds one may still take, where that is limited.
#[derive(Debug)]
struct Room {
    used: u64,
    most: Option<u64>,
    taken: AtomicU64,
}

impl Room {
    async fn of(client: &Client) -> anyhow::Result<Self> {
        let me: Me = client.get("/v1/me").await?;
        let used = me.dataset_bytes.unwrap_or(0);
        Ok(Self { used, most: me.dataset_bytes_max, taken: AtomicU64::new(0) })
    }

    /// So many bytes more come, before they are sent.
    fn take(&self, bytes: u64) -> Result<(), Failure> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match self.most {
            Some(most) if self.used.saturating_add(taken) > most => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                Err(Failure::Refused(format!(
                    "it has {} MiB or more, and your datasets have {} of {} MiB that they may: remove \
                     some (`gleaner dataset list`), or ask whoever runs the broker for more \
                     (`dataset_mib`)",
                    mib(taken),
                    mib(self.used),
                    most >> 20
                )))
            }
            _ => Ok(()),
        }
    }

    /// What was looked at was not sent.
    fn refill(&self) {
        self.taken.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Bricks of a volume.
    Bricks,
    /// Parts of one file.
    Ranges,
    /// Files as they are.
    Files,
}

impl Args {
    fn kind(&self) -> Kind {
        let default = match &self.files[..] {
            [file] if is_volume(file) => Kind::Bricks,
            [_] => Kind::Ranges,
            _ => Kind::Files,
        };
        if self.time_steps { Kind::Bricks } else { self.kind.unwrap_or(default) }
    }
}

/// Whether a file is a volume by its name.
fn is_volume(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    [".nrrd", ".nhdr", ".nii", ".nii.gz"].iter().any(|end| name.ends_with(end))
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.options.client()?;
    // Before all of it goes there for nothing.
    match client.get::<DatasetStatus>(&path(&args.name, Some(&args.owner))).await {
        Err(ClientError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(known) => {
            let (name, owner) = (&known.name, &known.owner);
            return Err(Failure::Usage(format!(
                "{owner} has a dataset {name} already: choose another name, or remove that one first \
                 (`gleaner dataset remove {name}`)"
            ))
            .into());
        }
    }
    let room = Room::of(&client).await?;
    for file in &args.files {
        // What cannot be looked at is told of below.
        room.take(std::fs::metadata(file).map_or(0, |of| of.len()))?;
    }
    room.refill();
    let kind = args.kind();
    let (files, chunk_bytes) = (args.files.clone(), args.chunk_mib << 20);
    let (kind, chunks) = match kind {
        Kind::Files => send_files(&client, &files, &room).await?,
        Kind::Bricks | Kind::Ranges => {
            let partition =
                tokio::task::spawn_blocking(move || partition(kind, files, chunk_bytes));
            let partition = partition.await.context("the files cannot be looked at")??;
            (partition.kind(), send(&client, partition, args.chunk_mib, &room).await?)
        }
    };
    let manifest = DatasetManifest { kind, chunks, copies: args.copies };
    manifest.check().map_err(|error| Failure::Usage(error.to_string()))?;
    let bytes = manifest.encode();
    let digest = Digest::of(&bytes);
    client.put_blob(digest, bytes).await?;
    let request = DatasetRequest { name: args.name, owner: args.owner, manifest: digest };
    let added: DatasetStatus = client.post("/v1/datasets", &request).await?;
    match args.options.format() {
        Format::Json => show::json(&added),
        Format::Table => print(&[added], Format::Table),
    }
    Ok(ExitCode::SUCCESS)
}

fn partition(kind: Kind, files: Vec<PathBuf>, chunk_bytes: u32) -> anyhow::Result<Partition> {
    if kind == Kind::Bricks {
        return Ok(Partition::Bricks(Box::new(Bricks::open(files, chunk_bytes as usize)?)));
    }
    match <[PathBuf; 1]>::try_from(files) {
        Ok([file]) => Ok(Partition::Ranges(Ranges::open(file, chunk_bytes.into())?)),
        Err(files) => {
            let count = files.len();
            Err(Failure::Usage(format!("ranges are of one file, and {count} are given")).into())
        }
    }
}

/// Makes chunks and sends them, a few at once; what they are, in order.
async fn send(
    client: &Client,
    partition: Partition,
    chunk_mib: u32,
    room: &Room,
) -> anyhow::Result<Vec<Chunk>> {
    let bar = show::progress(partition.count(), "chunks");
    let memory = Arc::new(Semaphore::new(MEMORY_MIB as usize));
    let (give, taken) = mpsc::channel::<(Made, OwnedSemaphorePermit)>(1);
    let maker = tokio::task::spawn_blocking(move || {
        let handle = tokio::runtime::Handle::current();
        partition.each(&mut |made| {
            // The one that is made next takes as much, and has to wait for its room.
            let permits = Arc::clone(&memory).acquire_many_owned(chunk_mib.min(MEMORY_MIB));
            let permit = handle.block_on(permits).expect("it is never closed");
            give.blocking_send((made, permit)).is_ok()
        })
    });
    let made = stream::unfold(taken, |mut taken| async {
        let made = taken.recv().await?;
        Some((made, taken))
    });
    let sent = made.map(|(Made { bytes, bounds }, permit)| {
        let (client, bar) = (client.clone(), bar.clone());
        async move {
            room.take(bytes.len() as u64)?;
            let (digest, length) = (Digest::of(&bytes), bytes.len() as u64);
            client.put_blob(digest, bytes).await?;
            drop(permit);
            bar.inc(1);
            Ok::<_, anyhow::Error>(Chunk { digest, bytes: length, bounds })
        }
    });
    let sent: anyhow::Result<Vec<Chunk>> = sent.buffered(SENT_AT_ONCE).try_collect().await;
    // What was wrong with a file comes before what that led to.
    maker.await.context("the files cannot be read")??;
    bar.finish_and_clear();
    sent
}

/// Sends files as they are.
async fn send_files(
    client: &Client,
    files: &[PathBuf],
    room: &Room,
) -> anyhow::Result<(DatasetKind, Vec<Chunk>)> {
    let bar = show::progress(files.len() as u64, "files");
    let (mut names, mut chunks) = (Vec::new(), Vec::new());
    for file in files {
        let input = NamedInput::of_path(file)?;
        let opened = tokio::task::spawn_blocking(move || OpenInput::open(&input));
        let opened = opened.await.context("a file cannot be read")??;
        room.take(opened.bytes())?;
        let described = opened.described();
        names.push(described.name);
        chunks.push(Chunk { digest: described.digest, bytes: opened.bytes(), bounds: None });
        opened.upload(client).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((DatasetKind::Files { names }, chunks))
}
