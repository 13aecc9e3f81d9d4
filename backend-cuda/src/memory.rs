//! Blocks of memory, and views of them.

use std::{fmt, sync::Arc};

use binpool_allocators::{
    Error, InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, ObjectKind, QueueId, Region,
    Result, ViewCount,
};

use crate::{
    queue::CudaQueue,
    root::{Body, Root},
    shared::Shared,
    sys::{Address, BeingUsed, Context, Mark},
};

/// Memory of a CUDA device: a whole allocation, reserved addresses, pages, or a view of the first two.
///
/// A view is an address: making one calls nothing of the driver. Any thread may use the value, and drop it.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, Region};
/// use binpool_cuda::CudaDevice;
///
/// let backend = CudaDevice::open(0)?;
/// let block = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let half = backend.create_sub_region(&block, Region::new(2048, 2048))?;
/// assert_eq!(half.cu_device_ptr()?, block.cu_device_ptr()? + 2048);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
pub struct CudaMemory {
    id: MemoryId,
    root: Arc<Root>,
    offset: usize,
    bytes: usize,
    /// The last field: a view counts until the others are dropped.
    views: ViewCount,
}

impl CudaMemory {
    pub(crate) fn whole(
        shared: &Arc<Shared>,
        body: Body,
        bytes: usize,
        flags: MemoryFlags,
    ) -> Self {
        Self {
            id: MemoryId::fresh(),
            root: Arc::new(Root::new(shared, body, flags)),
            offset: 0,
            bytes,
            views: ViewCount::default(),
        }
    }

    pub(crate) fn view(&self, region: Region) -> Result<Self> {
        region.check_within(self.bytes)?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        self.address()?;
        let offset = self.offset + region.offset;
        let alignment = self.root.shared().limits.alignment;
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        Ok(Self {
            id: MemoryId::fresh(),
            root: Arc::clone(&self.root),
            offset,
            bytes: region.bytes,
            views: ViewCount::of_view(self.views.count_view()),
        })
    }

    /// The address of the first byte, a `CUdeviceptr`, for kernels and other libraries.
    ///
    /// It is valid while this value or a view of it lives. The program orders what it enqueues with it itself: behind the commands before
    /// by a stream or an event, and before the drop, since a block that lies in a pool of the driver, or that a kernel of another device uses, is freed
    /// without a wait for such commands.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for pages, which have no address before they are mapped.
    pub fn cu_device_ptr(&self) -> Result<u64> {
        self.address()
    }

    pub(crate) fn address(&self) -> Result<Address> {
        let address = self.root.address().ok_or_else(|| {
            Error::unsupported(
                "addresses of pages: map them to a reservation, and use a view of that",
            )
        })?;
        Ok(address + self.offset as Address)
    }

    /// Begins a use of `region` by a command, where commands can use it.
    pub(crate) fn part(&self, region: Region) -> Result<Part<'_>> {
        region.check_within(self.bytes)?;
        let address = self.address()? + region.offset as Address;
        let pages = self.root.reservation();
        let pages = pages.map(|pages| pages.begin_use(self.in_root(region)));
        Ok(Part {
            memory: self,
            address,
            pages: pages.transpose()?,
        })
    }

    /// Begins a use by a kernel, which touches what it is to.
    pub(crate) fn part_of_kernel(&self) -> Result<Part<'_>> {
        let all = self.in_root(Region::first(self.bytes));
        let pages = self.root.reservation();
        Ok(Part {
            memory: self,
            address: self.address()?,
            pages: pages.map(|pages| pages.begin_use_of_mapped(all)),
        })
    }

    /// The same region, counted from the start of the whole block.
    pub(crate) fn in_root(&self, region: Region) -> Region {
        Region::new(self.offset + region.offset, region.bytes)
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Checks that commands of `queue` may use it.
    pub(crate) fn check_queue(&self, queue: &CudaQueue) -> Result<()> {
        match self.root.queue() {
            Some(own) if own != queue => Err(Error::unsupported(
                "memory of `allocate_on` on another queue than its own: use `allocate`, whose memory is for all queues",
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_belongs(&self, shared: &Arc<Shared>) -> Result<()> {
        if Arc::ptr_eq(self.root.shared(), shared) {
            return Ok(());
        }
        let kind = ObjectKind::Memory;
        Err(InvalidRequest::ForeignObject { kind }.into())
    }
}

/// A part of memory that a command is about to use. Its pages stay mapped as long as this value lives.
pub(crate) struct Part<'a> {
    memory: &'a CudaMemory,
    address: Address,
    pages: Option<BeingUsed<'a>>,
}

impl Part<'_> {
    /// The address of its first byte.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// The context of the device whose memory it is; none for memory of the host, and for managed memory.
    pub(crate) fn device_context(&self) -> Option<&Arc<Context>> {
        self.memory.root.device_context()
    }

    /// Notes the command, which is enqueued.
    pub(crate) fn note_use(&self, queue: QueueId, number: u64, mark: &Arc<Mark>) {
        self.memory.root.note_use(queue, number, mark);
        if let Some(pages) = &self.pages {
            pages.note_use(queue, number, mark);
        }
    }

    /// Notes a command of a context whose end no event tells.
    pub(crate) fn note_unknown_use(&self, context: &Arc<Context>) {
        self.memory.root.note_unknown_use(context);
        if let Some(pages) = &self.pages {
            pages.note_unknown_use(context);
        }
    }
}

impl Memory for CudaMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn kind(&self) -> MemoryKind {
        match self.root.pages() {
            Some(_) => MemoryKind::Pages,
            None => MemoryKind::Buffer,
        }
    }

    #[inline]
    fn has_views(&self) -> bool {
        self.views.has_views()
    }
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory")
            .field("id", &self.id)
            .field("bytes", &self.bytes)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}
