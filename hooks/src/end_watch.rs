//! Ends a booking when a process has ended, for managers that say nothing after a render.
//!
//! The hook starts the same binary again as `gleaner hook watch MESSAGE`, in a session of its own
//! and with nothing inherited. That process sleeps until the render's is gone, however it went,
//! and does then what a postflight does. A postflight that comes all the same changes nothing.
//!
//! Linux tells of a process's end from 5.3 on, where it is allowed to. Else what is left is to look at
//! `/proc` once a second, at the cost of a file's reading each time.
//!
//! # Invariants
//! - A booking ends with its process that is found gone, and never for want of a way to look.
//! - A number that was given to another process meanwhile is not mistaken for the render's.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;

use gleaner_protocol::farm::HookKind;
use gleaner_protocol::{BookingId, HostName};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::limits::LOOK_AGAIN;
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
    /// Of a process that runs now; none where it is gone.
    ///
    /// # Errors
    /// Whether it runs cannot be seen.
    pub(crate) fn of(
        pid: i32,
        booking: BookingId,
        host: Option<HostName>,
        invocation: &HookInvocation,
    ) -> io::Result<Option<Self>> {
        let Some(stat) = living(pid)? else { return Ok(None) };
        Ok(Some(Self {
            pid,
            start_ticks: stat.start_ticks,
            booking,
            run_dir: std::path::absolute(&invocation.run_dir)?,
            host,
            monitor_url: invocation.monitor_url.clone(),
            token_file: invocation.monitor_token_file.clone(),
            ca_file: invocation.monitor_ca_file.clone(),
        }))
    }

    /// Starts the process that watches.
    pub(crate) fn spawn(&self, command: &[OsString]) -> io::Result<()> {
        let message = serde_json::to_string(self).expect("our own types serialise");
        detached::spawn(command, &message)
    }

    /// Sleeps until the process has ended.
    fn wait(&self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        self.wait_by(pidfd_open(pid, PidfdFlags::empty()), || thread::sleep(LOOK_AGAIN.into()));
    }

    /// By what tells of its end, or else by looking for it with a pause between.
    fn wait_by(&self, handle: Result<OwnedFd, Errno>, pause: impl Fn()) {
        match handle {
            Err(Errno::SRCH) => return,
            Ok(handle) if !self.is_gone() => loop {
                match poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) {
                    Ok(_) => return,
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            },
            _ => {}
        }
        while !self.is_gone() {
            pause();
        }
    }

    /// Whether it has ended, as far as can be seen.
    fn is_gone(&self) -> bool {
        match living(self.pid) {
            Ok(stat) => stat.is_none_or(|stat| stat.start_ticks != self.start_ticks),
            Err(_) => false,
        }
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

/// What there is of a process that has not ended.
fn living(pid: i32) -> io::Result<Option<ProcessStat>> {
    match ProcessStat::of(pid) {
        Ok(stat) => Ok(Some(stat).filter(|stat| pid > 1 && !stat.is_dead())),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_whose_end_nobody_tells_is_looked_at_until_it_is_gone() {
        for refused in [Errno::NOSYS, Errno::PERM, Errno::MFILE] {
            let mut cat = Command::new("cat");
            let cat = cat.stdin(Stdio::piped()).spawn().expect("it is there");
            let pid = i32::try_from(cat.id()).expect("a number");
            let invocation = HookInvocation::new(HookKind::Preflight, Farm::Generic, "/nowhere");
            let booking = BookingId::new("a").expect("a name");
            let watch = EndWatch::of(pid, booking.clone(), None, &invocation);
            let watch = watch.expect("it can be seen").expect("it runs");
            let (cat, looks) = (RefCell::new(cat), Cell::new(0));
            watch.wait_by(Err(refused), || {
                looks.set(looks.get() + 1);
                if looks.get() == 3 {
                    let mut cat = cat.borrow_mut();
                    drop(cat.stdin.take());
                    cat.wait().expect("ours");
                }
            });
            assert_eq!(looks.get(), 3, "{refused}");
            assert!(watch.is_gone());
            let gone = EndWatch::of(pid, booking, None, &invocation).expect("it can be seen");
            assert_eq!(gone, None);
        }
    }

    #[test]
    fn another_process_of_that_number_is_not_waited_for() {
        let invocation = HookInvocation::new(HookKind::Preflight, Farm::Generic, "/nowhere");
        let pid = rustix::process::getpid();
        let booking = BookingId::new("a").expect("a name");
        let watch = EndWatch::of(pid.as_raw_nonzero().get(), booking, None, &invocation);
        let mut watch = watch.expect("it can be seen").expect("it runs");
        watch.start_ticks += 1;
        watch.wait_by(pidfd_open(pid, PidfdFlags::empty()), || panic!("it is gone"));
        watch.wait_by(Err(Errno::NOSYS), || panic!("it is gone"));
    }
}
