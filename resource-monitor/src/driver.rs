//! Holds the state machine for the many who tell it something, and passes on what it decides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::farm::{FarmEvent, HookKind};
use gleaner_protocol::recording::{AliveLine, Line};
use gleaner_protocol::{HostName, Time, boottime};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::counters::Counters;
use crate::limits::RECORD_ALIVE_INTERVAL;
use crate::outbox::Outbox;
use crate::recording::Tape;
use crate::{Effect, FarmSource, HostView, Input, Monitor, Rules, Scribe, TooManyHosts, Totals};

/// The monitor, shared.
#[derive(Debug)]
pub(crate) struct Driver {
    monitor: Mutex<Monitor>,
    /// Where the farm is recorded. Lines are put in under the monitor's lock, in order of time.
    record: Option<(Arc<Tape>, Mutex<Scribe>)>,
    /// The next deadline may be earlier than it was.
    rescheduled: Notify,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) counters: Arc<Counters>,
}

impl Driver {
    pub(crate) fn new(rules: Rules, record: Option<Arc<Tape>>, counters: Arc<Counters>) -> Self {
        Self {
            monitor: Mutex::new(Monitor::new(rules)),
            record: record.map(|tape| (tape, Mutex::default())),
            rescheduled: Notify::new(),
            outbox: Arc::default(),
            counters,
        }
    }

    /// Tells the monitor, and passes its decisions on.
    pub(crate) fn take(&self, input: Input) -> Result<(), TooManyHosts> {
        self.count(&input);
        let mut effects = Vec::new();
        let mut monitor = self.lock();
        // Under the lock, so that time never runs backwards for the monitor.
        let now = boottime();
        let before = monitor.next_deadline();
        let heard = self.record.as_ref().and_then(|_| Scribe::heard(now, &input));
        let outcome = monitor.handle(now, input, &mut effects);
        let after = monitor.next_deadline();
        self.write_down(now, heard, &effects);
        // Likewise, so that events of one host leave in the order of their decisions.
        for effect in effects {
            if let Effect::Tell(event) = effect {
                self.note(&event);
                self.outbox.put(now, event);
            }
        }
        drop(monitor);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.rescheduled.notify_one();
        }
        outcome
    }

    /// Puts what was heard and decided on the tape, which never waits.
    fn write_down(&self, now: Time, heard: Option<Line>, effects: &[Effect]) {
        let Some((tape, scribe)) = &self.record else { return };
        let mut scribe = scribe.lock().unwrap_or_else(PoisonError::into_inner);
        heard.into_iter().for_each(|line| tape.put(line));
        effects.iter().filter_map(|effect| scribe.decided(now, effect)).for_each(|line| {
            tape.put(line);
        });
    }

    /// Has the recording say from time to time that the monitor lives: a recording that ends
    /// without a word ends at its last line.
    pub(crate) async fn run_signs_of_life(&self) {
        let Some((tape, _)) = &self.record else { return };
        loop {
            tokio::time::sleep(RECORD_ALIVE_INTERVAL.into()).await;
            let _in_order = self.lock();
            tape.put(Line::Alive(AliveLine { t_us: boottime().as_micros() }));
        }
    }

    pub(crate) fn views(&self) -> Vec<HostView> {
        self.lock().views(boottime()).collect()
    }

    pub(crate) fn view(&self, name: &HostName) -> Option<HostView> {
        self.lock().view(boottime(), name)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals()
    }

    /// Calls the monitor whenever it asked to be called.
    pub(crate) async fn run_clock(&self) {
        loop {
            let deadline = self.lock().next_deadline();
            let Some(deadline) = deadline else {
                self.rescheduled.notified().await;
                continue;
            };
            let rest = deadline.since(boottime());
            tokio::select! {
                () = tokio::time::sleep(rest.into()) => {
                    self.take(Input::Tick).expect("time brings no hosts");
                }
                () = self.rescheduled.notified() => {}
            }
        }
    }

    /// Asks a farm again and again.
    pub(crate) async fn run_poller(&self, source: impl FarmSource, interval: std::time::Duration) {
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            ticks.tick().await;
            let asked_at = boottime();
            let allocations = match source.poll().await {
                Ok(allocations) => {
                    if std::mem::take(&mut failing) {
                        info!(source = source.name(), "polling works again");
                    }
                    Some(allocations)
                }
                Err(error) => {
                    self.counters.failed_polls.add(1);
                    if !std::mem::replace(&mut failing, true) {
                        warn!(%error, "a poll failed");
                    }
                    None
                }
            };
            let source = source.name().to_owned();
            if let Err(error) = self.take(Input::Poll { source, asked_at, allocations }) {
                warn!(%error, "hosts of the farm are left out");
            }
        }
    }

    fn count(&self, input: &Input) {
        let counter = match input {
            Input::Hook(event) if event.kind == HookKind::Preflight => &self.counters.preflights,
            Input::Hook(_) => &self.counters.postflights,
            Input::Sample(_) => &self.counters.samples,
            Input::Poll { .. } => &self.counters.polls,
            Input::Tick => return,
        };
        counter.add(1);
    }

    fn note(&self, event: &FarmEvent) {
        match event {
            FarmEvent::FragmentOpened { host, cores, epoch, .. } => {
                self.counters.openings.add(1);
                debug!(%host, cores, %epoch, "fragment open");
            }
            FarmEvent::FragmentClosed { host, reason } => {
                self.counters.closings.add(1);
                debug!(%host, reason, "fragment closed");
            }
        }
    }

    /// A panic inside is a bug that its own request reports; the state is checked input by input.
    fn lock(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
