//! The thread that looks for the mark that stops everything, and does nothing else.
//!
//! A place where the mark may lie can be on a file system that hangs: then only this thread does,
//! and what it saw last holds on.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use gleaner_hooks::{Heirs, SocketAnswer, become_urgent};
use gleaner_protocol::{Span, boottime};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use tokio::sync::oneshot;
use tracing::debug;

use super::Owner;
use super::request_thread::Reply;
use super::stop_watch::StopWatch;
use crate::limits::{LOOK_MS, SOCKET_CONNECTIONS_MAX};

/// Those who want to know that the mark was looked for after they asked.
pub(super) struct Askers {
    wake: OwnedFd,
    replies: Mutex<Vec<Reply>>,
}

impl Askers {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wake, replies: Mutex::default() })
    }

    pub(super) fn enter(&self, reply: Reply) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        if replies.len() < SOCKET_CONNECTIONS_MAX {
            replies.push(reply);
            drop(replies);
            self.wake();
        } else {
            drop(replies);
            let reason = "the mark cannot be looked for: does a file system hang?".into();
            reply(&SocketAnswer::Error { reason });
        }
    }

    /// Those who have asked so far.
    pub(super) fn take(&self) -> Vec<Reply> {
        std::mem::take(&mut self.replies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wake(&self) {
        // Writing to an event counter fails only at its overflow, which wakes just as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Whether somebody has woken it.
    fn calm(&self) -> bool {
        rustix::io::read(&self.wake, &mut [0; 8]).is_ok()
    }
}

/// The running thread. It is told to end when this is dropped, and not waited for.
#[derive(Debug)]
pub(crate) struct MarkThread {
    over: Arc<AtomicBool>,
    owner: Arc<Owner>,
}

impl MarkThread {
    /// Starts it. The second half of what is returned resolves when it has ended, whatever ended
    /// it.
    pub(crate) fn start(owner: Arc<Owner>) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let over = Arc::new(AtomicBool::new(false));
        let (is_over, of) = (Arc::clone(&over), Arc::clone(&owner));
        let (alive, ended) = oneshot::channel();
        thread::Builder::new().name("gleaner-marks".into()).spawn(move || {
            let _alive: oneshot::Sender<()> = alive;
            become_urgent(Heirs::Ordinary);
            let watch = StopWatch::new(&of.of.mark);
            while !is_over.load(Ordering::Acquire) {
                of.look_for_stop(boottime());
                wait(&of, &watch);
            }
        })?;
        Ok((Self { over, owner }, ended))
    }
}

impl Drop for MarkThread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.owner.askers.wake();
    }
}

/// Until the next look is due.
fn wait(owner: &Owner, watch: &StopWatch) {
    let due = boottime() + Span::from_millis(LOOK_MS);
    loop {
        let mut fds = vec![PollFd::new(&owner.askers.wake, PollFlags::IN)];
        fds.extend(watch.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let rest = due.since(boottime());
        match poll(&mut fds, Some(&rest.into())) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                debug!("cannot wait for events: {error}");
                thread::sleep(rest.into());
            }
        }
        // Both are heard: what is not, wakes us again.
        let (is_asked, is_news) = (owner.askers.calm(), watch.drain());
        if is_asked || is_news || boottime() >= due {
            return;
        }
    }
}
