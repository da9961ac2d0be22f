//! What an administrator orders while the monitor runs.
//!
//! # Invariants
//! - A stop holds before it is written down, and is on disk before it is acknowledged as kept.
//! - A resume is on disk before anything opens. One that cannot be written changes nothing, and
//!   neither does one during which the farm is stopped anew.
//! - Nobody waits for the disk but those who order: not the clock, nor who looks at the farm.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::api::FarmReport;
use gleaner_protocol::{Span, boottime};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use thiserror::Error;
use tracing::{error, info};

use super::Driver;
use crate::limits::{ORDERS_INTERVAL_MAX, REPORT_CONTRADICTIONS_MAX};
use crate::state_folder::{KeepError, StateFolder};
use crate::wall_clock::wall_clock;
use crate::{FarmView, Input, Orders, Plan, Stop};

/// The orders that hold, and where they are kept.
#[derive(Debug)]
pub(crate) struct Control {
    held: Mutex<Held>,
    /// Of those who write, one at a time. Locked before what is held, by threads that may wait.
    turn: Mutex<()>,
    keeper: Option<Arc<dyn StopKeeper>>,
}

/// Where a stop is kept.
pub(crate) trait StopKeeper: fmt::Debug + Send + Sync {
    /// The stop that was kept.
    fn stop(&self, now: Timestamp) -> Option<Stop>;

    /// Has a stop, or none, be kept from now on. Waits for the disk.
    fn keep_stop(&self, stop: Option<&Stop>) -> Result<(), KeepError>;
}

impl StopKeeper for StateFolder {
    fn stop(&self, now: Timestamp) -> Option<Stop> {
        Self::stop(self, now)
    }

    fn keep_stop(&self, stop: Option<&Stop>) -> Result<(), KeepError> {
        Self::keep_stop(self, stop)
    }
}

#[derive(Debug)]
struct Held {
    plan: Plan,
    stop: Option<Stop>,
    /// How often the farm was ordered to stop: a resume that began before the last one is too old.
    stops: u64,
    /// What the monitor was told last.
    told: Option<Orders>,
    /// The stop that is kept, if one is; none where that is not clear.
    kept: Option<Option<Stop>>,
}

/// What became of an order to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Stopped {
    /// The stop that holds: an older one, where there was one.
    pub(crate) stop: Stop,
    /// Whether it was the one that was given now.
    pub(crate) is_new: bool,
    /// Whether it outlives the monitor.
    pub(crate) is_kept: bool,
    /// Why not.
    pub(crate) trouble: Option<String>,
}

/// Why the farm stays stopped.
#[derive(Debug, Error)]
pub(crate) enum ResumeError {
    /// The disk did not take it.
    #[error("the farm stays stopped: the resume cannot be written down: {0}")]
    NotWritten(io::Error),
    /// Nor that it stays stopped.
    #[error(
        "the farm stays stopped, but perhaps only until its monitor restarts: neither the resume nor \
         the stop can be written down: {0}; make room in state_dir, and order again"
    )]
    Unclear(io::Error),
    /// Somebody was against it.
    #[error("the farm was stopped anew meanwhile, so it stays stopped")]
    StoppedAnew,
}

impl Control {
    /// With what was kept in the folder, if there is one.
    pub(crate) fn new(plan: Plan, keeper: Option<Arc<dyn StopKeeper>>) -> Self {
        let stop = keeper.as_ref().and_then(|keeper| keeper.stop(wall_clock()));
        let held = Held { plan, stop: stop.clone(), stops: 0, told: None, kept: Some(stop) };
        Self { held: Mutex::new(held), turn: Mutex::default(), keeper }
    }

    /// Never for longer than it takes to tell the monitor. No code that holds it can leave it half
    /// changed.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for everybody else's writing.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down whether the farm is stopped, in one's own turn.
    fn write(&self, stop: Option<&Stop>) -> Result<(), KeepError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let written = keeper.keep_stop(stop);
        match &written {
            Ok(()) => self.lock().kept = Some(stop.cloned()),
            Err(KeepError::Unclear(_)) => self.lock().kept = None,
            Err(KeepError::AsItWas(_)) => {}
        }
        written
    }

    fn is_kept(&self, held: &Held) -> bool {
        self.keeper.is_some() && held.kept.as_ref() == Some(&held.stop)
    }
}

impl Driver {
    /// Whether all harvest of the farm is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.control.lock().stop.is_some()
    }

    /// Tells the monitor the orders that hold, where they are news.
    pub(crate) fn give_orders(&self) {
        self.give(&mut self.control.lock());
    }

    /// Has the orders follow the clock on the wall: they change with its minutes.
    pub(crate) async fn run_orders(&self) {
        loop {
            let into_minute_ms = wall_clock().as_millisecond().rem_euclid(60_000);
            // A clock that is set meanwhile is noticed before the next minute is over.
            let rest = Span::from_millis(60_000_u64.saturating_sub(into_minute_ms.unsigned_abs()));
            tokio::time::sleep(rest.min(ORDERS_INTERVAL_MAX).into()).await;
            self.give_orders();
        }
    }

    /// Stops the harvest of the whole farm. Waits for the disk.
    pub(crate) fn stop(&self, stop: Stop) -> Stopped {
        let (stop, is_new) = {
            let mut held = self.control.lock();
            let is_new = held.stop.is_none();
            if is_new {
                error!("{stop}");
            }
            held.stops += 1;
            let stop = held.stop.get_or_insert(stop).clone();
            self.give(&mut held);
            (stop, is_new)
        };
        let _turn = self.control.turn();
        let now = self.control.lock().stop.clone();
        let trouble = match now {
            None => Some("it was lifted again meanwhile".to_owned()),
            Some(_) if self.control.keeper.is_none() => {
                Some("the monitor has no state_dir".to_owned())
            }
            // Written again where it held already: the first time may have failed.
            Some(now) => {
                let written = self.control.write(Some(&now));
                let is_kept = self.control.is_kept(&self.control.lock());
                written.err().filter(|_| !is_kept).map(|error| error.to_string())
            }
        };
        if let Some(trouble) = &trouble {
            error!("the stop would not outlive this monitor: {trouble}");
        }
        Stopped { stop, is_new, is_kept: trouble.is_none(), trouble }
    }

    /// Lifts the stop; what was lifted. Waits for the disk.
    pub(crate) fn resume(&self, by: &str) -> Result<Option<Stop>, ResumeError> {
        let _turn = self.control.turn();
        let (stop, stops) = {
            let held = self.control.lock();
            (held.stop.clone(), held.stops)
        };
        match self.control.write(None) {
            Ok(()) => {}
            Err(KeepError::AsItWas(error)) => return Err(ResumeError::NotWritten(error)),
            Err(KeepError::Unclear(error)) => {
                return Err(match self.control.write(stop.as_ref()) {
                    Ok(()) => ResumeError::NotWritten(error),
                    Err(_) => ResumeError::Unclear(error),
                });
            }
        }
        let mut held = self.control.lock();
        if held.stops != stops {
            // Whoever stopped it waits for a turn to write that down.
            return Err(ResumeError::StoppedAnew);
        }
        let lifted = held.stop.take();
        if let Some(stop) = &lifted {
            info!(by, "the farm is harvested again, although {stop}");
        }
        self.give(&mut held);
        Ok(lifted)
    }

    /// How hosts are drawn that are held out: thousandths, time zone, day.
    pub(super) fn draws(&self) -> Option<(u16, String, Date)> {
        let held = self.control.lock();
        let lottery = held.plan.lottery()?;
        let day = lottery.at(wall_clock()).day;
        Some((lottery.permille(), lottery.time_zone().to_owned(), day))
    }

    /// What is known of the farm as a whole.
    pub(crate) fn farm_view(&self) -> FarmView {
        let (stop, is_stop_kept) = {
            let held = self.control.lock();
            (held.stop.clone(), self.control.is_kept(&held))
        };
        let release = self.release_times().view();
        let monitor = self.lock();
        FarmView {
            stop,
            is_stop_kept,
            totals: monitor.totals(boottime()),
            release,
            learned: monitor.learned().collect(),
            farm_events: self.events.view(),
            poll: self.polls.view(boottime()),
            hosts: monitor.views(boottime()).collect(),
        }
    }

    /// What the broker shows of it on its pages.
    pub(crate) fn report(&self) -> FarmReport {
        let now = boottime();
        let (contradictions, contradictions_total) =
            self.lock().contradictions(now, REPORT_CONTRADICTIONS_MAX);
        FarmReport {
            poll: self.polls.view(now),
            farm_events: self.events.view(),
            contradictions,
            contradictions_total,
        }
    }

    /// Under the orders' own lock, so that the monitor hears of them in their order.
    fn give(&self, held: &mut Held) {
        let orders = held.plan.orders(wall_clock(), held.stop.clone());
        if held.told.as_ref() != Some(&orders) {
            held.told = Some(orders.clone());
            self.take(Input::Orders(orders)).expect("orders bring no hosts");
        }
    }
}

#[cfg(test)]
mod tests;
