//! Blocks of memory, and views of them.

use std::{fmt, sync::Arc};

use binpool_allocators::{
    Error, InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, ObjectKind, Region, Result,
    ViewCount,
};

use crate::{
    queue::CudaQueue,
    root::{Body, Root},
    shared::Shared,
    sys::Address,
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

    /// Checks that commands can use `region`, and returns its address.
    pub(crate) fn region(&self, region: Region) -> Result<Address> {
        region.check_within(self.bytes)?;
        let address = self.address()?;
        if let Some(reservation) = self.root.reservation() {
            reservation.check_mapped(self.in_root(region))?;
        }
        Ok(address + region.offset as Address)
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
