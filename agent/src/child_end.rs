//! Waits for a child's end, with a limit.

use std::process::Child;

use gleaner_protocol::{Span, boottime};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Whether a child ends within the limit. A signal that this process gets meanwhile, as the end of
/// another child, does not count as the limit's end. A child that cannot be watched does not end.
pub(crate) fn ends_within(child: &Child, limit: Span) -> bool {
    let pid = Pid::from_raw(child.id().cast_signed());
    let Some(Ok(watched)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return false;
    };
    let end = boottime() + limit;
    loop {
        let mut fds = [PollFd::new(&watched, PollFlags::IN)];
        match poll(&mut fds, Some(&end.since(boottime()).into())) {
            Err(Errno::INTR) => {}
            ended => return ended == Ok(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{fs, thread};

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[test]
    fn a_signal_is_no_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("it starts");
        let _entered = runtime.enter();
        let _handler = signal(SignalKind::user_defined2()).expect("it is heard");
        let mut child = Command::new("/bin/sleep").arg("1000").spawn().expect("it starts");
        let pid = Pid::from_child(&child);
        thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let child = &child;
            let waits = scope.spawn(move || {
                tell.send(rustix::thread::gettid()).expect("it is heard");
                ends_within(child, Span::from_secs(60))
            });
            let waiter = told.recv().expect("it says");
            until_it_sleeps(waiter);
            interrupt(waiter);
            until_it_sleeps(waiter);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
            assert!(waits.join().expect("it returns"));
        });
        let _ = child.wait();
    }

    /// Or is gone.
    fn until_it_sleeps(thread: Pid) {
        let stat = format!("/proc/self/task/{thread}/stat");
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S ")) {
            thread::yield_now();
        }
    }

    #[expect(unsafe_code, reason = "rustix has no call for a signal to a thread")]
    fn interrupt(thread: Pid) {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: the call takes and returns plain numbers.
        let sent = unsafe {
            let thread = thread.as_raw_nonzero().get();
            libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2)
        };
        assert_eq!(sent, 0);
    }
}
