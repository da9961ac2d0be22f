//! `gleaner dataset`.

mod add;
mod partition;

use std::process::ExitCode;

use gleaner_protocol::api::{ChunkStatus, DatasetStatus};
use gleaner_protocol::{DatasetName, OwnerName, Reads};

use crate::client::{Client, ClientError, Format, Options};
use crate::{process, show};

/// Chunks in one answer.
const PAGE: usize = 2_048;

/// Datasets: large data in chunks, of which hosts keep copies, and beside which jobs run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Splits files into chunks and uploads them, under a name.
    #[command(after_help = add::HELP)]
    Add(add::Args),
    /// Lists the datasets.
    List {
        #[command(flatten)]
        options: Options,
    },
    /// Shows one, and how many hosts have copies of its chunks.
    Show {
        /// Its name.
        name: DatasetName,
        /// Lists its chunks, and the hosts that have copies of each.
        #[arg(long)]
        chunks: bool,
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        options: Options,
    },
    /// Removes one. Jobs that read it go on; its copies and chunks go when they have ended.
    Remove {
        /// Its name.
        name: DatasetName,
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        options: Options,
    },
}

/// Whose dataset is meant.
#[derive(Debug, clap::Args)]
struct Whose {
    /// Whose it is, where several owners have one of this name.
    #[arg(long, env = "GLEANER_OWNER")]
    owner: Option<OwnerName>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Add(args) => process::block_on(add::run(args)),
        What::List { options } => {
            options.show("/v1/datasets", |all: &Vec<DatasetStatus>| print(all, Format::Table))
        }
        What::Show { name, chunks: false, whose, options } => {
            options.show(&path(&name, whose.owner.as_ref()), print_one)
        }
        What::Show { name, chunks: true, whose, options } => process::block_on(async {
            let chunks = all_chunks(&options.client()?, &name, whose.owner.as_ref()).await?;
            print_chunks(&chunks, options.format());
            Ok(ExitCode::SUCCESS)
        }),
        What::Remove { name, whose, options } => process::block_on(async {
            let path = path(&name, whose.owner.as_ref());
            let removed: DatasetStatus = options.client()?.delete(&path).await?;
            print(&[removed], options.format());
            Ok(ExitCode::SUCCESS)
        }),
    }
}

/// Where a dataset is found.
fn path(name: &DatasetName, owner: Option<&OwnerName>) -> String {
    let owner = owner.map(|owner| format!("?owner={}", in_a_query(owner.as_str())));
    format!("/v1/datasets/{name}{}", owner.unwrap_or_default())
}

/// A name in a query: of the letters that names have, `+` alone means something else there.
fn in_a_query(name: &str) -> String {
    name.replace('+', "%2B")
}

/// What a job reads that has a workunit for each chunk of a dataset, and how many these are.
pub(crate) async fn reads(
    client: &Client,
    name: &DatasetName,
    owner: &OwnerName,
) -> Result<(Reads, DatasetStatus), ClientError> {
    let status: DatasetStatus = client.get(&path(name, Some(owner))).await?;
    Ok((Reads { dataset: status.id, chunk_bytes: status.chunk_bytes, first: 0 }, status))
}

/// All its chunks, page by page.
pub(crate) async fn all_chunks(
    client: &Client,
    name: &DatasetName,
    owner: Option<&OwnerName>,
) -> Result<Vec<ChunkStatus>, ClientError> {
    let owner = owner.map(|owner| format!("&owner={}", in_a_query(owner.as_str())));
    let owner = owner.unwrap_or_default();
    let mut chunks: Vec<ChunkStatus> = Vec::new();
    loop {
        let from = chunks.len();
        let path = format!("/v1/datasets/{name}/chunks?from={from}&limit={PAGE}{owner}");
        let page: Vec<ChunkStatus> = client.get(&path).await?;
        if page.is_empty() {
            return Ok(chunks);
        }
        chunks.extend(page);
    }
}

/// Prints datasets as a table or as JSON.
fn print(all: &[DatasetStatus], format: Format) {
    if format == Format::Json {
        return show::json(&all);
    }
    let header = ["dataset", "owner", "kind", "chunks", "MiB", "copies", "made"];
    let rows = all.iter().map(|of| {
        [
            show::name(of.name.as_str()),
            show::name(of.owner.as_str()),
            kind(of),
            of.chunks.to_string(),
            mib(of.bytes),
            of.copies.to_string(),
            show::time(of.made_ms),
        ]
    });
    show::table(header, rows.collect());
}

fn print_one(of: &DatasetStatus) {
    print(std::slice::from_ref(of), Format::Table);
    let hosts = |count: usize| match count {
        0 => "no host".to_owned(),
        1 => "1 host".to_owned(),
        count => format!("{count} hosts"),
    };
    let copied = of.copied.iter().enumerate().filter(|(_, chunks)| **chunks > 0);
    for (count, chunks) in copied {
        show::line(format_args!("{chunks} chunks: copies on {}", hosts(count)));
    }
    show::line(format_args!("manifest {}", of.manifest));
}

fn print_chunks(chunks: &[ChunkStatus], format: Format) {
    if format == Format::Json {
        return show::json(&chunks);
    }
    let header = ["chunk", "file", "bytes", "values", "copies on"];
    let rows = chunks.iter().map(|of| {
        let hosts: Vec<String> = of.hosts.iter().map(ToString::to_string).collect();
        let values = of.bounds.map(|[low, high]| format!("{low} to {high}"));
        [
            of.index.to_string(),
            show::name(&of.name),
            of.bytes.to_string(),
            values.unwrap_or_default(),
            hosts.join(", "),
        ]
    });
    show::table(header, rows.collect());
}

fn kind(of: &DatasetStatus) -> String {
    let Some([x, y, z]) = of.size else { return of.kind.clone() };
    let steps = of.steps.filter(|steps| *steps > 1).map(|steps| format!(", {steps} steps"));
    format!("{} of {x}x{y}x{z}{}", of.kind, steps.unwrap_or_default())
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
