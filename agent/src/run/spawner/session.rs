//! How the session of all runners ranks, where the kernel weighs sessions.
//!
//! Last of all, but while something of it is to stop or to die: then like any other, as the work of
//! all slots is where control groups hold it.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gleaner_protocol::{Span, boottime};
use rustix::process::Pid;
use tokio::sync::Notify;

use crate::limits::{AUTOGROUP_PAUSE_MS, AUTOGROUP_TRIES_MAX, SPAWNERS_MAX};

/// Niceness of a session that is the last of all.
const LAST: i32 = 19;
/// Niceness of one like any other.
const ORDINARY: i32 = 0;

/// The session, seen from the agent; and those of earlier spawners, in which runners may live.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The numbers of the processes that lead them, or led them and are not waited for yet; 0 for
    /// none. Read by whoever releases, which waits for no lock of ours.
    leaders: [AtomicI32; SPAWNERS_MAX],
    /// The place of the last of them there.
    newest: AtomicUsize,
    /// Whether it is not to be the last of all.
    is_ordinary: AtomicBool,
    /// What the kernel was told last, and when: in microseconds, of which the last bit says what.
    told: AtomicU64,
    /// The kernel has not been told yet.
    is_late: Notify,
}

impl Session {
    /// Another process leads runners from now on, in a session of its own. Its number must stay its
    /// own until it is [forgotten](Session::forget).
    pub(super) fn is_led_by(&self, leader: Pid) {
        let place = self.newest.load(Ordering::Acquire).wrapping_add(1) % SPAWNERS_MAX;
        self.leaders[place].store(leader.as_raw_nonzero().get(), Ordering::Release);
        self.newest.store(place, Ordering::Release);
        self.tell_soon();
    }

    /// This one's number may be a stranger's soon.
    pub(super) fn forget(&self, leader: Pid) {
        let leader = leader.as_raw_nonzero().get();
        for place in &self.leaders {
            let _ = place.compare_exchange(leader, 0, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Makes it the last of all, or one like any other. The kernel lets others than the
    /// administrator say so ten times a second at most: what it refuses is told later.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_ordinary.store(!is_last, Ordering::Release);
        let (told, now) = (self.told.load(Ordering::Acquire), boottime().as_micros());
        // A hook may change it from outside, so that what was told long ago is told again.
        let is_fresh = now.saturating_sub(told) < AUTOGROUP_PAUSE_MS * 1_000;
        if !(is_fresh && told & 1 == u64::from(!is_last)) {
            self.tell_soon();
        }
    }

    fn tell_soon(&self) {
        if is_too_soon(&self.tell()) {
            self.is_late.notify_one();
        }
    }

    /// Until the kernel was told what was asked for last.
    fn tell(&self) -> io::Result<()> {
        loop {
            let is_ordinary = self.is_ordinary.load(Ordering::Acquire);
            let nice = if is_ordinary { ORDINARY } else { LAST };
            let tell = |place: usize| match self.leaders[place].load(Ordering::Acquire) {
                0 => Ok(()),
                leader => set_niceness(&leader.to_string(), nice),
            };
            let newest = self.newest.load(Ordering::Acquire);
            let told = tell(newest);
            if is_too_soon(&told) {
                return told;
            }
            // Who may say one thing at a time says it of the session in which runners are started.
            (0..SPAWNERS_MAX).filter(|place| *place != newest).for_each(|place| drop(tell(place)));
            let now = boottime().as_micros() & !1;
            self.told.store(now | u64::from(is_ordinary), Ordering::Release);
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

/// Puts the session of this process last, before anything is started in it.
pub(super) fn put_own_last() {
    for _ in 0..AUTOGROUP_TRIES_MAX {
        if !is_too_soon(&set_niceness("self", LAST)) {
            // Done, or this kernel does not group by sessions.
            return;
        }
        thread::sleep(Span::from_millis(AUTOGROUP_PAUSE_MS).into());
    }
}

fn is_too_soon(told: &io::Result<()>) -> bool {
    told.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn set_niceness(process: &str, nice: i32) -> io::Result<()> {
    fs::write(format!("/proc/{process}/autogroup"), nice.to_string())
}
