//! Ends a booking when a process has ended, for managers that say nothing after a render.
//!
//! The hook starts the same binary again as `gleaner hook watch MESSAGE`, in a session of its own
//! and with nothing inherited. That process sleeps until the render's is gone, however it went,
//! and does then what a postflight does. A postflight that comes all the same changes nothing.
//!
//! # Invariants
//! - A number that was given to another process meanwhile is not mistaken for the render's.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use gleaner_protocol::farm::HookKind;
use gleaner_protocol::{BookingId, HostName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::process_group::ProcessStat;
use crate::{Environment, Farm, HookInvocation, detached, run_to_exit, say};

/// A booking that lasts as long as a process: the argument of `gleaner hook watch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndWatch {
    /// The process.
    pid: i32,
    /// When it started, in clock ticks since the machine booted.
    start_ticks: u64,
    /// The booking.
    booking: BookingId,
    /// The host's run folder.
    run_dir: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<HostName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    monitor_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
}

impl EndWatch {
    /// Of a process that runs now.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn of(
        pid: i32,
        booking: BookingId,
        host: Option<HostName>,
        invocation: &HookInvocation,
    ) -> io::Result<Self> {
        let stat = ProcessStat::of(pid)?;
        if pid <= 1 || stat.is_dead() {
            return Err(io::Error::other("it has ended"));
        }
        Ok(Self {
            pid,
            start_ticks: stat.start_ticks,
            booking,
            run_dir: std::path::absolute(&invocation.run_dir)?,
            host,
            monitor_url: invocation.monitor_url.clone(),
            token_file: invocation.monitor_token_file.clone(),
            ca_file: invocation.monitor_ca_file.clone(),
        })
    }

    /// Starts the process that watches.
    pub(crate) fn spawn(&self, command: &[OsString]) -> io::Result<()> {
        let message = serde_json::to_string(self).expect("our own types serialise");
        detached::spawn(command, &message)
    }

    /// Sleeps until the process has ended.
    fn wait(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let stat = ProcessStat::of(self.pid);
        if !stat.is_ok_and(|stat| stat.start_ticks == self.start_ticks) {
            return;
        }
        while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {}
    }

    /// The postflight.
    fn invocation(self) -> HookInvocation {
        let mut invocation = HookInvocation::new(HookKind::Postflight, Farm::Generic, self.run_dir);
        invocation.environment = Environment::from_iter([("GLEANER_BOOKING", self.booking)]);
        invocation.host = self.host;
        invocation.monitor_url = self.monitor_url;
        invocation.monitor_token_file = self.token_file;
        invocation.monitor_ca_file = self.ca_file;
        invocation
    }
}

/// Waits for the end of the process that `argument` names, ends its booking, and ends this
/// process with 0. `notify_command` as in [`HookInvocation`].
pub fn watch_to_exit(argument: &str, notify_command: Option<Vec<OsString>>) -> ! {
    match serde_json::from_str::<EndWatch>(argument) {
        Ok(watch) => {
            watch.wait();
            run_to_exit(HookInvocation { notify_command, ..watch.invocation() })
        }
        Err(error) => {
            say(&format!("gleaner hook watch: the argument is none of this release: {error}"));
            std::process::exit(0)
        }
    }
}
