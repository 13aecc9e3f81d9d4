//! What all shared virtual memory has in common.

use std::ptr::NonNull;

use binpool_allocators::{AsMemory, InvalidRequest, MemoryFlags, Region, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::as_buffer::buffer_over;
use crate::{
    backend::OpenClBackend,
    event::ClEvent,
    map::{Map, MapMut},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
};

/// Memory with an address that host and device both understand, be it opaque ([`ClMemory`]) or of one type
/// ([`Svm`](crate::Svm), [`SystemSvm`](crate::SystemSvm)): `PyOpenCL`'s `SVMPointer`.
///
/// It is memory that every command takes: transfers, fills, copies, migrations, maps, and arguments of kernels. Its
/// [`size`](AsMemory::size) is always known. `PyOpenCL`'s `buf` is a map here, since nothing else keeps the device's
/// commands away from what the host looks at; that holds for fine-grained memory, too.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{OpenClBackend, SvmPointer};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let numbers = backend.csvm_empty::<f32>(1000)?;
/// let numbers = numbers.fill_all(&queue, 17.0, &[])?;
/// assert_eq!(numbers.size(), 4000);
/// let opaque = numbers.svm_memory()?;
/// assert_eq!(opaque.address()?, numbers.address()?);
///
/// // For a library that knows buffers only: the same bytes.
/// let buffer = numbers.as_buffer(MemoryFlags::empty(), None)?;
/// backend.write(&queue, &buffer, 4, bytemuck::bytes_of(&18.0_f32), &[])?;
/// assert_eq!(numbers.map_ro(&queue, &[])?[..3], [17.0, 18.0, 17.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Opaque memory is mapped as elements of whatever type:
///
/// ```
/// # use binpool_allocators::{Backend, QueueOrder, SvmBackend, SvmGrain};
/// # use binpool_opencl::{OpenClBackend, SvmPointer};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.allocate_svm(8, None, SvmGrain::Coarse, None)?;
/// memory.map_rw::<u32>(&queue, &[])?.fill(0x0101_0101);
/// assert_eq!(*memory.map_ro::<u8>(&queue, &[])?, [1; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SvmPointer: AsMemory<OpenClBackend> {
    /// The memory in the opaque style.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm) for a [`ClMemory`] that is a buffer.
    fn svm_memory(&self) -> Result<&ClMemory>;

    /// Where the memory starts, for the device and for the host. `PyOpenCL`'s `svm_ptr`.
    ///
    /// Whoever reads or writes there sees to it that the memory still lives, that coarse-grained memory is mapped, and
    /// that host and device do not race.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm).
    fn address(&self) -> Result<NonNull<u8>> {
        let address = self.svm_memory()?.svm_address();
        address.ok_or_else(|| InvalidRequest::NotSvm.into())
    }

    /// A buffer over the first `bytes` bytes, over all of them where that is `None`: `PyOpenCL`'s `as_buffer`; OpenCL 3.0,
    /// section 5.2.1, on `CL_MEM_USE_HOST_PTR`. `flags` say what kernels and the host may do with it; where it
    /// lies is settled.
    ///
    /// It keeps the memory, which may be dropped before, and waits for its commands as they do for the buffer's. Only
    /// commands that a program enqueues itself, with the [bare handle](ClMemory::raw), are the program's to wait for.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm), [`ZeroSize`](InvalidRequest::ZeroSize),
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds); [`ContradictoryFlags`](InvalidRequest::ContradictoryFlags);
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for a block that is aligned to more than the runtime aligns
    /// SVM to; and the failures of the runtime.
    fn as_buffer(&self, flags: MemoryFlags, bytes: Option<usize>) -> Result<ClMemory> {
        let bytes = bytes.unwrap_or(self.size());
        Region::first(bytes).check_within(self.size())?;
        buffer_over(self.svm_memory()?, flags, bytes)
    }

    /// Maps all of it to be read, and waits until it is there: [`OpenClBackend::map`] without a region.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm), and those of [`map`](OpenClBackend::map).
    fn map_ro<T: AnyBitPattern>(
        &self,
        queue: &ClQueue,
        wait_for: &[ClEvent],
    ) -> Result<Map<'_, T>> {
        let memory = self.svm_memory()?;
        let all = Region::first(self.size());
        OpenClBackend::of_context(queue.context()).map(queue, memory, all, wait_for)
    }

    /// Maps all of it to be read and written, and waits until it is there: [`OpenClBackend::map_mut`] without a region.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm), and those of [`map_mut`](OpenClBackend::map_mut).
    fn map_rw<T: AnyBitPattern + NoUninit>(
        &self,
        queue: &ClQueue,
        wait_for: &[ClEvent],
    ) -> Result<MapMut<'_, T>> {
        let memory = self.svm_memory()?;
        let all = Region::first(self.size());
        OpenClBackend::of_context(queue.context()).map_mut(queue, memory, all, wait_for)
    }
}

impl SvmPointer for ClMemory {
    fn svm_memory(&self) -> Result<&ClMemory> {
        match self.svm() {
            Some(_) => Ok(self),
            None => Err(InvalidRequest::NotSvm.into()),
        }
    }
}
