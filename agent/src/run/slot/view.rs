//! What a part of a frame of a view needs of the agent before it is drawn, and after.
//!
//! Nothing of it is a blob: layers stay on the host that drew them until they are joined, or go to the broker
//! and come from there, and are gone when the frame is.

use std::path::Path;
use std::time::Duration;

use gleaner_protocol::control::Lease;
use gleaner_protocol::job::Task;
use gleaner_protocol::limits::FRAME_PART_BYTES_MAX;
use gleaner_protocol::{Content, FrameStage, FrameTask, LeaseToken, Span, ViewKernel, boottime};
use tokio::time::{sleep, timeout};

use super::SlotContext;
use super::gpu::GpuUse;
use super::warm_runner::WarmRunner;
use crate::harvest::{Product, RunResult};
use crate::limits::{BRICKS_KEPT_S, BRICKS_LOOK_S, FRAME_STOP_MS_MAX, GPU_KEPT_S, GPU_OPEN_MS_MAX};
use crate::link::blobs::CachedBlob;
use crate::release::slot_table::SlotTable;
use crate::run::runner::{FrameInput, FrameOrder, Order, Reply, discard_spooled, spool_path};

/// Name of the layers of a frame in the spool folder; no output has it.
const LAYERS_NAME: &str = ".layers";

/// Returns when what an idle runner keeps in memory, or on the GPU, is of no use any more: nothing may run on
/// this host, or nobody has turned a volume for long.
pub(super) async fn keeps_in_vain(table: &SlotTable, slot: u32) {
    let since = boottime();
    // Others may want the GPU.
    let kept_s = if table.keeps_gpu(slot) { GPU_KEPT_S } else { BRICKS_KEPT_S };
    while boottime().since(since) < Span::from_secs(kept_s) {
        sleep(Duration::from_secs(BRICKS_LOOK_S)).await;
        let stands = table.occupancy();
        if stands.slots.min(stands.allowed) == 0 {
            return;
        }
    }
}

/// Whether it is the last part of a frame: where the broker has no layers for it, nobody waits for the frame
/// any more, and no other host is to try.
pub(super) fn is_joined(task: &Task) -> bool {
    matches!(task, Task::Frame(frame) if frame.stage == FrameStage::Join)
}

/// Whether what is drawn comes to its end within the time that it gets. Where it does its runner stays, with
/// what it has decoded; a GPU that is being opened is waited for, as the next frame is the sooner drawn.
pub(super) async fn ends_by_itself(
    runner: &mut WarmRunner,
    shop: &SlotContext,
    gpu: &mut GpuUse,
    of: (u32, LeaseToken),
) -> bool {
    loop {
        let limit_ms = if gpu.opens() { GPU_OPEN_MS_MAX } else { FRAME_STOP_MS_MAX };
        let Ok(Ok(said)) = timeout(Duration::from_millis(limit_ms), runner.receive()).await else {
            return false;
        };
        match gpu.hear(shop, of, said) {
            None | Some(Reply::Progress { .. }) => {}
            Some(reply) => return !matches!(reply, Reply::GpuFailed { .. }),
        }
    }
}

/// Fetches what is drawn or joined. The pin keeps a chunk in the cache.
pub(super) async fn prepare(
    shop: &SlotContext,
    lease: &Lease,
    task: &FrameTask,
) -> Result<(Order, Vec<CachedBlob>), String> {
    let mut waits_us = 0;
    let (input, pins) = match (task.kernel, task.stage) {
        (_, FrameStage::Join) => {
            let layers = shop.blobs.fetch_layers(lease.token).await;
            let layers = layers.map_err(|error| error.to_string())?;
            let path = spool_path(&shop.spool, lease.token.get(), LAYERS_NAME);
            let kept = tokio::fs::write(&path, layers).await;
            kept.map_err(|error| format!("cannot keep the layers of a frame: {error}"))?;
            (FrameInput::Layers(path), Vec::new())
        }
        (ViewKernel::Synthetic, _) => (FrameInput::Nothing, Vec::new()),
        (ViewKernel::Volume | ViewKernel::Paced { .. }, _) => {
            let chunk = lease.chunk.as_deref().ok_or("its job names no chunk to draw")?;
            if let ViewKernel::Paced { load_us, render_us } = task.kernel {
                let loads = shop.blobs.copy(chunk.digest).is_none();
                waits_us = u64::from(render_us) + if loads { u64::from(load_us) } else { 0 };
            }
            let (mut inputs, pins) = shop.fetch_inputs(&[], Some(chunk)).await?;
            (FrameInput::Chunk(inputs.remove(0), chunk.bytes), pins)
        }
    };
    let order = FrameOrder {
        token: lease.token.get(),
        task: Box::new(task.clone()),
        index: lease.replica.workunit.index,
        input,
        memory_mib: shop.kernel_memory_mib,
        bricks_mib: shop.bricks_mib,
        waits_us,
        gpu: None,
    };
    Ok((Order::Frame(order), pins))
}

/// Has what was drawn ready for whoever is next, at the broker or on this host; what is left to report has no
/// files.
pub(super) async fn deliver(
    shop: &SlotContext,
    token: LeaseToken,
    stage: FrameStage,
    result: RunResult,
) -> RunResult {
    let result = match result {
        RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib } => {
            match bring(shop, token, stage, files).await {
                Ok(()) => {
                    let files = Vec::new();
                    RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib }
                }
                Err(reason) => RunResult::CannotRun(reason),
            }
        }
        other => other,
    };
    discard_spooled(&shop.spool, token.get());
    result
}

async fn bring(
    shop: &SlotContext,
    token: LeaseToken,
    stage: FrameStage,
    files: Vec<Product>,
) -> Result<(), String> {
    let [Product { name, content }] =
        <[Product; 1]>::try_from(files).map_err(|files| format!("it has {} files", files.len()))?;
    let bytes = match content {
        Content::Inline(bytes) => bytes,
        Content::Stored { bytes, .. } if bytes > FRAME_PART_BYTES_MAX => {
            return Err(format!("it has {bytes} bytes, at most {FRAME_PART_BYTES_MAX} are taken"));
        }
        Content::Stored { .. } => {
            let path: &Path = &spool_path(&shop.spool, token.get(), &name);
            let read = tokio::fs::read(path).await;
            read.map_err(|error| format!("what was drawn cannot be read: {error}"))?
        }
    };
    let brought = match stage {
        FrameStage::Layer => shop.blobs.bring_layer(token, bytes.into()).await,
        FrameStage::Whole | FrameStage::Coarse | FrameStage::Join => {
            shop.blobs.bring_part(token, bytes.into()).await
        }
    };
    brought.map_err(|error| error.to_string())
}
