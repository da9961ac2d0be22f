//! The owner's word: what may run by the owner's wishes, pauses and stops.
//!
//! The observer says what the wishes allow now, the socket brings pauses and questions, a file
//! stops everything. The least of them holds; the slot table obeys it at once, and the main loop
//! is told.
//!
//! # Invariants
//! - While the host is paused or stopped, nothing runs, whatever the wishes allow.
//! - What is frozen is ended when it was kept for as long as the owner allows, at once where its
//!   memory is wanted, and at once where the host is stopped.
//! - A pause outlives the agent.

mod pause_note;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_hooks::{
    SocketAnswer, Standing, StandingReason, StopMark, Stopped, TaskLine, encode_line,
};
use gleaner_protocol::{Epoch, HostName, LeaseToken, Span, Time};
use rustix::event::{EventfdFlags, eventfd};
use tracing::{info, warn};

use crate::limits::TASK_LINES_MAX;
use crate::slot_table::SlotTable;
use crate::wishes::Allowance;
use pause_note::PauseNote;

/// What the main loop is told: how much may run, and what was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSaid {
    /// Replicas.
    pub(crate) slots: u32,
    /// Replicas that were ended.
    pub(crate) stopped: Vec<LeaseToken>,
}

/// Whose word, and who obeys it.
pub(crate) struct OwnedHost {
    /// The host's name.
    pub(crate) host: HostName,
    /// Cores that it gives at most.
    pub(crate) cores: u32,
    /// What runs.
    pub(crate) table: Arc<SlotTable>,
    /// The mark that stops everything.
    pub(crate) mark: StopMark,
    /// How long a replica is kept frozen.
    pub(crate) keep: Span,
}

/// A pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Its end; none where only the owner ends it.
    pub(crate) until: Option<Time>,
}

/// The owner's word.
pub(crate) struct Owner {
    of: OwnedHost,
    note: PauseNote,
    tell: Box<dyn Fn(OwnerSaid) + Send + Sync>,
    /// Wakes the observer, which watches over ends.
    wake: OwnedFd,
    inner: Mutex<Inner>,
}

struct Inner {
    wished: Allowance,
    paused: Option<Pause>,
    stopped: Option<Stopped>,
    /// What the main loop was told last.
    said: u32,
    /// What the slots were given last, in words.
    labels: Vec<Option<(LeaseToken, String)>>,
    watched: Vec<(String, String)>,
}

impl Owner {
    /// Takes up a pause that is noted in `work_dir`, and the mark. Nothing runs before the first
    /// [`Owner::wish`]. `tell` must not block.
    pub(crate) fn new(
        of: OwnedHost,
        work_dir: &Path,
        now: Time,
        tell: impl Fn(OwnerSaid) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let note = PauseNote::new(work_dir);
        let inner = Inner {
            wished: Allowance { slots: 0, keep: true, reasons: Vec::new() },
            paused: note.read(now),
            stopped: of.mark.look(),
            said: u32::MAX,
            labels: vec![None; of.cores as usize],
            watched: Vec::new(),
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let owner = Self { of, note, tell: Box::new(tell), wake, inner: Mutex::new(inner) };
        owner.obey(&mut owner.lock(), now);
        Ok(owner)
    }

    /// The wishes allow this much now.
    pub(crate) fn wish(&self, now: Time, wished: Allowance, watched: Vec<(String, String)>) {
        let mut inner = self.lock();
        inner.wished = wished;
        inner.watched = watched;
        self.end_pause_if_due(&mut inner, now);
        self.obey(&mut inner, now);
    }

    /// Pauses the host, for a time or until it is resumed.
    pub(crate) fn pause(&self, now: Time, time: Option<Span>) -> SocketAnswer {
        let mut inner = self.lock();
        let pause = Pause { until: time.map(|time| now + time) };
        inner.paused = Some(pause);
        let frozen = self.obey(&mut inner, now);
        drop(inner);
        self.wake();
        info!(frozen, ?time, "paused by the owner");
        match self.note.write(pause, now) {
            Ok(()) => SocketAnswer::Paused { frozen },
            Err(error) => SocketAnswer::Error {
                reason: format!("paused, but not across a restart of the agent: {error}"),
            },
        }
    }

    /// Ends a pause.
    pub(crate) fn resume(&self, now: Time) {
        let mut inner = self.lock();
        if inner.paused.take().is_some() {
            self.note.remove();
            info!("resumed by the owner");
        }
        self.obey(&mut inner, now);
        drop(inner);
        self.wake();
    }

    /// Looks for the mark that stops everything, and obeys what it finds.
    pub(crate) fn look_for_stop(&self, now: Time) {
        let found = self.of.mark.look();
        let mut inner = self.lock();
        if inner.stopped == found {
            return;
        }
        match &found {
            Some(stopped) => warn!(mark = %stopped.path.display(), "all harvest here is stopped"),
            None => info!("harvest is allowed here again"),
        }
        inner.stopped = found;
        self.obey(&mut inner, now);
    }

    /// When [`Owner::wish`] is due at the latest: a pause ends, or a frozen replica.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let pause = self.lock().paused.and_then(|pause| pause.until);
        let kept = self.of.table.kept_since().map(|since| since + self.of.keep);
        [pause, kept].into_iter().flatten().min()
    }

    /// Notes what a slot is given, in words.
    pub(crate) fn label(&self, slot: u32, token: LeaseToken, what: String) {
        if let Some(label) = self.lock().labels.get_mut(slot as usize) {
            *label = Some((token, what));
        }
    }

    /// How the agent stands.
    pub(crate) fn standing(&self, now: Time, epoch: Option<Epoch>) -> Standing {
        let inner = self.lock();
        let occupancy = self.of.table.occupancy();
        let paused = inner.paused.filter(|pause| pause.until.is_none_or(|until| until > now));
        let mut standing = Standing {
            host: self.of.host.to_string(),
            cores: self.of.cores,
            slots: occupancy.slots,
            allowed: occupancy.allowed.min(self.of.cores),
            running: occupancy.running,
            frozen: occupancy.kept,
            connected: occupancy.connected,
            epoch,
            paused: paused.is_some(),
            paused_ms: paused.and_then(|p| p.until).map(|until| until.since(now).as_millis()),
            stopped_by: inner.stopped.as_ref().map(|mark| mark.path.display().to_string()),
            reasons: Vec::new(),
            watched: inner.watched.clone(),
        };
        standing.reasons = self.reasons(&inner, &standing);
        standing
    }

    /// What the agent runs; as much of it as an answer holds.
    pub(crate) fn tasks(&self, now: Time) -> SocketAnswer {
        let held = self.of.table.held_replicas();
        let labels = self.lock().labels.clone();
        let what = |slot: u32, token: LeaseToken| {
            let label = labels.get(slot as usize).cloned().flatten();
            label.filter(|(of, _)| *of == token).map(|(_, what)| what).unwrap_or_default()
        };
        let lines = held.iter().map(|held| TaskLine {
            slot: held.slot,
            what: what(held.slot, held.token),
            frozen: held.frozen,
            age_ms: now.since(held.since).as_millis(),
            pgid: held.pgid,
        });
        let mut tasks: Vec<TaskLine> = lines.take(TASK_LINES_MAX).collect();
        loop {
            let more = u32::try_from(held.len() - tasks.len()).unwrap_or(u32::MAX);
            let answer = SocketAnswer::Tasks { tasks: tasks.clone(), more };
            if tasks.is_empty() || encode_line(&answer).is_ok() {
                return answer;
            }
            tasks.truncate(tasks.len() / 2);
        }
    }

    fn reasons(&self, inner: &Inner, standing: &Standing) -> Vec<StandingReason> {
        let mut reasons = Vec::new();
        let mut say = |kind: &str, text: String| {
            reasons.push(StandingReason { kind: kind.into(), text });
        };
        if let Some(Stopped { path, unreadable }) = &inner.stopped {
            let path = path.display();
            match unreadable {
                None => say(
                    "stopped",
                    format!("harvest is stopped by {path}; `gleaner stop --lift` lifts it"),
                ),
                Some(why) => say(
                    "stopped",
                    format!("{path} cannot be looked at ({why}), which counts as stopped"),
                ),
            }
        }
        match (standing.paused, standing.paused_ms) {
            (true, Some(ms)) => say("paused", format!("paused for {} s more", ms.div_ceil(1_000))),
            (true, None) => say("paused", "paused until `gleaner agent resume`".into()),
            (false, _) => {}
        }
        for reason in &inner.wished.reasons {
            say(reason.kind(), reason.to_string());
        }
        if standing.slots == 0 && inner.stopped.is_none() && !standing.paused && reasons.is_empty()
        {
            reasons.push(StandingReason {
                kind: "booked".into(),
                text: "renders have booked this host, or the monitor has not opened it".into(),
            });
        }
        if !standing.connected {
            reasons.push(StandingReason {
                kind: "no_broker".into(),
                text: "the broker cannot be reached, or has not answered yet".into(),
            });
        }
        reasons
    }

    fn end_pause_if_due(&self, inner: &mut Inner, now: Time) {
        if inner.paused.is_some_and(|pause| pause.until.is_some_and(|until| until <= now)) {
            inner.paused = None;
            self.note.remove();
            info!("the owner's pause is over");
        }
    }

    /// Has the slot table obey, and tells the main loop; returns how many were frozen.
    fn obey(&self, inner: &mut Inner, now: Time) -> u32 {
        let is_off = inner.stopped.is_some() || inner.paused.is_some();
        let slots = if is_off { 0 } else { inner.wished.slots.min(self.of.cores) };
        let frozen = self.of.table.allow(now, slots);
        let keep =
            if inner.stopped.is_some() || !inner.wished.keep { Span::ZERO } else { self.of.keep };
        let kept_since = Time::from_micros(now.as_micros().saturating_sub(keep.as_micros()));
        let stopped = self.of.table.end_kept(kept_since);
        if slots != inner.said || !stopped.is_empty() {
            inner.said = slots;
            (self.tell)(OwnerSaid { slots, stopped });
        }
        frozen
    }

    /// The mark that stops everything.
    pub(crate) fn mark(&self) -> &StopMark {
        &self.of.mark
    }

    /// Has the observer look at once.
    pub(crate) fn wake(&self) {
        // Writing to an event counter fails only at its overflow, which wakes just as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// A panic of a holder leaves nothing half done here that matters more than stopping work.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Becomes readable when there is something new to watch over.
impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("host", &self.of.host).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
