//! All memory types of a device.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    collections::BTreeMap,
    fmt,
    sync::Arc,
};

use ash::vk::{self, Handle as _};
use binpool::PoolError;
use binpool_allocators::Error;
use log::Level;

use super::{
    allocation::{Allocation, AllocationCreateDesc, AllocationScheme},
    live::{AllLive, Held, Live},
    memory::{DeviceMemory, Failed, For, MAP},
    pools::{Place, Pools},
    runtime::Kind,
};
use crate::{
    AllocationError, AllocationReport, AllocationSizes, AllocatorDebugSettings, AllocatorReport,
    MemoryBlockReport, MemoryLocation, Result,
};

/// Memory that was unused for this number of a thread's allocations is freed, after twice that number at the latest. gpu-allocator frees all but one
/// empty block at once.
const SWEEP_EVERY: u64 = 10_000;

/// What an [`Allocator`] is made from. The device outlives the allocator.
///
/// ```
/// use ash::vk;
/// use binpool_gpu_allocator::{Result, vulkan::{Allocator, AllocatorCreateDesc}};
///
/// fn allocator(instance: &ash::Instance, physical: vk::PhysicalDevice, device: &ash::Device) -> Result<Allocator> {
///     Allocator::new(&AllocatorCreateDesc {
///         instance: instance.clone(),
///         device: device.clone(),
///         physical_device: physical,
///         debug_settings: Default::default(),
///         buffer_device_address: false,
///         allocation_sizes: Default::default(),
///     })
/// }
/// ```
pub struct AllocatorCreateDesc {
    /// The instance of the device.
    pub instance: ash::Instance,
    /// The device.
    pub device: ash::Device,
    /// Its physical device.
    pub physical_device: vk::PhysicalDevice,
    /// What is logged.
    pub debug_settings: AllocatorDebugSettings,
    /// Set if buffers have device addresses. The device must then have been created with that feature.
    pub buffer_device_address: bool,
    /// For programs that name it; see [`AllocationSizes`].
    pub allocation_sizes: AllocationSizes,
}

impl fmt::Debug for AllocatorCreateDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorCreateDesc")
            .field("physical_device", &self.physical_device)
            .field("debug_settings", &self.debug_settings)
            .field("buffer_device_address", &self.buffer_device_address)
            .finish_non_exhaustive()
    }
}

/// An allocator of memory for buffers and images. Any thread may use it, without a lock of the program's own.
///
/// ```
/// use ash::vk;
/// use binpool_gpu_allocator::{MemoryLocation, Result, vulkan::{AllocationCreateDesc, AllocationScheme, Allocator}};
///
/// fn staging(allocator: &Allocator, requirements: vk::MemoryRequirements) -> Result<()> {
///     let mut staging = allocator.allocate(&AllocationCreateDesc {
///         name: "staging",
///         requirements,
///         location: MemoryLocation::CpuToGpu,
///         linear: true,
///         allocation_scheme: AllocationScheme::GpuAllocatorManaged,
///     })?;
///     allocator.rename_allocation(&mut staging, "textures on their way")?;
///     println!("{:?} of {}", allocator.generate_report(), allocator.capacity());
///     allocator.free(staging)?;
///     allocator.report_memory_leaks(log::Level::Info);
///     Ok(())
/// }
/// ```
pub struct Allocator {
    types: Vec<Pools>,
    live: AllLive,
    memory: Arc<DeviceMemory>,
    /// `bufferImageGranularity`.
    granularity: u64,
    settings: AllocatorDebugSettings,
}

impl Allocator {
    /// Makes an allocator for a device.
    ///
    /// # Errors
    ///
    /// [`InvalidAllocatorCreateDesc`](AllocationError::InvalidAllocatorCreateDesc) if the physical device is null.
    #[expect(unsafe_code, reason = "calls of Vulkan")]
    pub fn new(desc: &AllocatorCreateDesc) -> Result<Self> {
        let (instance, physical) = (&desc.instance, desc.physical_device);
        if physical == vk::PhysicalDevice::null() {
            let text = "AllocatorCreateDesc field `physical_device` is null.";
            return Err(AllocationError::InvalidAllocatorCreateDesc(text.to_owned()));
        }
        // SAFETY: The program gives a device of the instance.
        let facts = unsafe { instance.get_physical_device_memory_properties(physical) };
        // SAFETY: As above.
        let properties = unsafe { instance.get_physical_device_properties(physical) };
        let memory = DeviceMemory::new(desc.device.clone(), desc.buffer_device_address);
        let memory = Arc::new(memory);
        let heaps = facts.memory_heaps_as_slice();
        let types = (0..)
            .zip(facts.memory_types_as_slice())
            .map(|(index, kind)| {
                Pools::new(Kind {
                    memory: Arc::clone(&memory),
                    index,
                    flags: kind.property_flags,
                    heap_bytes: heaps
                        .get(kind.heap_index as usize)
                        .map_or(0, |heap| heap.size),
                })
            });
        let allocator = Self {
            types: types.collect(),
            live: AllLive::new(),
            memory,
            granularity: properties.limits.buffer_image_granularity.max(1),
            settings: desc.debug_settings,
        };
        if allocator.settings.log_memory_information {
            for kind in allocator.types.iter().map(|pools| &pools.kind) {
                log::debug!(
                    "memory type[{}]: {:?}, heap of {} MiB",
                    kind.index,
                    kind.flags,
                    kind.heap_bytes >> 20
                );
            }
        }
        Ok(allocator)
    }

    /// Allocates memory for a resource.
    ///
    /// # Errors
    ///
    /// Any of [`AllocationError`] that this crate returns.
    pub fn allocate(&self, desc: &AllocationCreateDesc<'_>) -> Result<Allocation> {
        let needs = desc.requirements;
        if self.settings.log_allocations {
            log::debug!(
                "Allocating `{}` of {} bytes with an alignment of {}.",
                desc.name,
                needs.size,
                needs.alignment
            );
            self.log_stack_trace();
        }
        if needs.size == 0 || !needs.alignment.is_power_of_two() {
            return Err(AllocationError::InvalidAllocationCreateDesc);
        }
        let [preferred, required] = flags_of(desc.location);
        let find = |flags| self.find(needs.memory_type_bits, flags);
        let best = find(preferred).or_else(|| find(required));
        let best = best.ok_or(AllocationError::NoCompatibleMemoryTypeFound)?;
        match (self.allocate_of(best, desc), find(required)) {
            // Memory that both see is scarce on some devices.
            (Err(_), Some(other))
                if desc.location == MemoryLocation::CpuToGpu && !std::ptr::eq(other, best) =>
            {
                self.allocate_of(other, desc)
            }
            (allocated, _) => allocated,
        }
    }

    fn find(&self, bits: u32, flags: vk::MemoryPropertyFlags) -> Option<&Pools> {
        self.types
            .iter()
            .find(|pools| bits & (1 << pools.kind.index) != 0 && pools.kind.flags.contains(flags))
    }

    /// Allocates memory of a type.
    fn allocate_of(&self, pools: &Pools, desc: &AllocationCreateDesc<'_>) -> Result<Allocation> {
        let (kind, needs) = (&pools.kind, desc.requirements);
        if needs.size > kind.heap_bytes {
            return Err(AllocationError::OutOfMemory);
        }
        let own = match desc.allocation_scheme {
            AllocationScheme::DedicatedBuffer(buffer) => Some(For::Buffer(buffer)),
            AllocationScheme::DedicatedImage(image) => Some(For::Image(image)),
            AllocationScheme::GpuAllocatorManaged => None,
        };
        let attempt = || match own {
            Some(what) => {
                let block = kind.allocate(needs.size, what)?;
                let place = Place {
                    memory: block.raw,
                    offset: 0,
                    mapped: block.mapped.clone(),
                };
                Ok((place, Held::Own(block)))
            }
            None => part(pools, desc, self.granularity),
        };
        let (place, held) = attempt().or_else(|error| match error {
            // Other pools may keep memory of the same heap.
            AllocationError::OutOfMemory if self.free_held() > 0 => attempt(),
            error => Err(error),
        })?;
        let backtrace = if self.settings.store_stack_traces {
            Backtrace::force_capture()
        } else {
            Backtrace::disabled()
        };
        let live = Live {
            name: desc.name.into(),
            memory: place.memory,
            offset: place.offset,
            size: needs.size,
            held,
            backtrace,
        };
        let (chunk_id, count) = self.live.insert(live);
        if count.is_multiple_of(SWEEP_EVERY) {
            for pools in &self.types {
                pools.sweep();
            }
        }
        Ok(Allocation {
            allocator: self.live.id,
            chunk_id,
            memory: place.memory,
            offset: place.offset,
            size: needs.size,
            mapped: place.mapped,
            is_dedicated: own.is_some(),
            properties: kind.flags,
        })
    }

    fn free_held(&self) -> u64 {
        self.types.iter().map(Pools::free_held).sum()
    }

    /// Frees an allocation. Its memory may serve another one at once: no command may still use it, and what was bound
    /// to it must be destroyed.
    ///
    /// # Errors
    ///
    /// [`Internal`](AllocationError::Internal) for an allocation of another allocator.
    #[expect(clippy::needless_pass_by_value, reason = "it ends here")]
    pub fn free(&self, allocation: Allocation) -> Result<()> {
        if allocation.is_null() {
            return Ok(());
        }
        let freed = self.live.remove(&allocation).ok_or_else(unknown)?;
        if self.settings.log_frees {
            log::debug!("Freeing `{}`.", freed.name);
            self.log_stack_trace();
        }
        match freed.held {
            Held::Part(block) => block.release().map_err(|error| internal(&error)),
            Held::Own(block) => {
                drop(block);
                Ok(())
            }
        }
    }

    /// Gives an allocation another name.
    ///
    /// # Errors
    ///
    /// [`Internal`](AllocationError::Internal) for an allocation of another allocator.
    pub fn rename_allocation(&self, allocation: &mut Allocation, name: &str) -> Result<()> {
        if allocation.is_null() {
            return Ok(());
        }
        self.live.rename(allocation, name).ok_or_else(unknown)
    }

    /// Logs every live allocation.
    pub fn report_memory_leaks(&self, log_level: Level) {
        self.live.for_each(|live| {
            let trace = match live.backtrace.status() {
                BacktraceStatus::Captured => format!("\n{}", live.backtrace),
                _ => String::new(),
            };
            log::log!(
                log_level,
                "leak detected: {{ memory: {:?}, offset: {}, size: {}, name: {}{trace} }}",
                live.memory,
                live.offset,
                live.size,
                live.name
            );
        });
    }

    /// Returns all allocations.
    #[must_use]
    pub fn generate_report(&self) -> AllocatorReport {
        let mut by_block: BTreeMap<u64, Vec<AllocationReport>> = BTreeMap::new();
        self.live.for_each(|live| {
            let of_block = by_block.entry(live.memory.as_raw()).or_default();
            of_block.push(AllocationReport {
                name: live.name.clone().into(),
                offset: live.offset,
                size: live.size,
            });
        });
        let (mut allocations, mut blocks) = (Vec::new(), Vec::new());
        for (memory, size) in self.memory.blocks() {
            let first = allocations.len();
            let mut of_block = by_block.remove(&memory).unwrap_or_default();
            of_block.sort_by_key(|allocation| allocation.offset);
            allocations.append(&mut of_block);
            blocks.push(MemoryBlockReport {
                size,
                allocations: first..allocations.len(),
            });
        }
        AllocatorReport {
            total_allocated_bytes: allocations.iter().map(|report| report.size).sum(),
            total_capacity_bytes: blocks.iter().map(|block| block.size).sum(),
            allocations,
            blocks,
        }
    }

    /// The bytes of all memory blocks.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.memory.bytes()
    }

    fn log_stack_trace(&self) {
        if self.settings.log_stack_traces {
            log::debug!("Stack trace: {}", Backtrace::force_capture());
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        if self.settings.log_leaks_on_shutdown {
            self.report_memory_leaks(Level::Warn);
        }
        // The device may be destroyed next, whatever is still allocated.
        self.memory.free_all();
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.generate_report().fmt(f)
    }
}

/// A part of a pool's memory.
fn part(pools: &Pools, desc: &AllocationCreateDesc<'_>, granularity: u64) -> Result<(Place, Held)> {
    let mut needs = desc.requirements;
    if !desc.linear {
        needs.alignment = needs.alignment.max(granularity);
        needs.size = needs.size.next_multiple_of(granularity);
    }
    let bytes = usize::try_from(needs.size).map_err(|_| AllocationError::OutOfMemory)?;
    let alignment = usize::try_from(needs.alignment).map_err(|_| AllocationError::OutOfMemory)?;
    let (block, place) = pools.allocate(bytes, alignment)?;
    Ok((place, Held::Part(block)))
}

/// The properties of the memory types for a location: the best, and what will do.
fn flags_of(location: MemoryLocation) -> [vk::MemoryPropertyFlags; 2] {
    use vk::MemoryPropertyFlags as Flags;
    let seen = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
    match location {
        MemoryLocation::GpuOnly => [Flags::DEVICE_LOCAL; 2],
        MemoryLocation::CpuToGpu => [seen | Flags::DEVICE_LOCAL, seen],
        MemoryLocation::GpuToCpu => [seen | Flags::HOST_CACHED, seen],
        MemoryLocation::Unknown => [Flags::empty(); 2],
    }
}

fn unknown() -> AllocationError {
    AllocationError::Internal("the allocation is not of this allocator".to_owned())
}

fn internal(error: &Error) -> AllocationError {
    AllocationError::Internal(error.to_string())
}

impl From<Failed> for AllocationError {
    fn from(failed: Failed) -> Self {
        match (failed.call, failed.result) {
            (MAP, result) => Self::FailedToMap(format!("{result:?}")),
            (
                _,
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
                | vk::Result::ERROR_OUT_OF_HOST_MEMORY
                | vk::Result::ERROR_TOO_MANY_OBJECTS,
            ) => Self::OutOfMemory,
            _ => Self::Internal(failed.to_string()),
        }
    }
}

impl From<PoolError> for AllocationError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::OutOfMemory(_) => Self::OutOfMemory,
            PoolError::Allocator(Error::Backend(failure)) if failure.operation == MAP => {
                Self::FailedToMap(failure.to_string())
            }
            error => Self::Internal(error.to_string()),
        }
    }
}
