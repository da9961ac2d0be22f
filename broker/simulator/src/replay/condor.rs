//! HTCondor's user logs: one event after the other, each a head line, details, and `...`.
//!
//! ```text
//! 001 (45358.000.000) 02/22 17:21:36 Job executing on host: <10.32.74.94:9618?addrs=…>
//! ...
//! 005 (45358.000.000) 02/22 17:22:12 Job terminated.
//!     (1) Normal termination (return value 0)
//! ...
//! ```
//!
//! The log knows of jobs, not of hosts: every host that ran one counts as there for the whole
//! log, with the cores that the caller says, or as many as were busy on it at once if that is
//! more. A job is busy from the event 001 (executing) to the next that says that it is on its
//! host no longer. A last event without its end, as in a log that is still written, counts.
//!
//! Source: HTCondor Manual, "Job Event Log Codes".

mod stamp;

use std::collections::BTreeMap;

use gleaner_protocol::Time;
use gleaner_protocol::limits::CORES_MAX;

use self::stamp::{Clock, Stamp};
use super::bookings::{Booking, lay_out};
use super::log::{Lines, LogError, quoted};
use super::trace::{Trace, TraceHost};
use crate::limits::REPLAY_HOSTS_MAX;

/// Executing on a host.
const EXECUTE: u16 = 1;
/// Executable error, evicted, terminated, shadow exception, aborted, held, reconnect failed: the
/// job is on its host no longer.
const ENDS: [u16; 7] = [2, 4, 5, 7, 9, 12, 24];

/// What marks the end of an event.
const END_OF_EVENT: &str = "...";

/// Whether a line looks like the head of an event.
pub(crate) fn is_head(line: &str) -> bool {
    line.as_bytes()
        .get(..5)
        .is_some_and(|start| start[..3].iter().all(u8::is_ascii_digit) && &start[3..] == b" (")
}

/// Reads a user log. Hosts have `cores_per_host` cores.
///
/// # Errors
/// The first line that is none of a user log, or that nothing ran.
pub(crate) fn read(mut lines: Lines, cores_per_host: u32) -> Result<Trace, LogError> {
    let path = lines.path().to_owned();
    let mut reader = Reader { cores_per_host, ..Reader::default() };
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        let head = Head::parse(line, &mut reader.clock);
        let begun = head.and_then(|head| reader.begin(head));
        begun.map_err(|(found, expected)| lines.wrong(found, expected))?;
        while let Some(line) = lines.next()? {
            if line == END_OF_EVENT {
                break;
            }
            if is_head(line) {
                let found = format!("an event that begins inside of another, {}", quoted(line));
                return Err(lines.wrong(found, "the line \"...\" that ends an event"));
            }
            let read = reader.detail(line);
            read.map_err(|(found, expected)| lines.wrong(found, expected))?;
        }
        reader.finish();
    }
    reader.into_trace(&path)
}

/// What was found and what was expected.
type Wrong = (String, String);

fn wrong<T>(found: impl Into<String>, expected: impl Into<String>) -> Result<T, Wrong> {
    Err((found.into(), expected.into()))
}

/// The first line of an event.
#[derive(Debug)]
struct Head<'a> {
    code: u16,
    job: (u64, u64, u64),
    at: Time,
    text: &'a str,
}

impl<'a> Head<'a> {
    fn parse(line: &'a str, clock: &mut Clock) -> Result<Self, Wrong> {
        let expected = "an event, as in \"001 (17.0.0) 02/22 17:21:36 Job executing on host: …\"";
        if !is_head(line) {
            return wrong(quoted(line), expected);
        }
        let code = line[..3].parse().expect("three digits");
        let Some((job, rest)) = line[5..].split_once(") ") else {
            return wrong(quoted(line), expected);
        };
        let mut numbers = job.split('.').map(str::parse::<u64>);
        let job = match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(cluster)), Some(Ok(process)), Some(Ok(part)), None) => {
                (cluster, process, part)
            }
            _ => {
                let expected = "three numbers, as in \"(17.0.0)\"";
                return wrong(format!("a job ({})", quoted(job)), expected);
            }
        };
        let Some((stamp, text)) = Stamp::split(rest) else {
            let expected = "a time, as in \"02/22 17:21:36\" or \"2021-02-22 17:21:36\"";
            return wrong(quoted(rest), expected);
        };
        let at = clock.read(stamp)?;
        Ok(Self { code, job, at, text })
    }
}

/// The event in hand, where it is one of a job that begins on a host.
#[derive(Debug)]
struct Start {
    job: (u64, u64, u64),
    at: Time,
    address: String,
    cores: u32,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    host: u32,
    cores: u32,
    from: Time,
}

#[derive(Debug, Default)]
struct Reader {
    cores_per_host: u32,
    clock: Clock,
    hosts: Vec<TraceHost>,
    by_name: BTreeMap<String, u32>,
    running: BTreeMap<(u64, u64, u64), Running>,
    bookings: Vec<Booking>,
    start: Option<Start>,
    first: Option<Time>,
    last: Time,
}

impl Reader {
    fn begin(&mut self, head: Head<'_>) -> Result<(), Wrong> {
        self.first = Some(self.first.map_or(head.at, |first| first.min(head.at)));
        self.last = self.last.max(head.at);
        if head.code == EXECUTE {
            let Some(address) = address_in(head.text) else {
                return wrong(quoted(head.text), "\"Job executing on host: <ADDRESS>\"");
            };
            let address = address.to_owned();
            self.start = Some(Start { job: head.job, at: head.at, address, cores: 1 });
        } else if ENDS.contains(&head.code) {
            self.end(head.job, head.at);
        }
        Ok(())
    }

    /// A line inside of an event.
    fn detail(&mut self, line: &str) -> Result<(), Wrong> {
        let Some(start) = &mut self.start else { return Ok(()) };
        let line = line.trim();
        if let Some(slot) = line.strip_prefix("SlotName: ") {
            // Hosts behind one gateway share its address, never the name of the machine.
            start.address = slot.split_once('@').map_or(slot, |(_, machine)| machine).to_owned();
        } else if let Some(cpus) = line.strip_prefix("Cpus = ") {
            start.cores = match cpus.trim().parse() {
                Ok(cores @ 1..=CORES_MAX) => cores,
                _ => {
                    let expected = format!("a number of cores from 1 to {CORES_MAX}");
                    return wrong(quoted(line), expected);
                }
            };
        }
        Ok(())
    }

    /// The event has ended.
    fn finish(&mut self) {
        let Some(Start { job, at, address, cores }) = self.start.take() else { return };
        // A job that begins anew without a word of its end was lost where it ran before.
        self.end(job, at);
        let next = u32::try_from(self.hosts.len()).expect("REPLAY_HOSTS_MAX fits u32");
        let host = *self.by_name.entry(address.clone()).or_insert(next);
        if host == next {
            self.hosts.push(TraceHost { name: address, cores: self.cores_per_host });
        }
        self.running.insert(job, Running { host, cores, from: at });
    }

    fn end(&mut self, job: (u64, u64, u64), until: Time) {
        if let Some(Running { host, cores, from }) = self.running.remove(&job) {
            self.bookings.push(Booking { host, cores, from, until });
        }
    }

    fn into_trace(mut self, path: &str) -> Result<Trace, LogError> {
        let Some(first) = self.first else {
            return Err(LogError::empty(path, "events of HTCondor jobs"));
        };
        let still: Vec<_> = self.running.keys().copied().collect();
        still.into_iter().for_each(|job| self.end(job, self.last));
        if self.bookings.is_empty() {
            return Err(LogError::empty(path, "jobs that executed (events 001)"));
        }
        if self.hosts.len() > REPLAY_HOSTS_MAX {
            let found = format!("there are {} hosts", self.hosts.len());
            return Err(LogError::file(path, found, format!("at most {REPLAY_HOSTS_MAX}")));
        }
        lay_out(path, self.hosts, &self.bookings, first, self.last)
    }
}

/// The address in the text of an event 001: what comes before the `?`.
fn address_in(text: &str) -> Option<&str> {
    let (_, address) = text.split_once("host: ")?;
    let address = address.strip_prefix('<').unwrap_or(address);
    let end = address.find(['?', '>', ' ']).unwrap_or(address.len());
    Some(&address[..end]).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests;
