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
    pub(crate) families: Vec<vk::QueueFamilyProperties>,
    pub(crate) alignment: usize,
    pub(crate) largest_block: usize,
    /// The most bytes of addresses of sparse buffers; 0 without sparse binding.
    pub(crate) sparse_bytes: u64,
    pub(crate) push_constants: u32,
    pub(crate) has_budget: bool,
    pub(crate) features: Features,
}

/// What kernels may use, where the device has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) int64: bool,
    pub(crate) float64: bool,
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
            name: name_of(&basic),
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
            largest_block: bytes(largest.min(heap_bytes(&memory))),
            sparse_bytes: if is_sparse {
                limits.sparse_address_space_size
            } else {
                0
            },
            push_constants: limits.max_push_constants_size,
            has_budget: instance.has_extension(physical, ext::memory_budget::NAME),
            features: Features {
                int64: features.shader_int64 != 0,
                float64: features.shader_float64 != 0,
            },
        }
    }

    /// The heaps that are the device's own.
    pub(crate) fn device_heaps(&self) -> impl Iterator<Item = usize> + '_ {
        device_heaps(&self.memory)
    }

    /// The bytes of the device's memory.
    pub(crate) fn total_bytes(&self) -> u64 {
        heap_bytes(&self.memory)
    }
}

fn device_heaps(memory: &vk::PhysicalDeviceMemoryProperties) -> impl Iterator<Item = usize> + '_ {
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    heaps.filter_map(|(index, heap)| {
        heap.flags
            .contains(vk::MemoryHeapFlags::DEVICE_LOCAL)
            .then_some(index)
    })
}

fn heap_bytes(memory: &vk::PhysicalDeviceMemoryProperties) -> u64 {
    let heaps = device_heaps(memory).filter_map(|index| memory.memory_heaps_as_slice().get(index));
    heaps.map(|heap| heap.size).sum()
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn name_of(properties: &vk::PhysicalDeviceProperties) -> String {
    let name = properties.device_name_as_c_str();
    name.map_or_else(
        |_| String::from("a Vulkan device"),
        |name| name.to_string_lossy().into_owned(),
    )
}
