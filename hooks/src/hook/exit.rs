//! How a hook's process ends: in time, with 0, and without waiting for whoever reads its stderr.

use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use gleaner_protocol::farm::HookKind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{HookInvocation, run_and_tell};
use crate::RunDir;
use crate::limits::{LAST_STOP, STACK_BYTES, WATCHER_STACK_BYTES};

/// Runs the hook and ends the process with exit code 0, within the invocation's deadline
/// whatever hangs. Says in one line on stderr what went wrong.
pub fn run_to_exit(invocation: HookInvocation) -> ! {
    outlive_file_limits();
    // The report has the one line that a panic is worth here.
    std::panic::set_hook(Box::new(|_| {}));
    let invocation = invocation.bounded();
    let (at_end, end) = channel::<()>();
    let deadline = invocation.deadline;
    let is_preflight = invocation.kind == HookKind::Preflight;
    let is_free = Arc::new(AtomicBool::new(!is_preflight));
    let (seen_free, run_dir) = (Arc::clone(&is_free), invocation.run_dir.clone());
    // Without a watchdog (no thread to be had) the hook's own bounds must do.
    let watcher = thread::Builder::new().name("deadline".into()).stack_size(WATCHER_STACK_BYTES);
    let _ = watcher.spawn(move || {
        if end.recv_timeout(deadline.into()) == Err(RecvTimeoutError::Timeout) {
            let mut line = format!("gleaner hook: given up after {deadline}: something hangs");
            if !seen_free.load(Ordering::Acquire) {
                line.push_str(stop_at_last(run_dir));
            }
            say(&line);
            exit(0);
        }
    });
    let report = run_and_tell(&invocation, &is_free);
    if let Some(line) = report.trouble_line(invocation.kind) {
        say(&line);
    }
    drop(at_end);
    exit(0)
}

/// A farm manager may hand on a job's limits: a file that may not grow is then a trouble like any
/// other, and not the end of us before anything is stopped.
#[expect(unsafe_code, reason = "a call without a safe wrapper in our dependencies")]
fn outlive_file_limits() {
    // SAFETY: the call takes two numbers; to ignore a signal installs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Stops the recorded groups where the hook itself has not come to it; says what came of that.
/// What hangs there may hang here as well, so it is not waited for beyond [`LAST_STOP`].
fn stop_at_last(run_dir: PathBuf) -> &'static str {
    let (done, stopped) = channel();
    let stopper = thread::Builder::new().name("last-stop".into()).stack_size(STACK_BYTES as usize);
    let stopping = stopper.spawn(move || {
        let report = RunDir::open(run_dir).map(|folder| folder.stop_groups());
        let _ = done.send(report.is_ok_and(|report| report.troubles.is_empty()));
    });
    match stopping.map(|_| stopped.recv_timeout(LAST_STOP.into())) {
        Ok(Ok(true)) => "; what was recorded was stopped",
        Ok(Ok(false)) => "; not all that was recorded could be stopped",
        Ok(Err(_)) | Err(_) => "; what was recorded could not be stopped in time",
    }
}

/// Writes a line to stderr if that needs no waiting: a pipe that is ready has room for a line.
/// What cannot be written is not said.
pub fn say(line: &str) {
    let stderr = std::io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    if matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(&stderr, format!("{line}\n").as_bytes());
    }
}
