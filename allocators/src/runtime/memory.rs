//! Blocks, views of them, and parts that commands use.

use std::{any::Any, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    Core, Objects,
    deferred::Held,
    mapped::{InUse, Mapped},
    uses::{Access, Use, Uses},
};
use crate::{
    Error, InvalidRequest, Memory, MemoryFlags, MemoryId, MemoryKind, ObjectKind, QueueId, Region,
    Result, ViewCount,
};

/// Memory of a [`Runtime`](super::Runtime): a whole block, or a view of one, which keeps the block alive.
///
/// Dropping the last of them frees the block, once the commands that were enqueued with it have ended.
///
/// ```
/// use binpool_allocators::{Memory, Region, Result, runtime::{Access, CoreMemory, Runtime}};
///
/// fn arguments<R: Runtime>(input: &CoreMemory<R>, output: &CoreMemory<R>) -> Result<[u64; 2]> {
///     assert!(input.block().is_some() && input.offset() == 0); // No view.
///     let read = input.part(Region::first(16), Access::Read)?; // For a transfer.
///     let used = output.part_of_kernel()?; // For a kernel, which may write all of it.
///     assert_eq!((read.access(), used.access()), (Access::Read, Access::Write));
///     Ok([input.device_address()?, output.device_address()?])
/// }
/// ```
pub struct CoreMemory<R: Objects> {
    id: MemoryId,
    root: Arc<Root<R>>,
    /// The place in the block.
    region: Region,
    views: ViewCount,
}

/// A block, and the commands that use it.
pub(super) struct Root<R: Objects> {
    core: Arc<Core<R>>,
    /// The backend, which its memory keeps alive.
    _backend: Box<dyn Any + Send + Sync>,
    /// None once it is dropped.
    block: Option<R::Block>,
    flags: MemoryFlags,
    kind: Kind<R>,
    pub(super) uses: Mutex<Uses<R>>,
}

/// The pages of a reservation.
pub(super) type Pages<R> = Mapped<R, Arc<Root<R>>>;

pub(super) enum Kind<R: Objects> {
    Buffer,
    Reservation(Pages<R>),
    Pages,
}

impl<R: Objects> CoreMemory<R> {
    pub(super) fn of_kind(
        core: &Arc<Core<R>>,
        backend: impl Send + Sync + 'static,
        block: R::Block,
        bytes: usize,
        flags: MemoryFlags,
        kind: Kind<R>,
    ) -> Self {
        let root = Root {
            core: Arc::clone(core),
            _backend: Box::new(backend),
            block: Some(block),
            flags,
            kind,
            uses: Mutex::default(),
        };
        Self {
            id: MemoryId::fresh(),
            root: Arc::new(root),
            region: Region::first(bytes),
            views: ViewCount::default(),
        }
    }

    pub(super) fn view(&self, region: Region) -> Result<Self> {
        region.check_within(self.region.bytes)?;
        if region.bytes == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        self.root.check_has_bytes()?;
        let place = self.in_block(region);
        let (offset, alignment) = (place.offset, self.root.core.limits().alignment);
        if !alignment.divides(offset) {
            return Err(InvalidRequest::Misaligned { offset, alignment }.into());
        }
        Ok(Self {
            id: MemoryId::fresh(),
            root: Arc::clone(&self.root),
            region: place,
            views: ViewCount::of_view(self.views.count_view()),
        })
    }

    /// The runtime's block. This memory may be a view of it.
    #[must_use]
    pub fn block(&self) -> Option<&R::Block> {
        self.root.block.as_ref()
    }

    /// The offset of its first byte in the runtime's block.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.region.offset
    }

    /// A part for a command of [`enqueue`](super::enqueue()).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), [`NotMapped`](InvalidRequest::NotMapped) for a reservation where not all of the part
    /// has pages, or [`Unsupported`](Error::Unsupported) for pages that are not mapped.
    pub fn part(&self, region: Region, access: Access) -> Result<Part<'_, R>> {
        region.check_within(self.region.bytes)?;
        self.root.check_has_bytes()?;
        let region = self.in_block(region);
        let pages = self.root.mapped();
        let pages = pages.map(|mapped| mapped.begin_use(region)).transpose()?;
        self.part_of(region, access, pages)
    }

    /// All of this memory, for a kernel: of a reservation it touches only what is mapped, as the program promises.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for pages that are not mapped.
    pub fn part_of_kernel(&self) -> Result<Part<'_, R>> {
        self.root.check_has_bytes()?;
        let pages = self.root.mapped();
        let pages = pages.map(|mapped| mapped.begin_use_of_mapped(self.region));
        self.part_of(self.region, Access::Write, pages)
    }

    fn part_of<'a>(
        &'a self,
        region: Region,
        access: Access,
        pages: Option<InUse<'a, R, Arc<Root<R>>>>,
    ) -> Result<Part<'a, R>> {
        let block = self.block().ok_or(InvalidRequest::ZeroSize)?;
        Ok(Part {
            root: &self.root,
            block,
            region,
            access,
            pages,
        })
    }

    pub(super) fn in_block(&self, region: Region) -> Region {
        Region::new(self.region.offset + region.offset, region.bytes)
    }

    pub(super) fn root(&self) -> &Arc<Root<R>> {
        &self.root
    }

    pub(super) fn flags(&self) -> MemoryFlags {
        self.root.flags
    }

    pub(super) fn check_own(&self, core: &Core<R>) -> Result<()> {
        core.check_own(&self.root.core, ObjectKind::Memory)
    }
}

impl<R: Objects> Root<R> {
    pub(super) fn mapped(&self) -> Option<&Pages<R>> {
        match &self.kind {
            Kind::Reservation(mapped) => Some(mapped),
            Kind::Buffer | Kind::Pages => None,
        }
    }

    pub(super) fn is_pages(&self) -> bool {
        matches!(self.kind, Kind::Pages)
    }

    fn check_has_bytes(&self) -> Result<()> {
        if !self.is_pages() {
            return Ok(());
        }
        Err(Error::unsupported(
            "commands on pages, or their addresses: map the pages to a reservation, and use a view of it",
        ))
    }
}

impl<R: Objects> Drop for Root<R> {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        let (mut after, others) = self.uses.get_mut().take();
        if R::is_freed_in_order(&block) {
            after.clear();
        }
        after.extend(others);
        self.core.deferred.put(Held::Block(block), after);
        if let Kind::Reservation(mapped) = &mut self.kind {
            for (pages, marks) in mapped.take_all() {
                let mut uses = pages.uses.lock();
                for mark in marks {
                    uses.note_other(mark);
                }
            }
        }
    }
}

/// A part of a block that a command uses.
///
/// ```
/// use binpool_allocators::runtime::{Part, Runtime};
///
/// /// What most calls of a runtime need.
/// fn place<'a, R: Runtime>(part: &Part<'a, R>) -> (&'a R::Block, usize, Option<u64>) {
///     println!("{:?} of {} bytes", part.access(), part.region().bytes);
///     (part.block(), part.region().offset, part.address())
/// }
/// ```
///
/// What is mapped there stays mapped while this value lives, and then until the command has ended.
pub struct Part<'a, R: Objects> {
    root: &'a Arc<Root<R>>,
    block: &'a R::Block,
    region: Region,
    access: Access,
    pages: Option<InUse<'a, R, Arc<Root<R>>>>,
}

impl<'a, R: Objects> Part<'a, R> {
    /// The runtime's block.
    #[must_use]
    pub fn block(&self) -> &'a R::Block {
        self.block
    }

    /// The place in the block, in bytes.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }

    /// What the command does there.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The address of the first byte, if memory has one.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        Some(R::address(self.block)? + self.region.offset as u64)
    }

    pub(super) fn root(&self) -> &'a Arc<Root<R>> {
        self.root
    }

    pub(super) fn core(&self) -> &'a Core<R> {
        &self.root.core
    }

    pub(super) fn pages(&self) -> Option<&InUse<'a, R, Arc<Root<R>>>> {
        self.pages.as_ref()
    }

    pub(super) fn as_use(&self, queue: QueueId, number: Option<u64>, mark: &R::Mark) -> Use<R> {
        Use {
            queue,
            number,
            mark: mark.clone(),
            region: self.region,
            access: self.access,
        }
    }
}

impl<R: Objects> fmt::Debug for Part<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("region", &self.region)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl<R: Objects> Memory for CoreMemory<R> {
    #[inline]
    fn id(&self) -> MemoryId {
        self.id
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.region.bytes
    }

    fn kind(&self) -> MemoryKind {
        if self.root.is_pages() {
            MemoryKind::Pages
        } else {
            MemoryKind::Buffer
        }
    }

    fn device_address(&self) -> Result<u64> {
        self.root.check_has_bytes()?;
        let address = self.block().and_then(R::address);
        let address = address.ok_or_else(|| Error::unsupported("the address of this memory"))?;
        Ok(address + self.region.offset as u64)
    }

    #[inline]
    fn has_views(&self) -> bool {
        self.views.has_views()
    }
}

impl<R: Objects> fmt::Debug for CoreMemory<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("id", &self.id)
            .field("bytes", &self.region.bytes)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}
