//! Running a command: its folder, its environment, its end.

use std::io::{self, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use gleaner_protocol::limits::BLOB_BYTES_MAX;
use gleaner_protocol::{Content, Digest};

use super::capture::{CaptureError, Printed, capture};
use super::children_cpu::children_cpu_us;
use super::folder::TaskFolder;
use super::outputs::{Collector, copy_hashed};
use super::substitute::substitute;
use super::sweep::end_descendants;
use super::{CommandOrder, Reply};
use crate::harvest::Product;

/// Where a command finds the programs that it starts itself.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a command has no output.
enum Trouble {
    /// Its own doing.
    Failed(String),
    /// This host's.
    CannotRun(String),
}

/// Runs one command to its end, and everything that it started.
pub(super) fn run(folder: &mut TaskFolder, collector: &Collector, order: &CommandOrder) -> Reply {
    let cpu_before = children_cpu_us();
    let outcome = attempt(folder, collector, order);
    let cpu_us = children_cpu_us().saturating_sub(cpu_before);
    folder.clear();
    match outcome {
        Ok(files) => Reply::Done { files, cpu_us },
        Err(Trouble::Failed(reason)) => Reply::Failed { reason, cpu_us },
        Err(Trouble::CannotRun(reason)) => Reply::CannotRun(reason),
    }
}

fn attempt(
    folder: &mut TaskFolder,
    collector: &Collector,
    order: &CommandOrder,
) -> Result<Vec<Product>, Trouble> {
    let path = folder
        .enter()
        .map_err(|error| Trouble::CannotRun(format!("cannot make a task's folder: {error}")))?;
    for input in &order.inputs {
        stage(&input.source, &path.join(&input.name), input.digest)
            .map_err(|reason| Trouble::CannotRun(format!("input {:?}: {reason}", input.name)))?;
    }
    let mut child = spawn(path, order)?;
    let printed = capture(&mut child, || collector.spool_file(order.token, "stdout"));
    if printed.is_err() {
        // It has ended already, or this ends it.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| Trouble::Failed(format!("cannot wait: {error}")))?;
    let swept = end_descendants();
    let printed = printed.map_err(|error| match error {
        CaptureError::TooLong => {
            Trouble::Failed(format!("it printed more than {BLOB_BYTES_MAX} bytes"))
        }
        CaptureError::Io(error) => Trouble::Failed(format!("cannot read what it prints: {error}")),
    })?;
    if !swept {
        return Err(Trouble::Failed("it left processes behind that cannot be ended".into()));
    }
    if !status.success() {
        return Err(Trouble::Failed(describe(status, &printed.stderr)));
    }
    let mut files = vec![keep_stdout(printed)?];
    for name in &order.outputs {
        files.push(
            collector.keep_file(order.token, &path.join(name), name).map_err(Trouble::Failed)?,
        );
    }
    Ok(files)
}

fn stage(source: &Path, target: &Path, digest: Digest) -> Result<(), String> {
    let found = copy_hashed(source, target).map_err(|error| error.to_string())?;
    if found == digest {
        Ok(())
    } else {
        Err(format!("the cached file is damaged: it holds {found}, not {digest}"))
    }
}

fn spawn(folder: &Path, order: &CommandOrder) -> Result<Child, Trouble> {
    let index = order.index.to_string();
    let item = order.item.as_deref().unwrap_or(&index);
    let arguments = order.arguments.iter().map(|argument| substitute(argument, &index, item));
    // No `pre_exec`: it would make the standard library fork where it can do better.
    Command::new(&order.program)
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .env("GLEANER_INDEX", &index)
        .env("GLEANER_ITEM", item)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            let reason = format!("cannot start {}: {error}", order.program.display());
            match error.kind() {
                // Too many or impossible arguments: no host could start it.
                io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
                    Trouble::Failed(reason)
                }
                _ => Trouble::CannotRun(reason),
            }
        })
}

fn keep_stdout(printed: Printed) -> Result<Product, Trouble> {
    let name = "stdout".to_owned();
    let Some(mut file) = printed.overflow else {
        return Ok(Product { name, content: Content::Inline(printed.head) });
    };
    let mut address = || {
        file.rewind()?;
        Ok((Digest::of_reader(&mut file)?, file.metadata()?.len()))
    };
    let (digest, bytes) = address()
        .map_err(|error: io::Error| Trouble::Failed(format!("cannot keep its output: {error}")))?;
    Ok(Product { name, content: Content::Stored { digest, bytes } })
}

fn describe(status: ExitStatus, stderr: &str) -> String {
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was ended by signal {signal}"),
        (None, None) => "it ended without a status".into(),
    };
    if stderr.is_empty() { end } else { format!("{end}; standard error ends: {stderr}") }
}
