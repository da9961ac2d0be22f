//! A child of this process that it has not forked itself.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// It is killed and waited for when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    handle: AsyncFd<OwnedFd>,
    is_reaped: bool,
}

impl Child {
    /// The child of this number, for which nobody has waited yet.
    #[expect(unsafe_code, reason = "tokio cannot see for itself that a handle stays open")]
    pub(super) fn of(pid: Pid) -> io::Result<Self> {
        let handle = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // SAFETY: an `OwnedFd` is open, and always says the same number, until the `AsyncFd` that
        // owns it is dropped.
        let handle = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
        Ok(Self { pid, handle, is_reaped: false })
    }

    /// Its number, which is nobody else's until it was waited for.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            let mut ready = self.handle.readable().await?;
            if let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG)? {
                self.is_reaped = true;
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            ready.clear_ready();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        let pid = self.pid;
        // It may take its time to die, and nobody here is to wait for that.
        let reaper = thread::Builder::new().name("reap-runner".into()).stack_size(64 << 10);
        let _ = reaper.spawn(move || waitpid(Some(pid), WaitOptions::empty()));
    }
}
