//! The GPU for the replica of a slot, and how it ends there.

mod silence_limit;

use std::pin::pin;

use gleaner_protocol::control::Lease;
use gleaner_protocol::job::{Comparison, Task};
use gleaner_protocol::{LeaseToken, Span, Time, ViewKernel, boottime};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use self::silence_limit::SilenceLimit;
use super::SlotContext;
use super::warm_runner::RunnerGone;
use crate::limits::{GPU_OPEN_MS_MAX, GPU_SILENCE_MS_MAX};
use crate::run::runner::{Fault, FrameInput, Order, Reply};

/// Whether the replica that runs has the GPU.
#[derive(Debug, Default)]
pub(super) struct GpuUse {
    has: bool,
    /// When its runner spoke last, since it has begun to open it.
    silent_since: Option<Time>,
    /// Whether it has said that it opened it.
    computes: bool,
    /// Whether it draws a part of a frame.
    draws: bool,
    /// It did not compute the replica to its end.
    trouble: Option<(String, Fault)>,
    /// The last replica that was begun again without it.
    given_up: Option<LeaseToken>,
}

impl GpuUse {
    /// Puts the GPU into an order for a slot's runner, where its job, this host's owner and renders
    /// allow it, and no other replica has it. A job whose outputs are compared by their bytes has
    /// them computed on processors; frames of views are compared with nothing.
    pub(super) fn give(
        &mut self,
        shop: &SlotContext,
        slot: u32,
        lease: &Lease,
        task: &Task,
        order: &mut Order,
    ) {
        (self.has, self.computes) = (false, false);
        (self.silent_since, self.trouble) = (None, None);
        self.draws = matches!(order, Order::Frame(_));
        let (is_for_it, place) = match order {
            Order::Application(order) => {
                let is_alike = task.comparison() == Comparison::Tolerance;
                (is_alike && shop.kernels_on_gpu.contains(&order.kernel), &mut order.gpu)
            }
            Order::Frame(order) => {
                let is_drawn = matches!(order.input, FrameInput::Chunk(..));
                (is_drawn && order.task.kernel == ViewKernel::Volume, &mut order.gpu)
            }
            _ => return,
        };
        if is_for_it
            && self.given_up != Some(lease.token)
            && shop.table.take_gpu(boottime(), slot, lease)
        {
            self.has = true;
            *place = Some(shop.gpu.clone());
        }
    }

    /// Whether it has it.
    pub(super) const fn has(&self) -> bool {
        self.has
    }

    /// Whether it is being opened just now.
    pub(super) const fn opens(&self) -> bool {
        self.has && self.silent_since.is_some() && !self.computes
    }

    /// Waits for what a runner says: while it opens a GPU, for no longer than that may take, and while
    /// it computes there, as long as a driver may hang. The time for which it is frozen does not
    /// count; nor does that in which it computes on the processor, as it does between two pieces of
    /// work of the device.
    pub(super) async fn patiently<T>(
        &mut self,
        shop: &SlotContext,
        (slot, token): (u32, LeaseToken),
        said: impl Future<Output = Result<T, RunnerGone>>,
    ) -> Result<T, RunnerGone> {
        let Some(silent_since) = self.silent_since.filter(|_| self.has) else { return said.await };
        let mut said = pin!(said);
        let (limit_ms, what) = match self.computes {
            true => (GPU_SILENCE_MS_MAX, "come any further"),
            false => (GPU_OPEN_MS_MAX, "opened it"),
        };
        let mut silence = SilenceLimit::new(Span::from_millis(limit_ms), silent_since);
        loop {
            let runs_since = shop.table.runs_since(slot, token);
            let used = self.computes.then(|| shop.table.cpu_used(slot, token)).flatten();
            let Some(left) = silence.left(boottime(), runs_since, used) else {
                let trouble = format!("its driver has not {what} in {}", silence.limit());
                self.trouble = Some((trouble, Fault::Device));
                return Err(RunnerGone);
            };
            if let Ok(said) = timeout(left.into(), &mut said).await {
                return said;
            }
        }
    }

    /// Takes in what a runner says of it. Whatever else it says is given back; so is that it
    /// failed, after which the runner is to end.
    pub(super) fn hear(
        &mut self,
        shop: &SlotContext,
        (slot, token): (u32, LeaseToken),
        reply: Reply,
    ) -> Option<Reply> {
        self.silent_since = self.silent_since.map(|_| boottime());
        match reply {
            Reply::OpensGpu => {
                self.silent_since = Some(boottime());
                None
            }
            Reply::ComputedBy { gpu: Some(name) } => {
                let what = "a replica is computed on the GPU";
                // Frames come by the dozen a second, and find it open.
                match self.silent_since {
                    Some(_) => info!(slot, %token, gpu = name, "{what}"),
                    None => debug!(slot, %token, gpu = name, "{what}"),
                }
                shop.owner.note_gpu_begun();
                self.computes = true;
                self.silent_since = Some(boottime());
                if self.draws {
                    shop.table.keep_gpu(slot, token);
                }
                None
            }
            Reply::ComputedBy { gpu: None } => {
                self.has = false;
                shop.table.leave_gpu(slot, token);
                None
            }
            Reply::GpuFailed { reason, of } => {
                self.trouble = Some((reason.clone(), of));
                Some(Reply::GpuFailed { reason, of })
            }
            other => Some(other),
        }
    }

    /// Its runner ended under the replica, or had to, by this fault if nothing else is known. True
    /// where the GPU is why, or may be: the replica is to begin again, on the processor.
    pub(super) fn gives_up(
        &mut self,
        shop: &SlotContext,
        lease: &Lease,
        end: &str,
        fault: Fault,
    ) -> bool {
        if !self.has {
            return false;
        }
        let token = lease.token;
        self.given_up = Some(token);
        // What it is asked to compute it learns later.
        let fault = if self.opens() { Fault::Device } else { fault };
        self.has = false;
        let (reason, fault) = self.trouble.take().unwrap_or_else(|| (end.to_owned(), fault));
        let fault = self.of_frames(fault);
        warn!(%token, "a replica begins again on the processor, for the GPU failed: {reason}");
        shop.table.blame_gpu(boottime(), lease.replica.workunit.job, fault);
        shop.owner.note_gpu_failed(reason);
        true
    }

    /// Its runner was ended, for the part of a frame that it drew on the GPU was to stop and did not. Where
    /// nothing else is known, and that happens again, it is the GPU's fault.
    pub(super) fn note_stuck(&mut self, shop: &SlotContext, lease: &Lease) {
        if !self.has || !self.draws {
            return;
        }
        let known = self.trouble.take().map(|(_, fault)| self.of_frames(fault));
        let fault = match (known, self.opens()) {
            (Some(fault), _) => fault,
            (None, true) => Fault::Device,
            (None, false) if self.computes => Fault::Unclear,
            (None, false) => return,
        };
        self.has = false;
        shop.table.blame_gpu(boottime(), lease.replica.workunit.job, fault);
    }

    /// Whose fault it is: the next frames are of other jobs, and ask for as much.
    fn of_frames(&self, fault: Fault) -> Fault {
        if self.draws && fault == Fault::Job { Fault::Device } else { fault }
    }
}
