//! The recordings of our own resource monitor.

use std::collections::BTreeMap;

use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::recording::{Head, HostLine, Line, VERSION};
use gleaner_protocol::{HostName, Span, Time};

use super::log::{Lines, LogError, quoted};
use super::trace::{Occupation, Trace, TraceHost};
use crate::limits::{REPLAY_CHANGES_MAX, REPLAY_HOSTS_MAX};

/// Whether a line looks like the first of a recording.
pub(crate) fn is_head(line: &str) -> bool {
    line.trim_start().starts_with("{\"recording\"")
}

/// Reads a recording, or several behind each other.
///
/// # Errors
/// The first line that is none of a recording. One that was cut short is borne at the end and
/// where the monitor was started anew.
pub(crate) fn read(mut lines: Lines) -> Result<Trace, LogError> {
    let path = lines.path().to_owned();
    let mut reader = Reader::default();
    let mut torn: Option<LogError> = None;
    while let Some(text) = lines.next()? {
        if text.trim().is_empty() {
            continue;
        }
        let line = match serde_json::from_str::<Line>(text) {
            Ok(line) => line,
            Err(error) => {
                let found = format!("{} ({error})", quoted(text));
                let wrong = lines.wrong(found, "a line of a monitor's recording");
                if !error.is_eof() || torn.is_some() {
                    return Err(torn.unwrap_or(wrong));
                }
                torn = Some(wrong);
                continue;
            }
        };
        let begins_anew = matches!(line, Line::Recording(_));
        if let Some(torn) = torn.take().filter(|_| !begins_anew) {
            return Err(torn);
        }
        reader.take(line).map_err(|(found, expected)| lines.wrong(found, expected))?;
    }
    reader.into_trace(&path)
}

type Wrong = (String, String);

#[derive(Debug, Default)]
struct Reader {
    hosts: Vec<TraceHost>,
    by_name: BTreeMap<HostName, u32>,
    /// Whether a host was told of since the last head that continues nothing.
    known: Vec<bool>,
    changes: Vec<Occupation>,
    head: Option<Head>,
    /// What is added to times of the present life of the monitor's machine.
    base: Span,
    first: Option<Time>,
    last: Time,
    renders: u64,
    /// Of each host that the monitor gives cores of, how many, since when.
    open: BTreeMap<HostName, (Time, u32)>,
    given_core_us: u128,
}

impl Reader {
    fn take(&mut self, line: Line) -> Result<(), Wrong> {
        if let Line::Recording(head) = line {
            return self.begin(head);
        }
        if self.head.is_none() {
            return Err(("no beginning".into(), "a line {\"recording\": …} first".into()));
        }
        let at = self.time(line.t_us());
        if at < self.last {
            let back = self.last.since(at).as_micros();
            return Err((
                format!("t_us = {}, {back} us before the line above", line.t_us()),
                "lines in the order of their times".into(),
            ));
        }
        self.last = at;
        match line {
            Line::Host(host) => self.change(at, host)?,
            Line::Preflight(_) => self.renders += 1,
            Line::Opened(line) => {
                let before = self.open.insert(line.host, (at, line.cores));
                self.count_given(before, at);
            }
            Line::Closed(line) => {
                let before = self.open.remove(&line.host);
                self.count_given(before, at);
            }
            _ => {}
        }
        Ok(())
    }

    fn count_given(&mut self, open: Option<(Time, u32)>, until: Time) {
        if let Some((from, cores)) = open {
            self.given_core_us += u128::from(until.since(from).as_micros()) * u128::from(cores);
        }
    }

    /// All that is open closes.
    fn close_all(&mut self) {
        for open in std::mem::take(&mut self.open).into_values() {
            self.count_given(Some(open), self.last);
        }
    }

    fn time(&self, t_us: u64) -> Time {
        Time::from_micros(t_us) + self.base
    }

    fn begin(&mut self, head: Head) -> Result<(), Wrong> {
        if head.version != VERSION {
            let found = format!("version {} of the format", head.version);
            return Err((found, format!("version {VERSION}")));
        }
        let same_life = self.head.as_ref().is_some_and(|before| before.boot == head.boot);
        if !same_life {
            let booted = Span::from_secs(head.booted_s);
            // A machine whose clock was set back: time does not run backwards for the farm.
            let least = self.last.since(Time::from_micros(head.t_us));
            self.base = booted.max(least);
        }
        let at = self.time(head.t_us);
        if at < self.last {
            let found = format!("t_us = {}, before the line above", head.t_us);
            return Err((found, "a recording that begins after the one above it".into()));
        }
        if !head.continued {
            self.lose_sight();
        }
        self.first.get_or_insert(at);
        self.last = at;
        self.head = Some(head);
        Ok(())
    }

    /// The monitor ended after the last line: nothing is known of its hosts from then on.
    fn lose_sight(&mut self) {
        self.close_all();
        for (host, known) in (0..).zip(&mut self.known) {
            if std::mem::take(known) {
                self.changes.push(Occupation {
                    at: self.last,
                    host,
                    cores: 0,
                    busy: 0,
                    least_idle: 0,
                    disturbed: true,
                    shut: true,
                });
            }
        }
    }

    fn change(&mut self, at: Time, line: HostLine) -> Result<(), Wrong> {
        if line.cores > CORES_MAX {
            return Err((format!("{} cores", line.cores), format!("at most {CORES_MAX}")));
        }
        if line.busy > line.cores {
            let found = format!("{} cores busy", line.busy);
            return Err((found, format!("at most the {} that the host has", line.cores)));
        }
        if self.hosts.len() >= REPLAY_HOSTS_MAX || self.changes.len() >= REPLAY_CHANGES_MAX {
            let most = format!("at most {REPLAY_HOSTS_MAX} hosts and {REPLAY_CHANGES_MAX} changes");
            return Err(("a line more than can be replayed".into(), most));
        }
        let next = u32::try_from(self.hosts.len()).expect("REPLAY_HOSTS_MAX fits u32");
        let host = *self.by_name.entry(line.host.clone()).or_insert(next);
        if host == next {
            self.hosts.push(TraceHost { name: line.host.to_string(), cores: 0 });
            self.known.push(false);
        }
        let is_first = !std::mem::replace(&mut self.known[host as usize], true);
        let (cores, busy) = if line.seen { (line.cores, line.busy) } else { (0, 0) };
        let disturbed = line.disturbed || is_first;
        let (least_idle, shut) = (cores - busy, line.shut);
        self.changes.push(Occupation { at, host, cores, busy, least_idle, disturbed, shut });
        Ok(())
    }

    fn into_trace(mut self, path: &str) -> Result<Trace, LogError> {
        let Some(first) = self.first else {
            return Err(LogError::empty(path, "the recording of a monitor"));
        };
        self.close_all();
        let mut trace = Trace::new(path, self.hosts, self.changes, first, self.last)?;
        trace.jobs = self.renders;
        trace.told_core_us = Some(self.given_core_us);
        Ok(trace)
    }
}

#[cfg(test)]
mod tests;
