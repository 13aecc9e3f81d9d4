//! Blocks of memory.

use std::{ffi::c_void, ops::RangeBounds, ptr::NonNull, sync::Arc};

use binpool_allocators::{
    AsMemory, HostUse, InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, Region, Result,
};

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    context::Context,
    event::ClEvent,
    memory::root::Root,
    order::access::{Access, Use},
    queue::ClQueue,
    svm::block::SvmBlock,
    sys::{self, MemHandle, Place, SvmRange},
};

/// A block of OpenCL memory: a buffer, a sub-buffer, a block of shared virtual memory (SVM), or a region of
/// one.
///
/// Dropping it gives the memory back. The runtime keeps buffers until the commands that use them have ended;
/// for SVM, which the runtime frees under running commands, this crate does.
///
/// ```
/// use std::slice::from_ref;
///
/// use binpool_allocators::{Event, Memory, Outcome};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let gate = backend.create_user_event()?;
/// let written = backend.enqueue_write(&queue, &memory, 0, [1, 2, 3].into(), from_ref(&gate))?;
/// assert_eq!((memory.bytes(), memory.offset(), memory.flags()), (4096, 0, MemoryFlags::empty()));
/// drop(memory); // The write has it still.
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// written.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClMemory {
    id: MemoryId,
    bytes: usize,
    flags: MemoryFlags,
    context: Arc<Context>,
    body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Buffer(Arc<Root>),
    SubBuffer {
        handle: MemHandle,
        root: Arc<Root>,
        /// Where in the root it starts, in bytes.
        offset: usize,
    },
    /// All of a block, or a region of it.
    Svm {
        block: Arc<SvmBlock>,
        /// Where in the block it starts, in bytes.
        offset: usize,
    },
}

impl ClMemory {
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: usize,
        flags: MemoryFlags,
        body: Body,
    ) -> Self {
        Self {
            id: MemoryId::fresh(),
            bytes,
            flags,
            context: Arc::clone(context),
            body,
        }
    }

    /// The runtime's handle, for the arguments of kernels; `None` for SVM, whose address
    /// [`svm_address`](binpool_allocators::SvmBackend::svm_address) gives.
    ///
    /// It is borrowed: valid while this value lives, and not to be released. A kernel that was enqueued with
    /// it keeps the memory, as every command does. `PyOpenCL` calls it `int_ptr`;
    /// [`memory_from_raw`](OpenClBackend::memory_from_raw) is the way back.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// use binpool_allocators::{Memory, SvmBackend, SvmGrain};
    ///
    /// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let handle = memory.raw().ok_or("a buffer has a handle")?;
    /// // SAFETY: (1) the buffer lives, and is retained; (2, 3) only values of this crate use it.
    /// let again = unsafe { backend.memory_from_raw(handle, true) }?;
    /// assert_eq!(again, memory); // One buffer: commands on either know of each other.
    /// assert_ne!(again.id(), memory.id()); // Two values.
    ///
    /// # if backend.limits().svm.coarse {
    /// let shared = backend.allocate_svm(4096, None, SvmGrain::Coarse, None)?;
    /// assert_eq!((shared.raw(), backend.svm_address(&shared).is_some()), (None, true));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn raw(&self) -> Option<*mut c_void> {
        self.exposed_handle().map(MemHandle::raw)
    }

    /// The handle, for somebody outside of this crate.
    pub(crate) fn exposed_handle(&self) -> Option<&MemHandle> {
        match &self.body {
            // The runtime tells whoever has the handle of a part about the whole.
            Body::Buffer(root) | Body::SubBuffer { root, .. } => root.expose(),
            Body::Svm { .. } => {}
        }
        self.buffer()
    }

    /// What it was made with, and a view what its parent was. Shared virtual memory has no flags.
    #[must_use]
    pub fn flags(&self) -> MemoryFlags {
        self.flags
    }

    /// A view of a range of bytes, whose ends may be left open:
    /// [`create_sub_region`](binpool_allocators::Backend::create_sub_region) of it. `PyOpenCL` calls it
    /// `__getitem__`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Memory, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let tail = memory.slice(1024..)?;
    /// assert_eq!((tail.bytes(), tail.offset()), (3072, 1024));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Misaligned`](InvalidRequest::Misaligned) unless it starts, within the whole block, on a multiple of the
    /// device's [alignment](binpool_allocators::DeviceLimits::alignment);
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds); [`ZeroSize`](InvalidRequest::ZeroSize);
    /// [`Lent`](InvalidRequest::Lent) for a buffer over memory that was lent to it.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.view(Region::within(range, self.bytes)?)
    }

    /// Checks that the host may read or write it, as its flags say. Every command that moves bytes between it and the
    /// host, and every map, asks first.
    pub(crate) fn check_host(&self, way: HostUse) -> Result<()> {
        self.flags.check_host(way)
    }

    /// Checks that something may keep it beyond a command: a view, an image over it, a map, an argument of a kernel.
    /// What lies over memory that is lent to it may not be kept, or the loan would not end.
    pub(crate) fn check_may_be_kept(&self) -> Result<()> {
        match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } if root.lent => {
                let bytes = self.bytes;
                Err(InvalidRequest::Lent { bytes }.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) const fn shared_context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn body(&self) -> &Body {
        &self.body
    }

    pub(crate) fn buffer(&self) -> Option<&MemHandle> {
        match &self.body {
            Body::Buffer(root) => Some(&root.handle),
            Body::SubBuffer { handle, .. } => Some(handle),
            Body::Svm { .. } => None,
        }
    }

    /// The buffer that it is all or a part of, and where in that it starts, in bytes; `None` for SVM.
    pub(crate) fn root(&self) -> Option<(&Arc<Root>, usize)> {
        match &self.body {
            Body::Buffer(root) => Some((root, 0)),
            Body::SubBuffer { root, offset, .. } => Some((root, *offset)),
            Body::Svm { .. } => None,
        }
    }

    /// Whether it is a part of a buffer.
    pub(crate) const fn is_view(&self) -> bool {
        matches!(self.body, Body::SubBuffer { .. })
    }

    pub(crate) fn svm(&self) -> Option<&Arc<SvmBlock>> {
        match &self.body {
            Body::Svm { block, .. } => Some(block),
            Body::Buffer(_) | Body::SubBuffer { .. } => None,
        }
    }

    /// The whole block of shared virtual memory, unless there are regions of it, or buffers over it, elsewhere.
    pub(crate) fn into_svm_block(mut self) -> Result<SvmBlock, Self> {
        match self.body {
            Body::Svm { block, offset } => match Arc::try_unwrap(block) {
                Ok(block) => Ok(block),
                Err(block) => {
                    self.body = Body::Svm { block, offset };
                    Err(self)
                }
            },
            body => {
                self.body = body;
                Err(self)
            }
        }
    }

    /// A use of `region`, which lies in this block.
    pub(crate) fn used(&self, region: Region, access: Access) -> Use<'_> {
        let region = Region::new(self.offset().saturating_add(region.offset), region.bytes);
        match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => root.used(region, access),
            Body::Svm { block, .. } => block.used(region, access),
        }
    }

    pub(crate) fn svm_address(&self) -> Option<NonNull<u8>> {
        self.svm_range(Region::first(self.bytes))
            .map(SvmRange::start)
    }

    /// The bytes of `region`, which lies in this block.
    fn svm_range(&self, region: Region) -> Option<SvmRange<'_>> {
        let Body::Svm { block, offset } = &self.body else {
            return None;
        };
        block.range(Region::new(
            offset.checked_add(region.offset)?,
            region.bytes,
        ))
    }

    /// Where `region`, which lies in this block, is on the device.
    pub(crate) fn place(&self, region: Region) -> Option<Place<'_>> {
        match self.buffer() {
            Some(buffer) => Some(Place::Buffer(buffer, region.offset)),
            None => self.svm_range(region).map(Place::Svm),
        }
    }

    /// Where `region`, which lies in this block, is mapped. A buffer over shared virtual memory is mapped as that: the
    /// runtime might take the address under it for memory of the host that it can copy to.
    pub(crate) fn mapped_place(&self, region: Region) -> Option<Place<'_>> {
        match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => match root.block() {
                Some(block) => {
                    let offset = self.offset().checked_add(region.offset)?;
                    block
                        .range(Region::new(offset, region.bytes))
                        .map(Place::Svm)
                }
                None => self.place(region),
            },
            Body::Svm { .. } => self.place(region),
        }
    }

    /// A view of `region`, with the checks of `create_sub_region`.
    pub(crate) fn view(&self, region: Region) -> Result<Self> {
        self.check_may_be_kept()?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        region.check_within(self.bytes)?;
        // Both lie in one block, so the sum is less than the block's size.
        let offset = self.offset().saturating_add(region.offset);
        let alignment = self.context.limits.alignment;
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        let body = match &self.body {
            Body::Buffer(root) | Body::SubBuffer { root, .. } => Body::SubBuffer {
                handle: sys::create_sub_buffer(&root.handle, offset, region.bytes)
                    .map_err(|error| error.into_error(Purpose::Memory(region.bytes)))?,
                root: Arc::clone(root),
                offset,
            },
            Body::Svm { block, .. } => Body::Svm {
                block: Arc::clone(block),
                offset,
            },
        };
        Ok(Self::new(&self.context, region.bytes, self.flags, body))
    }

    /// Gives the memory back, after `after` where the runtime does not see to that itself.
    pub(crate) fn release(self, after: &[ClEvent]) -> Result<()> {
        let purpose = Purpose::Control;
        if let Body::Buffer(root) | Body::SubBuffer { root, .. } = &self.body {
            // The runtime keeps the buffer, and not the block under it.
            for event in after {
                if let Some(block) = root.block() {
                    block.record_other(event);
                }
            }
        }
        match self.body {
            Body::Buffer(root) => match Arc::into_inner(root) {
                Some(root) => root
                    .handle
                    .release()
                    .map_err(|error| error.into_error(purpose)),
                // Its sub-buffers keep it.
                None => Ok(()),
            },
            Body::SubBuffer { handle, .. } => {
                handle.release().map_err(|error| error.into_error(purpose))
            }
            Body::Svm { block, .. } => {
                // Before the block is let go: another region's owner may be the last one.
                for event in after {
                    block.record_other(event);
                }
                match Arc::into_inner(block) {
                    Some(block) => block.free(),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Memory for ClMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn kind(&self) -> MemoryKind {
        match self.svm() {
            Some(block) => MemoryKind::Svm(block.grain()),
            None => MemoryKind::Buffer,
        }
    }
}

impl AsMemory<OpenClBackend> for ClMemory {
    fn size(&self) -> usize {
        self.bytes
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&Self> {
        Some(self)
    }
}
