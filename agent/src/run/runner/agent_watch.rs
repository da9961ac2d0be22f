//! What ties a runner to its agent's life.
//!
//! The runner's standard output is the reading end of a pipe that nobody ever writes to; the
//! agent holds the other end. When the agent ends, however it does, the kernel itself kills the
//! runner's whole group: no thread of ours has to be awake, scheduled or unfrozen for that.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Ties this process's group to `pipe`. Calls `end` instead where the agent is gone already.
///
/// Where the kernel does not do it for us, a thread waits for it.
pub(super) fn tie(pipe: OwnedFd, end: fn() -> !) {
    let armed = arm(&pipe).is_ok();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if has_hung_up(&pipe, Some(&at_once)) {
        end();
    }
    if armed {
        // The signal comes only as long as it is open: to the end of this process.
        std::mem::forget(pipe);
        return;
    }
    let watcher = thread::Builder::new().name("watch-agent".into()).stack_size(64 << 10);
    let _ = watcher.spawn(move || {
        while !has_hung_up(&pipe, None) {}
        end()
    });
}

/// Has the kernel send SIGKILL to our group when the other end closes: the one thing that ever
/// happens on this pipe. rustix has none of these three.
#[expect(unsafe_code, reason = "no safe wrapper in our dependencies")]
fn arm(pipe: &OwnedFd) -> io::Result<()> {
    let group = rustix::process::getpgrp().as_raw_nonzero().get();
    let fd = pipe.as_raw_fd();
    // SAFETY: `fd` is open for the time of the calls, which take and return plain numbers.
    let refused = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, -group) < 0
            || libc::fcntl(fd, F_SETSIG, libc::SIGKILL) < 0
            || libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC) < 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From the kernel's `fcntl.h`.
const F_SETSIG: libc::c_int = 10;

/// Whether the other end is closed, after waiting for it at most so long.
fn has_hung_up(pipe: &OwnedFd, wait: Option<&Timespec>) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::empty())];
    let polled = poll(&mut fds, wait);
    polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}
