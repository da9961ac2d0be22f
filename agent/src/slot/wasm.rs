//! What a module needs of the agent around its run: its compiled form, what it saved, and a way
//! to end it that leaves its runner warm.
//!
//! # Invariants
//! - A module is compiled by one slot at a time; the others wait for it, and find it done.
//! - What was saved is kept until the workunit has an outcome on this host.

use std::time::Duration;

use gleaner_protocol::control::Lease;
use gleaner_protocol::job::{Task, WasmTask};
use gleaner_protocol::limits::WASM_MODULE_BYTES_MAX;
use gleaner_protocol::{Digest, LeaseToken, codec};
use tokio::sync::OwnedMutexGuard;
use tracing::{debug, warn};

use super::Workshop;
use super::warm_runner::{RunnerGone, WarmRunner};
use crate::blobs::CachedBlob;
use crate::harvest::RunResult;
use crate::limits::WASM_STOP_MS_MAX;
use crate::runner::{
    COMPILED_NAME, CompiledModule, Order, Reply, StagedInput, WasmOrder, spool_path,
};
use crate::scheduling_class::{let_die, let_stop};

/// A module that a runner was handed.
pub(super) struct Module {
    /// Under which its compiled form is found.
    name: Digest,
    /// Under which what it saves is kept.
    workunit: Digest,
    /// Held while it is this slot that compiles it.
    compiles: Option<OwnedMutexGuard<()>>,
}

impl Module {
    /// Fetches what the replica needs. The pins keep it in the cache.
    pub(super) async fn prepare(
        shop: &Workshop,
        lease: &Lease,
        task: &Task,
    ) -> Result<(Order, Vec<CachedBlob>, Option<Self>), String> {
        let Task::Wasm(wasm) = task else { return Err("no module".into()) };
        let index = lease.replica.workunit.index;
        let (inputs, mut pins) = shop.fetch_inputs(&wasm.inputs).await?;
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
        let order = WasmOrder {
            token: lease.token.get(),
            module: StagedInput { name: "module".into(), source, digest: wasm.module },
            compiled,
            arguments: wasm.args.clone(),
            index,
            item: lease.item.clone(),
            workunit: what_it_computes(wasm, index, lease.item.as_deref()),
            inputs,
            outputs: wasm.outputs.clone(),
            memory_mib: wasm.memory_mib,
            disk_mib: wasm.disk_mib,
            cpu_s: wasm.cpu_s,
            fuel: wasm.fuel,
            checkpoint: shop.checkpoints.load(workunit).await,
        };
        Ok((Order::Wasm(order), pins, Some(Self { name, workunit, compiles })))
    }

    /// Does what a reply asks of the agent; gives back those that end the replica or tell of it.
    pub(super) async fn take(
        &mut self,
        shop: &Workshop,
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
                if let Err(error) = shop.checkpoints.save(self.workunit, bytes).await {
                    warn!("a checkpoint cannot be kept: {error}");
                }
                None
            }
            other => Some(other),
        }
    }

    /// It ended by itself.
    pub(super) fn ended(self, shop: &Workshop, result: &RunResult) {
        if matches!(result, RunResult::Output { .. } | RunResult::Failed { .. }) {
            shop.checkpoints.forget(self.workunit);
        }
    }

    /// Tells it to end, and its runner to stay. False where it did not in time.
    pub(super) async fn stop(
        mut self,
        runner: &mut WarmRunner,
        shop: &Workshop,
        token: LeaseToken,
    ) -> bool {
        let ends = async {
            runner.send(&Order::Stop { token: token.get() }).await?;
            // In the idle class it would not get to it while anything else wants the core. It
            // goes back there by itself.
            let_stop(runner.pgid());
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

async fn fetch_module(shop: &Workshop, wasm: &WasmTask) -> Result<CachedBlob, String> {
    let module = shop.blobs.fetch(wasm.module).await.map_err(|error| format!("module: {error}"))?;
    let bytes = module.bytes();
    if bytes > WASM_MODULE_BYTES_MAX {
        return Err(format!("module: its {bytes} bytes are more than {WASM_MODULE_BYTES_MAX}"));
    }
    Ok(module)
}

/// What was compiled before, or the turn to do it.
async fn find_compiled(
    shop: &Workshop,
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
