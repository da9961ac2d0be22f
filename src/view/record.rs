//! What is wanted of a view, written into a file as it is said: see [`gleaner_protocol::RecordingLine`].

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use gleaner_protocol::limits::{
    VIEW_RECORDING_BYTES_MAX, VIEW_RECORDING_S_MAX, VIEW_WISH_BYTES_MAX,
};
use gleaner_protocol::{
    RecordedVolume, RecordingHead, RecordingLine, RecordingStep, Span, Time,
    VIEW_RECORDING_VERSION, ViewState, ViewStatus, boottime,
};

use crate::client::{Client, ClientError};
use crate::{show, wait};

/// How long a stream of states is waited for that breaks off, before it is asked for again.
const PAUSE: Duration = Duration::from_millis(200);
/// How often what was written is on its way to the disk.
const FLUSH: Duration = Duration::from_secs(1);

/// A file that is being written.
pub(crate) struct Recording {
    path: PathBuf,
    file: BufWriter<File>,
    begun: Time,
    bytes: u64,
}

/// Whether there is room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Left,
    None,
}

impl Recording {
    /// Begins a new file.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create_new(path);
        let file = file.with_context(|| format!("cannot make a new file {}", path.display()))?;
        let (file, begun) = (BufWriter::new(file), boottime());
        let mut recording = Self { path: path.into(), file, begun, bytes: 0 };
        let head = RecordingHead { gleaner_views: VIEW_RECORDING_VERSION };
        recording.line(&serde_json::to_string(&head)?)?;
        recording.flush()?;
        Ok(recording)
    }

    /// Writes down what happened to a view now, where there is room for it.
    pub(crate) fn note(&mut self, view: u32, what: RecordingStep) -> anyhow::Result<Room> {
        let at = boottime().since(self.begun);
        let line = serde_json::to_string(&RecordingLine::new(at, view, what))?;
        // What closes it finds room in any case.
        let kept = 2 * VIEW_WISH_BYTES_MAX as u64;
        let is_full = self.bytes + line.len() as u64 + kept > VIEW_RECORDING_BYTES_MAX;
        if is_full || at >= Span::from_secs(VIEW_RECORDING_S_MAX) {
            return Ok(Room::None);
        }
        self.line(&line)?;
        Ok(Room::Left)
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        self.bytes += line.len() as u64 + 1;
        writeln!(self.file, "{line}").with_context(|| self.trouble())
    }

    /// Has all that was written read by others.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.file.flush().with_context(|| self.trouble())
    }

    fn trouble(&self) -> String {
        format!("cannot write {}", self.path.display())
    }
}

/// Writes down what the client of a view wants to see, until the view ends, the file is full, or `stopped`.
/// A broker may be away for a while.
pub(crate) async fn follow(
    client: &Client,
    view: ViewStatus,
    recording: &mut Recording,
    stopped: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let name = view.view.clone();
    recording.note(0, RecordingStep::Opened(RecordedVolume::from(view)))?;
    recording.flush()?;
    let followed = tokio::select! {
        () = stopped => Ok(()),
        followed = follow_on(client, &name, recording) => followed,
    };
    let at = boottime().since(recording.begun).min(Span::from_secs(VIEW_RECORDING_S_MAX));
    let closed = RecordingLine::new(at, 0, RecordingStep::Closed);
    recording.line(&serde_json::to_string(&closed)?)?;
    recording.flush()?;
    followed
}

async fn follow_on(client: &Client, name: &str, recording: &mut Recording) -> anyhow::Result<()> {
    let mut is_away = false;
    loop {
        match states(client, name, recording, &mut is_away).await {
            Ok(Room::Left) => {}
            Ok(Room::None) => {
                let mib = VIEW_RECORDING_BYTES_MAX >> 20;
                show::note(format_args!("the recording ends: it may have {mib} MiB and a day"));
                return Ok(());
            }
            Err(error) if matches!(error.downcast_ref(), Some(ClientError::NotFound(_))) => {
                return Ok(());
            }
            Err(error) if wait::is_passing(&error) => {
                if !std::mem::replace(&mut is_away, true) {
                    show::note(format_args!("waiting for the broker to come back: {error}"));
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Writes down states as long as the broker tells them.
async fn states(
    client: &Client,
    name: &str,
    recording: &mut Recording,
    is_away: &mut bool,
) -> anyhow::Result<Room> {
    let mut told = client.raw(&format!("/v1/views/{name}/states")).await?.bytes_stream();
    if std::mem::take(is_away) {
        show::note(format_args!("the broker is back"));
    }
    let mut flush = tokio::time::interval(FLUSH);
    let mut rest = Vec::new();
    loop {
        let bytes = tokio::select! {
            bytes = told.next() => bytes,
            _ = flush.tick() => {
                recording.flush()?;
                continue;
            }
        };
        let Some(Ok(bytes)) = bytes else { return Ok(Room::Left) };
        rest.extend_from_slice(&bytes);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if let Some(missed) = line.strip_prefix(b": ".as_slice())
                && missed.ends_with(b"missed\n")
            {
                show::note(format_args!("{}", String::from_utf8_lossy(missed).trim_end()));
            }
            let Some(state) = line.strip_prefix(b"data:".as_slice()) else { continue };
            let state: ViewState = serde_json::from_slice(state)
                .context("the broker tells states that this program does not know")?;
            if recording.note(0, RecordingStep::Wants(Box::new(state)))? == Room::None {
                return Ok(Room::None);
            }
        }
        if rest.len() > 2 * VIEW_WISH_BYTES_MAX {
            bail!("the broker tells a state that is too long: is it a broker of Gleaner?");
        }
    }
}
