//! The driver: one thread that owns the scheduling core.
//!
//! It takes commands (from control links, the HTTP interface and itself), feeds the core, and
//! hands what came of it to the committer: facts to be written, and what may be said once they
//! are. Orders to agents alone are given at once, for they promise nothing: no core waits for a
//! disk.
//!
//! ```text
//!                            ┌──orders──► links
//!  links, API ──Command──► Driver ──Turn──► Committer ──after the sync──► links, callers, events
//!                            │
//!                        Dispatcher ── Core
//! ```
//!
//! All that is decided is decided by the [`Dispatcher`], which needs no runtime.
//!
//! Commands that are ready together make one [`turn`], which the journal keeps whole or not at
//! all.
//!
//! # Invariants
//! - The core is touched by this thread only.
//! - A turn writes what its commands have changed and nothing else: the journal is shortened from
//!   what is on disk, by another thread ([`compact()`]).
//! - Nothing is promised before it is durable. What a turn promises is said in the order in which
//!   it was decided, and turns keep their order; so do orders, which may come before the promises
//!   of earlier turns.

mod command;
mod compact;
mod contents;
mod decided;
mod dispatcher;
mod links;
mod progress;
mod recent;
mod records;
mod recover;
mod retention;
mod run_watch;
mod turn;

pub(crate) use command::{Command, Outbox};
pub use command::{DriverGone, DriverHandle, LinkId, LinkMessage, PreparedReport};
pub use compact::compact;
pub use contents::{ContentRefusal, ContentUse};
pub use decided::{Decided, Letters};
use dispatcher::Revocations;
pub use dispatcher::{Dispatcher, Forgotten};
pub use dispatcher::{FrameLease, FrameNews, FrameStep};
pub use records::pack;
pub(crate) use recover::recover;
pub use recover::{RecordError, Recovery};

use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::job::Lane;
use gleaner_protocol::{Span, Time, boottime};
use gleaner_scheduling::{Core, Policy, PolicyStep, Watch, Watched};
use tokio::sync::mpsc;

use crate::datasets::ChunkTable;
use crate::events::Events;
use crate::history::RunHistory;
use crate::kernel_times::KernelTimes;
use crate::limits::TURN_COMMANDS_MAX;
use crate::metrics::Metrics;
use crate::store::Committer;
use crate::usage::Usage;
use crate::views::FrameBoard;
use crate::wall_clock::utc_ms;
use turn::Turn;

/// What the driver needs at its birth.
pub(crate) struct DriverParts {
    pub(crate) core: Core,
    pub(crate) incarnation: u32,
    pub(crate) committer: Committer,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) kernel_times: KernelTimes,
    pub(crate) history: RunHistory,
    pub(crate) usage: Usage,
    /// How long jobs that have ended are kept; for ever where it is not given.
    pub(crate) retention: Option<Span>,
    pub(crate) chunks: ChunkTable,
    pub(crate) board: FrameBoard,
    /// Why harvest is stopped from the beginning; none where it is not.
    pub(crate) halted: Option<String>,
}

/// How long the policy of the rendering lane takes, for the metrics. What is shorter than the clock's
/// unit is seen now and then as one unit, in right proportion.
struct PlanningTime {
    metrics: Arc<Metrics>,
    begun: Time,
}

impl Watch for PlanningTime {
    fn begins(&mut self) {
        self.begun = boottime();
    }

    fn ends(&mut self, _: PolicyStep) {
        self.metrics.rendering_planned(boottime().since(self.begun));
    }
}

/// See the module's page.
pub(crate) struct Driver {
    dispatcher: Dispatcher<Outbox>,
    committer: Committer,
    events: Events,
    metrics: Arc<Metrics>,
    kernel_times: KernelTimes,
    history: RunHistory,
    usage: Usage,
    board: FrameBoard,
    revocations: Revocations,
}

impl Driver {
    pub(crate) fn new(mut parts: DriverParts) -> Self {
        let metrics = Arc::clone(&parts.metrics);
        let watch = PlanningTime { metrics, begun: Time::ZERO };
        let watched = |policy| -> Box<dyn Policy> { Box::new(Watched::new(policy, watch)) };
        parts.core.wrap_policy(Lane::Rendering, watched);
        let mut dispatcher =
            Dispatcher::new(parts.core, parts.incarnation, Arc::clone(&parts.metrics))
                .with_chunks(parts.chunks);
        if let Some(keep) = parts.retention {
            dispatcher.forget_after(boottime(), keep);
        }
        dispatcher.halt(parts.halted.as_deref());
        Self {
            dispatcher,
            committer: parts.committer,
            events: parts.events,
            metrics: parts.metrics,
            kernel_times: parts.kernel_times,
            history: parts.history,
            usage: parts.usage,
            board: parts.board,
            revocations: Revocations::default(),
        }
    }

    /// Runs until every handle is dropped.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut ready = Vec::with_capacity(TURN_COMMANDS_MAX);
        loop {
            let due = self.dispatcher.next_deadline();
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
            let (begun, mut turn) = (boottime(), Turn::default());
            for command in ready.drain(..) {
                self.take(command, &mut turn);
            }
            self.finish(begun, turn).await;
        }
    }

    async fn tick(&mut self) {
        let (begun, mut turn) = (boottime(), Turn::default());
        self.dispatcher.tick(begun, &mut turn.decided);
        self.finish(begun, turn).await;
    }

    fn take(&mut self, command: Command, turn: &mut Turn) {
        let (now, decided) = (boottime(), &mut turn.decided);
        match command {
            Command::Submit { received, spec, reply } => {
                let answer = self.dispatcher.submit(now, *spec, decided);
                decided.waits.submissions.extend(answer.is_ok().then_some(received));
                turn.say(move || {
                    // Whoever asked may have gone; here and below.
                    let _ = reply.send(answer);
                });
            }
            Command::Cancel { job, reply } => {
                let known = self.dispatcher.cancel(now, job, decided);
                turn.say(move || {
                    let _ = reply.send(known);
                });
            }
            Command::Forget { job, reply } => {
                let forgotten = self.dispatcher.forget(now, job, decided);
                turn.say(move || {
                    let _ = reply.send(forgotten);
                });
            }
            Command::LinkOpened { link, outbox } => self.dispatcher.link_opened(link, outbox),
            Command::LinkMessages { link, messages } => {
                self.dispatcher.link_messages(now, link, messages, decided);
            }
            Command::LinkClosed { link } => self.dispatcher.link_closed(now, link, decided),
            Command::LinkExpelled { link } => self.dispatcher.link_expelled(now, link, decided),
            Command::HoldBack(accounts) => self.dispatcher.hold_back(now, accounts, decided),
            Command::KeysChanged(people) => {
                // As things stand now: of two changes the later may come first.
                let revoked = self.revocations.news(people.revoked_hosts(), utc_ms());
                let with_keys = people.hosts_with_keys();
                let vouched = people.vouched();
                self.dispatcher.keys_changed(now, with_keys.as_ref(), vouched, revoked, decided);
            }
            Command::Farm { events, reply } => {
                let accepted = self.dispatcher.farm_events(events, decided);
                turn.say(move || {
                    let _ = reply.send(accepted);
                });
            }
            Command::Halt(why) => self.dispatcher.halt(why.as_deref()),
            Command::MayUse { secret, what, reply } => {
                let _ = reply.send(self.dispatcher.may_use(&secret, what));
            }
            Command::StoreAnew { reply } => {
                self.dispatcher.store_anew();
                turn.say(move || {
                    let _ = reply.send(());
                });
            }
            Command::DatasetAdded(id) => self.dispatcher.dataset_added(now, id, decided),
            Command::DatasetRemoved(id) => self.dispatcher.dataset_removed(now, id, decided),
            Command::NoteUsed(used) => self.dispatcher.note_used(now, &used),
            Command::Frame { spec, reply } => {
                self.metrics.frame_job();
                let _ = reply.send(self.dispatcher.submit_frame(now, *spec, decided));
            }
            Command::DropFrames(jobs) => self.dispatcher.drop_frames(now, &jobs, decided),
            Command::FrameLease { secret, token, reply } => {
                let _ = reply.send(self.dispatcher.frame_lease(&secret, token));
            }
            Command::LayerKeeper { secret, token, reply } => {
                let _ = reply.send(self.dispatcher.layer_keeper(now, &secret, token));
            }
            Command::NameLayers { secret, token, layers, reply } => {
                let named = self.dispatcher.name_layers(&secret, token, &layers, decided);
                let _ = reply.send(named);
            }
            Command::Query(query) => {
                let answer = query(self.dispatcher.core_at(now));
                turn.say(answer);
            }
        }
    }

    async fn finish(&mut self, begun: Time, mut turn: Turn) {
        self.dispatcher.end_turn(boottime(), &mut turn.decided);
        self.metrics.turn_decided(boottime().since(begun));
        let Self { committer, metrics, events, kernel_times, history, usage, board, .. } = self;
        board.tell(std::mem::take(&mut turn.decided.frames));
        turn.commit(committer, metrics, events, (kernel_times, history, usage)).await;
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
