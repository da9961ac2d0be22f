//! How the session of all runners ranks, where the kernel weighs sessions.
//!
//! Last of all, but while something of it is to stop or to die: then like any other, for what
//! stands still in the idle class beside it takes nothing of that.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::Notify;

use crate::limits::{AUTOGROUP_PAUSE_MS, AUTOGROUP_TRIES_MAX};

/// Niceness of a session that is the last of all.
const LAST: i32 = 19;
/// Niceness of one like any other.
const ORDINARY: i32 = 0;

/// The session, seen from the agent.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The number of the process that leads it; 0 where there is none.
    leader: AtomicI32,
    /// Whether it is not to be the last of all.
    is_ordinary: AtomicBool,
    /// The kernel has not been told yet.
    is_late: Notify,
}

impl Session {
    pub(super) fn is_led_by(&self, leader: Option<Pid>) {
        self.leader.store(leader.map_or(0, |pid| pid.as_raw_nonzero().get()), Ordering::Release);
    }

    /// Makes it the last of all, or one like any other. The kernel lets others than the
    /// administrator say so ten times a second at most: what it refuses is told later.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_ordinary.store(!is_last, Ordering::Release);
        if is_too_soon(&self.tell()) {
            self.is_late.notify_one();
        }
    }

    /// Until the kernel was told what was asked for last.
    fn tell(&self) -> io::Result<()> {
        loop {
            let is_ordinary = self.is_ordinary.load(Ordering::Acquire);
            let leader = self.leader.load(Ordering::Acquire);
            set_niceness(&leader.to_string(), if is_ordinary { ORDINARY } else { LAST })?;
            if is_ordinary == self.is_ordinary.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// Tells the kernel what it refused to be told so soon; never returns.
    pub(super) async fn keep_up(&self) -> ! {
        loop {
            self.is_late.notified().await;
            while {
                tokio::time::sleep(Duration::from_millis(AUTOGROUP_PAUSE_MS)).await;
                is_too_soon(&self.tell())
            } {}
        }
    }
}

/// Puts the session of this process last, before anything is born in it.
pub(super) fn put_own_last() {
    for _ in 0..AUTOGROUP_TRIES_MAX {
        if !is_too_soon(&set_niceness("self", LAST)) {
            // Done, or this kernel does not group by sessions.
            return;
        }
        thread::sleep(Duration::from_millis(AUTOGROUP_PAUSE_MS));
    }
}

fn is_too_soon(told: &io::Result<()>) -> bool {
    told.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn set_niceness(process: &str, nice: i32) -> io::Result<()> {
    fs::write(format!("/proc/{process}/autogroup"), nice.to_string())
}
