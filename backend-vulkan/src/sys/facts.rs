//! What a physical device tells.

use ash::{ext, vk};

use super::Instance;

/// Parts of blocks begin on multiples of it at least: a cache line of most devices, so that no two parts share one.
const LEAST_ALIGNMENT: u64 = 128;

/// The facts of a physical device.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) name: String,
    pub(crate) is_gpu: bool,
    /// Vulkan 1.2 with timeline semaphores and addresses of buffers.
    pub(crate) is_usable: bool,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    /// The bytes of the device's memory.
    pub(crate) total_bytes: u64,
    pub(crate) families: Vec<vk::QueueFamilyProperties>,
    pub(crate) alignment: usize,
    pub(crate) largest_block: usize,
    /// The most bytes of addresses of sparse buffers; 0 without sparse binding.
    pub(crate) sparse_bytes: u64,
    pub(crate) push_constants: u32,
    pub(crate) has_budget: bool,
    pub(crate) features: vk::PhysicalDeviceFeatures,
}

impl Facts {
    pub(crate) fn of(instance: &Instance, physical: vk::PhysicalDevice) -> Self {
        let raw = instance.raw();
        let mut limits_13 = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut limits_11 = vk::PhysicalDeviceVulkan11Properties::default();
        // SAFETY: The device is of the instance, which lives.
        let basic = unsafe { raw.get_physical_device_properties(physical) };
        let is_12 = basic.api_version >= vk::API_VERSION_1_2;
        let is_13 = basic.api_version >= vk::API_VERSION_1_3;
        let mut properties = vk::PhysicalDeviceProperties2::default();
        if is_12 {
            properties = properties.push_next(&mut limits_11);
        }
        if is_13 {
            properties = properties.push_next(&mut limits_13);
        }
        // SAFETY: As above; the structs are of the device's version.
        unsafe { raw.get_physical_device_properties2(physical, &mut properties) };
        let mut features_12 = vk::PhysicalDeviceVulkan12Features::default();
        let mut features = vk::PhysicalDeviceFeatures2::default();
        if is_12 {
            features = features.push_next(&mut features_12);
        }
        // SAFETY: As above.
        unsafe { raw.get_physical_device_features2(physical, &mut features) };
        let features = features.features;
        let limits = basic.limits;
        // SAFETY: As above.
        let memory = unsafe { raw.get_physical_device_memory_properties(physical) };
        let total_bytes = device_heaps(&memory).map(|(_, heap)| heap.size).sum();
        // SAFETY: As above.
        let families = unsafe { raw.get_physical_device_queue_family_properties(physical) };
        let largest = match limits_13.max_buffer_size {
            0 => limits_11.max_memory_allocation_size,
            largest => largest.min(limits_11.max_memory_allocation_size),
        };
        let alignment = limits
            .min_storage_buffer_offset_alignment
            .max(limits.min_uniform_buffer_offset_alignment)
            .max(LEAST_ALIGNMENT);
        let is_sparse = features.sparse_binding != 0 && features.sparse_residency_buffer != 0;
        Self {
            physical,
            name: String::from_utf8_lossy(
                basic
                    .device_name_as_c_str()
                    .unwrap_or(c"a Vulkan device")
                    .to_bytes(),
            )
            .into_owned(),
            is_gpu: matches!(
                basic.device_type,
                vk::PhysicalDeviceType::DISCRETE_GPU
                    | vk::PhysicalDeviceType::INTEGRATED_GPU
                    | vk::PhysicalDeviceType::VIRTUAL_GPU
            ),
            is_usable: features_12.timeline_semaphore != 0
                && features_12.buffer_device_address != 0,
            memory,
            families,
            alignment: bytes(alignment),
            largest_block: bytes(largest.min(total_bytes)),
            total_bytes,
            sparse_bytes: if is_sparse {
                limits.sparse_address_space_size
            } else {
                0
            },
            push_constants: limits.max_push_constants_size,
            has_budget: instance.has_extension(physical, ext::memory_budget::NAME),
            features,
        }
    }

    /// The heaps that are the device's own.
    pub(crate) fn device_heaps(&self) -> impl Iterator<Item = usize> + '_ {
        device_heaps(&self.memory).map(|(index, _)| index)
    }
}

/// The heaps that are the device's own, with their numbers.
fn device_heaps(
    memory: &vk::PhysicalDeviceMemoryProperties,
) -> impl Iterator<Item = (usize, &vk::MemoryHeap)> {
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
