//! The file of metrics that a node exporter reads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gleaner_protocol::error_chain;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Metrics;
use crate::limits::METRICS_FILE_INTERVAL;
use crate::replace_file::replace_file_for_all;

/// Keeps the file as new as [`METRICS_FILE_INTERVAL`] has it. Where it cannot be written that is
/// said once, and once more when it can.
pub(crate) async fn keep_file(path: PathBuf, metrics: Arc<Metrics>) {
    let mut fails = false;
    let mut written = String::new();
    loop {
        let text = metrics.text();
        if text != written {
            match write(path.clone(), text.clone()).await {
                Ok(()) => {
                    if std::mem::take(&mut fails) {
                        info!("metrics are written to {} again", path.display());
                    }
                    written = text;
                }
                Err(error) if !std::mem::replace(&mut fails, true) => say(&path, &error),
                Err(_) => {}
            }
        }
        sleep(METRICS_FILE_INTERVAL).await;
    }
}

async fn write(path: PathBuf, text: String) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || replace_file_for_all(&path, text.as_bytes()));
    written.await.map_err(io::Error::other)?
}

fn say(path: &Path, error: &io::Error) {
    warn!(
        "cannot write metrics_file {}: {}; the agent's user has to be allowed to write its folder, \
         and the agent's unit names the folder in ReadWritePaths=",
        path.display(),
        error_chain(error),
    );
}
