//! Slices: blocks and parts of blocks as elements of one type.

use std::{fmt, marker::PhantomData, ops::RangeBounds, sync::Arc};

use binpool_allocators::{
    AsMemory, Backend, Error, IntoRegion, InvalidRequest, On, PendingRead, Region,
};
use bytemuck::Pod;

use crate::{MemoryPool, PoolError, PooledBuffer, PooledView};

/// Elements of type `T` in a pooled block: all of a block, or a part of one, as Rust's slices are.
///
/// A slice may start at any element, and making one does not call the device. Indices and lengths count elements. `K` is what keeps the
/// block:
///
/// | `K` | made by | for |
/// |---|---|---|
/// | `PooledBuffer<B>` | [`MemoryPool::allocate_of`] | a block of its own |
/// | `&PooledBuffer<B>` | [`slice`](Self::slice), [`PooledBuffer::slice`] | a part that is used at once |
/// | `Arc<PooledBuffer<B>>` | [`into_shared`](Self::into_shared), and `slice` of one | tensors that share a block; the last one returns it to its pool |
///
/// ```
/// use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
///
/// let matrix = pool.allocate_of::<f32>(6)?;
/// matrix.write(&queue, 0, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?;
/// let row = matrix.slice(3..6)?;
/// assert_eq!(row.read_to_vec(&queue)?, [3.0, 4.0, 5.0]);
/// row.enqueue_fill(&queue, 1.., &[0.5])?;
/// assert_eq!(matrix.read_to_vec(&queue)?, [0.0, 1.0, 2.0, 3.0, 0.5, 0.5]);
///
/// let row = matrix.into_shared().slice(..3)?;
/// assert_eq!(pool.active_blocks(), 1); // For `row`.
/// # drop(row);
/// # Ok::<(), binpool::PoolError>(())
/// ```
///
/// A part of a slice can be read and written by itself, as elements of its own type or of another, and given to the backend's own
/// commands:
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// let numbers = pool.allocate_of::<u32>(1024)?;
/// numbers.enqueue_write(&queue, 0, &[1, 2, 0x0505_0505])?;
/// let mut two = [0; 2];
/// numbers.read(&queue, 1, &mut two)?;
/// assert_eq!(two, [2, 0x0505_0505]);
///
/// let bytes = numbers.slice(1..3)?.cast::<u8>()?;
/// assert_eq!((bytes.len(), bytes.size()), (8, 8));
/// assert_eq!(bytes.enqueue_read(&queue, 4..)?.wait()?, [5; 4]);
///
/// let half = numbers.slice(512..)?;
/// if let Some(block) = half.memory_on(&queue) {
///     backend.enqueue_fill(&queue, block, half.start().., &[7_u32])?;
/// }
/// assert_eq!(half.read_to_vec(&queue)?, [7; 512]);
/// assert_eq!(half.view()?.size(), 2048);
///
/// let none = numbers.slice(3..3)?;
/// assert!(none.is_empty() && none.memory_on(&queue).is_none());
/// assert_eq!(numbers.into_block().size(), 4096); // The block, as bytes again.
/// # Ok::<(), binpool::PoolError>(())
/// ```
///
/// A kernel gets the whole block and the place of the first element: the slice is [memory](AsMemory) that starts at
/// [`start`](Self::start). On OpenCL, `Parameter::offset_u64` passes the place. A kernel that takes no offset needs a [`view`](Self::view), which
/// must start on the device's alignment. A kernel of the mock device gets only the bytes of the slice.
///
/// `T` is plain data in `bytemuck`'s sense: any bytes are a value, since a kernel may write any, and there is no padding.
///
/// ```compile_fail,E0277
/// # use binpool::{Backend, MemoryPool, PoolError};
/// fn flags<B: Backend>(pool: &MemoryPool<B>) -> Result<(), PoolError> {
///     pool.allocate_of::<bool>(100).map(drop)
/// }
/// ```
#[must_use = "a block that this keeps goes back to its pool when it is dropped"]
pub struct PooledSlice<T, K> {
    block: K,
    /// The bytes of the block. They begin and end with whole elements, counted from the block's start.
    region: Region,
    element: PhantomData<fn() -> T>,
}

/// A pooled block, or what keeps one: a reference, or an [`Arc`].
///
/// A function with this as a bound takes slices of all three kinds:
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// use std::sync::Arc;
///
/// use binpool::{KeepsBlock, PooledSlice};
///
/// /// Returns how many bytes of the block are not in the slice.
/// fn left_out<K: KeepsBlock>(slice: PooledSlice<f32, K>) -> usize {
///     let bytes = slice.size();
///     slice.into_block().block().size() - bytes
/// }
///
/// let numbers = pool.allocate_of::<f32>(100)?;
/// assert_eq!(left_out(numbers.slice(..25)?), 300);
/// assert_eq!(left_out(numbers), 0);
///
/// let owner = Arc::new(pool.allocate(400)?);
/// let part = owner.part(); // What a slice of the owner keeps: an `Arc`, too.
/// drop(owner);
/// assert_eq!((part.block().size(), pool.active_blocks()), (400, 1));
/// # Ok::<(), binpool::PoolError>(())
/// ```
pub trait KeepsBlock {
    /// The backend of the block.
    type Backend: Backend;

    /// What a slice of this keeps: an `Arc` of an `Arc`, and else a reference.
    type Part<'a>: KeepsBlock<Backend = Self::Backend>
    where
        Self: 'a;

    /// The block.
    fn block(&self) -> &PooledBuffer<Self::Backend>;

    /// Returns what a slice of this keeps.
    fn part(&self) -> Self::Part<'_>;
}

impl<B: Backend> KeepsBlock for PooledBuffer<B> {
    type Backend = B;
    type Part<'a> = &'a Self;

    fn block(&self) -> &Self {
        self
    }

    fn part(&self) -> &Self {
        self
    }
}

impl<'b, B: Backend> KeepsBlock for &'b PooledBuffer<B> {
    type Backend = B;
    type Part<'a>
        = Self
    where
        'b: 'a;

    fn block(&self) -> &PooledBuffer<B> {
        self
    }

    fn part(&self) -> Self {
        self
    }
}

impl<B: Backend> KeepsBlock for Arc<PooledBuffer<B>> {
    type Backend = B;
    type Part<'a> = Self;

    fn block(&self) -> &PooledBuffer<B> {
        self
    }

    fn part(&self) -> Self {
        Self::clone(self)
    }
}

/// # Elements
impl<B: Backend> MemoryPool<B> {
    /// Returns a block of `len` elements for the pool's default queue, as [`allocate`](Self::allocate) does of bytes. Their values are
    /// undefined.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let points = pool.allocate_of::<[f32; 3]>(1000)?;
    /// assert_eq!((points.len(), points.size()), (1000, 12_000)); // Elements, and bytes.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Self::allocate); [`Unsupported`](Error::Unsupported) for a type with a larger alignment than the pool's
    /// blocks have.
    #[track_caller]
    pub fn allocate_of<T: Pod>(
        &self,
        len: usize,
    ) -> Result<PooledSlice<T, PooledBuffer<B>>, PoolError> {
        let block = self.allocate(bytes_of::<T>(len))?;
        Ok(PooledSlice::new(block)?)
    }

    /// Returns a block of `len` elements for `queue`, as [`allocate_on`](Self::allocate_on) does of bytes.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let numbers = pool.allocate_of_on::<f32>(&compute, 100)?;
    /// numbers.enqueue_fill(&compute, .., &[0.5])?;
    /// assert_eq!(numbers.read_to_vec(&compute)?, [0.5; 100]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`allocate_on`](Self::allocate_on) and [`allocate_of`](Self::allocate_of).
    #[track_caller]
    pub fn allocate_of_on<T: Pod>(
        &self,
        queue: &B::Queue,
        len: usize,
    ) -> Result<PooledSlice<T, PooledBuffer<B>>, PoolError> {
        let block = self.allocate_on(queue, bytes_of::<T>(len))?;
        Ok(PooledSlice::new(block)?)
    }
}

/// The bytes of `len` elements. A number that overflows is more than any device has, and is refused as such.
const fn bytes_of<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}

impl<B: Backend> PooledBuffer<B> {
    /// Returns some of the bytes, by a range whose ends may be left open. The slice may start at any byte.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let block = pool.allocate(4096)?;
    /// let tail = block.slice(4000..)?;
    /// tail.enqueue_fill(&queue, .., &[7])?;
    /// assert_eq!((tail.start(), tail.size()), (4000, 96));
    /// // The same bytes as numbers.
    /// assert_eq!(tail.cast::<u32>()?.read_to_vec(&queue)?, [0x0707_0707; 24]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) unless it lies within [`size`](Self::size).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<PooledSlice<u8, &Self>, Error> {
        PooledSlice::over(self, Region::within(range, self.size())?)
    }
}

impl<T: Pod, K: KeepsBlock> PooledSlice<T, K> {
    /// Returns all of a block as elements. `block` is a block, a reference to one, or an `Arc` of one.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// use std::sync::Arc;
    ///
    /// use binpool::PooledSlice;
    ///
    /// let block = Arc::new(pool.allocate(400)?);
    /// let numbers = PooledSlice::<f64, _>::new(Arc::clone(&block))?;
    /// assert_eq!(numbers.len(), 50);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](InvalidRequest::NotWholeElements) unless the block's size is a multiple of an element's;
    /// [`Unsupported`](Error::Unsupported) for a type with a larger alignment than the pool's blocks have.
    pub fn new(block: K) -> Result<Self, Error> {
        let region = Region::first(block.block().size());
        Self::over(block, region)
    }

    /// Makes a slice of the bytes of `region`, which lies within the block.
    fn over(block: K, region: Region) -> Result<Self, Error> {
        const { assert!(size_of::<T>() > 0, "elements have bytes") };
        let element = size_of::<T>();
        for bytes in [region.offset, region.bytes] {
            if !bytes.is_multiple_of(element) {
                return Err(InvalidRequest::NotWholeElements { bytes, element }.into());
            }
        }
        let (wanted, alignment) = (align_of::<T>(), block.block().shared().alignment);
        if wanted > alignment.bytes() {
            return Err(Error::unsupported(format!(
                "elements aligned to {wanted} bytes: the blocks of this pool are aligned to {alignment}"
            )));
        }
        Ok(Self {
            block,
            region,
            element: PhantomData,
        })
    }

    /// Returns some of the elements, by a range whose ends may be left open.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, unless they lie within [`len`](Self::len).
    pub fn slice(
        &self,
        range: impl RangeBounds<usize>,
    ) -> Result<PooledSlice<T, K::Part<'_>>, Error> {
        Ok(PooledSlice {
            region: self.bytes_of(range)?,
            block: self.block.part(),
            element: PhantomData,
        })
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](InvalidRequest::NotWholeElements) unless they start, counted from the block's first byte, and end with
    /// whole elements; [`Unsupported`](Error::Unsupported) as for [`new`](Self::new).
    pub fn cast<U: Pod>(self) -> Result<PooledSlice<U, K>, Error> {
        PooledSlice::over(self.block, self.region)
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.bytes / size_of::<T>()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.bytes == 0
    }

    /// The number of elements in the block before the first of these.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let numbers = pool.allocate_of::<f32>(100)?;
    /// let some = numbers.slice(10..20)?;
    /// assert_eq!((some.offset(), some.start()), (10, 40)); // Elements, and bytes.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    #[must_use]
    pub fn offset(&self) -> usize {
        self.region.offset / size_of::<T>()
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.region.bytes
    }

    /// The offset of the first byte in the block.
    #[must_use]
    pub fn start(&self) -> usize {
        self.region.offset
    }

    /// The block, for example to put its commands in order ([`PooledBuffer::order_before`]).
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &upload)?;
    /// let numbers = pool.allocate_of::<u32>(100)?;
    /// numbers.enqueue_fill(&upload, .., &[7])?;
    /// numbers.block().order_before(&compute)?;
    /// numbers.enqueue_fill(&compute, ..50, &[9])?; // After the other fill.
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn block(&self) -> &PooledBuffer<K::Backend> {
        self.block.block()
    }

    /// Returns what keeps the block.
    pub fn into_block(self) -> K {
        self.block
    }

    /// The backend of the block.
    #[must_use]
    pub fn backend(&self) -> &K::Backend {
        self.block().backend()
    }

    /// Returns the memory of the whole block, for commands on `queue`, and records the use; `None` for no elements. The slice begins at
    /// byte [`start`](Self::start).
    #[must_use]
    pub fn memory_on(
        &self,
        queue: &<K::Backend as Backend>::Queue,
    ) -> Option<&<K::Backend as Backend>::Memory> {
        if self.is_empty() {
            return None;
        }
        self.block().memory_on(queue)
    }

    /// Returns a view of the elements: a memory object of its own, for calls that take no offset.
    ///
    /// # Errors
    ///
    /// Those of [`PooledBuffer::view`].
    pub fn view(&self) -> Result<PooledView<'_, K::Backend>, Error> {
        self.block().view(self.region)
    }

    /// Returns the bytes, in the block, of a range of elements.
    fn bytes_of(&self, range: impl RangeBounds<usize>) -> Result<Region, Error> {
        let elements = range.into_region(self.len());
        let elements = elements.map_err(in_bytes::<T>)?;
        // These are less than `region.bytes`.
        let start = self.region.offset + bytes_of::<T>(elements.offset);
        Ok(Region::new(start, bytes_of::<T>(elements.bytes)))
    }

    /// Returns the bytes, in the block, of `len` elements from index `at` on.
    fn bytes_at(&self, at: usize, len: usize) -> Result<Region, Error> {
        self.bytes_of(at..at.saturating_add(len))
    }
}

/// Returns an error about elements as one about their bytes.
fn in_bytes<T>(error: Error) -> Error {
    match error {
        Error::InvalidRequest(InvalidRequest::OutOfBounds {
            offset,
            bytes,
            size,
        }) => InvalidRequest::OutOfBounds {
            offset: bytes_of::<T>(offset),
            bytes: bytes_of::<T>(bytes),
            size: bytes_of::<T>(size),
        }
        .into(),
        other => other,
    }
}

impl<T: Pod, B: Backend> PooledSlice<T, PooledBuffer<B>> {
    /// Returns the same elements, of a block that slices and clones of this share.
    pub fn into_shared(self) -> PooledSlice<T, Arc<PooledBuffer<B>>> {
        PooledSlice {
            block: Arc::new(self.block),
            region: self.region,
            element: PhantomData,
        }
    }
}

/// # Transfers
///
/// On the given queue, which is recorded as used.
impl<T: Pod, B: Backend, K: KeepsBlock<Backend = B>> PooledSlice<T, K> {
    /// Writes `data` from index `at` on, and waits until it is written.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn write<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &[T],
    ) -> Result<(), Error> {
        let region = self.bytes_at(at, data.len())?;
        self.block().write(on, region.offset, data)
    }

    /// Reads into `data` from index `at` on, and waits until it is read.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn read<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &mut [T],
    ) -> Result<(), Error> {
        let region = self.bytes_at(at, data.len())?;
        self.block().read(on, region.offset, data)
    }

    /// Reads all elements, and waits until they are read.
    ///
    /// # Errors
    ///
    /// The failures of the backend.
    pub fn read_to_vec<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
    ) -> Result<Vec<T>, Error> {
        let mut data = vec![T::zeroed(); self.len()];
        self.read(on, 0, &mut data)?;
        Ok(data)
    }

    /// Enqueues a write of a copy of `data` from index `at` on. [`PooledBuffer::enqueue_write`] takes bytes that it keeps without a copy.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn enqueue_write<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &[T],
    ) -> Result<B::Event, Error> {
        let region = self.bytes_at(at, data.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        self.block().enqueue_write(on, region.offset, bytes.into())
    }

    /// Enqueues a copy of all elements to the start of `destination`: a slice, or any other memory of the backend.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [one, two] = [pool.allocate_of::<u16>(3)?, pool.allocate_of::<u16>(2)?];
    /// one.write(&queue, 0, &[1, 2, 3])?;
    /// two.write(&queue, 0, &[4, 5])?;
    /// let both = pool.allocate_of::<u16>(5)?;
    /// one.enqueue_copy_to(&queue, &both)?;
    /// two.enqueue_copy_to(&queue, &both.slice(3..)?)?;
    /// assert_eq!(both.read_to_vec(&queue)?, [1, 2, 3, 4, 5]);
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) if `destination` is smaller,
    /// [`OverlappingCopy`](InvalidRequest::OverlappingCopy), and the failures of the backend.
    pub fn enqueue_copy_to<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        destination: &(impl AsMemory<B> + ?Sized),
    ) -> Result<B::Event, Error> {
        self.block()
            .enqueue_copy_region_to(on, self.region, destination, 0)
    }
}

impl<T: Pod, K: KeepsBlock> PooledSlice<T, K> {
    /// Enqueues a fill of a range of elements with `pattern`, repeated, on a queue that is recorded as used.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), [`EmptyPattern`](InvalidRequest::EmptyPattern),
    /// [`PatternMismatch`](InvalidRequest::PatternMismatch), and the failures of the backend.
    pub fn enqueue_fill<'q>(
        &self,
        on: impl Into<On<'q, <K::Backend as Backend>::Queue, <K::Backend as Backend>::Event>>,
        range: impl RangeBounds<usize>,
        pattern: &[T],
    ) -> Result<<K::Backend as Backend>::Event, Error> {
        let Region { offset, bytes } = self.bytes_of(range)?;
        let region = Region::new(offset - self.region.offset, bytes);
        self.backend().enqueue_fill(on, self, region, pattern)
    }
}

impl<B: Backend, K: KeepsBlock<Backend = B>> PooledSlice<u8, K> {
    /// Enqueues a read of a range of bytes.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn enqueue_read<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        range: impl RangeBounds<usize>,
    ) -> Result<PendingRead<B::Event>, Error> {
        let region = self.bytes_of(range)?;
        self.block().enqueue_read(on, region)
    }
}

impl<T, K: Clone> Clone for PooledSlice<T, K> {
    fn clone(&self) -> Self {
        Self {
            block: self.block.clone(),
            region: self.region,
            element: PhantomData,
        }
    }
}

impl<T: Pod, B: Backend, K: KeepsBlock<Backend = B>> AsMemory<B> for PooledSlice<T, K> {
    fn size(&self) -> usize {
        PooledSlice::size(self)
    }

    fn start(&self) -> usize {
        PooledSlice::start(self)
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        PooledSlice::memory_on(self, queue)
    }
}

impl<T, K: fmt::Debug> fmt::Debug for PooledSlice<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledSlice")
            .field("start", &self.region.offset)
            .field("bytes", &self.region.bytes)
            .field("block", &self.block)
            .finish()
    }
}
