//! What the owner is told of the GPU.

use gleaner_hooks::GpuStanding;
use gleaner_protocol::GpuInfo;
use gleaner_protocol::limits::bounded_reason;

use super::Owner;

impl Owner {
    /// Notes the GPU that may be used, or why there is none.
    pub(crate) fn note_gpu(&self, found: Result<GpuInfo, String>) {
        let (device, trouble) = match found {
            Ok(device) => (Some(device), None),
            Err(trouble) => (None, Some(bounded_reason(trouble))),
        };
        self.lock().gpu = Some(GpuStanding { device, trouble, ..GpuStanding::default() });
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
