//! The driver: one thread that owns the scheduling core.
//!
//! It takes commands (from control links, the HTTP interface and itself), feeds the core, and
//! hands what came of it to the committer: facts to be written, and what may be said once they
//! are. Nothing leaves the broker on another way, so nothing is promised before it is durable.
//!
//! ```text
//!  links, API ──Command──► Driver ──Turn──► Committer ──after the sync──► links, callers, events
//!                            │
//!                           Core
//! ```
//!
//! Commands that are ready together make one [`turn`], which the journal keeps whole or not at
//! all.
//!
//! # Invariants
//! - The core is touched by this thread only.
//! - What a turn says is said in the order in which it was decided, and turns keep their order.

mod command;
mod links;
mod progress;
mod recent;
mod records;
mod recover;
mod snapshot;
mod translate;
mod turn;

pub(crate) use command::{Command, LinkId, LinkMessage, Outbox, PreparedReport};
pub use command::{DriverGone, DriverHandle};
pub(crate) use records::pack;
pub(crate) use recover::recover;

use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::{Time, boottime};
use gleaner_scheduling::{Core, Effect, Input};
use tokio::sync::mpsc;

use crate::events::Events;
use crate::limits::TURN_COMMANDS_MAX;
use crate::metrics::Metrics;
use crate::store::Committer;
use links::Links;
use progress::Progress;
use recent::RecentDigests;
use snapshot::Snapshots;
use turn::Turn;

/// What the driver needs at its birth.
pub(crate) struct DriverParts {
    pub(crate) core: Core,
    pub(crate) incarnation: u32,
    pub(crate) committer: Committer,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshot_after_bytes: u64,
    /// Bytes of the journal after its snapshot.
    pub(crate) journal_tail_bytes: u64,
}

/// See the module's page.
pub(crate) struct Driver {
    core: Core,
    incarnation: u32,
    committer: Committer,
    events: Events,
    metrics: Arc<Metrics>,
    links: Links,
    progress: Progress,
    stored: RecentDigests,
    snapshots: Snapshots,
    effects: Vec<Effect>,
    next_request: u64,
}

impl Driver {
    pub(crate) fn new(parts: DriverParts) -> Self {
        Self {
            core: parts.core,
            incarnation: parts.incarnation,
            committer: parts.committer,
            events: parts.events,
            metrics: parts.metrics,
            links: Links::default(),
            progress: Progress::default(),
            stored: RecentDigests::default(),
            snapshots: Snapshots::new(parts.snapshot_after_bytes, parts.journal_tail_bytes),
            effects: Vec::new(),
            next_request: 0,
        }
    }

    /// Runs until every handle is dropped.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut ready = Vec::with_capacity(TURN_COMMANDS_MAX);
        loop {
            let due = self.next_deadline();
            let count = tokio::select! {
                biased;
                count = commands.recv_many(&mut ready, TURN_COMMANDS_MAX) => count,
                () = sleep_until(due) => {
                    self.tick().await;
                    continue;
                }
            };
            if count == 0 {
                break;
            }
            let mut turn = Turn::default();
            for command in ready.drain(..) {
                self.take(command, &mut turn);
            }
            self.finish(turn).await;
        }
    }

    async fn tick(&mut self) {
        let mut turn = Turn::default();
        self.feed(Input::Tick, &mut turn);
        self.finish(turn).await;
    }

    /// Feeds the core and translates what it asks for.
    fn feed(&mut self, input: Input, turn: &mut Turn) {
        let mut effects = std::mem::take(&mut self.effects);
        self.core.handle(boottime(), input, &mut effects);
        for effect in effects.drain(..) {
            self.translate(effect, turn);
        }
        self.effects = effects;
    }

    async fn finish(&mut self, mut turn: Turn) {
        self.progress.emit_due(boottime(), &self.core, &mut turn);
        let bytes = turn.commit(&self.committer, &self.metrics, &self.events).await;
        if let Some(chunks) = self.snapshots.grown_by(bytes, &self.core) {
            let done = self.snapshots.done();
            self.committer.snapshot(chunks.into_iter(), done).await;
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        let core = self.core.next_deadline();
        core.into_iter().chain(self.progress.next_deadline()).min()
    }
}

async fn sleep_until(due: Option<Time>) {
    match due {
        None => std::future::pending().await,
        Some(due) => {
            // The runtime's timers stop while the machine sleeps and our clock does not: look
            // again after a minute at the latest.
            let wait = Duration::from(due.since(boottime())).min(Duration::from_secs(60));
            tokio::time::sleep(wait).await;
        }
    }
}
