//! What a module needs of the agent around its run: its compiled form, what it saved, and a way
//! to end it that leaves its runner warm.
//!
//! # Invariants
//! - A module is compiled by one slot at a time; the others wait for it, and find it done.
//! - What was saved is kept until the workunit has an outcome on this host. At times it is brought to
//!   the broker too, for a host that may have to go on from it: while the module runs, so that a
//!   release has nothing to send.

use std::sync::Arc;
use std::time::Duration;

use gleaner_protocol::control::{GoesOn, Lease};
use gleaner_protocol::job::{Task, WasmTask};
use gleaner_protocol::limits::WASM_MODULE_BYTES_MAX;
use gleaner_protocol::{Digest, LeaseToken, Time, boottime, codec};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::warm_runner::{RunnerGone, WarmRunner};
use super::{SlotContext, SlotEvent};
use crate::harvest::RunResult;
use crate::limits::{LAST_SAVE_MS_MAX, WASM_STOP_MS_MAX};
use crate::link::blobs::CachedBlob;
use crate::run::checkpoints::Checkpoint;
use crate::run::runner::{
    COMPILED_NAME, CompiledModule, Order, Reply, StagedInput, WasmOrder, spool_path,
};
use crate::run::scheduling_class::{let_die, let_runner_obey};

/// A module that a runner was handed.
pub(super) struct Module {
    /// Under which its compiled form is found.
    name: Digest,
    /// Under which what it saves is kept.
    workunit: Digest,
    /// Whether no other host has a part in what it saves.
    is_own: bool,
    /// Whether that may be of use to another host, so that it is brought to the broker.
    hands_on: bool,
    /// When it is brought there next.
    next_save: Time,
    /// What is on its way; none where it did not get there.
    saves: JoinSet<Option<Digest>>,
    /// What got there last, of this replica or of the one that it goes on from, and what did before
    /// that: the broker lets go of this when another comes, for it may not have been told yet of the
    /// last.
    brought: Option<Digest>,
    brought_before: Option<Digest>,
    /// Held while it is this slot that compiles it.
    compiles: Option<OwnedMutexGuard<()>>,
}

impl Module {
    /// Fetches what the replica needs. The pins keep it in the cache.
    pub(super) async fn prepare(
        shop: &SlotContext,
        lease: &Lease,
        task: &Task,
    ) -> Result<(Order, Vec<CachedBlob>, Option<Self>), String> {
        let Task::Wasm(wasm) = task else { return Err("no module".into()) };
        let index = lease.replica.workunit.index;
        let (inputs, mut pins) = shop.fetch_inputs(&wasm.inputs, lease.chunk.as_deref()).await?;
        let module = fetch_module(shop, wasm).await?;
        let source = module.path().to_owned();
        pins.push(module);
        let name = shop.modules.name(wasm.module, wasm.fuel.is_some());
        let (found, compiles) = find_compiled(shop, name).await;
        let compiled = found.map(|blob| {
            let compiled = CompiledModule { path: blob.path().to_owned(), digest: blob.digest() };
            pins.push(blob);
            compiled
        });
        let workunit = Digest::of(&codec::encode(&(lease.replica.workunit, task, &lease.item)));
        let (checkpoint, is_own) = where_it_goes_on(shop, workunit, lease.goes_on).await.unzip();
        let is_own = is_own.unwrap_or(true);
        let order = WasmOrder {
            token: lease.token.get(),
            module: StagedInput { name: "module".into(), source, digest: wasm.module },
            compiled,
            arguments: wasm.args.clone(),
            index,
            item: lease.item.clone(),
            workunit: what_it_computes(wasm, index, lease.item.as_deref()),
            chunk: lease.chunk.as_ref().map(|chunk| chunk.name.clone()),
            inputs,
            outputs: wasm.outputs.clone(),
            memory_mib: wasm.memory_mib,
            disk_mib: wasm.disk_mib,
            cpu_s: wasm.cpu_s,
            fuel: wasm.fuel,
            checkpoint,
        };
        let (next_save, saves) = (boottime() + shop.save_interval, JoinSet::new());
        let brought = lease.goes_on.map(|goes_on| goes_on.state);
        let hands_on = lease.hands_on;
        let module = Self {
            name,
            workunit,
            is_own,
            hands_on,
            next_save,
            saves,
            brought,
            brought_before: None,
            compiles,
        };
        Ok((Order::Wasm(order), pins, Some(module)))
    }

    /// Does what a reply asks of the agent; gives back those that end the replica or tell of it. What
    /// is saved while it runs goes through [`Module::save`], and here only when it is being stopped.
    pub(super) async fn take(
        &mut self,
        shop: &SlotContext,
        token: LeaseToken,
        reply: Reply,
    ) -> Option<Reply> {
        match reply {
            Reply::Compiled { digest, bytes } => {
                let path = spool_path(&shop.spool, token.get(), COMPILED_NAME);
                if let Err(error) = shop.modules.keep(self.name, path, digest, bytes).await {
                    warn!("a compiled module cannot be kept: {error}");
                }
                self.compiles = None;
                None
            }
            Reply::Checkpoint { bytes } => {
                self.keep(shop, bytes).await;
                None
            }
            other => Some(other),
        }
    }

    async fn keep(&self, shop: &SlotContext, bytes: Vec<u8>) {
        let checkpoint = Checkpoint { bytes, is_own: self.is_own };
        if let Err(error) = shop.checkpoints.save(self.workunit, checkpoint).await {
            warn!("a checkpoint cannot be kept: {error}");
        }
    }

    /// Keeps what it saved, and brings it to the broker where that is due. `is_last` waits for it:
    /// the replica ends here.
    pub(super) async fn save(
        &mut self,
        shop: &SlotContext,
        token: LeaseToken,
        bytes: Vec<u8>,
        is_last: bool,
        events: &mpsc::Sender<SlotEvent>,
    ) {
        if let Some(Ok(Some(brought))) = self.saves.try_join_next() {
            self.brought_before = self.brought.replace(brought);
        }
        let now = boottime();
        let is_due = is_last || (now >= self.next_save && self.saves.is_empty());
        if !self.hands_on || !is_due {
            return self.keep(shop, bytes).await;
        }
        self.next_save = now + shop.save_interval;
        let (state, replaces) = (Digest::of(&bytes), self.brought_before);
        let (blobs, events, copy) = (Arc::clone(&shop.blobs), events.clone(), bytes.clone());
        self.keep(shop, bytes).await;
        let bring = async move {
            if let Err(error) = blobs.save_state(state, replaces, copy).await {
                debug!(%token, "what it saved stays here: {error}");
                return None;
            }
            // Nobody listens only when the agent ends.
            let _ = events.send(SlotEvent::StateStored { token, state }).await;
            Some(state)
        };
        if is_last {
            // One that is under way is older, and what does not get there soon keeps no render waiting.
            self.saves = JoinSet::new();
            let limit = Duration::from_millis(LAST_SAVE_MS_MAX);
            let _ = tokio::time::timeout(limit, bring).await;
        } else {
            self.saves.spawn(bring);
        }
    }

    /// It ended by itself.
    pub(super) fn ended(self, shop: &SlotContext, result: &RunResult) {
        if matches!(result, RunResult::Output { .. } | RunResult::Failed { .. }) {
            shop.checkpoints.forget(self.workunit);
        }
    }

    /// Tells it to end, and its runner to stay. False where it did not in time.
    pub(super) async fn stop(
        mut self,
        runner: &mut WarmRunner,
        shop: &SlotContext,
        token: LeaseToken,
    ) -> bool {
        let ends = async {
            runner.send(&Order::Stop { token: token.get() }).await?;
            // In the idle class it would not get to it while anything else wants the core. It
            // goes back there by itself.
            let_runner_obey(runner.pgid());
            runner.look_up();
            loop {
                match self.take(shop, token, runner.receive().await?).await {
                    None | Some(Reply::Progress { .. }) => {}
                    Some(_) => return Ok::<(), RunnerGone>(()),
                }
            }
        };
        let ended = tokio::time::timeout(Duration::from_millis(WASM_STOP_MS_MAX), ends).await;
        debug!(%token, ?ended, "a module was told to stop");
        let stopped = matches!(ended, Ok(Ok(())));
        if !stopped {
            // It is to be killed, and not to give back its memory before all others.
            let_die(runner.pgid());
        }
        stopped
    }

    /// Why its runner died under it.
    pub(super) fn explain_death(self, status: &str) -> String {
        let what = match self.compiles {
            Some(_) => "compiling the module took too much time or memory",
            None => "its process was ended from outside; out of memory?",
        };
        format!("{what} ({status})")
    }
}

/// What the last replica saved that this one is to go on from, and whether that is this host's alone.
async fn where_it_goes_on(
    shop: &SlotContext,
    workunit: Digest,
    told: Option<GoesOn>,
) -> Option<(Vec<u8>, bool)> {
    let here = shop.checkpoints.load(workunit).await.filter(|found| found.is_own);
    match told.filter(|told| !told.is_own || here.is_none()) {
        Some(GoesOn { state, is_own }) => match shop.blobs.fetch_state(state).await {
            Ok(bytes) => return Some((bytes, is_own)),
            Err(error) => warn!("a replica does not go on from where another was: {error}"),
        },
        // What is here besides goes back to others, and nobody said that it may be used.
        None if here.is_none() => shop.checkpoints.forget(workunit),
        None => {}
    }
    here.map(|found| (found.bytes, true))
}

async fn fetch_module(shop: &SlotContext, wasm: &WasmTask) -> Result<CachedBlob, String> {
    let module = shop.blobs.fetch(wasm.module).await.map_err(|error| format!("module: {error}"))?;
    let bytes = module.bytes();
    if bytes > WASM_MODULE_BYTES_MAX {
        return Err(format!("module: its {bytes} bytes are more than {WASM_MODULE_BYTES_MAX}"));
    }
    Ok(module)
}

/// What was compiled before, or the turn to do it.
async fn find_compiled(
    shop: &SlotContext,
    name: Digest,
) -> (Option<CachedBlob>, Option<OwnedMutexGuard<()>>) {
    if let Some(found) = shop.modules.find(name) {
        return (Some(found), None);
    }
    let turn = shop.blobs.turn(name).lock_owned().await;
    match shop.modules.find(name) {
        Some(found) => (Some(found), None),
        None => (None, Some(turn)),
    }
}

/// Names what is computed, whoever submits it: limits and the job's number have no part in it.
fn what_it_computes(wasm: &WasmTask, index: u32, item: Option<&str>) -> Digest {
    Digest::of(&codec::encode(&(wasm.module, &wasm.args, &wasm.inputs, index, item)))
}
