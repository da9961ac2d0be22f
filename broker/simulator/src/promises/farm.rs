//! Recorded farms as numbers of idle and open cores, minute by minute.

use gleaner_protocol::{Span, Time};

use super::IDLE_PERCENT;
use crate::replay::format::read_lines;
use crate::replay::log::{Lines, LogError};
use crate::replay::openings::openings;
use crate::replay::trace::Trace;
use crate::replication::{Day, SAMPLES, read_trace};

/// The quiet period of the resource monitor.
const QUIET: Span = Span::from_secs(60);
const MINUTE_US: u64 = 60_000_000;
/// Minutes of a sample of a load.
const SAMPLE_MINUTES: usize = 1440 / SAMPLES;
/// Shortest log of which anything can be said, in minutes.
const MINUTES_MIN: usize = 6 * 60;

/// A recorded farm.
pub(super) struct Farm {
    pub(super) name: String,
    /// Means of each minute.
    idle: Vec<f32>,
    open: Vec<f32>,
    /// Of the minutes before each place.
    open_sums: Vec<f64>,
}

/// All farms of these logs. Days of loads are one farm, which has as many servers as the day with
/// the fewest.
pub(super) fn farms(logs: &[String], until_day: f64) -> Result<Vec<Farm>, String> {
    if logs.is_empty() {
        return Err("promises needs a log: name a recording of the farm, --log FILE".into());
    }
    let mut farms = Vec::new();
    let mut days: Vec<Vec<Day>> = Vec::new();
    for path in logs {
        match read(path)? {
            Log::Trace(trace) => farms.push(Farm::of(path, &trace)),
            Log::Day(day) => days.push(day),
        }
    }
    if !days.is_empty() {
        farms.push(Farm::of_days(&days));
    }
    let until = (until_day * 1440.0).min(usize::MAX as f64) as usize;
    for farm in &mut farms {
        farm.idle.truncate(until);
        farm.open.truncate(until);
        if farm.minutes() < MINUTES_MIN {
            let (name, minutes) = (&farm.name, farm.minutes());
            let least = MINUTES_MIN / 60;
            return Err(format!(
                "{name}: it has {minutes} minutes; expected {least} hours or more"
            ));
        }
        farm.sum();
    }
    Ok(farms)
}

enum Log {
    Trace(Trace),
    Day(Vec<Day>),
}

fn read(path: &str) -> Result<Log, String> {
    let in_words = |error: LogError| error.to_string();
    let mut lines = Lines::open(path).map_err(in_words)?;
    // Only loads have many values between commas; all else says itself what it is.
    let is_loads = lines.peek().map_err(in_words)?.is_some_and(|line| {
        !line.trim_start().starts_with(['{', ';']) && line.split(',').count() > SAMPLES / 2
    });
    if is_loads {
        return read_trace(path).map(Log::Day);
    }
    read_lines(lines, "detect", 0).map(Log::Trace).map_err(in_words)
}

impl Farm {
    fn of(path: &str, trace: &Trace) -> Self {
        let minutes = usize::try_from(trace.end.as_micros() / MINUTE_US).unwrap_or(usize::MAX);
        let (mut idle, mut open) = (Changes::new(minutes), Changes::new(minutes));
        let mut before = vec![(0, 0); trace.hosts.len()];
        for change in &trace.changes {
            let last = &mut before[change.host as usize].0;
            idle.add(change.at, f64::from(change.idle()) - f64::from(*last));
            *last = change.idle();
        }
        for step in openings(trace, QUIET, 0) {
            let last = &mut before[step.host as usize].1;
            open.add(step.at, f64::from(step.slots) - f64::from(*last));
            *last = step.slots;
        }
        let (idle, open) = (idle.means(), open.means());
        Self { name: path.to_owned(), idle, open, open_sums: Vec::new() }
    }

    fn of_days(days: &[Vec<Day>]) -> Self {
        let servers = days.iter().map(Vec::len).min().unwrap_or(0);
        let mut open = Vec::with_capacity(days.len() * 1440);
        for day in days {
            for sample in 0..SAMPLES {
                let idle = day[..servers].iter().filter(|day| day[sample] < IDLE_PERCENT).count();
                open.extend([idle as f32; SAMPLE_MINUTES]);
            }
        }
        Self { name: "loads".into(), idle: open.clone(), open, open_sums: Vec::new() }
    }

    fn sum(&mut self) {
        let mut sum = 0.0;
        self.open_sums = vec![0.0];
        self.open_sums.extend(self.open.iter().map(|open| {
            sum += f64::from(*open);
            sum
        }));
    }

    pub(super) fn minutes(&self) -> usize {
        self.open.len()
    }

    pub(super) fn length_s(&self) -> f64 {
        60.0 * self.minutes() as f64
    }

    /// Idle and open cores in a minute.
    pub(super) fn at(&self, minute: usize) -> (u32, u32) {
        let whole = |cores: f32| libm::roundf(cores) as u32;
        let open = whole(self.open[minute]);
        (whole(self.idle[minute]).max(open), open)
    }

    /// Mean open cores between two minutes, or as far as the log goes.
    pub(super) fn mean_open(&self, from: usize, until: usize) -> f64 {
        let until = until.min(self.minutes());
        let from = from.min(until.saturating_sub(1));
        (self.open_sums[until] - self.open_sums[from]) / (until - from).max(1) as f64
    }
}

/// Changes of a number over time.
struct Changes(Vec<f64>);

impl Changes {
    fn new(minutes: usize) -> Self {
        Self(vec![0.0; minutes + 2])
    }

    fn add(&mut self, at: Time, change: f64) {
        let at = at.as_micros();
        let minute = usize::try_from(at / MINUTE_US).unwrap_or(usize::MAX);
        let late = (at % MINUTE_US) as f64 / MINUTE_US as f64;
        if let Some([this, next]) = self.0.get_mut(minute..minute.saturating_add(2)) {
            *this += change * (1.0 - late);
            *next += change * late;
        }
    }

    /// The mean of each minute.
    fn means(self) -> Vec<f32> {
        let minutes = self.0.len() - 2;
        let mut now = 0.0;
        let add = |change: f64| {
            now += change;
            now.max(0.0) as f32
        };
        self.0.into_iter().take(minutes).map(add).collect()
    }
}
