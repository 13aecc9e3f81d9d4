//! A block of OpenCL memory, or a region of one, as an owned value.

use std::{ffi::c_void, ops::RangeBounds, ptr::NonNull, sync::Arc};

use binpool_allocators::{
    CountedView, Error, InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, Region, Result,
    SliceMemory, ViewCount, debug_by, runtime::Access,
};

use crate::{
    backend::OpenClBackend,
    context::Context,
    event::ClEvent,
    memory::{
        flags::{self, host_flags},
        part::Part,
        root::Root,
        svm_block::SvmBlock,
    },
    order::memory_use::MemoryUse,
    sys::{DeviceBytes, MemHandle, SvmRange, destructor::when_destroyed},
};

/// A block of OpenCL memory: a buffer, a sub-buffer, a block of shared virtual memory (SVM), or a region of
/// one.
///
/// Dropping it releases the memory, once the commands that use it have ended: the runtime keeps buffers until then, and
/// this crate keeps SVM.
///
/// ```
/// use std::slice::from_ref;
///
/// use binpool_allocators::{Event, Memory, Outcome, Queue};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let gate = backend.create_user_event()?;
/// let written = backend.enqueue_write(queue.after(from_ref(&gate)), &memory, 0, [1, 2, 3].into())?;
/// assert_eq!((memory.bytes(), memory.offset(), memory.flags()), (4096, 0, MemoryFlags::empty()));
/// drop(memory); // The write has it still.
/// backend.resolve_user_event(&gate, Outcome::Complete)?;
/// written.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClMemory {
    id: MemoryId,
    bytes: usize,
    flags: MemoryFlags,
    backend: OpenClBackend,
    body: MemoryBody,
    /// The last field: a view is counted until its object of the runtime has been released.
    views: ViewCount,
}

#[derive(Debug)]
pub(crate) enum MemoryBody {
    Buffer(Arc<Root>),
    Part(Box<Part>),
    /// All of a block, or a region of it.
    Svm {
        block: Arc<SvmBlock>,
        /// Its offset in the block, in bytes.
        offset: usize,
    },
}

/// What memory is all or a part of.
enum Whole<'m> {
    Buffer(&'m Arc<Root>),
    Svm(&'m Arc<SvmBlock>),
}

impl ClMemory {
    pub(crate) fn new(
        context: &Arc<Context>,
        bytes: usize,
        flags: MemoryFlags,
        body: MemoryBody,
    ) -> Self {
        Self {
            id: MemoryId::fresh(),
            bytes,
            flags,
            backend: OpenClBackend::of_context(context),
            body,
            views: ViewCount::default(),
        }
    }

    /// Returns this value as a view of `parent`.
    pub(crate) fn into_view_of(mut self, parent: &Self) -> Self {
        self.views = ViewCount::of_view(parent.count_view());
        self
    }

    /// Counts a view, an image or a map over this memory, which reaches its bytes without this value.
    pub(crate) fn count_view(&self) -> CountedView {
        self.views.count_view()
    }

    /// The runtime's handle of a whole buffer. It is `None` for a part of a buffer, whose handle
    /// [`lend`](OpenClBackend::lend) lends for commands of the program's own, and for SVM, whose address
    /// [`svm_address`](binpool_allocators::SvmBackend::svm_address) gives.
    ///
    /// It is borrowed: valid while this value lives, and not to be released. A kernel that was enqueued with it keeps the memory, as
    /// every command does. This crate does not see such a command: the program orders it with others. `PyOpenCL` calls it
    /// `int_ptr`; [`wrap_raw_memory`](OpenClBackend::wrap_raw_memory) is the way back.
    ///
    /// NVIDIA's driver crashes if the program enqueues a command on a buffer while another thread makes or releases a view of that buffer.
    /// A program whose threads share a buffer in this way uses `lend` there, even for whole buffers.
    ///
    /// The blocks of a pool without segments are whole buffers:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::{ClMemory, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// use binpool::{ImmediateAllocator, PoolOptions};
    ///
    /// let options = PoolOptions::new().segments(false);
    /// let pool = options.build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// // `memory_on` tells the pool of the queue, after whose commands the block goes to its next user.
    /// let handle = block.memory_on(&queue).and_then(ClMemory::raw).ok_or("a whole buffer has a handle")?;
    /// assert!(!handle.is_null());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// And of any buffer:
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
    /// let again = unsafe { backend.wrap_raw_memory(handle, true) }?;
    /// assert_eq!(again, memory); // One buffer: commands on either know of each other.
    /// assert_ne!(again.id(), memory.id()); // Two values.
    ///
    /// # if backend.limits().svm.coarse {
    /// let shared = backend.allocate_svm(4096, None, SvmGrain::Coarse, None)?;
    /// assert_eq!((shared.raw(), backend.svm_address(&shared).is_some()), (None, true));
    /// # }
    /// assert_eq!(memory.slice(1024..)?.raw(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn raw(&self) -> Option<*mut c_void> {
        let MemoryBody::Buffer(root) = &self.body else {
            return None;
        };
        root.expose();
        Some(root.handle.raw())
    }

    /// The runtime's handle of the whole buffer that this is all or a part of, and the offset of these bytes in it; `None` for SVM. For
    /// copies, fills and maps of the program's own, and for kernels that take both.
    ///
    /// What [`raw`](Self::raw) says of its handle holds for this one: it is borrowed, and the program orders its commands. Other bytes
    /// of the buffer may be other blocks of a pool.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let buffer = backend.create_buffer(8192, MemoryFlags::empty())?;
    /// let half = buffer.slice(4096..)?;
    /// let (whole, offset) = half.whole_and_offset().ok_or("a buffer has a handle")?;
    /// assert_eq!((Some(whole), offset), (buffer.raw(), 4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn whole_and_offset(&self) -> Option<(*mut c_void, usize)> {
        let (root, offset) = self.exposed_root()?;
        Some((root.handle.raw(), offset))
    }

    /// Returns a `cl_mem` that begins at the first of these bytes, for the argument of a kernel and for nothing else.
    ///
    /// It is the buffer or a sub-buffer of it; on NVIDIA's driver, which crashes after kernels have used sub-buffers that share bytes,
    /// one of a single byte, after which a kernel finds the others. It is borrowed: valid while this value lives, and must not be
    /// released. The program orders its commands, as with [`raw`](Self::raw).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let buffer = backend.create_buffer(8192, MemoryFlags::empty())?;
    /// assert_eq!(Some(buffer.kernel_argument()?), buffer.raw());
    /// let half = buffer.slice(4096..)?;
    /// assert_ne!(Some(half.kernel_argument()?), buffer.raw());
    /// assert_eq!(half.kernel_argument()?, half.kernel_argument()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for SVM; a failure of the runtime.
    pub fn kernel_argument(&self) -> Result<*mut c_void> {
        self.exposed_root().ok_or_else(no_handle)?;
        Ok(self.for_kernels()?.ok_or_else(no_handle)?.raw())
    }

    /// Returns a `cl_mem` of exactly these bytes, for commands that the program enqueues itself: the buffer, or a sub-buffer, which is
    /// made by the first call and lives as long as this value.
    ///
    /// Unlike [`lend`](OpenClBackend::lend), it puts no command in order: the program's commands come after what
    /// they need, and a pool is told of each queue by [`memory_on`](binpool_allocators::AsMemory::memory_on).
    ///
    /// ```
    /// use binpool::{AsMemory, ImmediateAllocator, Memory, MemoryPool, QueueOrder};
    /// # use binpool_allocators::Backend;
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(5000)?; // A part of a segment.
    /// let memory = block.memory_on(&queue).ok_or("0 bytes")?;
    /// assert_eq!(memory.raw(), None);
    /// let handle = memory.raw_view()?;
    /// assert_eq!(memory.raw_view()?, handle);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for shared virtual memory, and for a part of a buffer on NVIDIA's OpenCL,
    /// which crashes if a program uses sub-buffers while others are made: give the pool there
    /// whole buffers (`PoolOptions::segments(false)`). A failure of the runtime.
    pub fn raw_view(&self) -> Result<*mut c_void> {
        self.exposed_root().ok_or_else(no_handle)?;
        match &self.body {
            MemoryBody::Part(_) if self.context().quirks.used_views_are_fragile => {
                Err(Error::unsupported(
                    "a handle of a part of a buffer, on NVIDIA's OpenCL: give the pool whole buffers (`PoolOptions::segments(false)`)",
                ))
            }
            MemoryBody::Part(part) => Ok(part.object(self.context())?.raw()),
            MemoryBody::Buffer(root) => Ok(root.handle.raw()),
            MemoryBody::Svm { .. } => Err(no_handle()),
        }
    }

    /// As [`root`](Self::root), where the program is about to see the handle of the buffer, or of a part that leads to it.
    pub(crate) fn exposed_root(&self) -> Option<(&Arc<Root>, usize)> {
        let (root, offset) = self.root()?;
        root.expose();
        Some((root, offset))
    }

    /// The flags that it was made with. A view also has those of its parent.
    pub fn flags(&self) -> MemoryFlags {
        self.flags
    }

    /// Returns a view of a range of bytes, whose ends may be left open:
    /// [`create_sub_region`](binpool_allocators::Backend::create_sub_region) of it. `PyOpenCL` calls it `__getitem__`.
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
    /// [`Misaligned`](InvalidRequest::Misaligned) unless its offset in the whole block is a multiple of the device's
    /// [alignment](binpool_allocators::DeviceLimits::alignment); [`OutOfBounds`](InvalidRequest::OutOfBounds);
    /// [`ZeroSize`](InvalidRequest::ZeroSize); [`Lent`](InvalidRequest::Lent) for a buffer over memory that was lent to it.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.view(Region::within(range, self.bytes)?)
    }

    /// Returns a view of a range of bytes that kernels and the host use as `flags` say: `get_sub_region` of `PyOpenCL`,
    /// with its flags (OpenCL 3.0, section 5.2.1). Everything else is as for this memory.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[7_u8; 4096], MemoryFlags::empty())?;
    /// // For code that is to look and not to touch.
    /// let view = memory.slice_with_flags(..1024, MemoryFlags::READ_ONLY | MemoryFlags::HOST_READ_ONLY)?;
    /// assert!(backend.write(&queue, &view, 0, &[0_u8]).is_err());
    /// backend.write(&queue, &memory, 0, &[0_u8])?;
    ///
    /// let more = view.slice_with_flags(.., MemoryFlags::WRITE_ONLY);
    /// assert!(more.is_err(), "a view permits no more than what it is a view of");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContradictoryFlags`](InvalidRequest::ContradictoryFlags), also if `flags` permit what this memory does not; and
    /// those of [`slice`](Self::slice).
    pub fn slice_with_flags(
        &self,
        range: impl RangeBounds<usize>,
        flags: MemoryFlags,
    ) -> Result<Self> {
        let flags = flags::narrowed(self.flags, flags)?;
        self.view_with_flags(Region::within(range, self.bytes)?, flags)
    }

    /// Returns the backend of the context that it belongs to (`context` of `PyOpenCL`), whose
    /// [`raw_context`](OpenClBackend::raw_context) is the runtime's handle.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClMemory, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// /// As many bytes more, in the same context.
    /// fn another(memory: &ClMemory) -> binpool_allocators::Result<ClMemory> {
    ///     use binpool_allocators::Memory;
    ///     memory.backend().create_buffer(memory.bytes(), memory.flags())
    /// }
    /// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// assert_eq!(another(&memory)?.backend().raw_context(), backend.raw_context());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backend(&self) -> &OpenClBackend {
        &self.backend
    }

    /// Checks that a view, an image, a map or a kernel's argument may keep it. Nothing may keep memory that is lent for a
    /// call, since the loan would not end.
    pub(crate) fn check_may_be_retained(&self) -> Result<()> {
        let is_lent = match self.whole() {
            Whole::Buffer(root) => root.lent,
            Whole::Svm(block) => block.allocation().is_lent(),
        };
        if is_lent {
            let bytes = self.bytes;
            return Err(InvalidRequest::Lent { bytes }.into());
        }
        Ok(())
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.backend.context()
    }

    pub(crate) const fn body(&self) -> &MemoryBody {
        &self.body
    }

    /// Returns the runtime's object over exactly these bytes; `None` for SVM.
    pub(crate) fn object(&self) -> Result<Option<&MemHandle>> {
        match &self.body {
            MemoryBody::Buffer(root) => Ok(Some(&root.handle)),
            MemoryBody::Part(part) => part.object(self.context()).map(Some),
            MemoryBody::Svm { .. } => Ok(None),
        }
    }

    /// Does what may wait before kernels are given the bytes from `start` on, so that they can be given them under the lock of
    /// views.
    pub(crate) fn prepare_for_kernels(&self, start: usize) -> Result<()> {
        let is_part = start > 0 || matches!(self.body, MemoryBody::Part(_));
        match self.root() {
            Some((root, _)) if is_part && self.context().quirks.used_views_are_fragile => {
                root.starts.commit(self.context(), &root.handle)
            }
            _ => Ok(()),
        }
    }

    /// Returns the object that a kernel is given; `None` for SVM.
    pub(crate) fn for_kernels(&self) -> Result<Option<&MemHandle>> {
        match &self.body {
            MemoryBody::Buffer(root) => Ok(Some(&root.handle)),
            MemoryBody::Part(part) => part.for_kernels(self.context()).map(Some),
            MemoryBody::Svm { .. } => Ok(None),
        }
    }

    /// Returns the whole memory that this is, or is a part of.
    fn whole(&self) -> Whole<'_> {
        match &self.body {
            MemoryBody::Buffer(root) => Whole::Buffer(root),
            MemoryBody::Part(part) => Whole::Buffer(part.root()),
            MemoryBody::Svm { block, .. } => Whole::Svm(block),
        }
    }

    /// Returns the place of `region`, which lies in this memory, in the whole.
    fn in_whole(&self, region: Region) -> Region {
        Region::new(self.offset().saturating_add(region.offset), region.bytes)
    }

    /// Returns the buffer that it is all or a part of, and its offset there in bytes; `None` for SVM.
    pub(crate) fn root(&self) -> Option<(&Arc<Root>, usize)> {
        match self.whole() {
            Whole::Buffer(root) => Some((root, self.offset())),
            Whole::Svm(_) => None,
        }
    }

    pub(crate) fn svm(&self) -> Option<&Arc<SvmBlock>> {
        match self.whole() {
            Whole::Buffer(_) => None,
            Whole::Svm(block) => Some(block),
        }
    }

    /// Describes a use of `region`, which lies in this memory.
    pub(crate) fn used(&self, region: Region, access: Access) -> MemoryUse<'_> {
        match self.whole() {
            Whole::Buffer(root) => root.used(self.in_whole(region), access),
            Whole::Svm(block) => block.used(self.in_whole(region), access),
        }
    }

    /// Returns the address of the first byte of `region`, which lies in this memory, as far as its alignment goes: in memory of the runtime,
    /// which is aligned for every type, it counts from the start of the buffer.
    pub(crate) fn address(&self, region: Region) -> usize {
        let whole = match self.whole() {
            Whole::Buffer(root) => root.address,
            Whole::Svm(block) => block.address(),
        };
        whole.saturating_add(self.in_whole(region).offset)
    }

    pub(crate) fn svm_address(&self) -> Option<NonNull<u8>> {
        self.svm_range(Region::first(self.bytes))
            .map(SvmRange::start)
    }

    /// Returns the bytes of `region`, which lies in this memory; `None` for buffers.
    pub(crate) fn svm_range(&self, region: Region) -> Option<SvmRange<'_>> {
        Some(self.svm()?.range(self.in_whole(region)))
    }

    /// Returns the device's side of a transfer of `region`, which lies in this memory.
    ///
    /// Never the handle of a sub-buffer, since runtimes have defects there: `PoCL` 3.1 crashes in rectangles, and in copies
    /// between a sub-buffer and an image; Intel's runtime fills none that starts off a multiple of 128 bytes; and NVIDIA's
    /// driver crashes in a transfer of a sub-buffer while another one overlaps it.
    pub(crate) fn device_bytes(&self, region: Region) -> DeviceBytes<'_> {
        let region = self.in_whole(region);
        match self.whole() {
            Whole::Buffer(root) => DeviceBytes::Buffer(&root.handle, region.offset),
            Whole::Svm(block) => DeviceBytes::Svm(block.range(region)),
        }
    }

    /// Returns the device's side of a map of `region`, which lies in this memory.
    pub(crate) fn bytes_to_map(&self, region: Region) -> DeviceBytes<'_> {
        match self.whole() {
            Whole::Buffer(root) => root.bytes_to_map(self.in_whole(region)),
            Whole::Svm(_) => self.device_bytes(region),
        }
    }

    /// Returns a view of `region`, with the checks of `create_sub_region`.
    pub(crate) fn view(&self, region: Region) -> Result<Self> {
        self.view_with_flags(region, self.flags)
    }

    /// Returns a view with `flags`, which permit no more than those of this memory.
    fn view_with_flags(&self, region: Region, flags: MemoryFlags) -> Result<Self> {
        self.check_may_be_retained()?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        region.check_within(self.bytes)?;
        let Region { offset, bytes } = self.in_whole(region);
        let alignment = self.context().limits.alignment;
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        let body = match self.whole() {
            Whole::Buffer(root) => {
                let region = Region::new(offset, bytes);
                let part = Part::new(self.context(), root, region, host_flags(flags));
                MemoryBody::Part(Box::new(part))
            }
            Whole::Svm(block) => MemoryBody::Svm {
                block: Arc::clone(block),
                offset,
            },
        };
        let view = Self::new(self.context(), bytes, flags, body);
        Ok(view.into_view_of(self))
    }

    /// Releases the memory, after `after` where the runtime does not ensure that itself.
    pub(crate) fn release(self, after: &[ClEvent]) -> Result<()> {
        let block = match self.whole() {
            Whole::Buffer(root) => root.block(),
            Whole::Svm(block) => Some(&**block),
        };
        // The runtime keeps a buffer until its commands have ended, but no block of shared virtual memory. Before this reference is
        // dropped: another region may then be the last one that has the block.
        for event in after {
            if let Some(block) = block {
                block.free_after(event)?;
            }
        }
        match self.body {
            // Its sub-buffers keep it alive, where there are any.
            MemoryBody::Buffer(root) => match Arc::into_inner(root) {
                Some(root) => Ok(root.handle.release()?),
                None => Ok(()),
            },
            MemoryBody::Part(_) => Ok(()),
            MemoryBody::Svm { block, .. } => Arc::into_inner(block).map_or(Ok(()), SvmBlock::free),
        }
    }
}

impl ClMemory {
    /// Calls `call` once, when the runtime has destroyed this memory, after every value of it is dropped and every command
    /// that uses it has ended (OpenCL 3.0, section 5.5.1). A sub-buffer is an object of its own here; regions of shared
    /// virtual memory are destroyed with their block.
    ///
    /// On Intel's runtime, the events of commands that were enqueued before this call delay it as long as the program keeps them.
    ///
    /// Of several callbacks, the last one set is called first. It is called on the thread that finds the memory unused: one inside a
    /// `drop`, or a thread of the runtime, which it must not hold up. So it must not wait, nor call OpenCL, even through this crate. A
    /// panic in it is caught and logged.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// use std::sync::mpsc;
    ///
    /// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let (gone, is_gone) = mpsc::channel();
    /// memory.on_destroy(move || {
    ///     let _listening = gone.send(());
    /// })?;
    /// drop(memory);
    /// is_gone.recv()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lent`](binpool_allocators::InvalidRequest::Lent) for a buffer over memory that was lent to it; a failure of
    /// the runtime. `call` is dropped then.
    pub fn on_destroy(&self, call: impl FnOnce() + Send + 'static) -> Result<()> {
        self.check_may_be_retained()?;
        let (root, handle) = match self.body() {
            MemoryBody::Buffer(root) => (root, &root.handle),
            MemoryBody::Part(part) => (part.root(), part.object(self.context())?),
            MemoryBody::Svm { block, .. } => {
                block.allocation().when_freed(call);
                return Ok(());
            }
        };
        root.log().await_end();
        when_destroyed(handle, call).map_err(Into::into)
    }
}

debug_by!(
    ClMemory,
    |this| id: this.id, bytes: this.bytes, offset: this.offset(), kind: this.kind(), flags: this.flags
);

impl SliceMemory for ClMemory {
    type Backend = OpenClBackend;
    type Part<'a> = &'a Self;

    fn backend(&self) -> &OpenClBackend {
        &self.backend
    }

    fn part(&self) -> &Self {
        self
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

    fn device_address(&self) -> Result<u64> {
        let address = self
            .svm_address()
            .map(|address| address.addr().get() as u64);
        address.ok_or_else(|| {
            Error::unsupported("the address of an OpenCL buffer: kernels take its handle; only shared virtual memory has addresses")
        })
    }

    fn has_views(&self) -> bool {
        self.views.has_views()
    }
}

pub(crate) fn no_handle() -> Error {
    Error::unsupported(
        "a `cl_mem` for shared virtual memory: pass its address, or a buffer over it (`as_buffer`)",
    )
}
