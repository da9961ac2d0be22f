//! A timer on the clock that counts suspended time: an opening ends on time even where the
//! machine slept.

use std::io;
use std::os::fd::OwnedFd;

use gleaner_protocol::{Span, Time};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// One alarm at a time.
pub(super) struct BootTimer {
    fd: AsyncFd<OwnedFd>,
    set: Option<Time>,
}

impl BootTimer {
    #[expect(unsafe_code, reason = "tokio trusts the caller with the life of the descriptor")]
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
        // SAFETY: an `OwnedFd` is open, is always the same descriptor, and stays open until the
        // `AsyncFd` that owns it is dropped.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Self { fd, set: None })
    }

    /// Sets the alarm; None for none. No system call where it is set so already.
    pub(super) fn set(&mut self, at: Option<Time>) -> io::Result<()> {
        if at == self.set {
            return Ok(());
        }
        // All zeroes disarm it, so the beginning of time is one microsecond later.
        let micros = at.map_or(0, |at| at.as_micros().max(1));
        let value = Span::from_micros(micros).into();
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: interval, it_value: value };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &timer)?;
        self.set = at;
        Ok(())
    }

    /// Returns when the alarm goes off, which also unsets it.
    pub(super) async fn wait(&mut self) {
        loop {
            let Ok(mut ready) = self.fd.readable().await else {
                return std::future::pending().await;
            };
            let mut count = [0; 8];
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?));
            if let Ok(Ok(_)) = read {
                self.set = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_protocol::{Span, boottime};

    #[tokio::test]
    async fn it_goes_off_when_it_is_due_and_not_before() {
        let mut timer = BootTimer::new().expect("the kernel has timers");
        let due = boottime() + Span::from_millis(20);
        timer.set(Some(due + Span::from_secs(1000))).expect("set");
        timer.set(Some(due)).expect("set again");
        timer.wait().await;
        assert!(boottime() >= due);
        timer.set(Some(Time::ZERO)).expect("set to the past");
        timer.wait().await;
    }
}
