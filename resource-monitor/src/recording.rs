//! The recording of a farm: what the monitor hears and decides, written down to be replayed.
//!
//! ```text
//!  Driver ──lines──► Tape ──batches──► thread ──► RecordFile: FILE, FILE.1, FILE.2, …
//! ```
//!
//! What a line says is defined in [`gleaner_protocol::recording`].
//!
//! # Invariants
//! - The monitor never waits for the disk: what cannot be written in time is counted and left
//!   out, except that the newest state of each host is always written in the end.
//! - Each batch is one write of whole lines. A kill tears the last line at most.

mod file;
mod scribe;
mod tape;

pub use scribe::Scribe;

pub(crate) use tape::Tape;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use gleaner_protocol::boottime;
use tracing::warn;

use self::file::RecordFile;
use crate::Rules;
use crate::limits::SHUTDOWN_TIMEOUT;
use crate::metrics::Metrics;

/// The thread that writes, until this is dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    tape: Arc<Tape>,
    /// Says, by its end, that the thread has written everything.
    ended: Receiver<()>,
}

impl Recorder {
    /// Opens the file, writes the beginning, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn start(
        path: &Path,
        rules: &Rules,
        tape: Arc<Tape>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, io::Error> {
        let mut file = RecordFile::open(path, scribe::head(boottime(), rules))?;
        let (alive, ended) = channel();
        let waiting = tape.clone();
        let write = move || {
            // Dropped with the thread.
            let _alive = alive;
            let mut failing = false;
            while let Some(batch) = waiting.take() {
                let lines = batch.len() as u64;
                match file.write(batch) {
                    Ok(()) => {
                        metrics.recorded_lines.inc_by(lines);
                        failing = false;
                    }
                    Err(error) => {
                        metrics.lost_lines.inc_by(lines);
                        if !std::mem::replace(&mut failing, true) {
                            warn!(%error, "the recording has a gap");
                        }
                    }
                }
            }
        };
        std::thread::Builder::new().name("recorder".into()).spawn(write)?;
        Ok(Self { tape, ended })
    }
}

impl Drop for Recorder {
    /// What was heard is written, unless the disk hangs.
    fn drop(&mut self) {
        self.tape.close();
        // An error says that the thread has ended or that the disk hangs: either way it is over.
        let _ = self.ended.recv_timeout(SHUTDOWN_TIMEOUT.into());
    }
}
