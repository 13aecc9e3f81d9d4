//! Memory that several processes share.

#![expect(unsafe_code, reason = "a block that the core did not make")]

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use binpool_allocators::{
    AsMemory, Backend, Error, InvalidRequest, Memory, MemoryFlags, ObjectKind, Region, Result,
    bytes_on, runtime::adopt_block,
};

use crate::{
    backend::{CudaBackend, CudaMemory, CudaQueue},
    block::{Body, CudaBlock},
    sys::{Pages, Reservation, Sharing},
};

/// Memory of a device that another process can [import](CudaBackend::import): file descriptors of its pages, and where it
/// lies in them.
///
/// Send the descriptors to the other process over a Unix socket (`SCM_RIGHTS`, at most 253 a message), together with the numbers of the
/// [layout](Self::layout). A descriptor keeps its pages until it is closed.
///
/// ```no_run
/// use std::os::fd::{BorrowedFd, OwnedFd};
///
/// use binpool_cuda::ExportedMemory;
///
/// # fn send(_: &[BorrowedFd<'_>], _: &[u64]) {}
/// # fn receive() -> (Vec<OwnedFd>, Vec<u64>) { (Vec::new(), Vec::new()) }
/// /// In the process that has the memory.
/// fn hand_over(exported: &ExportedMemory) {
///     let descriptors: Vec<_> = exported.descriptors().collect();
///     send(&descriptors, &exported.layout());
/// }
///
/// /// In the other process.
/// fn take_over() -> binpool_allocators::Result<ExportedMemory> {
///     let (descriptors, layout) = receive();
///     ExportedMemory::from_parts(descriptors, &layout)
/// }
/// ```
pub struct ExportedMemory {
    pages: Vec<(OwnedFd, usize)>,
    /// Lies inside the pages, which are one after another.
    region: Region,
}

impl ExportedMemory {
    /// The descriptors, in order.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pages.iter().map(|(descriptor, _)| descriptor.as_fd())
    }

    /// The numbers that go with the descriptors: where the memory begins in the pages, its bytes, and the bytes of each descriptor's pages.
    #[must_use]
    pub fn layout(&self) -> Vec<u64> {
        let Region { offset, bytes } = self.region;
        let pages = self.pages.iter().map(|(_, bytes)| *bytes);
        let all = [offset, bytes].into_iter().chain(pages);
        all.map(|number| number as u64).collect()
    }

    /// Makes a value of what another process has sent, which need not be valid: a wrong layout is an error here, wrong
    /// descriptors are an error of [`import`](CudaBackend::import).
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for a layout of another number of descriptors, or of more bytes than there are addresses;
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) for one whose memory does not lie inside the pages.
    pub fn from_parts(descriptors: Vec<OwnedFd>, layout: &[u64]) -> Result<Self> {
        let numbers: Vec<_> = layout
            .iter()
            .map(|number| usize::try_from(*number).unwrap_or(usize::MAX))
            .collect();
        let [offset, bytes, pages @ ..] = &numbers[..] else {
            return Err(other_layout(layout, descriptors.len()));
        };
        if pages.len() != descriptors.len() {
            return Err(other_layout(layout, descriptors.len()));
        }
        let total = pages
            .iter()
            .try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes));
        let total =
            total.ok_or_else(|| Error::unsupported("a layout larger than the address space"))?;
        let region = Region::new(*offset, *bytes);
        region.check_within(total)?;
        Ok(Self {
            pages: descriptors.into_iter().zip(pages.iter().copied()).collect(),
            region,
        })
    }
}

fn other_layout(layout: &[u64], descriptors: usize) -> Error {
    let numbers = layout.len();
    Error::unsupported(format!(
        "a layout of {numbers} numbers for {descriptors} descriptors: send all of both, two numbers more than descriptors"
    ))
}

/// # Several processes
impl CudaBackend {
    /// Returns whether pages that are created from now on can be [exported](Self::export). At first they can if the device supports it, and
    /// then network cards can read and write them, too, if it supports that (`gpuDirectRDMACapable`). They no longer can once the driver has
    /// refused to create such pages.
    #[must_use]
    pub fn exports_pages(&self) -> bool {
        *self.shared.context.sharing.lock() != Sharing::No
    }

    /// Sets whether pages that are created from now on can be exported, if the device supports it.
    ///
    /// ```no_run
    /// use binpool_cuda::CudaBackend;
    ///
    /// let backend = CudaBackend::open(0)?;
    /// backend.set_exports_pages(false); // No other process shall have its memory.
    /// assert!(!backend.exports_pages());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn set_exports_pages(&self, exports: bool) {
        let sharing = if exports {
            self.shared.facts.sharing
        } else {
            Sharing::No
        };
        *self.shared.context.sharing.lock() = sharing;
    }

    /// Exports memory on mapped pages, such as a block of a pool of pages, to another process. `queue` is recorded as one that
    /// uses the block; nothing is enqueued there.
    ///
    /// Do not free the block before the other process is done with it: the pool does not know that process's commands, and would reuse
    /// the block. The two processes order their commands themselves, by [`finish`](binpool_allocators::Queue::finish) and a
    /// message, or by an event of `cuIpcGetEventHandle`.
    ///
    /// Other blocks may lie on the same pages. The other process can read and write those as well.
    ///
    /// ```no_run
    /// use binpool::{MemoryPool, VirtualMemoryAllocator};
    /// use binpool_allocators::{Backend, Queue, QueueOrder};
    /// use binpool_cuda::{CudaBackend, ExportedMemory};
    ///
    /// # fn send(_: &ExportedMemory) {}
    /// # fn receive() -> ExportedMemory { ExportedMemory::from_parts(Vec::new(), &[0, 0]).unwrap() }
    /// # fn wait_for_the_other_process() {}
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // The one process.
    /// let backend = CudaBackend::open(0)?;
    /// let stream = backend.create_queue(QueueOrder::InOrder)?;
    /// let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &stream)?;
    /// let block = pool.allocate(64 << 20)?;
    /// block.enqueue_fill(&stream, .., &[7_u8])?;
    /// stream.finish()?; // The other process cannot wait for an event of this one.
    /// send(&backend.export(&stream, &block)?);
    /// wait_for_the_other_process();
    /// drop(block); // Its memory may be handed out again.
    ///
    /// // The other process.
    /// let memory = backend.import(&receive())?;
    /// let mut bytes = [0_u8; 2];
    /// backend.read(&stream, &memory, 0, &mut bytes)?;
    /// assert_eq!(bytes, [7, 7]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for memory that is not on pages: memory of `cuMemAlloc` is exported by `cuIpcGetMemHandle`.
    /// [`NotMapped`](InvalidRequest::NotMapped), and [`ForeignObject`](InvalidRequest::ForeignObject) for memory of another device. A failure of
    /// the driver: `INVALID_VALUE` for pages that were created while exports were [off](Self::set_exports_pages).
    pub fn export(
        &self,
        queue: &CudaQueue,
        memory: &(impl AsMemory<Self> + ?Sized),
    ) -> Result<ExportedMemory> {
        let found = bytes_on(memory, queue, ..)?;
        let found = found.filter(|(_, region)| region.bytes > 0);
        let (memory, region) = found.ok_or(InvalidRequest::ZeroSize)?;
        let address = memory.device_address()?;
        match memory.block() {
            Some(CudaBlock(Body::Reservation(reservation))) => {
                if !reservation.context().is_same(&self.shared.context) {
                    let kind = ObjectKind::Memory;
                    return Err(InvalidRequest::ForeignObject { kind }.into());
                }
                let start = usize::try_from(address - reservation.address()).unwrap_or(usize::MAX);
                let region = Region::new(start.saturating_add(region.offset), region.bytes);
                let (pages, offset) = reservation.export(region)?;
                let region = Region::new(offset, region.bytes);
                Ok(ExportedMemory { pages, region })
            }
            _ => Err(Error::unsupported(
                "exporting memory that is not on pages: make the pool over a `VirtualMemoryAllocator`, or export memory of \
                 `cuMemAlloc` by `cuIpcGetMemHandle`",
            )),
        }
    }

    /// Returns memory that another process has exported, of the same device or of a peer of it. It has its own addresses in this process, and
    /// keeps the pages until it is dropped, even if the other process has ended.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) on a device without virtual memory, and the failures of the driver.
    pub fn import(&self, exported: &ExportedMemory) -> Result<CudaMemory> {
        let context = &self.shared.context;
        if !self.shared.facts.virtual_memory {
            return Err(self.lacks("virtual memory"));
        }
        let bytes = exported.pages.iter().map(|(_, bytes)| bytes).sum();
        let reservation = Reservation::new(context, bytes)?;
        let mut offset = 0;
        for (descriptor, bytes) in &exported.pages {
            let pages = Pages::import(context, descriptor.as_fd())?;
            reservation.map(Region::new(offset, *bytes), &pages)?;
            offset += bytes;
        }
        let block = CudaBlock(Body::Reservation(reservation));
        // SAFETY: pages of `bytes` bytes are mapped there, and stay as long as the block.
        let all = unsafe { adopt_block(self, block, bytes, MemoryFlags::empty()) };
        self.create_sub_region(&all, exported.region)
    }
}

impl fmt::Debug for ExportedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedMemory")
            .field("bytes", &self.region.bytes)
            .field("descriptors", &self.pages.len())
            .finish_non_exhaustive()
    }
}
