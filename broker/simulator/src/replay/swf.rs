//! The Standard Workload Format: one job per line, eighteen numbers each, −1 where unknown,
//! behind a header of comments.
//!
//! ```text
//! ; MaxNodes: 128
//! ; MaxProcs: 512
//! ;  job submit wait  run procs cpu mem rprocs rtime rmem status user group exe queue part prev think
//!      1      0   10  600     4  -1  -1      4   900   -1      1    3     1   1     1    1   -1    -1
//! ```
//!
//! The format says how many processors a job had, not which: jobs are [placed](nodes) on the
//! nodes of the header in the order of their beginnings.
//!
//! Source: S. J. Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job
//! Schedulers", 1999, and the definition of version 2.2.

mod nodes;

use gleaner_protocol::limits::CORES_MAX;
use gleaner_protocol::{Span, Time};

use self::nodes::Nodes;
use super::bookings::{Booking, lay_out};
use super::log::{Lines, LogError, quoted};
use super::trace::{Trace, TraceHost};
use crate::limits::{REPLAY_CHANGES_MAX, REPLAY_HOSTS_MAX};

const FIELDS: usize = 18;
/// Partial executions of a job that was swapped out; its summary has another line.
const PARTIAL: [f64; 3] = [2.0, 3.0, 4.0];
/// Longest time from the beginning of the log, in seconds: 100 years.
const SECONDS_MAX: f64 = 100.0 * 366.0 * 86_400.0;

/// Whether a line looks like the first of such a log.
pub(crate) fn is_head(line: &str) -> bool {
    line.trim_start().starts_with(';') || fields(line).is_ok()
}

/// Reads a log. Nodes have `cores_per_host` cores where that is not 0, else what the header says.
///
/// # Errors
/// The first line that is none, or that the header lacks the size of the machine.
pub(crate) fn read(mut lines: Lines, cores_per_host: u32) -> Result<Trace, LogError> {
    let path = lines.path().to_owned();
    let mut header = Header::default();
    let mut jobs = Vec::new();
    while let Some(line) = lines.next()? {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix(';') {
            let read = header.read(comment);
            read.map_err(|(found, expected)| lines.wrong(found, expected))?;
            continue;
        }
        let job = fields(line).and_then(|fields| Job::of(&fields, &header));
        let job = job.map_err(|(found, expected)| lines.wrong(found, expected))?;
        jobs.extend(job);
        if jobs.len() > REPLAY_CHANGES_MAX / 2 {
            let most = format!("at most {} jobs", REPLAY_CHANGES_MAX / 2);
            return Err(lines.wrong("a job more than that".into(), most));
        }
    }
    if jobs.is_empty() {
        return Err(LogError::empty(&path, "jobs that ran, one per line"));
    }
    let nodes = header.nodes(cores_per_host).map_err(|(found, expected)| LogError::File {
        path: path.clone(),
        found,
        expected,
    })?;
    place(&path, jobs, nodes)
}

type Wrong = (String, String);

/// The numbers of a line.
fn fields(line: &str) -> Result<[f64; FIELDS], Wrong> {
    let mut numbers = [0.0; FIELDS];
    let mut count = 0;
    for word in line.split_whitespace() {
        let Ok(number) = word.parse::<f64>() else {
            return Err((quoted(word), "a number".into()));
        };
        if !number.is_finite() {
            return Err((quoted(word), "a finite number".into()));
        }
        if let Some(place) = numbers.get_mut(count) {
            *place = number;
        }
        count += 1;
    }
    if count != FIELDS {
        return Err((format!("{count} fields"), format!("the {FIELDS} fields of a job")));
    }
    Ok(numbers)
}

/// What the comments say of the machine.
#[derive(Debug, Default)]
struct Header {
    nodes: Option<u32>,
    processors: Option<u32>,
}

impl Header {
    fn read(&mut self, comment: &str) -> Result<(), Wrong> {
        let Some((key, value)) = comment.split_once(':') else { return Ok(()) };
        let place = match key.trim() {
            "MaxNodes" => &mut self.nodes,
            "MaxProcs" => &mut self.processors,
            _ => return Ok(()),
        };
        let word = value.split_whitespace().next().unwrap_or_default();
        match word.parse() {
            Ok(number @ 1..) => *place = Some(number),
            // The format writes −1 for what is not known.
            _ if word == "-1" => {}
            _ => {
                let found = format!("{} = {}", key.trim(), quoted(word));
                return Err((found, "a number of at least 1".into()));
            }
        }
        Ok(())
    }

    /// Processors of the whole machine.
    fn size(&self) -> Option<u32> {
        self.processors.or(self.nodes)
    }

    fn nodes(&self, cores_per_host: u32) -> Result<Vec<u32>, Wrong> {
        let Some(processors) = self.size() else {
            return Err((
                "the header does not say how large the machine is".into(),
                "a comment \"; MaxProcs: NUMBER\"".into(),
            ));
        };
        let nodes = match (cores_per_host, self.nodes) {
            (0, Some(nodes)) => nodes.min(processors),
            (0, None) => processors,
            (cores, _) => processors.div_ceil(cores),
        };
        let (each, more) = (processors / nodes, processors % nodes);
        if nodes as usize > REPLAY_HOSTS_MAX || each >= CORES_MAX {
            let found = format!("{nodes} nodes of {each} processors");
            let most = format!("at most {REPLAY_HOSTS_MAX} nodes of less than {CORES_MAX}");
            return Err((found, most));
        }
        Ok((0..nodes).map(|node| each + u32::from(node < more)).collect())
    }
}

/// A job that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    from: Time,
    until: Time,
    processors: u32,
}

impl Job {
    /// The job of a line; `None` where it did not run.
    fn of(fields: &[f64; FIELDS], header: &Header) -> Result<Option<Self>, Wrong> {
        let [_, submit, wait, run, allocated, _, _, requested, _, _, status, ..] = *fields;
        let seconds = |name: &str, value: f64| match value {
            -1.0 => Ok(None),
            0.0..=SECONDS_MAX => Ok(Some(value)),
            _ => Err((format!("{name} {value}"), "seconds, or -1 where unknown".to_owned())),
        };
        let (submit, wait, run) = (
            seconds("the submit time", submit)?,
            seconds("the wait time", wait)?,
            seconds("the run time", run)?,
        );
        let Some(submit) = submit else {
            return Err(("no submit time".into(), "seconds since the log began".into()));
        };
        let processors = |name: &str, value: f64| match value {
            -1.0 | 0.0 => Ok(None),
            1.0..=4e9 => Ok(Some(value as u32)),
            _ => Err((format!("{value} {name}"), "a number, or -1 where unknown".to_owned())),
        };
        let allocated = processors("allocated processors", allocated)?;
        let requested = processors("requested processors", requested)?;
        let Some(run) = run.filter(|run| *run > 0.0 && !PARTIAL.contains(&status)) else {
            return Ok(None);
        };
        let Some(processors) = allocated.or(requested) else {
            return Err((
                "a job that ran on no processor".into(),
                "allocated or requested processors".into(),
            ));
        };
        if let Some(size) = header.size().filter(|size| processors > *size) {
            let found = format!("a job of {processors} processors");
            return Err((found, format!("at most the {size} of the header")));
        }
        let from = Time::ZERO + micros(submit + wait.unwrap_or(0.0));
        Ok(Some(Self { from, until: from + micros(run), processors }))
    }
}

fn micros(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6) as u64)
}

/// Places jobs on nodes as they begin.
fn place(path: &str, mut jobs: Vec<Job>, sizes: Vec<u32>) -> Result<Trace, LogError> {
    jobs.sort_unstable();
    let begin = jobs[0].from;
    let end = jobs.iter().map(|job| job.until).max().expect("there are jobs");
    let count = jobs.len() as u64;
    let mut nodes = Nodes::new(&sizes);
    let mut bookings: Vec<Booking> = Vec::with_capacity(jobs.len());
    let mut overbooked = 0;
    for job in jobs {
        let placed = nodes.place(job.from, job.until, job.processors);
        let missing = job.processors - placed.iter().map(|(_, cores)| cores).sum::<u32>();
        overbooked += u64::from(missing) * job.until.since(job.from).as_micros();
        bookings.extend(placed.iter().map(|&(host, cores)| Booking {
            host,
            cores,
            from: job.from,
            until: job.until,
        }));
        if bookings.len() > REPLAY_CHANGES_MAX / 2 {
            let most = format!("at most {} of them", REPLAY_CHANGES_MAX / 2);
            return Err(LogError::file(path, "more parts of jobs on nodes", most));
        }
    }
    let host = |(node, cores): (usize, u32)| TraceHost { name: format!("node{node}"), cores };
    let hosts = sizes.into_iter().enumerate().map(host).collect();
    let mut trace = lay_out(path, hosts, &bookings, begin, end)?;
    trace.jobs = count;
    trace.overbooked_core_us = overbooked;
    Ok(trace)
}

#[cfg(test)]
mod tests;
