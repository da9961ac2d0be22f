//! `gleaner broker backup`, `export` and `import`: data folders as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Cursor, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use futures_util::StreamExt;
use gleaner_broker::Moved;
use serde_json::json;
use tokio::sync::mpsc;

use crate::client::{Format, Options};
use crate::{process, show};

/// Pieces of a backup that have come and are not written yet.
const PIECES_MAX: usize = 16;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Copies everything that a running broker keeps into a new folder, which
    /// `gleaner broker --data-dir DIR` opens. What was acknowledged before is in it. The folder gets
    /// its name when it is whole.
    Backup {
        /// The new folder.
        dir: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// Writes everything that a stopped broker's folder holds into one file, which other releases
    /// import. Keep it as secret as the folder.
    Export {
        /// The new file.
        file: PathBuf,
        /// The folder.
        #[arg(
            long,
            env = "GLEANER_BROKER_DATA_DIR",
            default_value = "gleaner-data",
            value_name = "DIR"
        )]
        data_dir: PathBuf,
    },
    /// Makes a data folder of an exported file.
    Import {
        /// The file.
        file: PathBuf,
        /// The new folder.
        #[arg(
            long,
            env = "GLEANER_BROKER_DATA_DIR",
            default_value = "gleaner-data",
            value_name = "DIR"
        )]
        data_dir: PathBuf,
    },
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Backup { dir, options } => {
            let format = options.format();
            let moved = process::block_on(backup(&dir, &options))?;
            tell(&moved, &dir, format);
        }
        Command::Export { file, data_dir } => {
            let moved = export(&data_dir, &file)
                .with_context(|| format!("cannot export {}", data_dir.display()))?;
            tell(&moved, &file, Format::Table);
        }
        Command::Import { file, data_dir } => {
            anyhow::ensure!(
                !file.is_dir(),
                "{path} is a folder, not a file that `gleaner broker export` wrote; a backup is used \
                 as it is: `gleaner broker --data-dir {path}`",
                path = file.display()
            );
            let input = File::open(&file);
            let input = input.with_context(|| format!("cannot open {}", file.display()))?;
            let moved = gleaner_broker::import(BufReader::with_capacity(1 << 18, input), &data_dir)
                .with_context(|| format!("cannot import {}", file.display()))?;
            tell(&moved, &data_dir, Format::Table);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(moved: &Moved, to: &Path, format: Format) {
    let Moved { facts, outputs, blobs, bytes } = *moved;
    match format {
        Format::Json => show::json(
            &json!({ "to": to, "facts": facts, "outputs": outputs, "blobs": blobs, "bytes": bytes }),
        ),
        Format::Table => show::line(format!(
            "{}: {facts} facts, {outputs} outputs, {blobs} inputs and large outputs, {} MiB",
            to.display(),
            bytes.div_ceil(1 << 20)
        )),
    }
}

/// Into a draft beside it first: a kill leaves no half file under its name.
fn export(data_dir: &Path, file: &Path) -> anyhow::Result<Moved> {
    anyhow::ensure!(!file.exists(), "{} is there already: name another file", file.display());
    let mut draft = file.as_os_str().to_owned();
    draft.push(".partial");
    let draft = PathBuf::from(draft);
    let write = || -> anyhow::Result<Moved> {
        let mut options = OpenOptions::new();
        let out = options.write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let out = out.with_context(|| format!("cannot make {}", draft.display()))?;
        let mut out = BufWriter::with_capacity(1 << 18, out);
        let moved = gleaner_broker::export(data_dir, &mut out)?;
        out.flush().and_then(|()| out.get_ref().sync_all()).context("cannot write it")?;
        std::fs::rename(&draft, file).context("cannot name it")?;
        Ok(moved)
    };
    write().inspect_err(|_| {
        // The error that is told is the first one.
        let _ = std::fs::remove_file(&draft);
    })
}

async fn backup(dir: &Path, options: &Options) -> anyhow::Result<Moved> {
    let client = options.client()?;
    let mut stream = client.raw("/v1/backup").await?.bytes_stream();
    let (pieces, taken) = mpsc::channel(PIECES_MAX);
    let folder = dir.to_owned();
    let written = tokio::task::spawn_blocking(move || {
        let input = BufReader::with_capacity(1 << 18, Pieces { taken, piece: Cursor::default() });
        gleaner_broker::import(input, &folder)
    });
    while let Some(piece) = stream.next().await {
        // Without anyone to take it, it was refused, and says why below.
        let piece = piece.map(|piece| piece.to_vec()).map_err(io::Error::other);
        if pieces.send(piece).await.is_err() {
            break;
        }
    }
    drop(pieces);
    let moved = written.await.context("the backup was not written")?;
    moved.with_context(|| format!("no backup in {}", dir.display()))
}

/// What comes, as something to read.
struct Pieces {
    taken: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.piece.read(buffer)? {
                0 => match self.taken.blocking_recv() {
                    Some(piece) => self.piece = Cursor::new(piece?),
                    None => return Ok(0),
                },
                read => return Ok(read),
            }
        }
    }
}
