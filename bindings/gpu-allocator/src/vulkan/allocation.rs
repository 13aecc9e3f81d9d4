//! An allocation, and the request for one.

use std::{ffi::c_void, num::NonZeroU64, ptr::NonNull, slice};

use ash::vk;

use super::memory::Mapped;
use crate::MemoryLocation;

/// How an allocation is made.
///
/// ```
/// use ash::vk;
/// use binpool_gpu_allocator::vulkan::AllocationScheme;
///
/// /// What a driver that prefers memory of its own for an image asks for.
/// fn scheme(image: vk::Image, wants_own: bool) -> AllocationScheme {
///     if wants_own { AllocationScheme::DedicatedImage(image) } else { AllocationScheme::GpuAllocatorManaged }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationScheme {
    /// Memory of its own for this buffer (`VkMemoryDedicatedAllocateInfo`).
    DedicatedBuffer(vk::Buffer),
    /// Memory of its own for this image.
    DedicatedImage(vk::Image),
    /// A part of a pool's memory.
    GpuAllocatorManaged,
}

/// A request for an allocation.
///
/// ```
/// use ash::vk;
/// use binpool_gpu_allocator::{MemoryLocation, vulkan::{AllocationCreateDesc, AllocationScheme}};
///
/// let requirements = vk::MemoryRequirements { size: 4096, alignment: 256, memory_type_bits: !0 };
/// let staging = AllocationCreateDesc {
///     name: "staging",
///     requirements,
///     location: MemoryLocation::CpuToGpu,
///     linear: true,
///     allocation_scheme: AllocationScheme::GpuAllocatorManaged,
/// };
/// ```
#[derive(Clone, Debug)]
pub struct AllocationCreateDesc<'a> {
    /// A name for reports.
    pub name: &'a str,
    /// What Vulkan requires of the resource's memory.
    pub requirements: vk::MemoryRequirements,
    /// Where the memory lies.
    pub location: MemoryLocation,
    /// Set for buffers and for images with linear tiling.
    pub linear: bool,
    /// How the allocation is made.
    pub allocation_scheme: AllocationScheme,
}

/// A piece of memory. It stays allocated until [`Allocator::free`](super::Allocator::free) takes it: dropping it leaks the memory until the
/// allocator is dropped. If the host can access it and the allocator is dropped first, the memory stays mapped, and is leaked until the device is
/// destroyed.
///
/// ```
/// use binpool_gpu_allocator::vulkan::Allocation;
///
/// fn write(allocation: &mut Allocation, data: &[u8]) -> Option<()> {
///     allocation.mapped_slice_mut()?.get_mut(..data.len())?.copy_from_slice(data);
///     Some(())
/// }
///
/// let mut none = Allocation::default();
/// assert!(none.is_null() && !none.is_dedicated() && none.chunk_id().is_none());
/// assert_eq!((none.offset(), none.size(), none.mapped_ptr()), (0, 0, None));
/// assert!(none.memory_properties().is_empty() && none.mapped_slice().is_none());
/// assert!(write(&mut none, &[1]).is_none());
/// ```
#[derive(Debug, Default)]
pub struct Allocation {
    /// Which allocator it is of.
    pub(super) allocator: usize,
    pub(super) chunk_id: Option<NonZeroU64>,
    pub(super) memory: vk::DeviceMemory,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) mapped: Option<Mapped>,
    pub(super) is_dedicated: bool,
    pub(super) properties: vk::MemoryPropertyFlags,
}

impl Allocation {
    /// The memory that the allocation is a part of.
    ///
    /// # Safety
    ///
    /// Use it only to bind resources within the allocation, which starts at [`offset`](Self::offset), and destroy them before the
    /// allocation is freed.
    #[must_use]
    #[expect(unsafe_code, reason = "that of gpu-allocator")]
    pub unsafe fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// The offset in that memory.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The number of the allocation; `None` for one without memory.
    #[must_use]
    pub fn chunk_id(&self) -> Option<NonZeroU64> {
        self.chunk_id
    }

    /// Returns whether this is an allocation without memory, as `default` makes it.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.chunk_id.is_none()
    }

    /// Returns whether it has memory of its own, as requested by [`AllocationScheme`].
    #[must_use]
    pub fn is_dedicated(&self) -> bool {
        self.is_dedicated
    }

    /// The properties of the memory type.
    #[must_use]
    pub fn memory_properties(&self) -> vk::MemoryPropertyFlags {
        self.properties
    }

    /// The address of the first byte for the host, if it can access the memory.
    #[must_use]
    pub fn mapped_ptr(&self) -> Option<NonNull<c_void>> {
        self.mapped.as_ref().map(|mapped| mapped.address)
    }

    /// The bytes, if the host can access them. The program orders the device's uses of them.
    #[must_use]
    pub fn mapped_slice(&self) -> Option<&[u8]> {
        let (mapped, bytes) = (self.mapped.as_ref()?, self.bytes()?);
        #[expect(unsafe_code, reason = "mapped memory")]
        // SAFETY: All of the allocation stays mapped while it lives, and the host writes it by `&mut` only.
        Some(unsafe { slice::from_raw_parts(mapped.address.as_ptr().cast(), bytes) })
    }

    /// The bytes, if the host can access them. The program orders the device's uses of them.
    pub fn mapped_slice_mut(&mut self) -> Option<&mut [u8]> {
        let (mapped, bytes) = (self.mapped.as_ref()?, self.bytes()?);
        #[expect(unsafe_code, reason = "mapped memory")]
        // SAFETY: As above; it is borrowed for itself alone.
        Some(unsafe { slice::from_raw_parts_mut(mapped.address.as_ptr().cast(), bytes) })
    }

    /// The memory for [`presser`]'s functions, if the host can access it.
    ///
    /// ```
    /// use binpool_gpu_allocator::vulkan::Allocation;
    ///
    /// fn write(allocation: &mut Allocation, numbers: &[f32]) -> Option<usize> {
    ///     let mut slab = allocation.try_as_mapped_slab()?;
    ///     let copied = presser::copy_from_slice_to_offset(numbers, &mut slab, 0).ok()?;
    ///     Some(copied.copy_end_offset)
    /// }
    /// assert_eq!(write(&mut Allocation::default(), &[1.0]), None);
    /// ```
    pub fn try_as_mapped_slab(&mut self) -> Option<MappedAllocationSlab<'_>> {
        self.mapped_slice_mut().map(MappedAllocationSlab)
    }

    fn bytes(&self) -> Option<usize> {
        isize::try_from(self.size).ok().map(isize::unsigned_abs)
    }
}

/// Mapped memory of an [`Allocation`], as [`presser`] takes it.
///
/// ```
/// use binpool_gpu_allocator::vulkan::MappedAllocationSlab;
/// use presser::Slab as _;
///
/// fn bytes(slab: &MappedAllocationSlab<'_>) -> usize {
///     slab.size()
/// }
/// ```
#[derive(Debug)]
pub struct MappedAllocationSlab<'a>(&'a mut [u8]);

#[expect(unsafe_code, reason = "a promise about memory")]
// SAFETY: the bytes are one allocation, borrowed for this value alone.
unsafe impl presser::Slab for MappedAllocationSlab<'_> {
    fn base_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn base_ptr_mut(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

#[expect(unsafe_code, reason = "a promise about memory")]
// SAFETY: the bytes are one allocation, which stays mapped while it lives; without a mapping there are none.
unsafe impl presser::Slab for Allocation {
    fn base_ptr(&self) -> *const u8 {
        self.mapped_slice().unwrap_or_default().as_ptr()
    }

    fn base_ptr_mut(&mut self) -> *mut u8 {
        self.mapped_slice_mut().unwrap_or_default().as_mut_ptr()
    }

    fn size(&self) -> usize {
        self.mapped_slice().map_or(0, <[u8]>::len)
    }
}
