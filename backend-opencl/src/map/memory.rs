//! Maps of buffers and of shared virtual memory.

use binpool_allocators::{AsMemory, IntoRegion, InvalidRequest, On, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::{
    guard::{HostMap, Map, MapMut, PendingMap},
    mapping::{MapMode, Mapped, Mapping},
};
use crate::{backend::OpenClBackend, event::ClOn};

/// Maps of buffers and of shared virtual memory, bare or pooled, by OpenCL 3.0, sections 5.2.4 and 5.6.2; `PyOpenCL`'s
/// `enqueue_map_buffer`, and the `map`, `map_ro` and `map_rw` of its `SVMPointer`. Regions are in bytes, lie within the
/// requested size of the memory, and hold whole elements.
///
/// A map borrows its memory, which cannot be dropped before it:
///
/// ```compile_fail,E0505
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{DeviceSelector, OpenClBackend};
/// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
/// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
/// # let memory = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
/// let bytes = backend.map::<u8>(&queue, &memory, 0..4096).unwrap();
/// drop(memory);
/// assert_eq!(bytes[0], 0);
/// ```
///
/// Memory that is mapped to be read cannot be written:
///
/// ```compile_fail,E0594
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{DeviceSelector, OpenClBackend};
/// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
/// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
/// # let memory = backend.create_buffer(4096, MemoryFlags::empty()).unwrap();
/// let bytes = backend.map::<u8>(&queue, &memory, 0..4096).unwrap();
/// bytes[0] = 1;
/// ```
///
/// # Errors
///
/// All of them: [`ZeroSize`](InvalidRequest::ZeroSize), [`OutOfBounds`](InvalidRequest::OutOfBounds),
/// [`NotWholeElements`](InvalidRequest::NotWholeElements), [`ElementsMisaligned`](InvalidRequest::ElementsMisaligned) if the host's address
/// is not aligned for the elements, [`ForeignObject`](InvalidRequest::ForeignObject), [`HostAccess`](InvalidRequest::HostAccess) if the
/// flags of the memory forbid it, [`Lent`](InvalidRequest::Lent) for a buffer over memory that was lent to it,
/// [`Mapped`](InvalidRequest::Mapped) if the bytes are mapped already and one of the two maps writes (for shared virtual memory also if
/// both start at the same byte), and the failures of the runtime.
impl OpenClBackend {
    /// Maps `region` to be read, and waits until it is there. Bytes that were never written are unspecified.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let mut numbers = backend.map_mut::<f32>(&queue, &memory, 0..4096)?;
    /// numbers.fill(1.5);
    /// numbers.unmap()?; // Or drop it.
    /// let numbers = backend.map::<f32>(&queue, &memory, 1024..2048)?;
    /// assert_eq!(numbers.iter().sum::<f32>(), 384.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn map<'q, 'm, T: AnyBitPattern>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<Map<'m, T>> {
        self.enqueue_map(on, memory, region)?.wait()
    }

    /// Maps `region` to be read and written, and waits until it is there. Bytes that were never written are unspecified.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1.0_f32, 2.0, 3.0], MemoryFlags::empty())?;
    /// for number in backend.map_mut::<f32>(&queue, &memory, 4..12)?.iter_mut() {
    ///     *number *= 10.0;
    /// } // Unmapped here.
    /// assert_eq!(backend.map::<f32>(&queue, &memory, 0..12)?[..], [1.0, 20.0, 30.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn map_mut<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<MapMut<'m, T>> {
        self.enqueue_map_mut(on, memory, region, MapMode::ReadWrite)?
            .wait()
    }

    /// Enqueues a map of `region` to be read, without waiting for it.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let ones = backend.create_buffer_from(&[1_u64; 8], MemoryFlags::empty())?;
    /// let twos = backend.create_buffer_from(&[2_u64; 8], MemoryFlags::empty())?;
    /// // Both are on their way before the first is waited for.
    /// let pending = [&ones, &twos].map(|part| backend.enqueue_map::<u64>(&queue, part, 0..64));
    /// let mut sum = 0;
    /// for part in pending {
    ///     sum += part?.wait()?.iter().sum::<u64>();
    /// }
    /// assert_eq!(sum, 24);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_map<'q, 'm, T: AnyBitPattern>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
    ) -> Result<PendingMap<'m, Map<'m, T>>> {
        self.map_as(on.into(), memory, region, None)
    }

    /// Enqueues a map of `region` for the writes that `mode` names, without waiting for it.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{MapMode, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[0_u32; 4], MemoryFlags::empty())?;
    /// let pending = backend.enqueue_map_mut::<u32>(&queue, &memory, 0..16, MapMode::Overwrite)?;
    /// let squares: Vec<u32> = (0..4).map(|n| n * n).collect(); // While the memory comes.
    /// pending.wait()?.copy_from_slice(&squares);
    /// assert_eq!(backend.map::<u32>(&queue, &memory, 0..16)?[..], [0, 1, 4, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn enqueue_map_mut<'q, 'm, T: AnyBitPattern + NoUninit>(
        &self,
        on: impl Into<ClOn<'q>>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
        mode: MapMode,
    ) -> Result<PendingMap<'m, MapMut<'m, T>>> {
        self.map_as(on.into(), memory, region, Some(mode))
    }

    fn map_as<'m, T: AnyBitPattern, A>(
        &self,
        On { queue, wait_for }: ClOn<'_>,
        memory: &'m (impl AsMemory<Self> + ?Sized),
        region: impl IntoRegion,
        mode: Option<MapMode>,
    ) -> Result<PendingMap<'m, HostMap<'m, T, A>>> {
        let found = self.bytes_on(queue, memory, region)?;
        let found = found.filter(|(_, region)| region.bytes > 0);
        let (memory, region) = found.ok_or(InvalidRequest::ZeroSize)?;
        let (bytes, element) = (region.bytes, size_of::<T>());
        if element == 0 || !bytes.is_multiple_of(element) {
            return Err(InvalidRequest::NotWholeElements { bytes, element }.into());
        }
        MapMode::check(mode, memory.flags())?;
        memory.check_may_be_retained()?;
        let mapped = Mapped::Memory(memory, region);
        let mapping = Mapping::enqueue(self, queue, mapped, mode, wait_for)?;
        Ok(PendingMap::new(mapping, HostMap::of_bytes))
    }
}
