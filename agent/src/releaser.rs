//! Getting out of a render's way: the thread that answers the hooks of this host.
//!
//! A preflight hook waits for its answer before the render starts, so nothing else happens in
//! between: this thread reads the request, freezes what is in the way with its own hands and
//! answers. A few milliseconds later it kills what it froze and tells the main loop. To die is
//! work, and takes a process a hundred times longer than to stop: what dies at once keeps others
//! from stopping.
//!
//! It shares no runtime with the rest and runs above it where the system allows that.
//!
//! # Invariants
//! - No client makes another wait: sockets do not block, a request has a size and a time, and so
//!   has the number of connections.
//! - A preflight is obeyed even where it cannot be answered.
//! - It never turns without something to do: above all ordinary work, that would stop the host.
//! - The socket's file belongs to a living agent, or is taken over.

mod connection;
mod listener;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gleaner_hooks::{Heirs, RunDir, SocketAnswer, SocketRequest, become_urgent};
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, LeaseToken, Span, Time, boottime};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::limits::{ACCEPT_REST_MS, FROZEN_MS, SETTLE_MS_MAX, SOCKET_CONNECTIONS_MAX};
use crate::owner::Owner;
use crate::slot_table::SlotTable;
use connection::{Connection, Step};
use listener::{Accepted, Listener};

pub use listener::SocketError;

/// What a hook did, for the main loop: the run folder is to be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Released {
    /// Replicas that were stopped.
    pub(crate) stopped: Vec<LeaseToken>,
    /// A preflight that could not raise the epoch: the agent has to.
    pub(crate) raise_epoch: bool,
}

/// The running thread. It ends, and its socket goes, when this is dropped.
#[derive(Debug)]
pub(crate) struct Releaser {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Releaser {
    /// Binds the socket of `run_dir` and serves it. `tell` must not block.
    /// The second half of what is returned resolves when the thread has ended, whatever ended it.
    pub(crate) fn start(
        run_dir: RunDir,
        cores: u32,
        table: Arc<SlotTable>,
        owner: Arc<Owner>,
        tell: impl Fn(Released) + Send + 'static,
    ) -> Result<(Self, oneshot::Receiver<()>), SocketError> {
        let listener = Listener::bind(&run_dir.socket_path())?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| SocketError::Setup(error.into()))?;
        let wake = Arc::new(wake);
        let (kills_at, frozen) = (None, Vec::new());
        let service = Service { run_dir, cores, table, owner, tell, kills_at, frozen };
        let ears = Arc::clone(&wake);
        let (alive, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("gleaner-release".into())
            .spawn(move || {
                // Dropped by a panic as well.
                let _alive = alive;
                serve(&listener, service, &ears);
            })
            .map_err(SocketError::Setup)?;
        Ok((Self { wake, thread: Some(thread) }, ended))
    }
}

impl Drop for Releaser {
    fn drop(&mut self) {
        // Writing to an event counter fails only at its overflow, which wakes just as well.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve<T: Fn(Released)>(listener: &Listener, mut service: Service<T>, wake: &OwnedFd) {
    become_urgent(Heirs::Ordinary);
    let mut connections: Vec<Connection> = Vec::new();
    let mut deaf_until: Option<Time> = None;
    loop {
        deaf_until = deaf_until.filter(|end| *end > boottime());
        let alarm = service.kills_at.into_iter().chain(deaf_until).min();
        let ears = deaf_until.is_none().then_some(listener);
        match wait(ears, wake, &connections, alarm) {
            Ok(ready) if ready.woken => break,
            Ok(ready) => {
                let now = boottime();
                serve_ready(&mut service, &mut connections, &ready.connections, now);
                if ready.listener && !accept(listener, &mut service, &mut connections, now) {
                    deaf_until = Some(boottime() + Span::from_millis(ACCEPT_REST_MS));
                }
                service.kill_if_due(now);
                connections.retain(|connection| !connection.is_over(now));
            }
            Err(error) => {
                warn!("the hooks' socket failed: {error}");
                break;
            }
        }
    }
    service.kill();
}

struct Ready {
    woken: bool,
    listener: bool,
    connections: Vec<bool>,
}

/// Without a listener new clients wait.
fn wait(
    listener: Option<&Listener>,
    wake: &OwnedFd,
    connections: &[Connection],
    alarm: Option<Time>,
) -> io::Result<Ready> {
    let mut fds = Vec::with_capacity(connections.len() + 2);
    fds.push(PollFd::new(wake, PollFlags::IN));
    fds.extend(connections.iter().map(|c| PollFd::from_borrowed_fd(c.as_fd(), PollFlags::IN)));
    fds.extend(listener.map(|l| PollFd::from_borrowed_fd(l.as_fd(), PollFlags::IN)));
    let end = connections.iter().map(Connection::ends_at).chain(alarm).min();
    let timeout = end.map(|end| timespec(end.since(boottime())));
    loop {
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    Ok(Ready {
        woken: ready.next().unwrap_or(false),
        connections: ready.by_ref().take(connections.len()).collect(),
        listener: ready.next().unwrap_or(false),
    })
}

fn serve_ready<T: Fn(Released)>(
    service: &mut Service<T>,
    connections: &mut Vec<Connection>,
    ready: &[bool],
    now: Time,
) {
    let mut ready = ready.iter();
    connections.retain_mut(|connection| match ready.next() {
        Some(true) => step(service, connection, now),
        _ => true,
    });
}

/// False where somebody waits who cannot be had now.
fn accept<T: Fn(Released)>(
    listener: &Listener,
    service: &mut Service<T>,
    connections: &mut Vec<Connection>,
    now: Time,
) -> bool {
    // As many as may be open at once, so that a flood of them cannot keep us from serving.
    for _ in 0..SOCKET_CONNECTIONS_MAX {
        let stream = match listener.accept() {
            Accepted::Client(stream) => stream,
            Accepted::Nobody => return true,
            Accepted::NotNow => return false,
        };
        let mut connection = Connection::new(stream, now);
        // A hook has sent its request before we wake: it is served without another turn.
        if step(service, &mut connection, now) {
            if connections.len() == SOCKET_CONNECTIONS_MAX {
                debug!("too many connections to the hooks' socket: the oldest is closed");
                connections.remove(0);
            }
            connections.push(connection);
        }
    }
    true
}

/// Serves what a connection has for us; false when it is done with.
fn step<T: Fn(Released)>(service: &mut Service<T>, connection: &mut Connection, now: Time) -> bool {
    match connection.read(now) {
        Step::Wait => true,
        Step::Gone => false,
        Step::Malformed(reason) => {
            connection.answer(&SocketAnswer::Error { reason });
            false
        }
        Step::Request(request) => {
            service.serve(request, |answer| connection.answer(answer));
            false
        }
    }
}

struct Service<T> {
    run_dir: RunDir,
    cores: u32,
    table: Arc<SlotTable>,
    owner: Arc<Owner>,
    tell: T,
    /// When what is frozen is killed.
    kills_at: Option<Time>,
    /// What the main loop is told then.
    frozen: Vec<Released>,
}

impl<T: Fn(Released)> Service<T> {
    fn serve(&mut self, request: SocketRequest, mut answer: impl FnMut(&SocketAnswer)) {
        match request {
            SocketRequest::Preflight { booking, booked, epoch } => {
                let slots_left = self.cores_left(&booking, &booked);
                let frozen = self.table.freeze(epoch, slots_left);
                self.table.settle(Span::from_millis(SETTLE_MS_MAX));
                answer(&SocketAnswer::Released {
                    frozen: u32::try_from(frozen.tokens.len()).unwrap_or(u32::MAX),
                    slots_left: frozen.slots_left,
                });
                let raise_epoch = epoch.is_none();
                if frozen.tokens.is_empty() {
                    (self.tell)(Released { stopped: Vec::new(), raise_epoch });
                } else {
                    self.frozen.push(Released { stopped: frozen.tokens, raise_epoch });
                    let kills_at = boottime() + Span::from_millis(FROZEN_MS);
                    self.kills_at = self.kills_at.or(Some(kills_at));
                }
            }
            SocketRequest::Postflight { .. } => {
                answer(&SocketAnswer::Noted);
                (self.tell)(Released { stopped: Vec::new(), raise_epoch: false });
            }
            SocketRequest::Status => {
                let occupancy = self.table.occupancy();
                answer(&SocketAnswer::Status {
                    epoch: self.run_dir.epoch().ok(),
                    slots: occupancy.slots,
                    running: occupancy.running,
                    connected: occupancy.connected,
                });
            }
            SocketRequest::Pause { for_ms } => {
                answer(&self.owner.pause(boottime(), for_ms.map(Span::from_millis)));
            }
            SocketRequest::Resume => {
                self.owner.resume(boottime());
                answer(&SocketAnswer::Noted);
            }
            SocketRequest::LookForStop => {
                self.owner.look_for_stop(boottime());
                answer(&SocketAnswer::Noted);
            }
            SocketRequest::Standing => {
                let standing = self.owner.standing(boottime(), self.run_dir.epoch().ok());
                answer(&SocketAnswer::Standing(Box::new(standing)));
            }
            SocketRequest::Tasks => answer(&self.owner.tasks(boottime())),
        }
    }

    fn kill_if_due(&mut self, now: Time) {
        if self.kills_at.is_some_and(|at| at <= now) {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.kills_at = None;
        self.table.kill_frozen();
        self.frozen.drain(..).for_each(&self.tell);
    }

    /// Cores that all bookings leave, this one included. None where one of them takes the whole
    /// host, or where the run folder cannot be read.
    fn cores_left(&self, booking: &BookingId, booked: &Booked) -> u32 {
        let Some(wanted) = booked.cores else { return 0 };
        match self.run_dir.bookings() {
            Ok(bookings) => {
                let others = bookings.iter().filter(|other| other.booking != *booking);
                let others = others.map(|other| other.resources);
                self.cores.saturating_sub(booked_cores(others, self.cores).saturating_add(wanted))
            }
            Err(error) => {
                warn!("{error}: the whole host is taken as booked");
                0
            }
        }
    }
}

/// Cores that these bookings take together, of a host with `cores`.
#[must_use]
pub fn booked_cores(bookings: impl IntoIterator<Item = Booked>, cores: u32) -> u32 {
    bookings
        .into_iter()
        .map(|booked| booked.cores.unwrap_or(cores))
        .fold(0, u32::saturating_add)
        .min(cores)
}

fn timespec(span: Span) -> Timespec {
    let micros = span.as_micros();
    Timespec {
        tv_sec: i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(micros % 1_000_000 * 1_000).expect("below a second"),
    }
}

#[cfg(test)]
mod tests;
