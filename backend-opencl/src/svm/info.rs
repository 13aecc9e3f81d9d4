//! Information about shared virtual memory.

use std::ptr::NonNull;

use binpool_allocators::{Align, InvalidRequest, Memory, Result, SvmGrain};

use crate::{memory::cl_memory::ClMemory, queue::ClQueue};

/// Information about a block of shared virtual memory, or a region of one: the attributes of `PyOpenCL`'s `SVMAllocation`,
/// and the options that it was allocated with. Sizes and offsets are in bytes.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder, Region, SvmGrain};
/// use binpool_opencl::{OpenClBackend, SvmOptions};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let mut options = SvmOptions::coarse();
/// options.queue = Some(queue.clone());
/// let block = backend.svm_empty::<f32>(1000, &options)?.into_memory();
/// let info = block.svm_info()?;
/// assert_eq!((info.bytes, info.offset, info.block_bytes), (4000, 0, 4000));
/// assert_eq!((info.grain, info.system), (SvmGrain::Coarse, false));
/// assert_eq!(info.bound_queue.as_ref(), Some(&queue));
/// assert!(info.alignment.divides(info.address.addr().get()));
///
/// let part = backend.create_sub_region(&block, Region::new(2048, 1024))?;
/// let info = part.svm_info()?;
/// assert_eq!((info.bytes, info.offset), (1024, 2048));
/// assert_eq!(info.block_bytes, 4000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SvmInfo {
    /// The address of the memory, for the device and for the host. `PyOpenCL`'s `svm_ptr`.
    pub address: NonNull<u8>,
    /// Its size.
    pub bytes: usize,
    /// Its offset in its whole block; 0 unless it is a region.
    pub offset: usize,
    /// The size of the whole block.
    pub block_bytes: usize,
    /// The alignment of the whole block, by request or by default.
    pub alignment: Align,
    /// The grain at which host and device share it.
    pub grain: SvmGrain,
    /// Whether it is a vector of the program's own ([`HostMemory`](crate::HostMemory)).
    pub system: bool,
    /// The queue that the block is freed on, if it is bound to one.
    pub bound_queue: Option<ClQueue>,
}

impl ClMemory {
    /// Returns information about it as shared virtual memory.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let memory = backend.svm_empty::<u32>(256, &SvmOptions::coarse())?.into_memory();
    /// assert_eq!(memory.svm_info()?.bytes, 1024);
    ///
    /// let buffer = backend.create_buffer(1024, MemoryFlags::empty())?;
    /// let Err(Error::InvalidRequest(why)) = buffer.svm_info() else {
    ///     panic!("a buffer")
    /// };
    /// assert_eq!(why, InvalidRequest::NotSvm);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotSvm`](InvalidRequest::NotSvm) for buffers, those over shared virtual memory among them.
    pub fn svm_info(&self) -> Result<SvmInfo> {
        let found = self.svm().and_then(|block| {
            let allocation = block.allocation();
            Some(SvmInfo {
                address: self.svm_address()?,
                bytes: self.bytes(),
                offset: self.offset(),
                block_bytes: allocation.bytes(),
                alignment: allocation.alignment(),
                grain: block.grain(),
                system: allocation.is_of_the_host(),
                bound_queue: block.bound(),
            })
        });
        found.ok_or_else(|| InvalidRequest::NotSvm.into())
    }
}
