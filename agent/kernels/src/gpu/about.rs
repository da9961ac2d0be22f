//! What a GPU is, in words and numbers.

use gleaner_protocol::{GpuInfo, GpuKind};
use wgpu::{Adapter, DeviceType};

use super::memory::{MIB, Memory};

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
    let limits = adapter.limits();
    GpuInfo {
        name: info.name,
        driver,
        kind,
        memory_mib: Memory::of(adapter).own_bytes / MIB,
        texture_side_max: limits.max_texture_dimension_3d,
        buffer_mib_max: limits.max_buffer_size / MIB,
        pci: info.device_pci_bus_id.parse().ok(),
    }
    .made_plain()
}
