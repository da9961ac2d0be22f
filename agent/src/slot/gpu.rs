//! The GPU for the replica of a slot, and how it ends there.

use std::time::Duration;

use gleaner_protocol::job::{Comparison, Task};
use gleaner_protocol::{LeaseToken, boottime};
use tokio::time::timeout;
use tracing::{info, warn};

use super::Workshop;
use super::warm_runner::RunnerGone;
use crate::limits::GPU_OPEN_MS_MAX;
use crate::runner::{GpuOrder, Order, Reply};

/// Whether the replica that runs has the GPU.
#[derive(Debug, Default)]
pub(super) struct GpuUse {
    has: bool,
    /// Its runner has not yet said what computes it.
    opens: bool,
    /// It did not compute the replica to its end.
    trouble: Option<String>,
    /// The last replica that was begun again without it.
    given_up: Option<LeaseToken>,
}

impl GpuUse {
    /// Puts the GPU into an order for a slot's runner, where its job, this host's owner and renders
    /// allow it, and no other replica has it. A job whose outputs are compared by their bytes has
    /// them computed on processors.
    pub(super) fn give(
        &mut self,
        shop: &Workshop,
        (slot, token): (u32, LeaseToken),
        task: &Task,
        order: &mut Order,
    ) {
        (self.has, self.opens, self.trouble) = (false, false, None);
        let Order::Application(order) = order else { return };
        if self.given_up != Some(token)
            && task.comparison() == Comparison::Tolerance
            && shop.kernels_on_gpu.contains(&order.kernel)
            && shop.table.take_gpu(boottime(), slot, token)
        {
            (self.has, self.opens) = (true, true);
            order.gpu = Some(GpuOrder { name: shop.gpu_name.clone() });
        }
    }

    /// Whether it has it.
    pub(super) const fn has(&self) -> bool {
        self.has
    }

    /// Waits for what a runner says; while it opens a GPU, for no longer than that may take.
    pub(super) async fn patiently<T>(
        &mut self,
        said: impl Future<Output = Result<T, RunnerGone>>,
    ) -> Result<T, RunnerGone> {
        if !self.opens {
            return said.await;
        }
        let limit = Duration::from_millis(GPU_OPEN_MS_MAX);
        timeout(limit, said).await.unwrap_or_else(|_| {
            let limit_s = limit.as_secs();
            self.trouble = Some(format!("its driver has not opened it in {limit_s} s"));
            Err(RunnerGone)
        })
    }

    /// Takes in what a runner says of it. Whatever else it says is given back; so is that it
    /// failed, after which the runner is to end.
    pub(super) fn hear(
        &mut self,
        shop: &Workshop,
        (slot, token): (u32, LeaseToken),
        reply: Reply,
    ) -> Option<Reply> {
        self.opens = false;
        match reply {
            Reply::ComputedBy { gpu: Some(name) } => {
                info!(slot, %token, gpu = name, "a replica is computed on the GPU");
                shop.owner.note_gpu_begun();
                None
            }
            Reply::ComputedBy { gpu: None } => {
                self.has = false;
                shop.table.leave_gpu(slot, token);
                None
            }
            Reply::GpuFailed(reason) => {
                self.trouble = Some(reason.clone());
                Some(Reply::GpuFailed(reason))
            }
            other => Some(other),
        }
    }

    /// Its runner ended under the replica, or had to. True where the GPU is why, or may be: the
    /// replica is to begin again, on the processor.
    pub(super) fn gives_up(&mut self, shop: &Workshop, token: LeaseToken, end: &str) -> bool {
        if !std::mem::take(&mut self.has) {
            return false;
        }
        self.given_up = Some(token);
        let reason = self.trouble.take().unwrap_or_else(|| end.to_owned());
        warn!(%token, "a replica begins again on the processor, for the GPU failed: {reason}");
        shop.table.rest_gpu(boottime());
        shop.owner.note_gpu_failed(reason);
        true
    }
}
