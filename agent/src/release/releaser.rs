//! Getting out of a render's way: the thread that answers the hooks of this host.
//!
//! A preflight hook waits for its answer before the render starts, so nothing else happens in
//! between: this thread reads the request, freezes what is in the way with its own hands and
//! answers. A few milliseconds later it has what it froze killed and tells the main loop. To die is
//! work, and takes a process a hundred times longer than to stop: what dies at once keeps others
//! from stopping. To kill is work too: another thread does it, so that the next hook is heard.
//!
//! It shares no runtime with the rest and runs above it where the system allows that. It reads the
//! run folder, and touches no other file: whoever asks for more than a hook does is passed on.
//!
//! # Invariants
//! - No client makes another wait: sockets do not block, a request has a size and a time, and so
//!   has the number of connections.
//! - A preflight is obeyed even where it cannot be answered.
//! - Between a request and its answer nothing is logged, written or killed, and no lock is waited
//!   for but the slot table's.
//! - It never turns without something to do: above all ordinary work, that would stop the host.
//! - The socket's file belongs to a living agent, or is taken over.

mod connection;
mod killer;
mod listener;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use gleaner_hooks::{Heirs, RunDir, SocketAnswer, SocketRequest, become_urgent};
use gleaner_isolation::Topology;
use gleaner_protocol::farm::Booked;
use gleaner_protocol::{BookingId, LeaseToken, Span, Time, boottime};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::thread::{CpuSet, sched_getaffinity};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::agent::liveness::TurnCounter;
use crate::limits::{ACCEPT_REST_MS, FREEZE_WAIT_MS_MAX, FROZEN_MS, SOCKET_CONNECTIONS_MAX};
use crate::link::peers::Peers;
use crate::metrics::{Hook, Metrics};
use crate::owner::RequestThread;
use crate::release::slot_table::{Room, SlotTable};
use connection::{Connection, Step};
use killer::Killer;
use listener::{Accepted, Listener};

pub use listener::SocketError;

/// What hooks act on.
pub(crate) struct HookedHost {
    /// The host's run folder.
    pub(crate) run_dir: RunDir,
    /// Cores that it gives at most.
    pub(crate) cores: u32,
    /// Its memory, in MiB.
    pub(crate) memory_mib: u64,
    /// Its physical cores.
    pub(crate) topology: Topology,
    /// What runs.
    pub(crate) table: Arc<SlotTable>,
    /// Where it is counted.
    pub(crate) metrics: Arc<Metrics>,
    /// Other agents, with which copies of chunks are exchanged.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Where everybody else is served.
    pub(crate) request_thread: RequestThread,
    /// By which it is seen that the thread goes on.
    pub(crate) turns: TurnCounter,
    /// The same of the one that kills.
    pub(crate) killer_turns: TurnCounter,
}

/// What a hook did, for the main loop: the run folder is to be read again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Replicas that were stopped.
    pub(crate) stopped: Vec<LeaseToken>,
    /// When the hook asked for it, where some were.
    pub(crate) asked: Option<Time>,
    /// Replicas that are frozen and wait for what becomes of them, all that there are.
    pub(crate) parked: Vec<LeaseToken>,
    /// A preflight that could not raise the epoch: the agent has to.
    pub(crate) raise_epoch: bool,
    /// The run folder has no booking of the preflight, so nothing there says how much is left: the
    /// host is closed until it is opened anew.
    pub(crate) is_unbooked: bool,
    /// The CPUs that the render is bound to, where its preflight hook was bound to them.
    pub(crate) bound: Option<(BookingId, BTreeSet<u32>)>,
    /// What went wrong, in words.
    pub(crate) trouble: Option<String>,
}

/// The running thread. It ends, and its socket goes, when this is dropped.
#[derive(Debug)]
pub(crate) struct Releaser {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Releaser {
    /// Binds the socket of a host and serves it. `tell` must not block.
    /// The second half of what is returned resolves when the thread has ended, whatever ended it.
    pub(crate) fn start(
        host: HookedHost,
        tell: impl Fn(Released) + Send + 'static,
    ) -> Result<(Self, oneshot::Receiver<()>), SocketError> {
        let listener = Listener::bind(&host.run_dir.socket_path())?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| SocketError::Setup(error.into()))?;
        let wake = Arc::new(wake);
        let (kills_at, frozen) = (None, Vec::new());
        let killer = Killer::start(Arc::clone(&host.table), host.killer_turns.clone())
            .map_err(SocketError::Setup)?;
        let own_cpus = sched_getaffinity(None).ok();
        let service = Service { host, own_cpus, tell, killer, kills_at, frozen };
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
        service.host.turns.end();
        let ready = wait(ears, wake, &connections, alarm);
        service.host.turns.begin();
        match ready {
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
    let timeout = end.map(|end| end.since(boottime()).into());
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
    let served = std::mem::take(connections).into_iter();
    connections.extend(served.filter_map(|connection| match ready.next() {
        Some(true) => step(service, connection, now),
        _ => Some(connection),
    }));
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
        // A hook has sent its request before we wake: it is served without another turn.
        if let Some(connection) = step(service, Connection::new(stream, now), now) {
            if connections.len() == SOCKET_CONNECTIONS_MAX {
                debug!("too many connections to the hooks' socket: the oldest is closed");
                connections.remove(0);
            }
            connections.push(connection);
        }
    }
    true
}

/// Serves what a connection has for us; gives it back where more is to come.
fn step<T: Fn(Released)>(
    service: &mut Service<T>,
    mut connection: Connection,
    now: Time,
) -> Option<Connection> {
    match connection.read(now) {
        Step::Wait => return Some(connection),
        Step::Gone => {}
        Step::Malformed(reason) => connection.answer(&SocketAnswer::Error { reason }),
        Step::Request(request) => service.serve(request, connection),
    }
    None
}

/// What bookings leave.
struct Left {
    /// Nothing where one of them takes the whole host, or where the run folder cannot be read.
    room: Room,
    /// Whether the run folder lacks the one that is asked about.
    is_unbooked: bool,
    /// Why the run folder cannot be read.
    trouble: Option<String>,
}

struct Service<T> {
    host: HookedHost,
    /// On which this agent may run.
    own_cpus: Option<CpuSet>,
    tell: T,
    killer: Killer,
    /// When what is frozen is killed.
    kills_at: Option<Time>,
    /// What the main loop is told then.
    frozen: Vec<Released>,
}

impl<T: Fn(Released)> Service<T> {
    fn serve(&mut self, request: SocketRequest, mut connection: Connection) {
        match request {
            SocketRequest::Preflight { booking, booked, epoch } => {
                let asked = boottime();
                // It is gone as soon as it is answered.
                let bound = self.bound_to(&connection, booked);
                let Left { room, is_unbooked, trouble } = self.left_by(&booking, booked);
                let frozen = self.host.table.freeze(epoch, room);
                if let Some(peers) = &self.host.peers {
                    peers.note_cut();
                }
                self.host.table.wait_frozen(Span::from_millis(FREEZE_WAIT_MS_MAX));
                let still = boottime() - asked;
                connection.answer(&SocketAnswer::Released {
                    frozen: frozen.count,
                    slots_left: frozen.slots_left,
                });
                let answered = boottime() - asked;
                if let Some(peers) = &self.host.peers {
                    self.killer.hang_up(Arc::clone(peers));
                }
                if frozen.has_stragglers {
                    self.killer.stop_stragglers();
                }
                self.host.metrics.answered(Hook::Preflight, answered, Some(still));
                let raise_epoch = epoch.is_none();
                let (stopped, parked) = (frozen.tokens, frozen.parked);
                let bound = bound.map(|cpus| (booking, cpus));
                let asked = (!stopped.is_empty()).then_some(asked);
                let released =
                    Released { stopped, asked, parked, raise_epoch, is_unbooked, bound, trouble };
                if released.stopped.is_empty() {
                    (self.tell)(released);
                } else {
                    self.frozen.push(released);
                }
                // Idle runners die too, of which nobody is told.
                if self.frozen.is_empty() && self.host.table.kill_list().is_empty() {
                    // Nothing else does that where nothing dies.
                    self.host.table.be_idle_again();
                } else {
                    self.killer.put_last();
                    let kills_at = boottime() + Span::from_millis(FROZEN_MS);
                    self.kills_at = self.kills_at.or(Some(kills_at));
                }
            }
            SocketRequest::Postflight { .. } => {
                let asked = boottime();
                connection.answer(&SocketAnswer::Noted);
                self.host.metrics.answered(Hook::Postflight, boottime() - asked, None);
                (self.tell)(Released::default());
            }
            other => self
                .host
                .request_thread
                .pass(other, Box::new(move |answer| connection.answer(answer))),
        }
    }

    fn kill_if_due(&mut self, now: Time) {
        if self.kills_at.is_some_and(|at| at <= now) {
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.kills_at = None;
        let kill_list = self.host.table.kill_list();
        if kill_list.is_empty() {
            // All of it has ended by itself.
            self.host.table.be_idle_again();
        }
        self.killer.kill(kill_list);
        self.frozen.drain(..).for_each(&self.tell);
    }

    fn bound_to(&self, hook: &Connection, booked: Booked) -> Option<BTreeSet<u32>> {
        bound_to(&self.host.topology, self.own_cpus.as_ref()?, &hook.client_cpus()?, booked)
    }

    /// What all bookings leave, this one included.
    ///
    /// It is read before anything is frozen: a hook has written there before it asks, so that a
    /// file system which makes this wait has made the render wait already.
    fn left_by(&self, booking: &BookingId, booked: Booked) -> Left {
        let HookedHost { run_dir, cores, memory_mib, topology, .. } = &self.host;
        let bookings = match run_dir.bookings() {
            Ok(bookings) => bookings,
            Err(error) => {
                let trouble = format!("{error}: the whole host is taken as booked");
                let room = Room { slots: 0, memory_mib: Some(0), gpu: false };
                return Left { room, is_unbooked: true, trouble: Some(trouble) };
            }
        };
        let is_unbooked = bookings.iter().all(|other| other.booking != *booking);
        let others = bookings.iter().filter(|other| other.booking != *booking);
        let all: Vec<Booked> = others.map(|other| other.resources).chain([booked]).collect();
        let booked = booked_cores(all.iter().copied(), *cores);
        let table = &self.host.table;
        let taken = topology.taken_by(booked, &table.claims());
        table.note_booked_cores(booked, taken);
        let left_mib = booked_mib(&all).map(|booked| memory_mib.saturating_sub(booked));
        let gpu = table.gpu_is_left_by(&all);
        let room = Room { slots: cores.saturating_sub(taken), memory_mib: left_mib, gpu };
        Left { room, is_unbooked, trouble: None }
    }
}

/// Memory that these bookings take together, in MiB, as far as they say so.
pub(crate) fn booked_mib(bookings: &[Booked]) -> Option<u64> {
    bookings.iter().filter_map(|booked| booked.memory_mib).reduce(u64::saturating_add)
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

/// The CPUs that a render is bound to, as far as those tell it on which its hook may run: a part of
/// those on which this agent may, its `own`, and no more cores than the render booked. What is bound to
/// more is a daemon that an administrator has bound.
fn bound_to(
    topology: &Topology,
    own: &CpuSet,
    hook: &CpuSet,
    booked: Booked,
) -> Option<BTreeSet<u32>> {
    let both = |cpu: &usize| own.is_set(*cpu) && hook.is_set(*cpu);
    let cpus: BTreeSet<u32> =
        (0..CpuSet::MAX_CPU).filter(both).filter_map(|cpu| u32::try_from(cpu).ok()).collect();
    let is_part = !cpus.is_empty() && cpus.len() < own.count() as usize;
    (is_part && topology.cores_of(&cpus) <= booked.cores?).then_some(cpus)
}

#[cfg(test)]
mod tests;
