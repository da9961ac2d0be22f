//! What a GPU is, in words and numbers.

use gleaner_protocol::{GpuInfo, GpuKind};
use wgpu::hal::api::Vulkan;
use wgpu::{Adapter, DeviceType};

const MIB: u64 = 1 << 20;

/// Vulkan's mark of memory that is the device's own.
const DEVICE_LOCAL: u32 = 1;

/// What is known of one before it is opened.
pub(super) fn about(adapter: &Adapter) -> GpuInfo {
    let info = adapter.get_info();
    let driver = match (info.driver.as_str(), info.driver_info.as_str()) {
        ("", info) => info.to_owned(),
        (driver, "") => driver.to_owned(),
        (driver, info) => format!("{driver} {info}"),
    };
    let kind = match info.device_type {
        DeviceType::DiscreteGpu => GpuKind::Discrete,
        DeviceType::IntegratedGpu => GpuKind::Integrated,
        DeviceType::VirtualGpu => GpuKind::Virtual,
        DeviceType::Cpu => GpuKind::Software,
        DeviceType::Other => GpuKind::Other,
    };
    GpuInfo { name: info.name, driver, kind, memory_mib: memory_mib(adapter) }.made_plain()
}

/// The largest part of its own memory: others are windows into it.
#[expect(unsafe_code, reason = "the library does not tell it itself")]
fn memory_mib(adapter: &Adapter) -> u64 {
    // SAFETY: nothing of what is reached is destroyed, and all of it lives as long as the guard;
    // asked is what every device answers.
    let memory = unsafe {
        let Some(adapter) = adapter.as_hal::<Vulkan>() else { return 0 };
        let instance = adapter.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(adapter.raw_physical_device())
    };
    let own = memory.memory_heaps_as_slice().iter();
    let own = own.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0);
    own.map(|heap| heap.size / MIB).max().unwrap_or(0)
}
