//! What a program says when it makes an allocator, or an allocation.

/// Where an allocation lies, and who uses it.
///
/// ```
/// use binpool_gpu_allocator::MemoryLocation;
///
/// let of_a_texture = MemoryLocation::GpuOnly;
/// assert_ne!(of_a_texture, MemoryLocation::CpuToGpu);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryLocation {
    /// Any memory type that the resource allows.
    Unknown,
    /// Memory of the device, which the host may not see.
    GpuOnly,
    /// Memory that the host writes and the device reads. It is mapped.
    CpuToGpu,
    /// Memory that the device writes and the host reads. It is mapped.
    GpuToCpu,
}

/// What an allocator logs.
///
/// ```
/// use binpool_gpu_allocator::AllocatorDebugSettings;
///
/// let mut settings = AllocatorDebugSettings::default();
/// assert!(settings.log_leaks_on_shutdown);
/// settings.store_stack_traces = true;
/// ```
#[expect(clippy::struct_excessive_bools, reason = "those of gpu-allocator")]
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct AllocatorDebugSettings {
    /// The memory types and heaps, when the allocator is made.
    pub log_memory_information: bool,
    /// What is still allocated when the allocator is dropped, as warnings.
    pub log_leaks_on_shutdown: bool,
    /// Records where each allocation was made, for the list of leaks.
    pub store_stack_traces: bool,
    /// Each allocation.
    pub log_allocations: bool,
    /// Each free.
    pub log_frees: bool,
    /// The place in the program, with `log_allocations` and `log_frees`.
    pub log_stack_traces: bool,
}

impl Default for AllocatorDebugSettings {
    fn default() -> Self {
        Self {
            log_memory_information: false,
            log_leaks_on_shutdown: true,
            store_stack_traces: false,
            log_allocations: false,
            log_frees: false,
            log_stack_traces: false,
        }
    }
}

/// The sizes of gpu-allocator's memory blocks. They have no effect: the pools choose their own sizes by what is in use.
///
/// ```
/// use binpool_gpu_allocator::AllocationSizes;
///
/// const MB: u64 = 1 << 20;
/// let sizes = AllocationSizes::new(8 * MB, 8 * MB)
///     .with_max_device_memblock_size(256 * MB)
///     .with_max_host_memblock_size(64 * MB);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocationSizes(());

impl AllocationSizes {
    /// Accepts the smallest block sizes for the device and for the host.
    #[must_use]
    pub fn new(_device_memblock_size: u64, _host_memblock_size: u64) -> Self {
        Self::default()
    }

    /// Accepts the largest block size for the device.
    #[must_use]
    pub fn with_max_device_memblock_size(self, _size: u64) -> Self {
        self
    }

    /// Accepts the largest block size for the host.
    #[must_use]
    pub fn with_max_host_memblock_size(self, _size: u64) -> Self {
        self
    }
}
