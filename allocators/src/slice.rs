//! Slices: memory, or a part of it, as elements of one type.

use std::{fmt, marker::PhantomData, ops::RangeBounds, sync::Arc};

use bytemuck::Pod;

use crate::{
    align::Align,
    backend::{AsMemory, Backend},
    error::{Error, InvalidRequest, Result},
    pending_read::PendingRead,
    queue::On,
    region::{IntoRegion, Region},
};

/// Elements of type `T` in memory of a device: all of it, or a part, as Rust's slices are.
///
/// A slice may start at any element, and making one does not call the device. Indices and lengths count elements. `M` is the memory, or
/// what keeps it:
///
/// | `M` | for |
/// |---|---|
/// | memory that knows its backend, such as a pooled block | memory that the slice owns, and [gives back](Self::into_memory) |
/// | `(&B, memory)` | any other memory, with its backend |
/// | a reference to either | a part that is used at once, such as that of [`slice`](Self::slice) |
/// | an `Arc` of either | tensors that [share](Self::into_shared) their memory; the last one releases it. Their slices keep an `Arc`, too |
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Slice};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer(24, MemoryFlags::empty())?;
/// let matrix = Slice::<f32, _>::new((&backend, memory))?;
/// matrix.write(&queue, 0, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?;
/// let row = matrix.slice(3..6)?;
/// assert_eq!(row.read_to_vec(&queue)?, [3.0, 4.0, 5.0]);
/// row.enqueue_fill(&queue, 1.., &[0.5])?;
/// assert_eq!(matrix.read_to_vec(&queue)?, [0.0, 1.0, 2.0, 3.0, 0.5, 0.5]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A slice is [memory](AsMemory) that every command takes. A part of one can be read and written as elements of another type:
///
/// ```
/// # use binpool_allocators::{AsMemory, Backend, MemoryFlags, QueueOrder, Slice};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
/// let numbers = Slice::<u32, _>::new((&backend, memory))?;
/// numbers.enqueue_write(&queue, 0, &[1, 2, 0x0505_0505])?;
/// let mut two = [0; 2];
/// numbers.read(&queue, 1, &mut two)?;
/// assert_eq!(two, [2, 0x0505_0505]);
///
/// let bytes = numbers.slice(1..3)?.cast::<u8>()?;
/// assert_eq!(bytes.len(), 8);
/// assert_eq!(bytes.enqueue_read(&queue, 4..)?.wait()?, [5; 4]);
///
/// let half = numbers.slice(512..)?;
/// numbers.backend().enqueue_fill(&queue, &half, .., &[7_u32])?;
/// assert_eq!(half.read_to_vec(&queue)?, [7; 512]);
///
/// let none = numbers.slice(3..3)?;
/// assert!(none.is_empty() && none.memory_on(&queue).is_none());
/// assert_eq!(numbers.into_memory().size(), 4096); // The memory, as bytes again.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A kernel gets the whole memory and the place of the first element, which is byte [`region`](Self::region)`().offset`. On OpenCL,
/// `Parameter::offset_u64` passes the place.
///
/// `T` is plain data in `bytemuck`'s sense: any bytes are a value, since a kernel may write any, and there is no padding. Elements that were
/// never written have arbitrary values.
///
/// ```compile_fail,E0277
/// # use binpool_allocators::{Slice, SliceMemory};
/// fn flags<M: SliceMemory>(memory: M) {
///     let _ = Slice::<bool, M>::new(memory);
/// }
/// ```
#[must_use = "memory that this owns is released when it is dropped"]
pub struct Slice<T, M> {
    memory: M,
    /// The bytes of the memory. They begin and end with whole elements, counted from its start.
    region: Region,
    element: PhantomData<fn() -> T>,
}

/// Memory that knows its backend, so that a [`Slice`] can be of it; or what keeps such memory: a reference, or an [`Arc`].
///
/// A function with this as a bound takes slices of all kinds:
///
/// ```
/// use std::sync::Arc;
///
/// use binpool_allocators::{Backend, Error, MemoryFlags, Slice, SliceMemory};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
///
/// /// Returns how many bytes of the memory are not in the slice.
/// fn left_out<M: SliceMemory>(slice: &Slice<f32, M>) -> usize {
///     slice.memory().size() - slice.region().bytes
/// }
///
/// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
/// let numbers = Slice::new((&backend, memory))?;
/// assert_eq!(left_out(&numbers.slice(..25)?), 300);
///
/// let numbers = numbers.into_shared();
/// let some = numbers.slice(90..)?; // It keeps an `Arc`, too.
/// drop(numbers);
/// assert_eq!((left_out(&some), Arc::strong_count(some.memory())), (360, 1));
/// # Ok::<(), Error>(())
/// ```
pub trait SliceMemory: AsMemory<<Self as SliceMemory>::Backend> {
    /// The backend that it belongs to.
    type Backend: Backend;

    /// What a slice of this keeps: an `Arc` of an `Arc`, and else a reference.
    type Part<'a>: SliceMemory<Backend = Self::Backend>
    where
        Self: 'a;

    /// The backend that it belongs to.
    fn backend(&self) -> &Self::Backend;

    /// Returns what a slice of this keeps.
    ///
    /// ```
    /// use binpool_allocators::SliceMemory;
    ///
    /// fn has_the_same_rule<M: SliceMemory>(memory: &M) -> bool {
    ///     // A part is memory of the same backend, with the same rule for elements.
    ///     memory.part().element_alignment() == memory.element_alignment()
    /// }
    /// ```
    fn part(&self) -> Self::Part<'_>;

    /// The largest alignment that elements may have; `None` if any may be asked for, and the commands that care check it.
    fn element_alignment(&self) -> Option<Align> {
        None
    }
}

impl<'m, M: SliceMemory + ?Sized> SliceMemory for &'m M {
    type Backend = M::Backend;
    type Part<'a>
        = Self
    where
        'm: 'a;

    fn backend(&self) -> &M::Backend {
        (**self).backend()
    }

    fn part(&self) -> Self {
        self
    }

    fn element_alignment(&self) -> Option<Align> {
        (**self).element_alignment()
    }
}

impl<M: SliceMemory + ?Sized> SliceMemory for Arc<M> {
    type Backend = M::Backend;
    type Part<'a>
        = Self
    where
        M: 'a;

    fn backend(&self) -> &M::Backend {
        (**self).backend()
    }

    fn part(&self) -> Self {
        Self::clone(self)
    }

    fn element_alignment(&self) -> Option<Align> {
        (**self).element_alignment()
    }
}

/// Memory that does not know its backend, with it.
impl<B: Backend, M: AsMemory<B>> AsMemory<B> for (&B, M) {
    fn size(&self) -> usize {
        self.1.size()
    }

    fn start(&self) -> usize {
        self.1.start()
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        self.1.memory_on(queue)
    }
}

impl<B: Backend, M: AsMemory<B>> SliceMemory for (&B, M) {
    type Backend = B;
    type Part<'a>
        = &'a Self
    where
        Self: 'a;

    fn backend(&self) -> &B {
        self.0
    }

    fn part(&self) -> &Self {
        self
    }
}

impl<T: Pod, M: SliceMemory> Slice<T, M> {
    /// Returns all of `memory` as elements. With a reference the memory is not lost if this fails.
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](InvalidRequest::NotWholeElements) unless the size is a multiple of an element's, which has bytes;
    /// [`Unsupported`](Error::Unsupported) for a type with a larger alignment than the blocks of a pool have.
    pub fn new(memory: M) -> Result<Self> {
        let region = Region::first(memory.size());
        Self::over(memory, region)
    }

    /// Makes a slice of the bytes of `region`, which lies within the memory.
    fn over(memory: M, region: Region) -> Result<Self> {
        let element = size_of::<T>();
        for bytes in [region.bytes, region.offset] {
            if element == 0 || !bytes.is_multiple_of(element) {
                return Err(InvalidRequest::NotWholeElements { bytes, element }.into());
            }
        }
        match memory.element_alignment() {
            Some(alignment) if align_of::<T>() > alignment.bytes() => {
                Err(Error::unsupported(format!(
                    "elements aligned to {} bytes: the blocks of this pool are aligned to {alignment}",
                    align_of::<T>()
                )))
            }
            _ => Ok(Self {
                memory,
                region,
                element: PhantomData,
            }),
        }
    }

    /// Returns some of the elements, by a range whose ends may be left open.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, unless they lie within [`len`](Self::len).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<T, M::Part<'_>>> {
        let part = in_bytes::<T>(Region::of_range(&range, self.len()))?;
        Ok(Slice {
            // Both lie in the memory.
            region: Region::new(self.region.offset + part.offset, part.bytes),
            memory: self.memory.part(),
            element: PhantomData,
        })
    }

    /// Returns the same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](InvalidRequest::NotWholeElements) unless they start, counted from the memory's first byte, and end with whole
    /// elements; [`Unsupported`](Error::Unsupported) as for [`new`](Self::new).
    pub fn cast<U: Pod>(self) -> Result<Slice<U, M>> {
        Slice::over(self.memory, self.region)
    }

    /// The backend of the memory.
    #[must_use]
    pub fn backend(&self) -> &M::Backend {
        self.memory.backend()
    }

    /// Returns where the bytes of `len` elements start, from index `at` on.
    fn start_of(&self, at: usize, len: usize) -> Result<usize> {
        let elements = Region::new(at, len).into_region(self.len());
        Ok(in_bytes::<T>(elements)?.offset)
    }
}

/// Returns the bytes of a range of elements, or the error about elements as one about their bytes.
fn in_bytes<T>(elements: Result<Region>) -> Result<Region> {
    let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
    match elements {
        Ok(elements) => Ok(Region::new(bytes(elements.offset), bytes(elements.bytes))),
        Err(Error::InvalidRequest(InvalidRequest::OutOfBounds {
            offset,
            bytes: length,
            size,
        })) => Err(InvalidRequest::OutOfBounds {
            offset: bytes(offset),
            bytes: bytes(length),
            size: bytes(size),
        }
        .into()),
        Err(other) => Err(other),
    }
}

impl<T, M> Slice<T, M> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        // A type without bytes was refused before.
        self.region.bytes / size_of::<T>().max(1)
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.bytes == 0
    }

    /// The bytes of [`memory`](Self::memory) that are the elements.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, Region, Slice};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
    /// let numbers = Slice::<f32, _>::new((&backend, memory))?;
    /// let some = numbers.slice(10..14)?;
    /// assert_eq!((some.len(), some.region()), (4, Region::new(40, 16))); // Elements, and bytes.
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    #[must_use]
    pub const fn region(&self) -> Region {
        self.region
    }

    /// The whole memory, or what keeps it.
    ///
    /// ```
    /// # use binpool_allocators::{AsMemory, Backend, MemoryFlags, Slice};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
    /// let numbers = Slice::<f32, _>::new((&backend, memory))?;
    /// assert_eq!(numbers.slice(10..14)?.memory().size(), 400);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the memory, or what keeps it.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, Slice};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let scratch = Slice::<f64, _>::new((&backend, memory))?;
    /// assert_eq!(scratch.len(), 8);
    /// // The same memory, for elements of another type.
    /// let scratch = Slice::<u16, _>::new(scratch.into_memory())?;
    /// assert_eq!(scratch.len(), 32);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Returns the same elements, of memory that slices and clones of this share.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, Slice};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
    /// let numbers = Slice::<f32, _>::new((&backend, memory))?.into_shared();
    /// let tail = numbers.slice(90..)?;
    /// drop(numbers); // The tail keeps the memory.
    /// assert_eq!(tail.len(), 10);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn into_shared(self) -> Slice<T, Arc<M>> {
        Slice {
            memory: Arc::new(self.memory),
            region: self.region,
            element: PhantomData,
        }
    }
}

/// # Transfers
///
/// On the given queue, which a pool records as used.
impl<T: Pod, B: Backend, M: SliceMemory<Backend = B>> Slice<T, M> {
    /// Writes `data` from index `at` on, and waits until it is written.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`Backend::write`].
    pub fn write<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &[T],
    ) -> Result<()> {
        let start = self.start_of(at, data.len())?;
        self.backend().write(on, self, start, data)
    }

    /// Reads into `data` from index `at` on, and waits until it is read.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`Backend::read`].
    pub fn read<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &mut [T],
    ) -> Result<()> {
        let start = self.start_of(at, data.len())?;
        self.backend().read(on, self, start, data)
    }

    /// Reads all elements, and waits until they are read.
    ///
    /// # Errors
    ///
    /// The failures of [`Backend::read`].
    pub fn read_to_vec<'q>(&self, on: impl Into<On<'q, B::Queue, B::Event>>) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len()];
        self.read(on, 0, &mut data)?;
        Ok(data)
    }

    /// Enqueues a write of a copy of `data` from index `at` on. [`Backend::enqueue_write`] takes bytes that it keeps without a copy.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of the backend.
    pub fn enqueue_write<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        at: usize,
        data: &[T],
    ) -> Result<B::Event> {
        let start = self.start_of(at, data.len())?;
        let bytes = bytemuck::cast_slice::<T, u8>(data).into();
        self.backend().enqueue_write(on, self, start, bytes)
    }

    /// Enqueues a fill of a range of elements with `pattern`, repeated.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`Backend::enqueue_fill`].
    pub fn enqueue_fill<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        range: impl RangeBounds<usize>,
        pattern: &[T],
    ) -> Result<B::Event> {
        let region = in_bytes::<T>(Region::of_range(&range, self.len()))?;
        self.backend().enqueue_fill(on, self, region, pattern)
    }

    /// Enqueues a copy of all elements to the start of `destination`: a slice, or any other memory of the backend.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder, Slice};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let slice = |len: usize| Slice::<u16, _>::new((&backend, backend.create_buffer(2 * len, MemoryFlags::empty())?));
    /// let (one, two, both) = (slice(3)?, slice(2)?, slice(5)?);
    /// one.write(&queue, 0, &[1, 2, 3])?;
    /// two.write(&queue, 0, &[4, 5])?;
    /// one.enqueue_copy_to(&queue, &both)?;
    /// two.enqueue_copy_to(&queue, &both.slice(3..)?)?;
    /// assert_eq!(both.read_to_vec(&queue)?, [1, 2, 3, 4, 5]);
    ///
    /// // As many as both have room for.
    /// both.slice(..both.len().min(two.len()))?.enqueue_copy_to(&queue, &two)?;
    /// assert_eq!(two.read_to_vec(&queue)?, [1, 2]);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds) if `destination` is smaller, and the failures of [`Backend::enqueue_copy`].
    pub fn enqueue_copy_to<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        destination: &(impl AsMemory<B> + ?Sized),
    ) -> Result<B::Event> {
        self.backend().enqueue_copy(on, self, .., destination, 0)
    }
}

impl<B: Backend, M: SliceMemory<Backend = B>> Slice<u8, M> {
    /// Enqueues a read of a range of bytes.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), and the failures of the backend.
    pub fn enqueue_read<'q>(
        &self,
        on: impl Into<On<'q, B::Queue, B::Event>>,
        range: impl RangeBounds<usize>,
    ) -> Result<PendingRead<B::Event>> {
        let region = Region::of_range(&range, self.len())?;
        self.backend().enqueue_read(on, self, region)
    }
}

impl<T: Pod, B: Backend, M: SliceMemory<Backend = B>> AsMemory<B> for Slice<T, M> {
    fn size(&self) -> usize {
        self.region.bytes
    }

    fn start(&self) -> usize {
        // A sum that saturates lies outside of any memory.
        self.memory.start().saturating_add(self.region.offset)
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        if self.is_empty() {
            return None;
        }
        self.memory.memory_on(queue)
    }
}

impl<T, M: Clone> Clone for Slice<T, M> {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory.clone(),
            region: self.region,
            element: PhantomData,
        }
    }
}

impl<T, M: fmt::Debug> fmt::Debug for Slice<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("start", &self.region.offset)
            .field("bytes", &self.region.bytes)
            .field("memory", &self.memory)
            .finish()
    }
}
