//! Holds the state machine for the many who tell it something, and passes on what it decides.

mod comparing;
mod control;
mod keeper;
mod memory;
mod polling;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gleaner_protocol::farm::{FarmEvent, HookEvent, HookKind};
use gleaner_protocol::recording::{AliveLine, Line};
use gleaner_protocol::{HostName, Time, boottime};
use tokio::sync::Notify;
use tracing::debug;

use crate::farm_events::EventBoard;
use crate::limits::RECORD_ALIVE_INTERVAL;
use crate::metrics::Metrics;
use crate::outbox::Outbox;
use crate::poll_board::PollBoard;
use crate::recording::Tape;
use crate::release_times::ReleaseTimes;
use crate::state_folder::StateFolder;
use crate::{Effect, HostView, Input, Monitor, Plan, Rules, Scribe, TooManyHosts, Totals};

use control::{Control, StopKeeper};

pub(crate) use comparing::Comparing;
pub(crate) use control::ResumeError;

/// The monitor, shared.
#[derive(Debug)]
pub(crate) struct Driver {
    monitor: Mutex<Monitor>,
    /// What an administrator orders. Locked before the monitor.
    control: Control,
    /// What outlives this process.
    state: Option<Arc<StateFolder>>,
    /// Something was heard that must not be lost for seconds.
    memory_is_due: Notify,
    /// It is written down for the last time.
    memory_ends: Notify,
    release_times: Mutex<ReleaseTimes>,
    comparing: Comparing,
    /// Where the farm says that something changed.
    pub(crate) events: EventBoard,
    /// How its polls go.
    polls: PollBoard,
    /// Where the farm is recorded. Lines are put in under the monitor's lock, in order of time.
    record: Option<(Arc<Tape>, Mutex<Scribe>)>,
    /// The next deadline may be earlier than it was.
    rescheduled: Notify,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Driver {
    pub(crate) fn new(
        rules: Rules,
        plan: Plan,
        state: Option<Arc<StateFolder>>,
        comparing: Comparing,
        record: Option<Arc<Tape>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let mut monitor = Monitor::new(rules);
        if let Some(state) = &state {
            monitor.recall(boottime(), state.hosts());
            monitor.recall_gaps(state.learned());
        }
        let driver = Self {
            monitor: Mutex::new(monitor),
            control: Control::new(plan, state.clone().map(|state| state as Arc<dyn StopKeeper>)),
            state,
            memory_is_due: Notify::new(),
            memory_ends: Notify::new(),
            release_times: Mutex::default(),
            comparing,
            events: EventBoard::default(),
            polls: PollBoard::default(),
            record: record.map(|tape| (tape, Mutex::default())),
            rescheduled: Notify::new(),
            outbox: Arc::default(),
            metrics,
        };
        driver.give_orders();
        driver
    }

    /// Tells the monitor, and passes its decisions on.
    pub(crate) fn take(&self, mut input: Input) -> Result<(), TooManyHosts> {
        self.count(&input);
        if let Input::Hook(HookEvent { release_us: Some(release_us), .. }) = &input {
            self.release_times().add(*release_us);
            self.metrics.hook_released(*release_us);
        }
        // The booking of a hook that could not raise the epoch may stand nowhere else.
        let is_due = matches!(&input, Input::Hook(event) if event.epoch.incarnation == 0);
        let mut effects = Vec::new();
        let mut monitor = self.lock();
        // As all that follows knows it.
        if let Input::Hook(event) = &mut input {
            event.host = monitor.known_as(&event.host).clone();
        }
        // Under the lock, so that time never runs backwards for the monitor.
        let now = boottime();
        let before = monitor.next_deadline();
        self.comparing.hear_first(now, &input);
        if let Input::Hook(event) = &input {
            self.comparing.hear_hook(event);
        }
        let heard = self.record.as_ref().and_then(|_| Scribe::heard(now, &input));
        let outcome = monitor.handle(now, input, &mut effects);
        let after = monitor.next_deadline();
        self.write_down(now, heard, &effects);
        // Likewise, so that events of one host leave in the order of their decisions.
        for effect in effects {
            self.comparing.hear(now, &effect);
            if let Effect::Tell(event) = effect {
                self.note(&event);
                self.outbox.put(now, event);
            }
        }
        drop(monitor);
        if is_due {
            self.memory_is_due.notify_one();
        }
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
        self.lock().totals(boottime())
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

    fn count(&self, input: &Input) {
        let counter = match input {
            Input::Hook(event) if event.kind == HookKind::Preflight => &self.metrics.preflights,
            Input::Hook(_) => &self.metrics.postflights,
            Input::Sample(_) => &self.metrics.samples,
            Input::Poll { .. } => &self.metrics.polls,
            Input::Orders(_) | Input::Tick => return,
        };
        counter.inc();
    }

    fn note(&self, event: &FarmEvent) {
        match event {
            FarmEvent::FragmentOpened { host, cores, epoch, .. } => {
                self.metrics.openings.inc();
                debug!(%host, cores, %epoch, "fragment open");
            }
            FarmEvent::FragmentClosed { host, reason } => {
                self.metrics.closings.inc();
                debug!(%host, reason, "fragment closed");
            }
        }
    }

    /// No code that holds it can leave it half changed.
    fn release_times(&self) -> MutexGuard<'_, ReleaseTimes> {
        self.release_times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic inside is a bug that its own request reports; the state is checked input by input.
    fn lock(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
