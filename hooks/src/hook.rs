//! One hook from its start to its end.
//!
//! # Invariants
//! - A preflight's order: raise the epoch, book, have the work stopped, then tell the monitor.
//!   Every step is tried whatever became of the one before.
//! - After a preflight, either the agent has said that it released the host or every recorded
//!   process group was sent its end.
//! - A preflight that hangs has them sent their end all the same, at its deadline.
//! - The exit code is 0, and the process ends at its deadline, or at most
//!   [`crate::limits::LAST_STOP`] after it.

mod exit;
mod input;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use gleaner_protocol::farm::{HookEvent, HookKind};
use gleaner_protocol::{BookingId, Epoch, HostName, Span, Time, boottime};

use crate::end_watch::EndWatch;
use crate::farm::{Attempt, fallback_booking};
use crate::limits::{AGENT_TIMEOUT, DEADLINE, DEADLINE_MAX, INPUT_WAIT};
use crate::{
    BookingChange, Environment, Farm, Notification, RunDir, SocketAnswer, SocketRequest,
    StopReport, ask,
};

pub use exit::{run_to_exit, say};

/// What a hook is to do.
#[derive(Debug, Clone)]
pub struct HookInvocation {
    /// Preflight or postflight.
    pub kind: HookKind,
    /// Whose environment it has.
    pub farm: Farm,
    /// The host's run folder.
    pub run_dir: PathBuf,
    /// The monitor, as `http://host:port` or `https://host:port`; none where the agent's samples are to do.
    pub monitor_url: Option<String>,
    /// File with the token that the monitor asks for.
    pub monitor_token_file: Option<PathBuf>,
    /// Certificates to trust for the monitor's instead of the system's.
    pub monitor_ca_file: Option<PathBuf>,
    /// The host's name; else as the farm says, else the system's host name.
    pub host: Option<HostName>,
    /// How long the agent may take to answer; at most half of the deadline, for the other half is
    /// for stopping the work without it.
    pub agent_timeout: Span,
    /// After how long the process ends whatever hangs.
    pub deadline: Span,
    /// What the farm manager says.
    pub environment: Environment,
    /// Program and first arguments of what tells the monitor; else this program with
    /// `hook notify`.
    pub notify_command: Option<Vec<OsString>>,
    /// The process that the render ends with, where that is to end the booking; a postflight
    /// then ends it when that process has ended, and not before.
    pub until_end_of: Option<i32>,
    /// Whether a postflight ends only what is booked: one that may come without a preflight, such as
    /// that of a worker that starts, takes back none that comes after it.
    pub if_booked: bool,
    /// Program and first arguments of what watches that process; else this program with
    /// `hook watch`.
    pub watch_command: Option<Vec<OsString>>,
    /// What was wrong with these settings, in words: said when the host is free.
    pub notes: Vec<String>,
}

impl HookInvocation {
    /// With the defaults, and this process's environment.
    #[must_use]
    pub fn new(kind: HookKind, farm: Farm, run_dir: impl Into<PathBuf>) -> Self {
        Self {
            kind,
            farm,
            run_dir: run_dir.into(),
            monitor_url: None,
            monitor_token_file: None,
            monitor_ca_file: None,
            host: None,
            agent_timeout: AGENT_TIMEOUT,
            deadline: DEADLINE,
            environment: Environment::of_process(),
            notify_command: None,
            until_end_of: None,
            if_booked: false,
            watch_command: None,
            notes: Vec::new(),
        }
    }

    /// With times within their bounds, so that the agent's silence leaves time to do without it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.deadline = self.deadline.min(DEADLINE_MAX);
        let half = Span::from_micros(self.deadline.as_micros() / 2);
        self.agent_timeout = self.agent_timeout.min(half);
        self
    }
}

/// What a hook did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookReport {
    /// Which attempt it was about.
    pub booking: Option<BookingId>,
    /// The host's epoch after it.
    pub epoch: Option<Epoch>,
    /// What it changed in the run folder.
    pub change: Option<BookingChange>,
    /// The agent's answer, if there was a good one.
    pub answer: Option<SocketAnswer>,
    /// What it stopped itself, for want of a good answer.
    pub stopped: Option<StopReport>,
    /// Whether a process was started that ends the booking with another.
    pub watching: bool,
    /// Whether a process was started that tells the monitor.
    pub notifying: bool,
    /// What went wrong, in words.
    pub troubles: Vec<String>,
    /// How long it took until nothing harvested was in the render's way.
    pub released_after: Option<Span>,
    /// How long it took.
    pub took: Span,
}

impl HookReport {
    /// What went wrong in one line; none where nothing did.
    #[must_use]
    pub fn trouble_line(&self, kind: HookKind) -> Option<String> {
        if self.troubles.is_empty() {
            return None;
        }
        let word = match kind {
            HookKind::Preflight => "preflight",
            HookKind::Postflight => "postflight",
        };
        let text = self.troubles.join("; ");
        let line: String =
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1_000).collect();
        Some(format!("gleaner hook {word}: {line}"))
    }
}

/// Does what a hook does. Never fails and never panics; troubles are in the report.
#[must_use]
pub fn run(invocation: &HookInvocation) -> HookReport {
    run_and_tell(invocation, &AtomicBool::new(false))
}

/// Sets `is_free` as soon as nothing is left to be stopped.
fn run_and_tell(invocation: &HookInvocation, is_free: &AtomicBool) -> HookReport {
    let begun = boottime();
    let mut report = HookReport { troubles: invocation.notes.clone(), ..HookReport::default() };
    let done = catch_unwind(AssertUnwindSafe(|| {
        Hook::new(begun, invocation, is_free, &mut report).run();
    }));
    if done.is_err() {
        report.troubles.push("a bug stopped the hook half-way".into());
        if invocation.kind == HookKind::Preflight && report.answer.is_none() {
            let stop = || RunDir::open(&invocation.run_dir).map(|folder| folder.stop_groups());
            report.stopped = catch_unwind(stop).ok().and_then(Result::ok);
        }
    }
    report.took = boottime().since(begun);
    report
}

/// Reads what the farm says; what it writes to our input is read here, where a deadline watches.
fn attempt_of(invocation: &HookInvocation) -> Attempt {
    let (farm, environment) = (invocation.farm, &invocation.environment);
    let hosts = farm.hosts_variable().and_then(|name| environment.get(name));
    if let (Some(path), HookKind::Preflight) = (hosts, invocation.kind) {
        // Where it cannot be read, the arguments have to do.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let text = file.and_then(|file| input::read(&file, INPUT_WAIT));
        return match text {
            Ok(text) => farm.attempt(&environment.clone().with_hosts(text)),
            Err(_) => farm.attempt(environment),
        };
    }
    if !farm.writes_to_input() || environment.input().is_some() {
        return farm.attempt(environment);
    }
    match input::read(&std::io::stdin(), INPUT_WAIT) {
        Ok(text) => farm.attempt(&environment.clone().with_input(text)),
        Err(error) => {
            let mut attempt = farm.attempt(environment);
            attempt.troubles.push(format!("standard input: {error}"));
            attempt
        }
    }
}

/// When a render's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is gone.
    Was,
    /// It may still run.
    IsToCome,
}

/// A hook under way.
struct Hook<'a> {
    begun: Time,
    invocation: &'a HookInvocation,
    is_free: &'a AtomicBool,
    attempt: Attempt,
    booking: BookingId,
    report: &'a mut HookReport,
}

impl<'a> Hook<'a> {
    fn new(
        begun: Time,
        invocation: &'a HookInvocation,
        is_free: &'a AtomicBool,
        report: &'a mut HookReport,
    ) -> Self {
        let mut attempt = attempt_of(invocation);
        report.troubles.append(&mut attempt.troubles);
        let booking = attempt.booking.take().unwrap_or_else(|| {
            let fallback = fallback_booking(&invocation.environment);
            let farm = invocation.farm;
            report.troubles.push(format!(
                "the environment names no {farm} job, so the whole host is booked as {fallback}"
            ));
            // Of a render that has no name, its size is not to be believed either.
            attempt.booked = gleaner_protocol::farm::Booked::default();
            fallback
        });
        report.booking = Some(booking.clone());
        Self { begun, invocation, is_free, attempt, booking, report }
    }

    fn run(mut self) {
        let folder = match RunDir::open(&self.invocation.run_dir) {
            Ok(folder) => Some(folder),
            Err(error) => {
                self.report.troubles.push(error.to_string());
                None
            }
        };
        match self.invocation.kind {
            HookKind::Preflight => {
                self.preflight(folder.as_ref());
                self.watch();
            }
            HookKind::Postflight => {
                if self.watch() == Some(End::IsToCome) {
                    return;
                }
                self.postflight(folder.as_ref());
            }
        }
        self.tell_monitor();
    }

    /// Has the booking end with the render's process, where one is named. One that cannot be waited
    /// for may run for hours yet: its booking stays.
    fn watch(&mut self) -> Option<End> {
        let pid = self.invocation.until_end_of?;
        let host = self.invocation.host.clone().or_else(|| self.attempt.host.clone());
        let watched = match EndWatch::of(pid, self.booking.clone(), host, self.invocation) {
            Ok(None) => {
                let trouble = format!("cannot wait for the end of process {pid}: it has ended");
                self.report.troubles.push(trouble);
                return Some(End::Was);
            }
            Ok(Some(watch)) => self
                .command(&self.invocation.watch_command, "watch")
                .and_then(|command| watch.spawn(&command)),
            Err(error) => Err(error),
        };
        match watched {
            Ok(()) => self.report.watching = true,
            Err(error) => self.report.troubles.push(format!(
                "cannot wait for the end of process {pid}, so its booking stays until somebody says \
                 that it has ended: {error}"
            )),
        }
        Some(End::IsToCome)
    }

    fn preflight(&mut self, folder: Option<&RunDir>) {
        if let Some(folder) = folder {
            self.report.epoch = self.noting(folder.raise_epoch());
            let begun = folder.begin_booking(&self.booking, &self.attempt.booked);
            self.report.change = self.noting(begun);
        }
        let request = SocketRequest::Preflight {
            booking: self.booking.clone(),
            booked: self.attempt.booked,
            epoch: self.report.epoch,
        };
        match self.ask(&request) {
            Some(answer @ SocketAnswer::Released { .. }) => self.report.answer = Some(answer),
            other => {
                if let Some(answer) = other {
                    self.report.troubles.push(format!("the agent answered {answer:.200?}"));
                }
                if let Some(folder) = folder {
                    self.stop(folder);
                }
            }
        }
        self.is_free.store(true, Ordering::Release);
        self.report.released_after = Some(boottime().since(self.begun));
        // The booking's end was here before it: the agent may have learnt of it from us alone.
        if self.report.change == Some(BookingChange::AlreadyEnded) {
            let (booking, epoch) = (self.booking.clone(), self.report.epoch);
            let _ = self.ask(&SocketRequest::Postflight { booking, epoch });
        }
    }

    fn postflight(&mut self, folder: Option<&RunDir>) {
        if let Some(folder) = folder {
            self.report.epoch = self.noting(folder.epoch());
            let ended = match self.invocation.if_booked {
                true => folder.end_booking_if_there(&self.booking),
                false => folder.end_booking(&self.booking),
            };
            self.report.change = self.noting(ended);
        }
        let (booking, epoch) = (self.booking.clone(), self.report.epoch);
        self.report.answer = self.ask(&SocketRequest::Postflight { booking, epoch });
    }

    fn stop(&mut self, folder: &RunDir) {
        let stopped = folder.stop_groups();
        if stopped.stopped > 0 {
            let groups = stopped.stopped;
            self.report.troubles.push(format!("stopped {groups} task groups without the agent"));
        }
        self.report.troubles.extend(stopped.troubles.iter().cloned());
        self.report.stopped = Some(stopped);
    }

    fn ask(&mut self, request: &SocketRequest) -> Option<SocketAnswer> {
        let socket = self.invocation.run_dir.join(crate::run_dir::SOCKET);
        self.noting(ask(&socket, request, self.invocation.agent_timeout))
    }

    fn tell_monitor(&mut self) {
        let Some(url) = self.invocation.monitor_url.clone() else { return };
        let Some(host) = self.host() else { return };
        // A preflight whose postflight was here first ends as that postflight; it carries the
        // epoch that it has raised all the same.
        let kind = match self.report.change {
            Some(BookingChange::AlreadyEnded) => HookKind::Postflight,
            _ => self.invocation.kind,
        };
        let resources = match kind {
            HookKind::Preflight => self.attempt.booked,
            HookKind::Postflight => gleaner_protocol::farm::Booked::default(),
        };
        let event = HookEvent {
            host,
            kind,
            booking: self.booking.clone(),
            resources,
            epoch: self.report.epoch.unwrap_or_default(),
            release_us: self.report.released_after.map(Span::as_micros),
            failed: self.attempt.failed.filter(|_| kind == HookKind::Postflight),
        };
        // Who tells is at home in another folder.
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let token_file = self.invocation.monitor_token_file.as_ref().map(absolute);
        let ca_file = self.invocation.monitor_ca_file.as_ref().map(absolute);
        let notification = Notification { url, token_file, ca_file, event };
        let command = self.command(&self.invocation.notify_command, "notify");
        let spawned = command.and_then(|command| notification.spawn(&command));
        match spawned {
            Ok(()) => self.report.notifying = true,
            Err(error) => {
                self.report.troubles.push(format!("cannot start telling the monitor: {error}"));
            }
        }
    }

    /// The one given, else this program's own.
    fn command(&self, given: &Option<Vec<OsString>>, word: &str) -> std::io::Result<Vec<OsString>> {
        match given {
            Some(command) => Ok(command.clone()),
            None => Ok(vec![std::env::current_exe()?.into_os_string(), "hook".into(), word.into()]),
        }
    }

    fn host(&mut self) -> Option<HostName> {
        let known = self.invocation.host.clone().or_else(|| self.attempt.host.take());
        if known.is_some() {
            return known;
        }
        let uname = rustix::system::uname();
        let name = uname.nodename().to_string_lossy();
        let host = HostName::new(&*name);
        self.noting(host)
    }

    fn noting<T, E: ToString>(&mut self, outcome: Result<T, E>) -> Option<T> {
        outcome.map_err(|error| self.report.troubles.push(error.to_string())).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_hosts_is_read_where_it_can_be_and_before_a_render_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hosts");
        std::fs::write(&file, "vm\nvm\n").expect("written");
        let cores = |kind, hosts: &std::path::Path| {
            let hosts = hosts.to_str().expect("plain").to_owned();
            let arguments = ["812.head", "artist", "artists", "shot", "nodes=2", "batch", ""];
            let environment: Environment =
                [("PBS_NODEFILE".to_owned(), hosts)].into_iter().collect();
            let mut invocation = HookInvocation::new(kind, Farm::Pbs, "/nowhere");
            invocation.environment = environment.with_arguments(arguments);
            attempt_of(&invocation).booked.cores
        };
        assert_eq!(cores(HookKind::Preflight, &file), Some(2), "two of its nodes are here");
        assert_eq!(cores(HookKind::Postflight, &file), Some(1));
        let gone = folder.path().join("gone");
        assert_eq!(cores(HookKind::Preflight, &gone), Some(1), "as the arguments have it");
    }
}
