//! Renders that no hook announces, seen as a farm's worker starts them.
//!
//! Some farm managers call nothing before a render (OpenCue, Flamenco, Royal Render). Their worker
//! on the host starts the render as a child, and the kernel tells us of that at once. What a hook
//! would have done then is done here, by the hooks' own code: the epoch is raised, the booking
//! entered, the work stopped; and the booking is ended when the render's process has. The monitor
//! learns of both from the sample that this agent sends then.
//!
//! - A child with OpenCue's variables in its environment is booked by them, under the name that the
//!   frame wrapper gives it; without them a child of RQD is a helper of its own, no render.
//! - A child of any other worker books the whole host, unless it is that worker once more.
//!
//! # Invariants
//! - Each child of a worker that starts a program is looked at, those that ran before this agent
//!   or whose event was lost too.
//! - A booking that is made here ends when its process has, however soon that is, and a number that
//!   was given to another process meanwhile is not mistaken for it.
//! - It is noted in the run folder before it is made: the next agent ends what this one could not.
//! - The monitor does not end it while its process lives: farms list renders under other names, or give
//!   up one whose process hangs. Only a hook of its own name may.
//! - What the worker starts is stopped by nobody and waits for nobody: this only looks.

mod alive;
mod proc_events;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use gleaner_hooks::{
    Environment, Farm, Heirs, HookInvocation, ProcessStat, RunDir, become_urgent, run,
    worker_name_among,
};
use gleaner_protocol::farm::HookKind;
use gleaner_protocol::{BookingId, HostName, booking_of};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use crate::agent::liveness::TurnCounter;
use crate::limits::PROCESS_EVENTS_MAX;
use crate::replace_file::{PRIVATE, replace_file};
pub(crate) use alive::Alive;
use proc_events::{ProcEvent, ProcEvents};

/// Whose worker starts helpers of its own beside renders, which it marks.
const MARKS_RENDERS: [&str; 2] = ["rqd", "openrqd"];
/// The note, in the run folder: local, and gone when the bookings are.
const NOTE: &str = "watched.json";

/// What is watched.
#[derive(Debug, Clone)]
pub(crate) struct WatchedHost {
    /// Names of the workers' processes, or of what their Python runs.
    pub(crate) workers: Vec<String>,
    pub(crate) host: HostName,
    pub(crate) run_dir: RunDir,
    /// Where it says whose processes live.
    pub(crate) alive: Alive,
    /// By which it is seen that it goes on.
    pub(crate) turns: TurnCounter,
}

/// Why renders cannot be watched.
#[derive(Debug, Error)]
pub enum WorkerWatchError {
    /// The kernel tells nothing.
    #[error(
        "watch_workers: the kernel does not tell this process what others start: {0}; run the agent \
         outside of containers, as root or with CAP_NET_ADMIN and CAP_SYS_PTRACE (and AF_NETLINK in \
         its unit's RestrictAddressFamilies), or leave watch_workers empty and take away what \
         `gleaner farm install` added to it (`gleaner farm uninstall`)"
    )]
    Untold(#[source] io::Error),
    /// What runs already cannot be looked at.
    #[error("watch_workers: cannot watch what runs already: {0}")]
    TakeOver(#[source] io::Error),
    /// There is no thread or pipe to be had.
    #[error("watch_workers: cannot start to watch: {0}")]
    Thread(#[source] io::Error),
}

/// What watches, in a thread of its own where there is something to be watched. It ends when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct WorkerWatch {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Held where there is no thread that could end.
    _unneeded: Option<oneshot::Sender<()>>,
}

impl WorkerWatch {
    /// Books what the workers run already, then watches them. The receiver hears of an end that
    /// nobody wanted.
    ///
    /// # Errors
    /// The kernel does not tell this process, what runs cannot be watched, or there is no thread to
    /// be had.
    pub(crate) fn start(
        host: WatchedHost,
    ) -> Result<(Self, oneshot::Receiver<()>), WorkerWatchError> {
        // Where nothing is to be watched any more, what an agent before this one booked still is.
        let wants_events = !host.workers.is_empty();
        let events = wants_events
            .then(ProcEvents::subscribe)
            .transpose()
            .map_err(WorkerWatchError::Untold)?;
        let mut watch = Watch::new(host);
        watch.take_over().map_err(WorkerWatchError::TakeOver)?;
        let (alive, ended) = oneshot::channel();
        if events.is_none() && watch.renders.is_empty() {
            return Ok((Self { stop: None, thread: None, _unneeded: Some(alive) }, ended));
        }
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| WorkerWatchError::Thread(error.into()))?;
        let spawned = thread::Builder::new().name("gleaner-workers".into()).spawn(move || {
            // Dropped as the thread ends, however that comes.
            let _alive = alive;
            become_urgent(Heirs::Ordinary);
            if let Err(error) = watch.run(events.as_ref(), &stopped) {
                warn!("the farm's workers can be watched no more: {error}");
            }
        });
        let thread = spawned.map_err(WorkerWatchError::Thread)?;
        Ok((Self { stop: Some(stop), thread: Some(thread), _unneeded: None }, ended))
    }
}

impl Drop for WorkerWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A render that is booked as long as its process lives.
#[derive(Debug)]
struct Booked {
    process: OwnedFd,
    render: Noted,
}

/// The same, as it is noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    booking: BookingId,
    pid: i32,
    /// When the process started, in clock ticks since the machine booted.
    start_ticks: u64,
}

#[derive(Debug)]
struct Watch {
    host: WatchedHost,
    /// Workers that run, each with its name.
    workers: BTreeMap<i32, String>,
    renders: Vec<Booked>,
    /// Bookings of an agent before this one that nobody has seen to yet.
    left: Vec<Noted>,
}

impl Watch {
    const fn new(host: WatchedHost) -> Self {
        Self { host, workers: BTreeMap::new(), renders: Vec::new(), left: Vec::new() }
    }

    fn run(mut self, events: Option<&ProcEvents>, stopped: &OwnedFd) -> io::Result<()> {
        loop {
            self.host.turns.begin();
            if let Some(events) = events {
                self.hear(events)?;
            }
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            let processes = self.renders.iter().map(|booked| &booked.process);
            fds.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
            fds.extend(events.map(|events| PollFd::new(events, PollFlags::IN)));
            self.host.turns.end();
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.host.turns.begin();
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return Ok(());
            }
            let mut has_ended = ready[1..].iter();
            let ended = self.renders.extract_if(.., |_| has_ended.next() == Some(&true));
            for booked in ended.collect::<Vec<_>>() {
                self.end(&booked.render.booking);
                self.note(None);
            }
        }
    }

    /// Takes note of what has happened, as much as may be heard at once.
    fn hear(&mut self, events: &ProcEvents) -> io::Result<()> {
        for _ in 0..PROCESS_EVENTS_MAX {
            match events.next()? {
                None => break,
                Some(ProcEvent::Exec(pid)) => self.on_exec(pid)?,
                Some(ProcEvent::Exit(pid)) => {
                    self.workers.remove(&pid);
                }
                // A subscription, ours or somebody else's.
                Some(ProcEvent::Answered { .. }) => {}
                Some(ProcEvent::Lost) => {
                    debug!("process events were lost: all processes are looked at");
                    self.scan()?;
                }
            }
        }
        Ok(())
    }

    /// Books what runs, goes on watching what an agent before this one booked, whoever its parent is
    /// by now, and ends of that what has ended since.
    fn take_over(&mut self) -> io::Result<()> {
        self.left = self.noted();
        let is_news = !self.left.is_empty();
        if !self.host.workers.is_empty() {
            self.scan()?;
        }
        let mut gone = Vec::new();
        for render in &self.left {
            if self.renders.iter().any(|booked| booked.render == *render) {
                continue;
            }
            match process_of(render.pid, render.start_ticks)? {
                Some(process) => self.renders.push(Booked { process, render: render.clone() }),
                None => gone.push(render.booking.clone()),
            }
        }
        // All that live are known by now, and with them what may not be ended.
        gone.iter().for_each(|booking| self.end(booking));
        self.left.clear();
        if is_news {
            self.note(None);
        }
        Ok(())
    }

    /// Looks at all processes.
    fn scan(&mut self) -> io::Result<()> {
        let entries = fs::read_dir("/proc")?;
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        let pids: Vec<i32> = entries.filter_map(|entry| number(entry.ok()?)).collect();
        self.workers =
            pids.iter().filter_map(|pid| Some((*pid, self.name_of_worker(*pid)?))).collect();
        pids.into_iter().try_for_each(|pid| self.look_at(pid))
    }

    fn on_exec(&mut self, pid: i32) -> io::Result<()> {
        match self.name_of_worker(pid) {
            Some(name) => self.workers.insert(pid, name),
            None => self.workers.remove(&pid),
        };
        self.look_at(pid)
    }

    /// None where it is no worker.
    fn name_of_worker(&self, pid: i32) -> Option<String> {
        worker_name_among(&folder_of(pid), &self.host.workers)
    }

    /// Books what a process renders, if it is a render.
    ///
    /// # Errors
    /// It cannot be watched: then nothing should be harvested beside it.
    fn look_at(&mut self, pid: i32) -> io::Result<()> {
        // A worker may be one's child: as one that it restarts, or divides into.
        if self.workers.contains_key(&pid) {
            return Ok(());
        }
        let Ok(stat) = ProcessStat::of(pid) else { return Ok(()) };
        let Some(worker) = self.workers.get(&stat.parent) else { return Ok(()) };
        let is_booked =
            |one: &Booked| (one.render.pid, one.render.start_ticks) == (pid, stat.start_ticks);
        if self.renders.iter().any(is_booked) {
            return Ok(());
        }
        // What is read while this is held is of the process that it is of.
        let Some(process) = process_of(pid, stat.start_ticks)? else { return Ok(()) };
        let Some(render) = Render::of(worker, &stat) else { return Ok(()) };
        let noted = Noted { booking: render.booking, pid, start_ticks: stat.start_ticks };
        self.note(Some(&noted));
        let report = run(&self.invocation(HookKind::Preflight, render.farm, render.environment));
        for trouble in &report.troubles {
            warn!(pid, "a render began: {trouble}");
        }
        info!(pid, took = %report.took, "{} began, and no hook had announced it", noted.booking);
        self.renders.push(Booked { process, render: noted });
        Ok(())
    }

    /// Ends a booking, unless another process of the same render is watched still.
    fn end(&self, booking: &BookingId) {
        if self.renders.iter().any(|booked| booked.render.booking == *booking) {
            return;
        }
        let named = vec![("GLEANER_BOOKING".to_owned(), booking.to_string())];
        for trouble in run(&self.invocation(HookKind::Postflight, Farm::Generic, named)).troubles {
            warn!("{booking} ended: {trouble}");
        }
    }

    /// What a hook would do on this host: nothing of it waits for another process.
    fn invocation(
        &self,
        kind: HookKind,
        farm: Farm,
        environment: Vec<(String, String)>,
    ) -> HookInvocation {
        let mut invocation = HookInvocation::new(kind, farm, self.host.run_dir.path());
        invocation.environment = environment.into_iter().collect::<Environment>();
        invocation.host = Some(self.host.host.clone());
        invocation
    }

    fn note_path(&self) -> PathBuf {
        self.host.run_dir.path().join(NOTE)
    }

    /// What the agent before this one has noted.
    fn noted(&self) -> Vec<Noted> {
        match fs::read(self.note_path()) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                warn!("{} says nothing: {error}", self.note_path().display());
                Vec::new()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!("cannot read {}: {error}", self.note_path().display());
                }
                Vec::new()
            }
        }
    }

    /// Notes what is booked, what is about to be, and what is left to be seen to, for the next agent
    /// and for the rest of this one.
    fn note(&self, next: Option<&Noted>) {
        let booked = self.renders.iter().map(|booked| &booked.render);
        let all: Vec<&Noted> = booked.chain(&self.left).chain(next).collect();
        self.host.alive.set(all.iter().map(|render| &render.booking));
        let text = serde_json::to_vec(&all).expect("names and numbers");
        if let Err(error) = replace_file(&self.note_path(), &text, PRIVATE) {
            warn!("cannot write {}: {error}", self.note_path().display());
        }
    }
}

/// A render, as a hook would have been told of it.
#[derive(Debug, PartialEq, Eq)]
struct Render {
    booking: BookingId,
    farm: Farm,
    environment: Vec<(String, String)>,
}

impl Render {
    /// None where the process is no render, or is gone.
    fn of(worker: &str, stat: &ProcessStat) -> Option<Self> {
        match environment_of(stat.pid) {
            Ok(environment) => Self::started_by(worker, stat, environment),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                warn!(pid = stat.pid, "cannot see what a child of {worker} is: {error}");
                // It may be a render.
                Some(Self::of_unknown(worker, stat))
            }
            Err(_) => None,
        }
    }

    fn started_by(
        worker: &str,
        stat: &ProcessStat,
        environment: Vec<(String, String)>,
    ) -> Option<Self> {
        let is_told = |(name, _): &(String, String)| name.starts_with("CUE_") || name == "jobhost";
        let environment: Vec<_> = environment.into_iter().filter(is_told).collect();
        let told = environment.iter().cloned().collect::<Environment>();
        if let Some(booking) = Farm::OpenCue.attempt(&told).booking {
            return Some(Self { booking, farm: Farm::OpenCue, environment });
        }
        if MARKS_RENDERS.contains(&worker) {
            return None;
        }
        Some(Self::of_unknown(worker, stat))
    }

    /// Of which nothing is known but its worker: it books the whole host.
    fn of_unknown(worker: &str, stat: &ProcessStat) -> Self {
        let booking = booking_of(worker, &format!("{}.{}", stat.pid, stat.start_ticks));
        let environment = vec![("GLEANER_BOOKING".to_owned(), booking.to_string())];
        Self { booking, farm: Farm::Generic, environment }
    }
}

/// A handle that says when all of a process has ended, which started then; none where that one is
/// gone.
fn process_of(pid: i32, start_ticks: u64) -> io::Result<Option<OwnedFd>> {
    let Some(number) = Pid::from_raw(pid) else { return Ok(None) };
    let process = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_same = ProcessStat::of(pid).is_ok_and(|now| now.start_ticks == start_ticks);
    Ok(is_same.then_some(process))
}

fn environment_of(pid: i32) -> io::Result<Vec<(String, String)>> {
    let text = fs::read(format!("/proc/{pid}/environ"))?;
    let pair = |line: &[u8]| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    Ok(text.split(|byte| *byte == 0).filter_map(pair).collect())
}

/// Where the system shows a process.
fn folder_of(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::slice;

    use gleaner_protocol::farm::Booked as Resources;

    use super::*;
    use gleaner_hooks::process_name;

    /// A process that ends with the test, whatever comes of it.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn();
            let sleeper = Self(child.expect("it starts"));
            // It has its name some moments after its parent goes on.
            while process_name(&folder_of(sleeper.pid())).as_deref() != Some("sleep") {
                thread::yield_now();
            }
            sleeper
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a number")
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn render(worker: &str, environment: &[(&str, &str)]) -> Option<Render> {
        let stat = ProcessStat {
            pid: 77,
            parent: 7,
            state: 'R',
            pgid: 77,
            session: 77,
            flags: 0,
            cpu_ticks: 0,
            start_ticks: 1_234,
        };
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Render::started_by(worker, &stat, environment.iter().map(owned).collect())
    }

    #[test]
    fn a_frame_of_opencue_is_booked_as_its_wrapper_would() {
        let frame = [
            ("CUE_FRAME_ID", "f-1"),
            ("CUE_THREADS", "4"),
            ("jobhost", "r1"),
            ("LD_PRELOAD", "/tmp/evil.so"),
        ];
        let render = render("rqd", &frame).expect("a render");
        assert_eq!((render.farm, &*render.booking.to_string()), (Farm::OpenCue, "opencue:f-1"));
        assert_eq!(render.environment.len(), 3, "nothing else of it: {:?}", render.environment);
    }

    #[test]
    fn what_rqd_starts_for_itself_is_no_render_and_what_others_start_is() {
        assert_eq!(render("rqd", &[("PATH", "/bin")]), None);
        let render = render("flamenco-worker", &[("PATH", "/bin")]).expect("a render");
        assert_eq!(render.farm, Farm::Generic);
        let booking = ("GLEANER_BOOKING".to_owned(), "flamenco-worker:77.1234".to_owned());
        assert_eq!(render.environment, [booking]);
    }

    #[test]
    fn what_a_worker_divides_into_is_no_render() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open_for_agent(folder.path()).expect("a run folder");
        let host = HostName::new("r1").expect("a name");
        let of = |workers: &[&str]| WatchedHost {
            workers: workers.iter().map(|name| (*name).to_owned()).collect(),
            host: host.clone(),
            run_dir: run_dir.clone(),
            alive: Alive::default(),
            turns: TurnCounter::default(),
        };
        let sleeper = Sleeper::start();
        let pid = sleeper.pid();
        let own = process_name(Path::new("/proc/self")).expect("its name");
        for (workers, renders) in [(&[&*own, "sleep"][..], 0), (&[&*own], 1)] {
            let mut watch = Watch::new(of(workers));
            watch.scan().expect("it can be watched");
            let is_ours = |booked: &&Booked| booked.render.pid == pid;
            assert_eq!(watch.renders.iter().filter(is_ours).count(), renders, "{workers:?}");
        }
    }

    #[test]
    fn what_an_agent_before_had_booked_is_watched_on_whoever_its_parent_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let run_dir = RunDir::open_for_agent(folder.path()).expect("a run folder");
        let host = HostName::new("r1").expect("a name");
        let sleeper = Sleeper::start();
        let pid = sleeper.pid();
        let start_ticks = ProcessStat::of(pid).expect("it runs").start_ticks;
        let noted = |name: &str, start_ticks| {
            let booking = booking_of("rqd", name);
            run_dir.begin_booking(&booking, &Resources::default()).expect("booked");
            Noted { booking, pid, start_ticks }
        };
        // The second one's number was given to another process since.
        let (runs, gone) = (noted("runs", start_ticks), noted("gone", start_ticks + 1));
        // Another process of the same render.
        let part = noted("runs", start_ticks + 1);
        // No worker of that name runs, as after its restart.
        for workers in [vec!["no-such-worker".to_owned()], Vec::new()] {
            let (host, run_dir, alive) = (host.clone(), run_dir.clone(), Alive::default());
            let (alive_too, turns) = (alive.clone(), TurnCounter::default());
            let host = WatchedHost { workers, host, run_dir, alive: alive_too, turns };
            let mut watch = Watch::new(host);
            watch.left = vec![part.clone(), runs.clone(), gone.clone(), part.clone()];
            watch.note(None);
            watch.take_over().expect("it can be watched");
            let watched: Vec<&Noted> = watch.renders.iter().map(|booked| &booked.render).collect();
            assert_eq!(watched, [&runs]);
            assert_eq!(watch.noted(), slice::from_ref(&runs), "the next one goes on with it");
            assert!(alive.has(&runs.booking) && !alive.has(&gone.booking));
        }
        let booked = run_dir.bookings().expect("readable");
        let booked: Vec<&BookingId> = booked.iter().map(|booked| &booked.booking).collect();
        assert_eq!(booked, [&runs.booking]);
    }

    #[test]
    fn a_child_that_cannot_be_seen_into_books_the_host() {
        let stat = ProcessStat::of(i32::try_from(std::process::id()).expect("a number"));
        let render = Render::of_unknown("rqd", &stat.expect("it runs"));
        assert_eq!(render.farm, Farm::Generic);
        assert_eq!(render.environment.len(), 1, "no cores of it: {:?}", render.environment);
    }

    #[test]
    fn a_process_has_an_environment() {
        let own = i32::try_from(std::process::id()).expect("a number");
        let environment = environment_of(own).expect("readable");
        assert!(environment.iter().any(|(name, _)| name == "PATH"));
    }
}
