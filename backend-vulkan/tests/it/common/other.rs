//! A device other than this machine's: with other memory types, heaps, families and limits. What it tells is made up below the backend, for the thread that
//! asks, and memory of each of its types is memory of the one real type.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "structs of C come in chains"
)]

use std::{cell::RefCell, collections::HashMap, ffi::CStr, sync::OnceLock};

use ash::vk;

use super::Parts;

/// What a device tells.
#[derive(Clone)]
pub(crate) struct Other {
    /// Their properties, and their heaps.
    pub(crate) types: Vec<(vk::MemoryPropertyFlags, u32)>,
    pub(crate) heaps: Vec<vk::MemoryHeap>,
    /// What each heap has used and may use, by `VK_EXT_memory_budget`; none without it.
    pub(crate) budget: Vec<[u64; 2]>,
    /// The types that a buffer may have.
    pub(crate) bits: u32,
    /// What they do, and how many queues they have. Those of the machine's device if there are none.
    pub(crate) families: Vec<(vk::QueueFlags, u32)>,
    pub(crate) properties: fn(&mut vk::PhysicalDeviceProperties),
    pub(crate) limits_11: fn(&mut vk::PhysicalDeviceVulkan11Properties<'_>),
    pub(crate) limits_13: fn(&mut vk::PhysicalDeviceMaintenance4Properties<'_>),
    pub(crate) features: fn(&mut vk::PhysicalDeviceFeatures),
    pub(crate) features_12: fn(&mut vk::PhysicalDeviceVulkan12Features<'_>),
}

impl Other {
    /// One heap for each of these types, of 1 GiB, the device's own.
    pub(crate) fn of_types(types: &[vk::MemoryPropertyFlags]) -> Self {
        Self {
            types: types.iter().copied().zip(0..).collect(),
            heaps: vec![heap(1 << 30); types.len()],
            budget: Vec::new(),
            bits: !0,
            families: Vec::new(),
            properties: |_| {},
            limits_11: |_| {},
            limits_13: |_| {},
            features: |_| {},
            features_12: |_| {},
        }
    }

    /// The handles of such a device. Until the next call on this thread, all others of the thread are like it.
    pub(crate) fn parts(self) -> Parts {
        let mut parts = super::parts();
        parts.instance = telling(&parts.instance);
        parts.device = over(&parts.device);
        HERE.set(Here {
            other: Some(self),
            ..Here::default()
        });
        parts
    }
}

/// A heap of the device's own.
pub(crate) fn heap(bytes: u64) -> vk::MemoryHeap {
    vk::MemoryHeap {
        size: bytes,
        flags: vk::MemoryHeapFlags::DEVICE_LOCAL,
    }
}

/// What is asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) kind: u32,
    pub(crate) bytes: u64,
    /// The buffer or the image that it is for alone.
    pub(crate) is_dedicated: bool,
    pub(crate) has_address: bool,
}

#[derive(Default)]
struct Here {
    other: Option<Other>,
    /// All that was asked for since the last look, also what was refused.
    asked: Vec<Allocated>,
    live: HashMap<vk::DeviceMemory, Allocated>,
    /// Allocations of these types fail with this result.
    refused: Option<(u32, vk::Result)>,
}

thread_local! {
    static HERE: RefCell<Here> = RefCell::default();
}

/// What was asked for since the last call, on this thread.
pub(crate) fn asked() -> Vec<Allocated> {
    HERE.with_borrow_mut(|here| std::mem::take(&mut here.asked))
}

/// The bytes that live, by type, on this thread.
pub(crate) fn live() -> Vec<u64> {
    HERE.with_borrow(|here| {
        let types = here.other.as_ref().unwrap().types.len();
        let mut bytes = vec![0; types];
        for one in here.live.values() {
            bytes[one.kind as usize] += one.bytes;
        }
        bytes
    })
}

/// Lets all allocations of these types fail, on this thread.
pub(crate) fn refuse(kinds: u32, result: vk::Result) {
    HERE.with_borrow_mut(|here| here.refused = Some((kinds, result)));
}

type Told = (ash::InstanceFnV1_0, ash::InstanceFnV1_1);
static REAL_INSTANCE: OnceLock<Told> = OnceLock::new();
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();

fn real_instance() -> &'static Told {
    REAL_INSTANCE.get().unwrap()
}

fn real() -> &'static ash::DeviceFnV1_0 {
    REAL.get().unwrap()
}

fn other<T>(of: impl FnOnce(&Other) -> T) -> T {
    HERE.with_borrow(|here| of(here.other.as_ref().unwrap()))
}

/// The instance, whose devices tell what is made up.
pub(crate) fn telling(instance: &ash::Instance) -> ash::Instance {
    let (mut basic, mut more) = REAL_INSTANCE
        .get_or_init(|| (instance.fp_v1_0().clone(), instance.fp_v1_1().clone()))
        .clone();
    basic.get_physical_device_properties = get_properties;
    basic.get_physical_device_memory_properties = get_memory;
    basic.get_physical_device_queue_family_properties = get_families;
    basic.enumerate_device_extension_properties = get_extensions;
    more.get_physical_device_properties2 = get_properties_2;
    more.get_physical_device_features2 = get_features_2;
    more.get_physical_device_memory_properties2 = get_memory_2;
    ash::Instance::from_parts_1_3(instance.handle(), basic, more, instance.fp_v1_3().clone())
}

fn over(device: &ash::Device) -> ash::Device {
    let mut functions = REAL.get_or_init(|| device.fp_v1_0().clone()).clone();
    functions.allocate_memory = allocate_memory;
    functions.free_memory = free_memory;
    functions.get_buffer_memory_requirements = get_requirements;
    super::with_functions(device, functions)
}

/// Calls `look` with each struct of a chain.
unsafe fn for_each_of(
    mut next: *const vk::BaseInStructure<'_>,
    mut look: impl FnMut(*const vk::BaseInStructure<'_>),
) {
    while !next.is_null() {
        look(next);
        // SAFETY: The caller gives a chain.
        next = unsafe { (*next).p_next };
    }
}

unsafe extern "system" fn get_properties(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties,
) {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real_instance().0.get_physical_device_properties)(physical, properties) };
    // SAFETY: It is written.
    other(|other| (other.properties)(unsafe { &mut *properties }));
}

unsafe extern "system" fn get_properties_2(
    physical: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real_instance().1.get_physical_device_properties2)(physical, properties) };
    // SAFETY: It is a chain of structs that are written.
    unsafe {
        for_each_of(properties.cast_const().cast(), |one| match (*one).s_type {
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES => {
                other(|other| (other.limits_11)(&mut *one.cast_mut().cast()));
            }
            vk::StructureType::PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES => {
                other(|other| (other.limits_13)(&mut *one.cast_mut().cast()));
            }
            _ => {}
        });
    }
}

unsafe extern "system" fn get_features_2(
    physical: vk::PhysicalDevice,
    features: *mut vk::PhysicalDeviceFeatures2<'_>,
) {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real_instance().1.get_physical_device_features2)(physical, features) };
    // SAFETY: It is a chain of structs that are written.
    unsafe {
        other(|other| (other.features)(&mut (*features).features));
        for_each_of(features.cast_const().cast(), |one| {
            if (*one).s_type == vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES {
                other(|other| (other.features_12)(&mut *one.cast_mut().cast()));
            }
        });
    }
}

unsafe extern "system" fn get_memory(
    _physical: vk::PhysicalDevice,
    memory: *mut vk::PhysicalDeviceMemoryProperties,
) {
    let mut told = vk::PhysicalDeviceMemoryProperties::default();
    other(|other| {
        told.memory_type_count = u32::try_from(other.types.len()).unwrap();
        for (place, &(property_flags, heap_index)) in told.memory_types.iter_mut().zip(&other.types)
        {
            *place = vk::MemoryType {
                property_flags,
                heap_index,
            };
        }
        told.memory_heap_count = u32::try_from(other.heaps.len()).unwrap();
        told.memory_heaps[..other.heaps.len()].copy_from_slice(&other.heaps);
    });
    // SAFETY: The caller has a place for it.
    unsafe { memory.write(told) };
}

unsafe extern "system" fn get_memory_2(
    physical: vk::PhysicalDevice,
    memory: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: The caller gives a chain of structs.
    unsafe {
        get_memory(physical, &raw mut (*memory).memory_properties);
        for_each_of(memory.cast_const().cast(), |one| {
            if (*one).s_type != vk::StructureType::PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT {
                return;
            }
            let told: &mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_> =
                &mut *one.cast_mut().cast();
            other(|other| {
                for (heap, [used, budget]) in other.budget.iter().enumerate() {
                    (told.heap_usage[heap], told.heap_budget[heap]) = (*used, *budget);
                }
            });
        });
    }
}

unsafe extern "system" fn get_families(
    physical: vk::PhysicalDevice,
    count: *mut u32,
    families: *mut vk::QueueFamilyProperties,
) {
    let told = other(|other| other.families.clone());
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        if told.is_empty() {
            (real_instance()
                .0
                .get_physical_device_queue_family_properties)(physical, count, families);
            return;
        }
        for (index, &(queue_flags, queue_count)) in
            told.iter().enumerate().filter(|_| !families.is_null())
        {
            families.add(index).write(vk::QueueFamilyProperties {
                queue_flags,
                queue_count,
                ..Default::default()
            });
        }
        *count = u32::try_from(told.len()).unwrap();
    }
}

unsafe extern "system" fn get_extensions(
    _physical: vk::PhysicalDevice,
    _layer: *const std::ffi::c_char,
    count: *mut u32,
    extensions: *mut vk::ExtensionProperties,
) -> vk::Result {
    let names: &[&CStr] = if other(|other| other.budget.is_empty()) {
        &[c"VK_KHR_swapchain"]
    } else {
        &[c"VK_KHR_swapchain", ash::ext::memory_budget::NAME]
    };
    // SAFETY: The caller has a place for the number that was counted.
    unsafe {
        *count = u32::try_from(names.len()).unwrap();
        for (index, name) in names.iter().enumerate().filter(|_| !extensions.is_null()) {
            let told = vk::ExtensionProperties::default()
                .extension_name(name)
                .unwrap();
            extensions.add(index).write(told);
        }
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn get_requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    needs: *mut vk::MemoryRequirements,
) {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().get_buffer_memory_requirements)(device, buffer, needs) };
    let (types, bits) = other(|other| (other.types.len(), other.bits));
    // SAFETY: It is written.
    unsafe { (*needs).memory_type_bits = bits & ((1 << types) - 1) };
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    let mut one = Allocated {
        kind: info.memory_type_index,
        bytes: info.allocation_size,
        is_dedicated: false,
        has_address: false,
    };
    // SAFETY: It is a chain.
    unsafe {
        for_each_of(info.p_next.cast(), |next| match (*next).s_type {
            vk::StructureType::MEMORY_DEDICATED_ALLOCATE_INFO => one.is_dedicated = true,
            vk::StructureType::MEMORY_ALLOCATE_FLAGS_INFO => {
                let flags = (*next.cast::<vk::MemoryAllocateFlagsInfo<'_>>()).flags;
                one.has_address = flags.contains(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            }
            _ => {}
        });
    }
    let refused = HERE.with_borrow_mut(|here| {
        here.asked.push(one);
        let other = here.other.as_ref().unwrap();
        let heap = |kind: u32| other.types[kind as usize].1;
        let live = here
            .live
            .values()
            .filter(|live| heap(live.kind) == heap(one.kind));
        let used: u64 = live.map(|live| live.bytes).sum();
        if used + one.bytes > other.heaps[heap(one.kind) as usize].size {
            return Some(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
        let refused = here
            .refused
            .filter(|(kinds, _)| kinds & (1 << one.kind) != 0);
        refused.map(|(_, result)| result)
    });
    if let Some(result) = refused {
        return result;
    }
    info.memory_type_index = 0;
    // SAFETY: The caller's promises are those of the function itself.
    let result = unsafe { (real().allocate_memory)(device, &raw const info, callbacks, memory) };
    if result == vk::Result::SUCCESS {
        // SAFETY: It is written.
        let made = unsafe { *memory };
        HERE.with_borrow_mut(|here| here.live.insert(made, one));
    }
    result
}

unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    HERE.with_borrow_mut(|here| here.live.remove(&memory));
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().free_memory)(device, memory, callbacks) };
}
