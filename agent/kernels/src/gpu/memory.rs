//! The memory of a device, and what of it a task may take.

use ash::vk;
use wgpu::Adapter;
use wgpu::hal::api::Vulkan;

use super::GpuError;
use crate::limits::{DEVICE_DATA_BYTES_MIN, DEVICE_MEMORY_PERCENT, DEVICE_OVERHEAD_BYTES};

pub(super) const MIB: u64 = 1 << 20;

/// A device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// Of its own.
    pub(super) own_bytes: u64,
    /// What of that this process could have now; all of it where its driver does not say.
    pub(super) free_bytes: u64,
}

impl Memory {
    /// The largest part of the device's own: others are windows into it.
    #[expect(unsafe_code, reason = "the library does not tell it itself")]
    pub(super) fn of(adapter: &Adapter) -> Self {
        // SAFETY: nothing of what is reached is destroyed, and all of it lives as long as the guard;
        // asked is what every device answers, and what it says that it answers.
        unsafe {
            let Some(adapter) = adapter.as_hal::<Vulkan>() else {
                return Self { own_bytes: 0, free_bytes: 0 };
            };
            let (shared, device) = (adapter.shared_instance(), adapter.raw_physical_device());
            let instance = shared.raw_instance();
            let api = instance.get_physical_device_properties(device).api_version;
            let extensions = instance.enumerate_device_extension_properties(device);
            let tells = extensions.unwrap_or_default().iter().any(|extension| {
                extension.extension_name_as_c_str() == Ok(ash::ext::memory_budget::NAME)
            });
            let has_question = shared.instance_api_version().min(api) >= vk::API_VERSION_1_1;
            if !tells || !has_question {
                let memory = instance.get_physical_device_memory_properties(device);
                return Self::largest(&memory, None);
            }
            let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
            let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
            instance.get_physical_device_memory_properties2(device, &mut memory);
            let memory = memory.memory_properties;
            Self::largest(&memory, Some(&budget))
        }
    }

    fn largest(
        memory: &vk::PhysicalDeviceMemoryProperties,
        budget: Option<&vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>,
    ) -> Self {
        let heaps = memory.memory_heaps_as_slice().iter().enumerate();
        let own = heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let of_heap = |(at, heap): (usize, &vk::MemoryHeap)| {
            let free = |budget: &vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>| {
                budget.heap_budget[at].saturating_sub(budget.heap_usage[at])
            };
            let free_bytes = budget.map_or(heap.size, free).min(heap.size);
            Self { own_bytes: heap.size, free_bytes }
        };
        let largest = own.map(of_heap).max_by_key(|memory| memory.own_bytes);
        largest.unwrap_or(Self { own_bytes: 0, free_bytes: 0 })
    }
}

/// Bytes that a task's data may take of a device's memory where so much of what is free is left to
/// others.
pub(super) fn room_bytes(
    device: &str,
    memory: Memory,
    reserve_mib: u64,
) -> Result<usize, GpuError> {
    // What a driver says is an estimate, and one that pages memory out and in is slower than a
    // processor.
    let sure = memory.free_bytes / 100 * u64::from(DEVICE_MEMORY_PERCENT);
    let beside = memory.free_bytes.saturating_sub(reserve_mib.saturating_mul(MIB));
    let room = sure.min(beside).saturating_sub(DEVICE_OVERHEAD_BYTES);
    if room < DEVICE_DATA_BYTES_MIN {
        let (device, free_mib) = (device.to_owned(), memory.free_bytes / MIB);
        return Err(GpuError::Crowded { device, free_mib, reserve_mib });
    }
    Ok(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn heap(size: u64, is_own: bool) -> vk::MemoryHeap {
        let flags = if is_own { vk::MemoryHeapFlags::DEVICE_LOCAL } else { Default::default() };
        vk::MemoryHeap { size, flags }
    }

    #[test]
    fn a_window_into_a_devices_memory_is_not_its_memory() {
        let mut memory =
            vk::PhysicalDeviceMemoryProperties { memory_heap_count: 3, ..Default::default() };
        memory.memory_heaps[..3].copy_from_slice(&[
            heap(246 * MIB, true),
            heap(8 * GIB, true),
            heap(64 * GIB, false),
        ]);
        let found = Memory::largest(&memory, None);
        assert_eq!(found, Memory { own_bytes: 8 * GIB, free_bytes: 8 * GIB });
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        budget.heap_budget[..3].copy_from_slice(&[200 * MIB, 6 * GIB, 60 * GIB]);
        budget.heap_usage[..3].copy_from_slice(&[MIB, GIB, 2 * GIB]);
        let found = Memory::largest(&memory, Some(&budget));
        assert_eq!(found, Memory { own_bytes: 8 * GIB, free_bytes: 5 * GIB });
        memory.memory_heap_count = 0;
        assert_eq!(Memory::largest(&memory, None), Memory { own_bytes: 0, free_bytes: 0 });
    }

    #[test]
    fn a_task_has_what_others_do_not_need_or_nothing() {
        let room = |free_mib: u64, reserve_mib| {
            let memory = Memory { own_bytes: 8 * GIB, free_bytes: free_mib * MIB };
            room_bytes("GPU", memory, reserve_mib)
        };
        let overhead_mib = DEVICE_OVERHEAD_BYTES / MIB;
        let least_mib = DEVICE_DATA_BYTES_MIN / MIB;
        let mib = |bytes: usize| bytes as u64 / MIB;
        assert_eq!(room(4_000, 0).map(mib), Ok(3_600 - overhead_mib));
        assert_eq!(room(4_000, 100).map(mib), Ok(3_600 - overhead_mib), "the estimate is rough");
        assert_eq!(room(4_000, 1_000).map(mib), Ok(3_000 - overhead_mib));
        let enough = 1_000 + overhead_mib + least_mib;
        assert_eq!(room(enough, 1_000).map(mib), Ok(least_mib));
        let error = room(enough - 1, 1_000).expect_err("others need it").to_string();
        assert!(error.contains("GPU has") && error.contains("1000 MiB are kept"), "{error}");
        assert!(room(100, u64::MAX).is_err());
        let error = room(100, 0).expect_err("too little").to_string();
        assert!(error.contains("100 MiB of memory free, too little"), "{error}");
    }
}
