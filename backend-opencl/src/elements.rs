//! Memory as elements of one type.

use std::{fmt, marker::PhantomData, ops::RangeBounds};

use binpool_allocators::{AsMemory, Backend, Error, InvalidRequest, Region, Result};
use bytemuck::Pod;

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    map::{Map, MapMode, MapMut},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
    sys::host::zeroed,
    transfer::PendingTransfer,
};

/// Memory as elements of type `T`. Indices and lengths count elements.
///
/// The memory can be any that commands take: a [`ClMemory`], a pooled buffer, a region of one, [memory of the host](crate::HostMemory), or
/// a reference to these. With a reference the memory is not lost if a call that takes the elements fails. Elements that were never written
/// have arbitrary values.
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{Elements, OpenClBackend};
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(4000, MemoryFlags::empty())?;
/// let sums = Elements::<f32, _>::new(&backend, &memory)?.fill_all(&queue, 0.5)?;
/// sums.write(&queue, 10, &[1.0, 2.0])?;
/// assert_eq!(sums.slice(9..13)?.read_to_vec(&queue)?, [0.5, 1.0, 2.0, 0.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In pieces, and back:
///
/// ```
/// use binpool_allocators::Memory;
/// use binpool_opencl::Elements;
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let memory = backend.create_buffer_from(&[1_i32, -2], MemoryFlags::empty())?;
/// let numbers = Elements::<i32, _>::new(&backend, memory)?;
/// let memory = backend.create_buffer(32, MemoryFlags::empty())?;
/// let table = Elements::<i32, _>::new(&backend, memory)?;
/// assert_eq!((table.len(), table.is_empty()), (8, false));
/// table.enqueue_write(&queue, 0, &[5, 6])?;
/// table.enqueue_fill(&queue, 2..6, 0)?;
/// table.enqueue_copy_from(&queue, 6, &numbers)?;
/// assert_eq!(table.read_to_vec(&queue)?, [5, 6, 0, 0, 0, 0, 1, -2]);
///
/// let middle = table.slice(1..3)?.enqueue_read(&queue)?; // On its way, and comes in what `wait` gives.
/// table.write(&queue, 1, &[9, 9])?;
/// assert_eq!(middle.wait()?, [6, 0]); // It was first.
/// let mut last = [0; 2];
/// table.read(&queue, 6, &mut last)?;
/// assert_eq!(last, [1, -2]);
/// assert_eq!(table.into_memory().bytes(), 32);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Types
///
/// `T` is plain data in `bytemuck`'s sense: any bytes are a value, and there is no padding. Memory that was never written, or that a kernel
/// wrote, may have any bytes, so the compiler refuses types for which some bytes are not a value.
///
/// ```compile_fail,E0277
/// # use binpool_opencl::{ClMemory, Elements};
/// fn read(flags: &Elements<bool, ClMemory>) {}
/// ```
pub struct Elements<T: Pod, M> {
    backend: OpenClBackend,
    memory: M,
    /// The bytes of `memory` that are the elements.
    region: Region,
    element: PhantomData<fn() -> T>,
}

impl<T: Pod, M: AsMemory<OpenClBackend>> Elements<T, M> {
    /// All of `memory` as elements.
    ///
    /// # Errors
    ///
    /// [`NotWholeElements`](InvalidRequest::NotWholeElements) if the size is not a multiple of an element's, or an
    /// element has no bytes.
    pub fn new(backend: &OpenClBackend, memory: M) -> Result<Self> {
        let (bytes, element) = (memory.size(), size_of::<T>());
        if element == 0 || !bytes.is_multiple_of(element) {
            return Err(InvalidRequest::NotWholeElements { bytes, element }.into());
        }
        Ok(Self::over(backend, memory, Region::first(bytes)))
    }

    fn over(backend: &OpenClBackend, memory: M, region: Region) -> Self {
        Self {
            backend: backend.clone(),
            memory,
            region,
            element: PhantomData,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        // A type without bytes was refused before.
        self.region.bytes / size_of::<T>().max(1)
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.region.bytes == 0
    }

    /// The whole memory, for a kernel's arguments; [`region`](Self::region) says where the elements are.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The bytes of [`memory`](Self::memory) that are the elements.
    ///
    /// ```
    /// use binpool_allocators::{Memory, Region};
    /// use binpool_opencl::Elements;
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    ///
    /// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
    /// let all = Elements::<f32, _>::new(&backend, memory)?;
    /// let part = all.slice(10..14)?;
    /// assert_eq!((part.len(), part.region()), (4, Region::new(40, 16))); // Elements, and bytes.
    /// assert_eq!(part.memory().bytes(), 400); // A kernel is given all of it, and told to start at 10.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn region(&self) -> Region {
        self.region
    }

    /// Returns the memory.
    ///
    /// ```
    /// use binpool_opencl::Elements;
    /// # use binpool_allocators::{Backend, MemoryFlags};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    ///
    /// let memory = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let scratch = Elements::<f64, _>::new(&backend, memory)?;
    /// assert_eq!(scratch.len(), 8);
    /// // The same memory, for elements of another type.
    /// let scratch = Elements::<u16, _>::new(&backend, scratch.into_memory())?;
    /// assert_eq!(scratch.len(), 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Returns the elements of `range`, which may start at any index: no view of the runtime is made.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Elements<T, &M>> {
        let part = self.region_of(range)?;
        // Both lie in the memory.
        let offset = self.region.offset.saturating_add(part.offset);
        let region = Region::new(offset, part.bytes);
        Ok(Elements::over(&self.backend, &self.memory, region))
    }

    /// Writes `data` to the elements from `first` on, and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`OpenClBackend::write`].
    pub fn write<'q>(&self, on: impl Into<ClOn<'q>>, first: usize, data: &[T]) -> Result<()> {
        let offset = self.region_from(first, data.len())?.offset;
        self.backend.write(on, self, offset, data)
    }

    /// Enqueues a write of a copy of `data` to the elements from `first` on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`OpenClBackend::enqueue_write`].
    pub fn enqueue_write<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        first: usize,
        data: &[T],
    ) -> Result<ClEvent> {
        let offset = self.region_from(first, data.len())?.offset;
        let data = bytemuck::cast_slice::<T, u8>(data).into();
        self.backend.enqueue_write(on, self, offset, data)
    }

    /// Writes all elements, and waits until they are there.
    ///
    /// ```
    /// use binpool_allocators::{Error, InvalidRequest};
    /// use binpool_opencl::Elements;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
    /// // Over a reference, so that the memory is not lost with the elements.
    /// let refused = Elements::<u16, _>::new(&backend, &memory)?.write_all(&queue, &[1, 2, 3]);
    /// let short = InvalidRequest::LengthMismatch { expected: 8, actual: 6 };
    /// assert!(matches!(refused, Err(Error::InvalidRequest(request)) if request == short));
    ///
    /// let numbers =
    ///     Elements::<u16, _>::new(&backend, memory)?.write_all(&queue, &[1, 2, 3, 4])?;
    /// assert_eq!(numbers.slice(2..)?.read_to_vec(&queue)?, [3, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](InvalidRequest::LengthMismatch) unless `data` has the same length, and the failures of
    /// [`OpenClBackend::write`].
    pub fn write_all<'q>(self, on: impl Into<ClOn<'q>>, data: &[T]) -> Result<Self> {
        let (expected, actual) = (self.region.bytes, size_of_val(data));
        if actual != expected {
            return Err(InvalidRequest::LengthMismatch { expected, actual }.into());
        }
        self.write(on, 0, data)?;
        Ok(self)
    }

    /// Enqueues a fill of the elements of `range` with `value`.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`OpenClBackend::enqueue_fill`].
    pub fn enqueue_fill<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        range: impl RangeBounds<usize>,
        value: T,
    ) -> Result<ClEvent> {
        let region = self.region_of(range)?;
        self.backend.enqueue_fill(on, self, region, &[value])
    }

    /// Enqueues a fill of all elements with `value`. A command that reads them comes after the fill.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_fill`](Self::enqueue_fill).
    pub fn fill_all<'q>(self, on: impl Into<ClOn<'q>>, value: T) -> Result<Self> {
        self.enqueue_fill(on, .., value)?;
        Ok(self)
    }

    /// Enqueues a copy of all of `source` to the elements from `first` on. For a part of it, pass a
    /// [`slice`](Elements::slice).
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`OpenClBackend::enqueue_copy`].
    pub fn enqueue_copy_from<'q, N: AsMemory<OpenClBackend>>(
        &self,
        on: impl Into<ClOn<'q>>,
        first: usize,
        source: &Elements<T, N>,
    ) -> Result<ClEvent> {
        let to = self.region_from(first, source.len())?.offset;
        self.backend.enqueue_copy(on, source, .., self, to)
    }

    /// Maps all elements to be overwritten, and waits until that may be done. The contents are unspecified at first, and
    /// afterwards wherever nothing was written.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let squares = backend.svm_empty::<u32>(1000, &SvmOptions::coarse())?;
    /// let mut map = squares.map_overwrite(&queue)?;
    /// for (index, square) in (0..).zip(&mut map[..]) {
    ///     *square = index * index;
    /// }
    /// drop(map);
    /// assert_eq!(squares.map(&queue)?[999], 998_001);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`map_mut`](OpenClBackend::map_mut).
    pub fn map_overwrite<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<MapMut<'_, T>> {
        let pending = self
            .backend
            .enqueue_map_mut(on, self, .., MapMode::Overwrite);
        pending?.wait()
    }

    /// Reads the elements from `first` on into all of `data`, and waits until they are there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`](InvalidRequest::OutOfBounds), in bytes, and the failures of [`OpenClBackend::read`].
    pub fn read<'q>(&self, on: impl Into<ClOn<'q>>, first: usize, data: &mut [T]) -> Result<()> {
        let offset = self.region_from(first, data.len())?.offset;
        self.backend.read(on, self, offset, data)
    }

    /// Reads all elements. For a part of them, take a [`slice`](Self::slice).
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](binpool_allocators::Error::OutOfMemory) if the host has no room for them, and the failures of
    /// [`OpenClBackend::read`].
    pub fn read_to_vec<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<Vec<T>> {
        let mut elements = zeroed(self.len())?;
        self.read(on, 0, &mut elements)?;
        Ok(elements)
    }

    /// Maps all elements to be read, and waits until they are there. `PyOpenCL`'s `SVM.map_ro`, for memory of any kind.
    ///
    /// # Errors
    ///
    /// Those of [`map`](OpenClBackend::map).
    pub fn map<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<Map<'_, T>> {
        self.backend.map(on, self, ..)
    }

    /// Maps all elements to be read and written, and waits until they are there. `PyOpenCL`'s `SVM.map_rw`, for memory of
    /// any kind.
    ///
    /// ```
    /// use binpool_opencl::Elements;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let memory = backend.create_buffer(400, MemoryFlags::empty())?;
    /// let numbers = Elements::<f32, _>::new(&backend, memory)?.fill_all(&queue, 1.0)?;
    /// numbers.slice(10..14)?.map_mut(&queue)?[3] = 2.0; // unmapped at the end of the statement
    /// assert_eq!(numbers.map(&queue)?[12..15], [1.0, 2.0, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`map_mut`](OpenClBackend::map_mut).
    pub fn map_mut<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<MapMut<'_, T>> {
        self.backend.map_mut(on, self, ..)
    }

    /// Enqueues a read of all elements. For a part of them, take a [`slice`](Self::slice).
    ///
    /// # Errors
    ///
    /// The failures of [`OpenClBackend::enqueue_read`].
    pub fn enqueue_read<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<PendingTransfer<T>>
    where
        T: Send,
    {
        let elements = zeroed(self.len())?;
        Ok(self.backend.enqueue_read_owned(on, (self, 0), elements)?)
    }

    /// Returns the bytes of `count` elements from `first` on.
    fn region_from(&self, first: usize, count: usize) -> Result<Region> {
        self.bytes_of(Region::new(first, count))
    }

    /// Returns the bytes of the elements of `range`.
    fn region_of(&self, range: impl RangeBounds<usize>) -> Result<Region> {
        match Region::within(range, self.len()) {
            Ok(elements) => self.bytes_of(elements),
            // The same error, in bytes.
            Err(Error::InvalidRequest(InvalidRequest::OutOfBounds { offset, bytes, .. })) => {
                self.bytes_of(Region::new(offset, bytes))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes of a region of elements.
    fn bytes_of(&self, elements: Region) -> Result<Region> {
        let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
        // A product that saturates lies outside of any memory.
        let region = Region::new(bytes(elements.offset), bytes(elements.bytes));
        region.check_within(self.region.bytes)?;
        Ok(region)
    }
}

impl<T: Pod, M: AsMemory<OpenClBackend>> AsMemory<OpenClBackend> for Elements<T, M> {
    fn size(&self) -> usize {
        self.region.bytes
    }

    fn start(&self) -> usize {
        // A sum that saturates lies outside of any memory.
        self.memory.start().saturating_add(self.region.offset)
    }

    fn memory_on(&self, queue: &ClQueue) -> Option<&ClMemory> {
        self.memory.memory_on(queue)
    }
}

impl<T: Pod, M: fmt::Debug> fmt::Debug for Elements<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elements")
            .field("memory", &self.memory)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}
