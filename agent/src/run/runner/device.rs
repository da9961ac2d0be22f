//! What computes a kernel with a specification: the processor, or the GPU where the agent allows it,
//! the task gives the same there, and that is not sure to take longer.

use gleaner_kernels::application::{ApplicationError, Device, Task};
#[cfg(feature = "gpu")]
use gleaner_kernels::gpu::GpuError;
use gleaner_kernels::view::ViewError;

use super::{Fault, GpuOrder};

/// The device for a task, ready to compute, and the name of the GPU if it is one.
#[cfg(feature = "gpu")]
pub(super) fn device_for(
    task: &Task,
    gpu: Option<&GpuOrder>,
) -> Result<(Device, Option<String>), ApplicationError> {
    let is_for_it = |order: &&GpuOrder| {
        task.is_alike_on_gpus() && task.is_sooner_on_gpus(order.surface_mib_min << 20)
    };
    let Some(order) = gpu.filter(is_for_it) else { return Ok((Device::Processor, None)) };
    let GpuOrder { name, pci, reserve_mib, .. } = order;
    let gpu = gleaner_kernels::gpu::Gpu::open_beside(name.as_deref(), *pci, *reserve_mib)
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

/// Whose fault an error of the GPU is; none where it is no such error, so that the processor would
/// come to the same.
#[cfg(feature = "gpu")]
pub(super) fn gpu_fault(error: &ApplicationError) -> Option<Fault> {
    Some(fault_of(error.of_device()?))
}

/// Whose fault an error of the GPU is that draws a part of a frame; none where it is no such error.
#[cfg(feature = "gpu")]
pub(super) fn drawing_fault(error: &ViewError) -> Option<Fault> {
    Some(fault_of(error.of_device()?))
}

#[cfg(feature = "gpu")]
const fn fault_of(error: &GpuError) -> Fault {
    match error {
        GpuError::OutOfMemory { .. } => Fault::Job,
        GpuError::Failed { .. } => Fault::Unclear,
        GpuError::NoGpu { .. }
        | GpuError::NoneNamed { .. }
        | GpuError::NonePlaced { .. }
        | GpuError::Refused { .. }
        | GpuError::Crowded { .. }
        | GpuError::Lost { .. }
        | GpuError::Hung { .. } => Fault::Device,
    }
}

/// Whose fault an error of the GPU is, of which there is none.
#[cfg(not(feature = "gpu"))]
pub(super) const fn gpu_fault(_: &ApplicationError) -> Option<Fault> {
    None
}

/// Whose fault an error of the GPU is that draws a part of a frame, of which there is none.
#[cfg(not(feature = "gpu"))]
pub(super) const fn drawing_fault(_: &ViewError) -> Option<Fault> {
    None
}

/// Leaves a device as it is: to let go of one that hangs may never end.
#[cfg(feature = "gpu")]
pub(super) fn let_be(device: Device) {
    std::mem::forget(device);
}

/// Leaves the processor as it is.
#[cfg(not(feature = "gpu"))]
pub(super) fn let_be(_: Device) {}
