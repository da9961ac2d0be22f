//! The process that looks at a GPU while an agent may use it. Each byte on its standard input is a
//! question, each line of its standard output an answer.
//!
//! It is a process because libraries of drivers hang and crash as drivers do, and it waits to be
//! asked so that it does nothing while there is nothing to decide: to be looked at keeps some GPUs
//! from sleeping.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::exit;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::owner::wishes::GpuSight;

/// The argument that makes an executable such a process; the GPU's PCI address follows, and perhaps
/// the library that tells of it.
pub(super) const WATCH_ARGUMENT: &str = "__gpu_watch";

/// What is said to a question. After all but the first kind it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// What it looks like.
    Seen(GpuSight),
    /// There is nothing here that tells, and why.
    Absent(String),
    /// It cannot be told now, and why.
    Failed(String),
}

/// What the agent asks.
pub(super) struct Questions {
    stdin: io::Stdin,
    stdout: io::Stdout,
}

impl Questions {
    /// Waits for the next one.
    pub(super) fn next(&mut self) -> io::Result<()> {
        self.stdin.read_exact(&mut [0])
    }

    /// Answers it.
    pub(super) fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer).expect("our own types serialise");
        line.push(b'\n');
        self.stdout.write_all(&line)?;
        self.stdout.flush()
    }
}

/// Answers questions if this process was started for that; returns otherwise.
pub(crate) fn watch_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|argument| argument != WATCH_ARGUMENT) {
        return;
    }
    // One that hangs does not see that its input has ended.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let address = arguments.next().and_then(|address| address.into_string().ok());
    let library: Option<OsString> = arguments.next();
    let mut questions = Questions { stdin: io::stdin(), stdout: io::stdout() };
    let library = library.as_deref().map(Path::new);
    let ended = answer(&address.unwrap_or_default(), library, &mut questions);
    // At once: what a library does at an end in order is nobody's concern.
    exit(i32::from(ended.is_err()))
}

#[cfg(feature = "gpu")]
use super::nvml::answer;

#[cfg(not(feature = "gpu"))]
fn answer(_: &str, _: Option<&Path>, questions: &mut Questions) -> io::Result<()> {
    questions.next()?;
    questions.answer(&Answer::Absent("this program was built without GPUs".into()))
}
