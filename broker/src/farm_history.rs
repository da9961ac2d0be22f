//! What the farm did over time, without anybody who scrapes metrics: cores that were rendered,
//! harvested, idle, and replicas that ended, by minute, hour and day.
//!
//! ```text
//!  data folder
//!  └── farm.jsonl   rows, as they were when they were written down; the last of each counts
//! ```
//!
//! Every few seconds the core is looked at, and what was seen last counts until then. Once a minute the
//! rows that have changed are written down.
//!
//! # Invariants
//! - Of each length so many rows are kept and no more; the oldest go first.
//! - A kill loses a minute at most. What a damaged file still says is kept, and the file moved aside.

mod file;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::api::{FarmHistoryRow, FarmNow, HistoryBy, LaneCores, ReplicaCounts};
use gleaner_protocol::job::Lane;
use gleaner_protocol::{Span, Time, boottime};
use serde::{Deserialize, Serialize};

use crate::driver::DriverHandle;
use crate::farm_state::farm_now;
use crate::limits::{FARM_LOOK, FARM_ROWS_MAX};
use crate::wall_clock::utc_ms;
use file::RowsFile;

/// Longest time for which one look counts: beyond it nobody saw what the farm did.
const LOOK_COUNTS_MAX: Span = Span::from_secs(60);

/// The history of a farm. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct FarmHistory {
    inner: Arc<Mutex<Inner>>,
    file: Arc<Mutex<RowsFile>>,
}

#[derive(Default)]
struct Inner {
    /// By [`HistoryBy`], each by the time at which a row begins.
    rows: [BTreeMap<u64, Sums>; 3],
    last: Option<Look>,
    /// The rows that have changed since they were written.
    changed: BTreeMap<(HistoryBy, u64), ()>,
    /// The minute of the last look.
    minute: u64,
}

/// What was seen.
struct Look {
    at: Time,
    now: FarmNow,
    totals: ReplicaCounts,
    /// Cores that the lanes hold.
    lanes: [f64; Lane::COUNT],
}

/// A row: sums over the time for which it was seen. Cores are core-seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Sums {
    seen_s: f64,
    hosts: f64,
    rendered: f64,
    harvested: f64,
    idle: f64,
    closed: f64,
    counted: u64,
    failed: u64,
    released: u64,
    ended_otherwise: u64,
    accepted_cpu_us: u64,
    /// Of what is harvested. Rows of earlier releases do not say.
    #[serde(default)]
    lanes: [f64; Lane::COUNT],
}

/// A row as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Line {
    by: HistoryBy,
    start_ms: u64,
    #[serde(flatten)]
    sums: Sums,
}

impl FarmHistory {
    /// Reads what a data folder knows.
    pub(crate) fn open(data_folder: &Path, min_free_bytes: u64) -> Self {
        let (file, lines) = RowsFile::open(data_folder, min_free_bytes);
        let mut inner = Inner::default();
        for Line { by, start_ms, sums } in lines {
            inner.rows[by as usize].insert(start_ms, sums);
        }
        inner.trim();
        Self { inner: Arc::new(Mutex::new(inner)), file: Arc::new(Mutex::new(file)) }
    }

    /// Looks at the core as long as the broker runs.
    pub(crate) async fn run(self, driver: DriverHandle) {
        let mut due = tokio::time::interval(FARM_LOOK);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let seen = driver.query(|core| {
                let lanes = core.farm().lane_shares().1.map(|permille| permille as f64 / 1e3);
                (farm_now(core), core.farm().totals(), lanes)
            });
            let Ok((now, totals, lanes)) = seen.await else { return };
            if self.look(utc_ms(), Look { at: boottime(), now, totals, lanes }) {
                let this = self.clone();
                // What cannot be written now is written with the next minute.
                let _ = tokio::task::spawn_blocking(move || this.save()).await;
            }
        }
    }

    /// The rows of one length that begin within a time.
    pub(crate) fn rows(&self, by: HistoryBy, from_ms: u64, to_ms: u64) -> Vec<FarmHistoryRow> {
        let inner = self.lock();
        let rows = inner.rows[by as usize].iter();
        let within = rows.filter(|(start_ms, _)| (from_ms..to_ms).contains(start_ms));
        within.map(|(start_ms, sums)| sums.row(*start_ms)).collect()
    }

    /// Writes down what has changed.
    pub(crate) fn save(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (changed, kept) = {
            let mut inner = self.lock();
            let keys = std::mem::take(&mut inner.changed);
            let line = |(by, start_ms): (HistoryBy, u64)| {
                let sums = *inner.rows[by as usize].get(&start_ms)?;
                Some(Line { by, start_ms, sums })
            };
            let changed: Vec<Line> = keys.into_keys().filter_map(line).collect();
            (changed, inner.rows.iter().map(BTreeMap::len).sum())
        };
        file.append(&changed, kept, || self.lock().lines());
    }

    /// Counts what was seen last until now. Whether a minute has ended.
    fn look(&self, utc_ms: u64, look: Look) -> bool {
        let mut inner = self.lock();
        if let Some(last) = inner.last.take() {
            let lasted = (look.at - last.at).min(LOOK_COUNTS_MAX);
            let sums = Sums::between(&last, &look, lasted);
            for by in HistoryBy::ALL {
                let start_ms = utc_ms - utc_ms % by.length_ms();
                inner.rows[by as usize].entry(start_ms).or_default().add(&sums);
                inner.changed.insert((by, start_ms), ());
            }
            inner.trim();
        }
        inner.last = Some(look);
        let minute = utc_ms / HistoryBy::Minute.length_ms();
        std::mem::replace(&mut inner.minute, minute) != minute
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn trim(&mut self) {
        for (rows, most) in self.rows.iter_mut().zip(FARM_ROWS_MAX) {
            while rows.len() > most {
                rows.pop_first();
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        let of = |by: HistoryBy| {
            let rows = self.rows[by as usize].iter();
            rows.map(move |(start_ms, sums)| Line { by, start_ms: *start_ms, sums: *sums })
        };
        HistoryBy::ALL.into_iter().flat_map(of).collect()
    }
}

impl Sums {
    /// What happened from one look to the next.
    fn between(last: &Look, next: &Look, lasted: Span) -> Self {
        let (was, is, seen_s) = (&last.totals, &next.totals, lasted.as_secs_f64());
        let since = |of: fn(&ReplicaCounts) -> u64| of(is).saturating_sub(of(was));
        let now = &last.now;
        Self {
            seen_s,
            hosts: now.hosts as f64 * seen_s,
            rendered: now.rendered * seen_s,
            harvested: now.harvested * seen_s,
            idle: now.idle * seen_s,
            closed: now.closed * seen_s,
            counted: since(|of| of.reported),
            failed: since(|of| of.failed),
            released: since(|of| of.released),
            ended_otherwise: since(|of| of.aborted.saturating_add(of.expired)),
            accepted_cpu_us: since(|of| of.accepted_cpu_us),
            lanes: last.lanes.map(|cores| cores * seen_s),
        }
    }

    fn add(&mut self, other: &Self) {
        self.seen_s += other.seen_s;
        self.hosts += other.hosts;
        self.rendered += other.rendered;
        self.harvested += other.harvested;
        self.idle += other.idle;
        self.closed += other.closed;
        self.counted = self.counted.saturating_add(other.counted);
        self.failed = self.failed.saturating_add(other.failed);
        self.released = self.released.saturating_add(other.released);
        self.ended_otherwise = self.ended_otherwise.saturating_add(other.ended_otherwise);
        self.accepted_cpu_us = self.accepted_cpu_us.saturating_add(other.accepted_cpu_us);
        for (own, more) in self.lanes.iter_mut().zip(other.lanes) {
            *own += more;
        }
    }

    fn row(&self, start_ms: u64) -> FarmHistoryRow {
        let mean = |sum: f64| if self.seen_s > 0.0 { sum / self.seen_s } else { 0.0 };
        FarmHistoryRow {
            start_ms,
            seen_s: self.seen_s,
            hosts: mean(self.hosts),
            rendered: mean(self.rendered),
            harvested: mean(self.harvested),
            idle: mean(self.idle),
            closed: mean(self.closed),
            counted: self.counted,
            failed: self.failed,
            released: self.released,
            ended_otherwise: self.ended_otherwise,
            accepted_cpu_s: self.accepted_cpu_us as f64 / 1e6,
            lanes: LaneCores::of(self.lanes.map(mean)),
        }
    }
}

#[cfg(test)]
mod tests;
