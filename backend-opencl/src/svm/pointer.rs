//! The trait of all shared virtual memory.

use std::{ptr::NonNull, sync::Arc};

use binpool_allocators::{
    AsMemory, Error, InvalidRequest, Memory, MemoryFlags, Region, Result, Slice,
};
use bytemuck::Pod;

use crate::{
    backend::OpenClBackend,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        flags::{self, host_flags},
        part::Part,
        root::Root,
    },
    sys::{ClError, Purpose},
};

/// Memory with an address that is valid for host and device, opaque ([`ClMemory`]) or of one type ([`Slice`],
/// [`HostMemory`](crate::HostMemory)): `PyOpenCL`'s `SVMPointer`.
///
/// It is memory that every command takes: transfers, fills, copies, migrations, maps, and arguments of kernels. Its
/// [`size`](AsMemory::size) is always known. `PyOpenCL`'s `buf` is a map here, since only a map refuses commands that
/// conflict with the host; that holds for fine-grained memory, too.
///
/// ```
/// use binpool_allocators::{AsMemory, Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{OpenClBackend, SvmOptions, SvmPointer};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let numbers = backend.svm_empty::<f32>(1000, &SvmOptions::coarse())?;
/// numbers.enqueue_fill(&queue, .., &[17.0])?;
/// assert_eq!(numbers.size(), 4000);
/// let opaque = numbers.svm_memory()?;
/// assert_eq!(opaque.address()?, numbers.address()?);
///
/// // For a library that knows buffers only: the same bytes.
/// let buffer = numbers.as_buffer(MemoryFlags::empty(), None)?;
/// backend.write(&queue, &buffer, 4, bytemuck::bytes_of(&18.0_f32))?;
/// assert_eq!(backend.map::<f32>(&queue, &numbers, ..)?[..3], [17.0, 18.0, 17.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Opaque memory is mapped as elements of any type:
///
/// ```
/// # use binpool_allocators::{Backend, QueueOrder, SvmBackend, SvmGrain};
/// # use binpool_opencl::{OpenClBackend, SvmPointer};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.allocate_svm(8, None, SvmGrain::Coarse, None)?;
/// backend.map_mut::<u32>(&queue, &memory, ..)?.fill(0x0101_0101);
/// assert_eq!(*backend.map::<u8>(&queue, &memory, ..)?, [1; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Two things that have addresses are not an `SvmPointer`, since that names no queue and has a `ClMemory` of its own. The memory of a
/// pooled block is for a queue, on which the pool records the use. And a slice of elements starts at any of them, where a `ClMemory` is
/// aligned. Commands and maps take both as they are, and for the rest both lead to a `ClMemory`:
///
/// ```
/// use binpool::MemoryPool;
/// use binpool_allocators::{AsMemory, MemoryFlags, SvmGrain};
/// # use binpool_allocators::{Backend, QueueOrder};
/// # use binpool_opencl::{OpenClBackend, SvmOptions, SvmPointer};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::svm(&backend, SvmGrain::Coarse, &queue)?;
/// let block = pool.allocate(4096)?;
/// backend.map_mut::<u8>(&queue, &block, ..)?.fill(7);
/// let memory = block.memory_on(&queue).ok_or("0 bytes")?;
/// let buffer = memory.as_buffer(MemoryFlags::empty(), Some(block.size()))?;
/// assert_eq!(backend.map::<u8>(&queue, &buffer, ..)?[..], [7; 4096]);
///
/// let numbers = backend.svm_empty::<f32>(1000, &SvmOptions::coarse())?;
/// numbers.enqueue_fill(&queue, .., &[17.0])?;
/// let part = numbers.slice(128..256)?;
/// assert_eq!(backend.map::<f32>(&queue, &part, ..)?[..], [17.0; 128]);
/// let opaque = numbers.memory().slice(512..1024)?; // in bytes
/// assert_eq!(opaque.address()?.addr().get() - numbers.address()?.addr().get(), 512);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SvmPointer: AsMemory<OpenClBackend> {
    /// Returns the memory in the opaque style.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm) for a [`ClMemory`] that is a buffer.
    fn svm_memory(&self) -> Result<&ClMemory>;

    /// Returns the address of the memory, for the device and for the host. `PyOpenCL`'s `svm_ptr`.
    ///
    /// Code that reads or writes there has to ensure that the memory is alive, that coarse-grained memory is mapped, and
    /// that host and device do not race.
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm).
    fn address(&self) -> Result<NonNull<u8>> {
        let address = self.svm_memory()?.svm_address();
        address.ok_or_else(|| InvalidRequest::NotSvm.into())
    }

    /// Returns a buffer over the first `bytes` bytes, over all of them for `None`: `PyOpenCL`'s `as_buffer`; OpenCL 3.0,
    /// section 5.2.1, on `CL_MEM_USE_HOST_PTR`. `flags` say what kernels and the host may do with it, but cannot change
    /// where it lies.
    ///
    /// It keeps the memory, whose value may be dropped, and commands on both are ordered. The program itself has to wait
    /// for commands that it enqueues with the [bare handle](ClMemory::raw).
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
}

impl SvmPointer for ClMemory {
    fn svm_memory(&self) -> Result<&ClMemory> {
        match self.svm() {
            Some(_) => Ok(self),
            None => Err(InvalidRequest::NotSvm.into()),
        }
    }
}

impl<T: Pod> SvmPointer for Slice<T, ClMemory> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        self.memory().svm_memory()
    }
}

/// Returns a buffer over the first `bytes` bytes of `memory`.
///
/// It is like a region of the block: it keeps the block, commands on both are in one log, and the block is freed after the
/// buffer's commands.
fn buffer_over(memory: &ClMemory, flags: MemoryFlags, bytes: usize) -> Result<ClMemory> {
    let block = memory.svm().ok_or(InvalidRequest::NotSvm)?;
    memory.check_may_be_retained()?;
    let flags = flags::narrowed(memory.flags(), flags)?;
    if bytes == 0 {
        return Err(InvalidRequest::ZeroSize.into());
    }
    let region = Region::first(bytes);
    region.check_within(memory.bytes())?;
    let start = memory.offset();
    let failed = |error: ClError| error.into_error(Purpose::Memory(bytes));
    let range = block.range(Region::new(start, bytes));
    let limits = &memory.context().limits;
    let Some(handle) = range
        .as_retained_buffer(host_flags(flags))
        .map_err(failed)?
    else {
        return Err(Error::unsupported(format!(
            "a buffer over shared virtual memory of {} that is aligned to more than the runtime does: allocate it with \
             an alignment of at most {}",
            limits.device_name, limits.largest_svm_alignment
        )));
    };
    let body = match start {
        0 => MemoryBody::Buffer(Arc::new(Root::over(handle, block))),
        offset => MemoryBody::Part(Box::new(Part::new(
            memory.context(),
            &Arc::new(Root::over(handle, block)),
            Region::new(offset, bytes),
            host_flags(flags),
        ))),
    };
    let buffer = ClMemory::new(memory.context(), bytes, flags, body);
    Ok(buffer.into_view_of(memory))
}
