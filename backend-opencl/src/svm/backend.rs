//! How the backend allocates shared virtual memory.

use std::{ptr::NonNull, sync::Arc};

use binpool_allocators::{
    Align, Backend, Error, InvalidRequest, MemoryFlags, OutOfMemory, Queue, QueueOrder, Result,
    Scope, Slice, SvmBackend, SvmGrain,
};
use bytemuck::Pod;
use cl3::memory::{CL_MEM_READ_WRITE, CL_MEM_SVM_ATOMICS, CL_MEM_SVM_FINE_GRAIN_BUFFER};

use crate::{
    after_use::free_what_has_ended,
    backend::OpenClBackend,
    kept_memory,
    memory::{
        cl_memory::{ClMemory, MemoryBody},
        flags,
        svm_block::SvmBlock,
    },
    queue::ClQueue,
    sys::{Purpose, SvmAllocation},
};

/// The options of shared virtual memory: its grain, its alignment, the queue that it is freed on, and the access of
/// kernels. `PyOpenCL`'s `flags`, `alignment` and `queue` of `SVMAllocation` and `svm_empty`.
///
/// ```
/// use binpool_allocators::{Align, Backend, QueueOrder};
/// use binpool_opencl::{OpenClBackend, SvmOptions};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let alignment = Align::new(64).ok_or("no power of two")?;
/// let options = SvmOptions {
///     alignment: Some(alignment),
///     queue: Some(queue.clone()),
///     ..SvmOptions::coarse()
/// };
/// let numbers = backend.svm_empty::<f32>(1000, &options)?;
///
/// let info = numbers.into_memory().svm_info()?;
/// assert!(info.alignment >= alignment);
/// assert_eq!(info.bound_queue, Some(queue));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Kernels are refused memory that they must not use in this way:
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter, SvmOptions};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void clear(global float *data) { data[get_global_id(0)] = 0.0f; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # // SAFETY: each work item writes the float of its id, and touches nothing else.
/// # let clear = unsafe { program.kernel("clear", &[Parameter::output::<f32>(Extent::PerItem(1))]) }?;
/// let flags = MemoryFlags::READ_ONLY;
/// let table = backend.svm_empty::<f32>(100, &SvmOptions { flags, ..SvmOptions::coarse() })?;
/// table.enqueue_fill(&queue, .., &[1.0])?;
/// let refused = clear.launch(&queue, &[100]).memory(&table).enqueue().unwrap_err();
/// assert!(refused.to_string().contains(&flags.to_string()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SvmOptions {
    /// How host and device share the memory.
    pub grain: SvmGrain,
    /// The number of bytes that the address is a multiple of; `None` for that of the device's buffers.
    pub alignment: Option<Align>,
    /// An in-order queue: the memory is freed after everything that was enqueued there.
    pub queue: Option<ClQueue>,
    /// `READ_ONLY` for memory that kernels only read, `WRITE_ONLY` for memory that they only write. The host may do both.
    pub flags: MemoryFlags,
}

impl SvmOptions {
    /// Returns options for memory of this grain, aligned like the device's buffers, and bound to no queue.
    pub const fn new(grain: SvmGrain) -> Self {
        Self {
            grain,
            alignment: None,
            queue: None,
            flags: MemoryFlags::empty(),
        }
    }

    /// Returns options for coarse-grained memory, which every device with shared virtual memory has.
    pub const fn coarse() -> Self {
        Self::new(SvmGrain::Coarse)
    }

    /// Returns options for fine-grained memory.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryKind, Memory, SvmGrain};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // With atomics where the device has them: then a kernel that runs sees what the host writes.
    /// let options = match backend.limits().svm {
    ///     svm if svm.atomics => SvmOptions::new(SvmGrain::FineAtomics),
    ///     svm if svm.fine => SvmOptions::fine(),
    ///     _ => SvmOptions::coarse(),
    /// };
    /// let flags = backend.svm_empty::<u32>(16, &options)?.into_memory();
    /// assert!(matches!(flags.kind(), MemoryKind::Svm(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn fine() -> Self {
        Self::new(SvmGrain::Fine)
    }
}

impl SvmBackend for OpenClBackend {
    fn allocate_svm_with_flags(
        &self,
        bytes: usize,
        alignment: Option<Align>,
        grain: SvmGrain,
        queue: Option<&ClQueue>,
        flags: MemoryFlags,
    ) -> Result<ClMemory> {
        let options = SvmOptions {
            grain,
            alignment,
            queue: queue.cloned(),
            flags,
        };
        self.allocate(bytes, &options)
    }

    fn svm_address(&self, memory: &ClMemory) -> Option<NonNull<u8>> {
        memory.svm_address()
    }

    fn bound_queue(&self, memory: &ClMemory) -> Result<Option<ClQueue>> {
        Ok(self.svm_block(memory)?.bound())
    }

    fn set_bound_queue(&self, memory: &ClMemory, queue: Option<&ClQueue>) -> Result<()> {
        let block = self.svm_block(memory)?;
        self.check_bound_queue(queue)?;
        block.bind(queue);
        Ok(())
    }
}

impl OpenClBackend {
    /// Allocates shared virtual memory with these options. The errors are those of `allocate_svm`, and `ContradictoryFlags`.
    pub(super) fn allocate(&self, bytes: usize, options: &SvmOptions) -> Result<ClMemory> {
        let SvmOptions {
            grain,
            alignment,
            ref queue,
            flags,
        } = *options;
        let limits = self.limits();
        if !grain.is_in(limits.svm) {
            return Err(Error::svm_unsupported(&limits.device_name, grain));
        }
        limits.check_block(bytes)?;
        flags.check_svm()?;
        let largest = limits.largest_svm_alignment;
        if let Some(alignment) = alignment.filter(|&alignment| alignment > largest) {
            return Err(InvalidRequest::AlignmentTooLarge { alignment, largest }.into());
        }
        self.check_bound_queue(queue.as_ref())?;
        // Fills need an alignment of their patterns, up to the largest, so no less is asked of the runtime.
        let alignment = alignment.unwrap_or(limits.alignment).max(largest);
        let context = self.context();
        let allocation = SvmAllocation::new(
            &context.handle,
            svm_flags(grain, flags),
            bytes,
            alignment,
            largest,
            context.quirks.svm_lock,
            || kept_memory::let_go() | free_what_has_ended(),
        )
        .map_err(|error| error.into_error(Purpose::Memory(bytes)))?
        // Every other reason for a failure was checked above.
        .ok_or_else(|| OutOfMemory::new(bytes, Scope::Device))?;
        let block = SvmBlock::new(allocation, grain, queue.as_ref());
        let body = MemoryBody::Svm {
            block: Arc::new(block),
            offset: 0,
        };
        Ok(ClMemory::new(context, bytes, flags, body))
    }

    /// Checks that a block can be bound to this queue.
    fn check_bound_queue(&self, queue: Option<&ClQueue>) -> Result<()> {
        let Some(queue) = queue else {
            return Ok(());
        };
        self.check_own_queue(queue)?;
        if queue.order() == QueueOrder::OutOfOrder {
            return Err(InvalidRequest::OutOfOrderQueue.into());
        }
        Ok(())
    }

    fn svm_block<'a>(&self, memory: &'a ClMemory) -> Result<&'a Arc<SvmBlock>> {
        self.check_own_memory(memory)?;
        memory.svm().ok_or_else(|| InvalidRequest::NotSvm.into())
    }
}

/// The allocation of shared virtual memory as elements of one type: `PyOpenCL`'s `SVM`, the wrapped style. The opaque one is
/// a [`ClMemory`].
///
/// The host reads and writes the elements through maps, of coarse-grained and of fine-grained memory alike: a map of
/// fine-grained memory moves nothing, but commands that would race with the host are refused.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_opencl::{OpenClBackend, SvmOptions};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let numbers = backend.svm_empty::<f32>(12, &SvmOptions::coarse())?;
/// numbers.enqueue_fill(&queue, .., &[17.0])?;
/// backend.map_mut::<f32>(&queue, &numbers, ..)?[3] = 18.0; // unmapped at the end of the statement
/// let elements = backend.map::<f32>(&queue, &numbers, ..)?;
/// assert_eq!(elements[2..4], [17.0, 18.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `ndarray` a map has a shape and an order of its elements, `shape` and `order` of `svm_empty`:
///
/// ```
/// # #[cfg(feature = "ndarray")] {
/// use ndarray::ShapeBuilder;
///
/// # use binpool_allocators::{Backend, QueueOrder};
/// # use binpool_opencl::SvmOptions;
/// # let backend = binpool_opencl::OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let counted = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
/// let numbers = backend.svm_empty::<u32>(12, &SvmOptions::coarse())?;
/// numbers.write(&queue, 0, &counted)?;
/// let map = backend.map::<u32>(&queue, &numbers, ..)?;
/// assert_eq!(map.shaped((3, 4))?[[2, 1]], 9);
/// assert_eq!(map.shaped((3, 4).f())?[[2, 1]], 5); // column by column
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl OpenClBackend {
    /// Allocates `length` elements, at least one. `PyOpenCL`'s `svm_empty`, and by the options its `csvm_empty` and `fsvm_empty`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let options = if backend.limits().svm.fine {
    ///     SvmOptions::fine()
    /// } else {
    ///     SvmOptions::coarse()
    /// };
    /// let numbers = backend.svm_empty::<u64>(100, &options)?;
    /// assert_eq!(numbers.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](InvalidRequest::ZeroSize) for no elements; [`NotWholeElements`](InvalidRequest::NotWholeElements) for elements of no
    /// bytes; and those of [`allocate_svm`](binpool_allocators::SvmBackend::allocate_svm),
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for a grain that the device does not have among them.
    pub fn svm_empty<T: Pod>(
        &self,
        length: usize,
        options: &SvmOptions,
    ) -> Result<Slice<T, ClMemory>> {
        let element = size_of::<T>();
        if element == 0 {
            return Err(InvalidRequest::NotWholeElements { bytes: 0, element }.into());
        }
        // A product that saturates is larger than any block.
        let bytes = length.saturating_mul(element);
        Slice::new(self.allocate(bytes, options)?)
    }
}

fn svm_flags(grain: SvmGrain, flags: MemoryFlags) -> u64 {
    let kernels = match flags::to_cl(flags) {
        0 => CL_MEM_READ_WRITE,
        kernels => kernels,
    };
    kernels
        | match grain {
            SvmGrain::Coarse => 0,
            SvmGrain::Fine => CL_MEM_SVM_FINE_GRAIN_BUFFER,
            SvmGrain::FineAtomics => CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rect, RectPart, testing::open};

    /// The runtime aligns its allocation to less, so the block starts within.
    #[test]
    fn commands_on_an_aligned_block_count_from_the_start_of_the_block() {
        const BYTES: usize = 4096;
        let backend = open();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let allocation = SvmAllocation::new(
            &backend.context().handle,
            CL_MEM_READ_WRITE,
            BYTES,
            Align::new(1 << 16).unwrap(),
            Align::new(64).unwrap(),
            backend.context().quirks.svm_lock,
            || false,
        );
        let block = SvmBlock::new(allocation.unwrap().unwrap(), SvmGrain::Coarse, None);
        let body = MemoryBody::Svm {
            block: Arc::new(block),
            offset: 0,
        };
        let memory = ClMemory::new(backend.context(), BYTES, MemoryFlags::empty(), body);
        let address = memory.svm_address().unwrap().addr().get();
        assert!(address.is_multiple_of(1 << 16));

        backend.enqueue_fill(&queue, &memory, .., &[9_u8]).unwrap();
        let data = backend.create_buffer_from(&[7_u8; 64], MemoryFlags::empty());
        let copied = backend.enqueue_copy(&queue, &data.unwrap(), .., &memory, 128);
        copied.unwrap();
        let (tight, rows) = (Rect::default(), Rect::in_rows([1, 1, 0], 10));
        let rect = (&[5_u8; 4][..], tight);
        backend
            .write_part(
                &queue,
                RectPart::new((&memory, rows), rect.1, [2, 2, 1]),
                rect.0,
            )
            .unwrap();
        let mut seen = [0_u8; BYTES];
        backend.read(&queue, &memory, 0, &mut seen).unwrap();
        let mut expected = [9; BYTES];
        expected[128..192].fill(7);
        for at in [11, 12, 21, 22] {
            expected[at] = 5;
        }
        assert_eq!(seen, expected);
    }
}
