//! How a hook's process ends: in time, with 0, and without waiting for whoever reads its stderr.

use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{HookInvocation, run};

/// Runs the hook and ends the process with exit code 0, within the invocation's deadline
/// whatever hangs. Says in one line on stderr what went wrong.
pub fn run_to_exit(invocation: &HookInvocation) -> ! {
    // The report has the one line that a panic is worth here.
    std::panic::set_hook(Box::new(|_| {}));
    let (at_end, end) = channel::<()>();
    let deadline = invocation.deadline;
    // Without a watchdog (no thread to be had) the hook's own bounds must do.
    let _ = thread::Builder::new().name("deadline".into()).spawn(move || {
        if end.recv_timeout(deadline.into()) == Err(RecvTimeoutError::Timeout) {
            say(&format!("gleaner hook: given up after {deadline}: something hangs"));
            exit(0);
        }
    });
    let report = run(invocation);
    if let Some(line) = report.trouble_line(invocation.kind) {
        say(&line);
    }
    drop(at_end);
    exit(0)
}

/// Writes a line to stderr if that needs no waiting: a pipe that is ready has room for a line.
fn say(line: &str) {
    let stderr = std::io::stderr();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    if matches!(poll(&mut fds, Some(&now)), Ok(1)) && fds[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(&stderr, format!("{line}\n").as_bytes());
    }
}
