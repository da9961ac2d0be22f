//! A child of this process that it has not forked itself.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::limits::DIE_PAUSE_MS;

/// It is killed and waited for when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Tells of its end; none where this kernel has no such thing, or no more of them.
    handle: Option<AsyncFd<OwnedFd>>,
    is_reaped: bool,
}

impl Child {
    /// The child of this number, for which nobody has waited yet. To be called on a runtime.
    #[expect(unsafe_code, reason = "tokio cannot see for itself that a handle stays open")]
    pub(super) fn of(pid: Pid) -> Self {
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok();
        // SAFETY: an `OwnedFd` is open, and always says the same number, until the `AsyncFd` that
        // owns it is dropped.
        let register = |fd| unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        let handle = handle.and_then(|handle| register(handle).ok());
        Self { pid, handle, is_reaped: false }
    }

    /// Its number, which is nobody else's until it was waited for.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG)? {
                self.is_reaped = true;
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            match &self.handle {
                // It stays readable from the end on.
                Some(handle) => drop(handle.readable().await?),
                None => tokio::time::sleep(Duration::from_millis(DIE_PAUSE_MS)).await,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        let _ = kill_process(self.pid, Signal::KILL);
        let pid = self.pid;
        // It may take its time to die, and nobody here is to wait for that.
        let reaper = thread::Builder::new().name("reap-runner".into()).stack_size(64 << 10);
        let _ = reaper.spawn(move || waitpid(Some(pid), WaitOptions::empty()));
    }
}
