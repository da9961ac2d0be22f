//! What computes a kernel with a specification: the processor, or the GPU where the agent allows it
//! and the task gives the same there.

use gleaner_kernels::application::{ApplicationError, Device, Task};

use super::GpuOrder;

/// The device for a task, ready to compute, and the name of the GPU if it is one.
#[cfg(feature = "gpu")]
pub(super) fn device_for(
    task: &Task,
    gpu: Option<&GpuOrder>,
) -> Result<(Device, Option<String>), ApplicationError> {
    let Some(order) = gpu.filter(|_| task.is_alike_on_gpus()) else {
        return Ok((Device::Processor, None));
    };
    let gpu = gleaner_kernels::gpu::Gpu::open(order.name.as_deref())
        .map_err(|error| ApplicationError::Work(error.into()))?;
    let name = gpu.name().to_owned();
    Ok((Device::Gpu(gpu), Some(name)))
}

/// The device for a task, which is the processor.
#[cfg(not(feature = "gpu"))]
pub(super) fn device_for(
    _: &Task,
    _: Option<&GpuOrder>,
) -> Result<(Device, Option<String>), ApplicationError> {
    Ok((Device::Processor, None))
}

/// Whether an error is the GPU's, so that the processor may still compute it.
#[cfg(feature = "gpu")]
pub(super) fn is_of_gpu(error: &ApplicationError) -> bool {
    error.is_of_device()
}

/// Whether an error is the GPU's, of which there is none.
#[cfg(not(feature = "gpu"))]
pub(super) const fn is_of_gpu(_: &ApplicationError) -> bool {
    false
}

/// Leaves a device as it is: to let go of one that hangs may never end.
#[cfg(feature = "gpu")]
pub(super) fn let_be(device: Device) {
    std::mem::forget(device);
}

/// Leaves the processor as it is.
#[cfg(not(feature = "gpu"))]
pub(super) const fn let_be(_: Device) {}
