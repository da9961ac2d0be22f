//! A child process that ends with the command that started it, however that ends.
//!
//! # Invariants
//! - Dropping a child kills its whole process group and takes note of its end.
//! - A killed command takes its children with it: each asked the kernel for that as it started.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

/// Lines of a log that are shown when its process has failed.
const LOG_LINES: usize = 12;
/// How much of a log is looked at for them.
const LOG_BYTES_MAX: usize = 8 << 10;

/// A file that children log into.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A new one in `folder`.
    pub(crate) fn create(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let path = folder.join(name).with_extension("log");
        let mut append = OpenOptions::new();
        let opened = append.append(true).create(true).open(&path);
        let file = opened.with_context(|| format!("cannot make the log {}", path.display()))?;
        Ok(Self { path, file })
    }
}

/// A child process.
pub(crate) struct Child {
    name: String,
    log: PathBuf,
    process: tokio::process::Child,
    group: Pid,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process in a group of its own; stderr goes to the log.
    ///
    /// To be called on the main thread: the kernel ends the process when the thread that
    /// started it ends.
    pub(crate) fn start(name: &str, mut command: Command, log: &Log) -> anyhow::Result<Self> {
        let file = log.file.try_clone().context("cannot pass on a log")?;
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        end_with_parent(&mut command);
        let mut command = tokio::process::Command::from(command);
        let mut process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let group = process.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = group.expect("a process that nobody has waited for has its number");
        let stdout = process.stdout.take().map(BufReader::new);
        Ok(Self { name: name.into(), log: log.path.clone(), process, group, stdout })
    }

    /// Its number, which is its own as long as nobody has waited for it.
    pub(crate) fn pid(&self) -> i32 {
        self.group.as_raw_nonzero().get()
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        let Some(stdout) = &mut self.stdout else { bail!("{} prints nothing", self.name) };
        let mut line = String::new();
        match tokio::time::timeout(within, stdout.read_line(&mut line)).await {
            Ok(Ok(bytes)) if bytes > 0 => Ok(line.trim_end().to_owned()),
            Ok(_) => Err(self.trouble("ended before it was ready")),
            Err(_) => Err(self.trouble(&format!("was not ready within {} s", within.as_secs()))),
        }
    }

    /// Ends when the process has ended, which it should not have.
    pub(crate) async fn death(&mut self) -> anyhow::Error {
        match self.process.wait().await {
            Ok(status) => self.trouble(&format!("ended unexpectedly ({status})")),
            Err(_) => self.trouble("ended unexpectedly"),
        }
    }

    /// Waits for the process to end by itself; an error unless it succeeded.
    pub(crate) async fn success(mut self) -> anyhow::Result<()> {
        let status = self.status().await?;
        if status.success() { Ok(()) } else { Err(self.trouble(&format!("failed ({status})"))) }
    }

    /// As [`Child::success`]; the last line that it printed.
    pub(crate) async fn last_line(mut self) -> anyhow::Result<String> {
        let mut last = String::new();
        if let Some(stdout) = self.stdout.take() {
            let mut lines = stdout.lines();
            while let Some(line) = lines.next_line().await.context("cannot read what it prints")? {
                last = line;
            }
        }
        self.success().await.map(|()| last)
    }

    /// Asks it to end.
    pub(crate) fn ask_to_end(&self) {
        // One that has ended already is what we want.
        let _ = kill_process(self.group, Signal::TERM);
    }

    /// Waits until it has ended.
    pub(crate) async fn status(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.wait().await.with_context(|| format!("cannot wait for {}", self.name))
    }

    fn trouble(&self, what: &str) -> anyhow::Error {
        let text = fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_BYTES_MAX)..]);
        let lines: Vec<&str> = tail.lines().collect();
        let lines = &lines[lines.len().saturating_sub(LOG_LINES)..];
        let said = if lines.is_empty() { "it logged nothing".into() } else { lines.join("\n  ") };
        anyhow!("{} {what}; the end of its log:\n  {said}", self.name)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that was waited for has given its number away.
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = waitid(WaitId::Pid(self.group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = self.process.try_wait();
        }
    }
}

/// Has the kernel kill the process when the thread that starts it ends.
#[expect(unsafe_code, reason = "the death signal has to be asked for by the child itself")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call, and neither allocates nor
    // locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{PidfdFlags, pidfd_open};

    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Child) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let log = Log::create(folder.path(), "shell").expect("a log");
        let child = Child::start("shell", command, &log).expect("a shell");
        (folder, child)
    }

    #[tokio::test]
    async fn an_early_death_is_told_with_the_end_of_the_log() {
        let (_folder, mut child) = shell("echo no such port >&2; exit 3");
        let error = child.line(Duration::from_secs(10)).await.expect_err("it ends");
        let text = error.to_string();
        assert!(text.contains("shell ended before") && text.contains("no such port"), "{text}");
        assert!(child.success().await.expect_err("code 3").to_string().contains("exit status: 3"));
    }

    #[tokio::test]
    async fn the_last_line_is_the_answer() {
        let (_folder, child) = shell("echo one; echo two");
        assert_eq!(child.last_line().await.expect("it succeeds"), "two");
    }

    #[tokio::test]
    async fn dropping_it_ends_the_whole_group() {
        let (_folder, mut child) = shell("sleep 600 & echo $!; wait");
        let sleeper: i32 = child.line(Duration::from_secs(10)).await.unwrap().parse().unwrap();
        let sleeper = Pid::from_raw(sleeper).expect("a process");
        let watched = pidfd_open(sleeper, PidfdFlags::empty()).expect("it lives");
        drop(child);
        let mut ended = [PollFd::new(&watched, PollFlags::IN)];
        poll(&mut ended, None).expect("it ends");
    }
}
