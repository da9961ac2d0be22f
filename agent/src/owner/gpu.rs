//! What the owner is told of the GPU.

use gleaner_hooks::GpuStanding;
use gleaner_protocol::GpuInfo;
use gleaner_protocol::limits::bounded_reason;

use super::Owner;
use crate::host::gpu::GpuVerdict;

impl Owner {
    /// Notes the GPU that may be used, or why there is none.
    pub(crate) fn note_gpu(&self, found: Result<GpuInfo, String>) {
        let (device, trouble) = match found {
            Ok(device) => (Some(device), None),
            Err(trouble) => (None, Some(bounded_reason(trouble))),
        };
        self.lock().gpu = Some(GpuStanding { device, trouble, ..GpuStanding::default() });
    }

    /// Notes whether it may be used beside others.
    pub(crate) fn note_gpu_verdict(&self, verdict: GpuVerdict) {
        if let Some(gpu) = &mut self.lock().gpu {
            gpu.held_back = verdict.held_back.map(bounded_reason);
            gpu.seen = verdict.seen.map(bounded_reason);
        }
    }

    /// Notes that a replica is computed on it.
    pub(crate) fn note_gpu_begun(&self) {
        if let Some(gpu) = &mut self.lock().gpu {
            gpu.begun += 1;
        }
    }

    /// Notes that a replica did not come to its end on it.
    pub(crate) fn note_gpu_failed(&self, reason: String) {
        if let Some(gpu) = &mut self.lock().gpu {
            gpu.failed += 1;
            gpu.trouble = Some(bounded_reason(reason));
        }
    }
}
