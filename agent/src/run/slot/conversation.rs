//! What a slot's runner says of a replica, from its first order to its end.

use gleaner_protocol::{Computer, LeaseToken, Measured, boottime};
use tokio::sync::{Notify, mpsc};

use super::gpu::GpuUse;
use super::warm_runner::{RunnerGone, WarmRunner};
use super::wasm::Module;
use super::{SlotContext, SlotEvent};
use crate::harvest::RunResult;
use crate::run::runner::{Order, Reply};

/// How a replica ended, by its runner's word.
pub(super) enum Said {
    /// The runner waits for the next one.
    Ended(RunResult),
    /// The runner cannot end what it has left.
    Overrun(RunResult),
}

/// Passes progress on until the replica has ended.
pub(super) async fn converse(
    runner: &mut WarmRunner,
    shop: &SlotContext,
    module: &mut Option<Module>,
    gpu: &mut GpuUse,
    (slot, token): (u32, LeaseToken),
    asks: &Notify,
    events: &mpsc::Sender<SlotEvent>,
) -> Result<Said, RunnerGone> {
    let (began, since) = (shop.table.runs_since(slot, token), boottime());
    loop {
        let mut reply = tokio::select! {
            reply = gpu.patiently(shop, (slot, token), runner.receive()) => reply?,
            () = asks.notified() => {
                // What is no module is not asked, nor one for which that was said before it began.
                if module.is_some() && shop.table.is_saving(slot, token) {
                    runner.send(&Order::Save { token: token.get() }).await?;
                    runner.look_up();
                }
                continue;
            }
        };
        match (&mut *module, reply) {
            (Some(module), Reply::Checkpoint { bytes }) => {
                // What was only to save stands still again while that is brought to the broker.
                let is_last = shop.table.stop_saving(slot, token);
                module.save(shop, token, bytes, is_last, events).await;
                shop.table.note_saved(boottime(), slot, token);
                if is_last && events.send(SlotEvent::Saved { token }).await.is_err() {
                    return Err(RunnerGone);
                }
                continue;
            }
            (Some(module), other) => match module.take(shop, token, other).await {
                Some(left) => reply = left,
                None => continue,
            },
            (None, other) => reply = other,
        }
        let Some(reply) = gpu.hear(shop, (slot, token), reply) else { continue };
        return Ok(Said::Ended(match reply {
            Reply::Progress { permille } => {
                // One that does not fit is no loss: another follows.
                let _ = events.try_send(SlotEvent::Progress { token, permille });
                continue;
            }
            Reply::Done { files, cpu_us, measured } => {
                let stood_still = shop.table.runs_since(slot, token) != began;
                let measured = measured.filter(|measured| is_fair(measured, stood_still));
                let now = boottime();
                let seen = shop.table.stood_and_took(slot, token, now);
                let (stood, peak_memory_mib) = seen.unwrap_or_default();
                let wall_us = now.since(since).as_micros().saturating_sub(stood.as_micros());
                RunResult::Output { files, cpu_us, measured, wall_us, peak_memory_mib }
            }
            Reply::Failed { reason, cpu_us } => RunResult::Failed { reason, cpu_us },
            Reply::CannotRun(reason) => RunResult::CannotRun(reason),
            Reply::Overrun { reason, cpu_us } => {
                return Ok(Said::Overrun(RunResult::Failed { reason, cpu_us }));
            }
            // It was asked neither to stop nor to look, what is no module has neither of the next two, and what is
            // left of a GPU that failed goes with its process.
            Reply::Stopped
            | Reply::Seen(_)
            | Reply::Compiled { .. }
            | Reply::Checkpoint { .. }
            | Reply::OpensGpu
            | Reply::ComputedBy { .. }
            | Reply::GpuFailed { .. } => return Err(RunnerGone),
        }));
    }
}

/// Whether a measurement says how long the replica takes: what goes by while it stands still is nothing
/// that a GPU takes for it, and no CPU time either.
fn is_fair(measured: &Measured, stood_still: bool) -> bool {
    measured.by == Computer::Core || !stood_still
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::DataSize;

    use super::*;

    #[test]
    fn a_time_on_a_gpu_counts_only_where_nothing_held_it_up() {
        let size = DataSize::new("64x64x64").expect("a size");
        let of = |by| Measured { size: size.clone(), by, run_us: 5 };
        for (by, stood_still, fair) in [
            (Computer::Core, false, true),
            (Computer::Core, true, true),
            (Computer::Gpu, false, true),
            (Computer::Gpu, true, false),
        ] {
            assert_eq!(is_fair(&of(by), stood_still), fair, "{by:?} {stood_still}");
        }
    }
}
