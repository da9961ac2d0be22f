//! One slot of the host: gets a replica's inputs, has a warm runner run it, and says what came
//! of it.
//!
//! # Invariants
//! - Nothing is handed to a runner before the gate let it through at the epoch at which the run
//!   folder stands; and the run folder is asked once more afterwards, for a hook may have given
//!   this agent up in between. Who stops all harvest raises the epoch too, and what the owner does
//!   not allow the table does not let begin.
//! - A runner's group is in the run folder before its first order, and leaves it when all of the
//!   group is dead.
//! - After a stop, nothing more is told of that replica.
//! - What does not die in time is told of, and waited for.

mod command;
mod conversation;
mod gpu;
mod limits;
mod reaping;
mod slot_context;
mod view;
mod warm_runner;
mod wasm;

pub(crate) use slot_context::SlotContext;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gleaner_hooks::ProcessStat;
use gleaner_isolation::Leaf;
use gleaner_protocol::control::Lease;
use gleaner_protocol::job::{ApplicationTask, InputFile, Task};
use gleaner_protocol::{CHUNK_FILE, ChunkFile, Digest, Epoch, LeaseToken, Time};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::harvest::RunResult;
use crate::limits::DIE_MS_MAX;
use crate::link::blobs::CachedBlob;
use crate::release::slot_table::Cause;
use crate::run::runner::sandbox::{Confines, user_of_slot};
use crate::run::runner::{
    ApplicationOrder, Fault, KernelOrder, Order, Setup, discard_spooled, remove_all,
};
use conversation::{Said, converse};
use gpu::GpuUse;
use limits::ReplicaLimits;
use reaping::with_turns;
use warm_runner::{End, RunnerGone, WarmRunner};
use wasm::Module;

/// For one slot.
#[derive(Debug)]
pub(crate) enum SlotOrder {
    /// Run this.
    Start {
        /// Which replica.
        lease: Lease,
        /// What.
        task: Arc<Task>,
        /// The epoch of the fragment.
        epoch: Epoch,
        /// When it was taken.
        since: Time,
        /// Whether a render freezes it only.
        parks: bool,
    },
    /// Have this save where it is, if it runs: it is about to end.
    Save(LeaseToken),
    /// End this, if it runs.
    Stop(LeaseToken),
}

/// From one slot.
#[derive(Debug)]
pub(crate) enum SlotEvent {
    /// A replica ended by itself.
    Ended {
        /// Which.
        token: LeaseToken,
        /// With what.
        result: RunResult,
        /// Whether the run folder has to be read first: it stands at another epoch.
        epoch_raised: bool,
    },
    /// A replica was stopped, as ordered, and is gone.
    Stopped {
        /// Which.
        token: LeaseToken,
        /// Whether it stood still for a render before.
        preempted: bool,
    },
    /// A replica came further.
    Progress {
        /// Which.
        token: LeaseToken,
        /// How far, in thousandths.
        permille: u16,
    },
    /// What a replica saved is at the broker.
    StateStored {
        /// Which.
        token: LeaseToken,
        /// What it saved.
        state: Digest,
    },
    /// A replica saved where it is.
    Saved {
        /// Which.
        token: LeaseToken,
    },
    /// What the slot ran does not die, or has died at last.
    Stuck {
        /// Where.
        slot: u32,
        /// What, in words; none where it has died.
        what: Option<String>,
    },
}

/// Runs one slot until its orders end; then its runner is killed.
pub(crate) async fn run_slot(
    slot: u32,
    shop: Arc<SlotContext>,
    mut orders: mpsc::UnboundedReceiver<SlotOrder>,
    events: mpsc::Sender<SlotEvent>,
) {
    let leaf = leaf_of(slot, &shop);
    let limits = ReplicaLimits::default();
    let (gpu, runner, module) = (GpuUse::default(), None, None);
    let asks = Arc::new(Notify::new());
    let (draws, keeps, is_away) = (false, false, false);
    let mut task = SlotTask {
        slot,
        shop,
        leaf,
        limits,
        runner,
        gpu,
        module,
        asks,
        draws,
        keeps,
        is_away,
        events,
    };
    loop {
        let order = tokio::select! {
            order = orders.recv() => order,
            () = task.idle_runner_gone() => {
                task.reap().await;
                continue;
            }
        };
        match order {
            Some(SlotOrder::Start { lease, task: what, epoch, since, parks }) => {
                let replica = Replica { lease: &lease, task: &what, epoch, since, parks };
                if !task.serve(replica, &mut orders).await {
                    break;
                }
            }
            // It ended in the moment in which it was stopped.
            Some(SlotOrder::Stop(_) | SlotOrder::Save(_)) => {}
            None => break,
        }
    }
    task.reap().await;
}

/// The slot's leaf, where this host has any. One that cannot be made is done without, as on a
/// host that has none.
fn leaf_of(slot: u32, shop: &SlotContext) -> Option<Arc<Leaf>> {
    let leaf = shop.enclosure.leaf(&slot.to_string()).unwrap_or_else(|error| {
        warn!("slot {slot} goes without a control group: {error}");
        None
    });
    leaf.map(Arc::new)
}

struct SlotTask {
    slot: u32,
    shop: Arc<SlotContext>,
    leaf: Option<Arc<Leaf>>,
    /// Of the replica that runs.
    limits: ReplicaLimits,
    runner: Option<WarmRunner>,
    /// Of the replica that runs.
    gpu: GpuUse,
    /// What the runner was handed, while it runs a module.
    module: Option<Module>,
    /// Told when the replica that runs is to save.
    asks: Arc<Notify>,
    /// Whether the runner draws a part of a frame.
    draws: bool,
    /// Whether the runner may have decoded bricks in memory.
    keeps: bool,
    /// Whether the runner waits while something is brought to or from the broker for a replica.
    is_away: bool,
    events: mpsc::Sender<SlotEvent>,
}

/// One to run.
#[derive(Clone, Copy)]
struct Replica<'a> {
    lease: &'a Lease,
    task: &'a Task,
    epoch: Epoch,
    since: Time,
    parks: bool,
}

/// How one replica went, before anything is cleared up.
enum Course {
    /// It ended by itself.
    Ended(RunResult),
    /// The gate was closed to it.
    ShutOut,
    /// It ended by itself, and its runner has to end with what it has left.
    Overrun(RunResult),
    /// Its runner died under it.
    RunnerGone,
    /// No runner could be started.
    NoRunner(String),
    /// It is to be stopped.
    Stopped,
    /// There will be no more orders.
    OrdersEnded,
}

impl SlotTask {
    /// Runs one replica, or until it is to be stopped. False when there will be no more orders.
    async fn serve(
        &mut self,
        replica: Replica<'_>,
        orders: &mut mpsc::UnboundedReceiver<SlotOrder>,
    ) -> bool {
        let (token, epoch) = (replica.lease.token, replica.epoch);
        let is_frame = matches!(replica.task, Task::Frame(_));
        // What a runner keeps on the GPU is of no use for anything but frames.
        let is_in_vain = !is_frame && self.shop.table.keeps_gpu(self.slot);
        if is_in_vain || self.runner.as_mut().is_some_and(WarmRunner::is_gone) {
            self.reap().await;
        }
        // What may be broken off by a stop ends here; clearing up may not.
        let asks = Arc::clone(&self.asks);
        let course = tokio::select! {
            biased;
            course = wait_for_stop(token, orders, &asks) => course,
            course = self.perform(replica) => course,
        };
        let (result, epoch_raised) = match course {
            Course::Ended(result) => (result, false),
            Course::Overrun(result) => {
                self.reap().await;
                (result, false)
            }
            Course::ShutOut => {
                // A runner that has just been started does not come to rest behind a render.
                self.reap().await;
                discard_spooled(&self.shop.spool, token.get());
                (RunResult::Preempted, true)
            }
            Course::NoRunner(reason) => {
                self.reap().await;
                discard_spooled(&self.shop.spool, token.get());
                (RunResult::CannotRun(reason), false)
            }
            Course::RunnerGone => {
                let (explained, fault) = self.explain_death(epoch).await;
                discard_spooled(&self.shop.spool, token.get());
                if let (RunResult::Failed { reason, .. }, false) = &explained
                    && self.gpu.gives_up(&self.shop, replica.lease, reason, fault)
                {
                    return Box::pin(self.serve(replica, orders)).await;
                }
                explained
            }
            Course::Stopped | Course::OrdersEnded => {
                // What a runner that waits keeps in memory is worth keeping, while there are orders.
                self.draws &= matches!(course, Course::Stopped);
                let is_warm = self.is_away || self.ask_to_stop(token).await;
                let preempted = !is_warm && self.reap().await.cause == Cause::Stopped;
                if !is_warm && !preempted {
                    self.gpu.note_stuck(&self.shop, replica.lease);
                }
                discard_spooled(&self.shop.spool, token.get());
                let stopped = SlotEvent::Stopped { token, preempted };
                return matches!(course, Course::Stopped)
                    && self.events.send(stopped).await.is_ok();
            }
        };
        self.events.send(SlotEvent::Ended { token, result, epoch_raised }).await.is_ok()
    }

    async fn perform(&mut self, replica: Replica<'_>) -> Course {
        let Replica { lease, task, epoch, since, parks } = replica;
        self.module = None;
        self.draws = false;
        self.is_away = matches!(task, Task::Frame(_));
        let prepared = self.prepare(lease, task).await;
        self.is_away = false;
        let (mut order, pins, module) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) if view::is_joined(task) => {
                return Course::Ended(RunResult::Failed { reason, cpu_us: 0 });
            }
            Err(reason) => return Course::Ended(RunResult::CannotRun(reason)),
        };
        let (table, run_dir) = (Arc::clone(&self.shop.table), self.shop.run_dir.clone());
        let stands = || run_dir.epoch().ok() == Some(epoch);
        // Nothing is started for what may not begin anyway: a render is about to.
        if !stands() || !table.admits(self.slot, lease.token, epoch) {
            return Course::ShutOut;
        }
        if let Err(reason) = self.warm_up().await {
            return Course::NoRunner(reason);
        }
        if !stands() || table.begin(self.slot, lease.token, since, epoch, parks).is_err() {
            return Course::ShutOut;
        }
        let of = (self.slot, lease.token);
        self.gpu.give(&self.shop, self.slot, lease, task, &mut order);
        let host_mib = self.shop.kernel_memory_mib;
        let kept_mib = self.shop.bricks_mib;
        let on_gpu = self.gpu.has() || table.keeps_gpu(self.slot);
        if !self.limits.set(self.leaf.as_ref(), task, (host_mib, kept_mib), on_gpu) {
            command::limit_each_process(&self.shop, task, &mut order);
        }
        if let Err(reason) = table.keep_to_limits(self.slot, lease.token) {
            warn!(token = %lease.token, "a task goes without the limits that were asked for: {reason}");
        }
        self.draws = matches!(task, Task::Frame(_));
        self.keeps |= self.draws && (kept_mib > 0 || on_gpu);
        let runner = self.runner.as_mut().expect("warmed up above");
        if runner.send(&order).await.is_err() {
            return Course::RunnerGone;
        }
        if !stands() {
            // A hook raised it and may believe that all is stopped: so it has to be.
            table.stop(self.slot, lease.token);
            return Course::RunnerGone;
        }
        self.module = module;
        let (module, gpu) = (&mut self.module, &mut self.gpu);
        match converse(runner, &self.shop, module, gpu, of, &self.asks, &self.events).await {
            Ok(Said::Overrun(result)) => Course::Overrun(result),
            Ok(Said::Ended(result)) => {
                if let Some(module) = self.module.take() {
                    module.ended(&self.shop, &result);
                }
                table.end(self.slot);
                if matches!(result, RunResult::CannotRun(_)) {
                    // A damaged input may be why: the next try fetches it anew.
                    pins.iter().for_each(CachedBlob::distrust);
                }
                let result = match task {
                    Task::Frame(frame) => {
                        self.is_away = true;
                        view::deliver(&self.shop, lease.token, frame.stage, result).await
                    }
                    _ => result,
                };
                Course::Ended(match result {
                    RunResult::Failed { reason, cpu_us } => {
                        RunResult::Failed { reason: self.limits.explain(reason), cpu_us }
                    }
                    RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib } => {
                        let peak_memory_mib = self.limits.peak_mib().or(peak_memory_mib);
                        RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib }
                    }
                    other => other,
                })
            }
            Err(RunnerGone) => Course::RunnerGone,
        }
    }

    /// The runner died under a replica: for a render's sake, or by itself. Says also whether the
    /// run folder has to be read again, and whose fault it is where a GPU computed it.
    async fn explain_death(&mut self, epoch: Epoch) -> ((RunResult, bool), Fault) {
        let how = self.reap().await;
        let epoch_raised = self.shop.run_dir.epoch().ok() != Some(epoch);
        if how.cause == Cause::SelfResumed {
            let reason = "it went on computing though it was stopped, and was ended".to_owned();
            return ((RunResult::Failed { reason, cpu_us: 0 }, epoch_raised), Fault::Job);
        }
        if how.cause == Cause::Stopped || epoch_raised {
            return ((RunResult::Preempted, true), Fault::Unclear);
        }
        let fault = self.limits.gpu_fault(&how.end);
        let reason = match self.module.take() {
            Some(module) => module.explain_death(&how.end.status),
            None => self.limits.explain_abort(&how.end).unwrap_or_else(|| {
                format!("its process was ended from outside ({}); out of memory?", how.end.status)
            }),
        };
        ((RunResult::Failed { reason: self.limits.explain(reason), cpu_us: 0 }, false), fault)
    }

    /// Fetches what the replica needs. The pins keep its inputs in the cache.
    async fn prepare(
        &self,
        lease: &Lease,
        task: &Task,
    ) -> Result<(Order, Vec<CachedBlob>, Option<Module>), String> {
        let token = lease.token.get();
        let index = lease.replica.workunit.index;
        let item = lease.item.clone();
        match task {
            Task::Kernel(kernel) => {
                let kernel = kernel.clone();
                Ok((Order::Kernel(KernelOrder { token, kernel, index, item }), Vec::new(), None))
            }
            Task::Command(command) => {
                let (order, pins) = command::prepare(&self.shop, lease, command).await?;
                Ok((order, pins, None))
            }
            Task::Wasm(_) => Module::prepare(&self.shop, lease, task).await,
            Task::Frame(frame) => {
                let (order, pins) = view::prepare(&self.shop, lease, frame).await?;
                Ok((order, pins, None))
            }
            Task::Application(application) => {
                let memory_mib = application.memory_mib.unwrap_or(self.shop.kernel_memory_mib);
                let ApplicationTask { kernel, spec, inputs, .. } = application;
                let chunk = lease.chunk.as_deref().cloned();
                // The specification knows it by this name.
                let chunk = chunk.map(|of| ChunkFile { name: CHUNK_FILE.to_owned(), ..of });
                let inputs = with_spec(*spec, inputs);
                let (mut inputs, pins) = self.shop.fetch_inputs(&inputs, chunk.as_ref()).await?;
                let spec = inputs.remove(0);
                let kernel = kernel.clone();
                let too_little =
                    limits::too_little(application.memory_mib, self.shop.kernel_memory_mib);
                let order = ApplicationOrder {
                    token,
                    kernel,
                    spec,
                    inputs,
                    item,
                    memory_mib,
                    too_little,
                    gpu: None,
                };
                Ok((Order::Application(order), pins, None))
            }
        }
    }

    /// Ends what runs without ending the runner, where that is a module, or a part of a frame, which soon
    /// ends by itself. False where it is neither, or does not end in time.
    async fn ask_to_stop(&mut self, token: LeaseToken) -> bool {
        let draws = std::mem::take(&mut self.draws);
        let stopped = match (&mut self.runner, self.module.take()) {
            (Some(runner), Some(module)) => module.stop(runner, &self.shop, token).await,
            (Some(runner), None) if draws => {
                view::ends_by_itself(runner, &self.shop, &mut self.gpu, (self.slot, token)).await
            }
            _ => return false,
        };
        if stopped {
            self.shop.table.end(self.slot);
        } else {
            self.shop.table.stop(self.slot, token);
        }
        stopped
    }

    /// Makes sure that a runner waits for an order.
    async fn warm_up(&mut self) -> Result<(), String> {
        if self.runner.is_none() {
            if self.leaf.as_deref().is_some_and(Leaf::can_freeze) {
                // A hook that was ended half-way may have left it frozen; what starts in a frozen
                // group never comes to its first instruction, and who started it waits for that.
                let _ = self.shop.enclosure.marks().thaw();
            }
            let shop = Arc::clone(&self.shop);
            let start = async |leaf: Option<&Leaf>| {
                WarmRunner::start(&shop.spawner, &shop.run_dir, leaf).await
            };
            let mut started = start(self.leaf.as_deref()).await;
            if let Err(error) = &started {
                // Its groups may have been removed by whoever tidies up there, or the spawner ended.
                warn!("slot {} starts anew: {error}", self.slot);
                self.leaf = leaf_of(self.slot, &self.shop);
                started = start(self.leaf.as_deref()).await;
            }
            let runner = started.map_err(|error| error.to_string())?;
            let confines = self.shop.confines.clone().map(|confines| Confines {
                user: Some(confines.user.unwrap_or_else(|| user_of_slot(self.slot))),
                ..confines
            });
            let setup = Setup {
                folder: self.shop.tasks.join(self.slot.to_string()),
                spool: self.shop.spool.clone(),
                confines,
                limits: self.shop.command_limits,
            };
            let runner = self.runner.insert(runner);
            self.shop.table.enter_runner(self.slot, runner.pgid(), self.leaf.clone());
            runner.send(&setup).await.map_err(|_| "the runner ended as it started")?;
        }
        Ok(())
    }

    /// Returns when the idle runner has died, or is to; never where there is none.
    async fn idle_runner_gone(&mut self) {
        match &mut self.runner {
            Some(runner) if self.keeps => tokio::select! {
                () = runner.gone() => {}
                () = view::keeps_in_vain(&self.shop.table, self.slot) => {}
            },
            Some(runner) => runner.gone().await,
            None => std::future::pending().await,
        }
    }

    /// Kills what is left of the runner's group, waits for its end, and clears up after it.
    async fn reap(&mut self) -> Death {
        let cause = self.shop.table.remove_runner(self.slot);
        self.keeps = false;
        let Some(runner) = self.runner.take() else {
            let end = End { status: "no runner".into(), aborted: false, crashed: false };
            return Death { cause, end };
        };
        let pgid = runner.pgid();
        let leaf = self.leaf.as_deref();
        let end = {
            let mut reaping = pin!(runner.reap(leaf));
            let with_turns = with_turns(&mut reaping, &self.shop.table);
            match timeout(Duration::from_millis(DIE_MS_MAX), with_turns).await {
                Ok(end) => end,
                Err(_) => {
                    let (slot, what) = (self.slot, Some(stuck(self.slot, pgid)));
                    // Nobody listens only when the agent ends.
                    let _ = self.events.send(SlotEvent::Stuck { slot, what }).await;
                    let end = reaping.await;
                    let _ = self.events.send(SlotEvent::Stuck { slot, what: None }).await;
                    end
                }
            }
        };
        self.shop.table.note_reaped(self.slot);
        debug!(slot = self.slot, pgid, status = end.status, "runner ended");
        if let Err(error) = self.shop.run_dir.forget_group(pgid) {
            warn!("{error}");
        }
        let folder = self.shop.tasks.join(self.slot.to_string());
        let cleared = tokio::task::spawn_blocking(move || remove_all(&folder)).await;
        if let Ok(Err(error)) = cleared
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!("cannot clear up after a task: {error}");
        }
        Death { cause, end }
    }
}

/// What is fetched for a kernel with a specification, which comes first.
fn with_spec(digest: Digest, inputs: &[InputFile]) -> Vec<InputFile> {
    let spec = InputFile { name: "specification".into(), digest };
    [&[spec], inputs].concat()
}

/// Returns when this replica is to be stopped.
async fn wait_for_stop(
    token: LeaseToken,
    orders: &mut mpsc::UnboundedReceiver<SlotOrder>,
    asks: &Notify,
) -> Course {
    loop {
        match orders.recv().await {
            Some(SlotOrder::Stop(stopped)) if stopped == token => return Course::Stopped,
            Some(SlotOrder::Save(asked)) if asked == token => asks.notify_one(),
            Some(SlotOrder::Stop(_) | SlotOrder::Save(_)) => {}
            Some(SlotOrder::Start { .. }) => {
                unreachable!("a slot gets its next replica after the end of the last")
            }
            None => return Course::OrdersEnded,
        }
    }
}

/// What a group is at that does not die.
fn stuck(slot: u32, pgid: i32) -> String {
    let state = ProcessStat::of(pgid).map_or_else(
        |_| "has ended, and something that it started has not".to_owned(),
        |stat| format!("is in state {}", stat.state),
    );
    format!(
        "what slot {slot} ran was killed more than {DIE_MS_MAX} ms ago and does not die: the leader of group {pgid} {state}; see what it waits for in /proc/{pgid}/stack, and restart the machine if that does not end"
    )
}

struct Death {
    cause: Cause,
    end: End,
}
