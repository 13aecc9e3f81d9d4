//! Shared virtual memory as elements of one type.

use std::{marker::PhantomData, ops::Deref};

use binpool_allocators::{AsMemory, InvalidRequest, Memory, Result};
use bytemuck::Pod;

use super::{SvmOptions, SvmPointer};
use crate::{
    ClOn,
    backend::OpenClBackend,
    map::{Map, MapMut},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
};

/// Shared virtual memory as elements of type `T` that may not have been written yet: `PyOpenCL`'s arrays of `svm_empty`.
/// They can be written, filled, copied to, mapped to be overwritten, and passed to a kernel as its output.
///
/// [`fill_all`](Self::fill_all) and [`write_all`](Self::write_all) return them as written elements. After a kernel or a map
/// of its own the program says so with [`assume_written`](Self::assume_written).
///
/// Parts of them are read and written through [`UninitElements`](crate::UninitElements) over this value.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let squares = backend.csvm_empty::<u32>(1000)?;
/// let mut map = squares.map_overwrite(&queue)?;
/// for (index, square) in (0..).zip(&mut map[..]) {
///     *square = index * index;
/// }
/// drop(map);
/// assert_eq!(squares.len(), 1000);
/// // All of them are written, which only the program knows.
/// let squares = squares.assume_written();
/// assert_eq!(squares.map_ro(&queue)?[999], 998_001);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Elements that have not been written cannot be read:
///
/// ```compile_fail,E0599
/// # use binpool_opencl::{ClQueue, UninitSvm};
/// fn read(queue: &ClQueue, elements: &UninitSvm<u32>) {
///     let _ = elements.map_ro(queue);
/// }
/// ```
#[derive(Debug)]
pub struct UninitSvm<T> {
    memory: ClMemory,
    elements: PhantomData<fn() -> T>,
}

/// Shared virtual memory as elements of type `T` that have been written: `PyOpenCL`'s `SVM`, the wrapped style. The opaque
/// one is a [`ClMemory`].
///
/// The elements are seen by the host through maps, of coarse-grained and of fine-grained memory alike: a map of
/// fine-grained memory moves nothing, but commands that would race with the host are refused. Everything that can be done
/// with [`UninitSvm`] can be done with these.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_opencl::OpenClBackend;
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let numbers = backend.csvm_empty::<f32>(12)?.fill_all(&queue, 17.0)?;
/// numbers.map_rw(&queue)?[3] = 18.0; // unmapped at the end of the statement
/// let elements = numbers.map_ro(&queue)?;
/// assert_eq!(elements[2..4], [17.0, 18.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With the feature `ndarray` a map has a shape and an order of its elements, `shape` and `order` of `svm_empty`:
///
/// ```
/// # #[cfg(feature = "ndarray")] {
/// use ndarray::ShapeBuilder;
///
/// # use binpool_allocators::{Backend, QueueOrder};
/// # let backend = binpool_opencl::OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let counted = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
/// let numbers = backend.csvm_empty::<u32>(12)?;
/// let numbers = numbers.write_all(&queue, &counted)?;
/// let map = numbers.map_ro(&queue)?;
/// assert_eq!(map.shaped((3, 4))?[[2, 1]], 9);
/// assert_eq!(map.shaped((3, 4).f())?[[2, 1]], 5); // column by column
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Svm<T>(UninitSvm<T>);

/// The allocation of shared virtual memory as elements of one type.
///
/// # Errors
///
/// All of them: [`ZeroSize`](InvalidRequest::ZeroSize) for no elements;
/// [`NotWholeElements`](InvalidRequest::NotWholeElements) for elements of no bytes; and those of
/// [`allocate_svm`](binpool_allocators::SvmBackend::allocate_svm), [`Unsupported`](binpool_allocators::Error::Unsupported) for a grain that the
/// device does not have among them.
impl OpenClBackend {
    /// Allocates `length` elements. `PyOpenCL`'s `svm_empty`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let options = if backend.limits().svm.fine {
    ///     SvmOptions::fine()
    /// } else {
    ///     SvmOptions::coarse()
    /// };
    /// let numbers = backend.svm_empty::<u64>(100, &options.bound_to(&queue))?;
    /// assert_eq!(numbers.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn svm_empty<T: Pod>(&self, length: usize, options: &SvmOptions) -> Result<UninitSvm<T>> {
        let element = size_of::<T>();
        if element == 0 {
            return Err(InvalidRequest::NotWholeElements { bytes: 0, element }.into());
        }
        // A product that saturates is larger than any block.
        let bytes = length.saturating_mul(element);
        Ok(UninitSvm {
            memory: self.allocate(bytes, options)?,
            elements: PhantomData,
        })
    }

    /// Allocates as many elements as `like` has. `PyOpenCL`'s `svm_empty_like`.
    ///
    /// ```
    /// # use binpool_allocators::{Align, AsMemory, Backend, QueueOrder};
    /// # use binpool_opencl::{OpenClBackend, SvmOptions, SvmPointer};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let weights = vec![0.5_f32; 300];
    /// let options = SvmOptions::coarse().aligned_to(Align::new(64).ok_or("no power of two")?);
    /// let copy = backend.svm_empty_like(&weights, &options)?;
    /// let copy = copy.write_all(&queue, &weights)?;
    /// assert_eq!((copy.size(), copy.address()?.addr().get() % 64), (1200, 0));
    /// assert_eq!(*copy.map_ro(&queue)?, *weights);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn svm_empty_like<T: Pod>(&self, like: &[T], options: &SvmOptions) -> Result<UninitSvm<T>> {
        self.svm_empty(like.len(), options)
    }

    /// Allocates `length` elements in coarse-grained memory. `PyOpenCL`'s `csvm_empty`.
    ///
    /// ```
    /// # use binpool_allocators::{Error, InvalidRequest};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// // The size is in elements, and there is at least one.
    /// assert_eq!(backend.csvm_empty::<[f32; 4]>(10)?.len(), 10);
    /// let none = backend.csvm_empty::<[f32; 4]>(0);
    /// let Err(Error::InvalidRequest(why)) = none else {
    ///     panic!("no elements")
    /// };
    /// assert_eq!(why, InvalidRequest::ZeroSize);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn csvm_empty<T: Pod>(&self, length: usize) -> Result<UninitSvm<T>> {
        self.svm_empty(length, &SvmOptions::coarse())
    }

    /// Allocates as many elements as `like` has, in coarse-grained memory. `PyOpenCL`'s `csvm_empty_like`.
    ///
    /// For the results of a kernel that are as many as its inputs:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let source = "kernel void halve(global const float *from, global float *to)
    /// #     { to[get_global_id(0)] = 0.5f * from[get_global_id(0)]; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [
    /// #     Parameter::input::<f32>(Extent::PerItem(1)),
    /// #     Parameter::output::<f32>(Extent::PerItem(1)),
    /// # ];
    /// # // SAFETY: each work item reads the one float of its id, and writes the other.
    /// # let halve = unsafe { program.kernel("halve", &parameters) }?;
    /// let numbers = [1.0_f32, 2.0, 3.0];
    /// let from = backend.create_buffer_from(&numbers, MemoryFlags::READ_ONLY)?;
    /// let halves = backend.csvm_empty_like(&numbers)?;
    /// let launch = halve.launch(&queue, &[halves.len()]).memory(&from);
    /// launch.memory(&halves).enqueue()?;
    /// let halves = halves.assume_written();
    /// assert_eq!(*halves.map_ro(&queue)?, [0.5, 1.0, 1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn csvm_empty_like<T: Pod>(&self, like: &[T]) -> Result<UninitSvm<T>> {
        self.csvm_empty(like.len())
    }

    /// Allocates `length` elements in fine-grained memory. `PyOpenCL`'s `fsvm_empty`.
    ///
    /// Not every device has such memory:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let numbers = match backend.fsvm_empty::<u32>(1000) {
    ///     Err(Error::Unsupported { .. }) => {
    ///         assert!(!backend.limits().svm.fine);
    ///         backend.csvm_empty(1000)?
    ///     }
    ///     numbers => numbers?,
    /// };
    /// assert_eq!(numbers.len(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn fsvm_empty<T: Pod>(&self, length: usize) -> Result<UninitSvm<T>> {
        self.svm_empty(length, &SvmOptions::fine())
    }

    /// Allocates as many elements as `like` has, in fine-grained memory. `PyOpenCL`'s `fsvm_empty_like`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let state = [1_u32, 2, 3];
    /// if backend.limits().svm.fine {
    ///     let shared = backend.fsvm_empty_like(&state)?;
    ///     let shared = shared.write_all(&queue, &state)?;
    ///     shared.map_rw(&queue)?[1] = 20; // nothing is moved
    ///     assert_eq!(*shared.map_ro(&queue)?, [1, 20, 3]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn fsvm_empty_like<T: Pod>(&self, like: &[T]) -> Result<UninitSvm<T>> {
        self.fsvm_empty(like.len())
    }
}

impl<T: Pod> UninitSvm<T> {
    /// The number of elements; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.memory.bytes() / size_of::<T>().max(1)
    }

    /// Returns the elements as ones that can be read: the program says that they are all written, or that commands to write
    /// them are enqueued.
    ///
    /// If that is not so, a read returns values of `T` without meaning.
    #[must_use]
    pub const fn assume_written(self) -> Svm<T> {
        Svm(self)
    }

    /// Enqueues a fill of all elements with `value`. They count as written from now on: a command that reads them comes
    /// after the fill.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let pairs = backend.csvm_empty::<[f32; 2]>(100)?;
    /// let pairs = pairs.fill_all(&queue, [0.5, 1.0])?;
    /// assert_eq!(pairs.map_ro(&queue)?[99], [0.5, 1.0]);
    ///
    /// let triples = backend.csvm_empty::<[f32; 3]>(100)?;
    /// let triples = triples.fill_all(&queue, [1.0, 2.0, 3.0])?; // Of any size.
    /// assert_eq!(triples.map_ro(&queue)?[99], [1.0, 2.0, 3.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The failures of [`enqueue_fill`](OpenClBackend::enqueue_fill).
    pub fn fill_all<'q>(self, on: impl Into<ClOn<'q>>, value: T) -> Result<Svm<T>> {
        let on = on.into();
        backend(on.queue).enqueue_fill(on, &self.memory, .., &[value])?;
        Ok(Svm(self))
    }

    /// Writes all elements, and waits until they are there.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Error, InvalidRequest, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let primes = backend.csvm_empty::<u16>(4)?;
    /// let primes = primes.write_all(&queue, &[2, 3, 5, 7])?;
    /// assert_eq!(primes.map_ro(&queue)?.iter().sum::<u16>(), 17);
    ///
    /// let few = backend.csvm_empty::<u16>(4)?;
    /// let few = few.write_all(&queue, &[2, 3]);
    /// let Err(Error::InvalidRequest(why)) = few else {
    ///     panic!("two of four")
    /// };
    /// let expected = InvalidRequest::LengthMismatch { expected: 8, actual: 4 };
    /// assert_eq!(why, expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LengthMismatch`](InvalidRequest::LengthMismatch) unless `data` is as long as they are, and the failures of
    /// [`write`](OpenClBackend::write).
    pub fn write_all<'q>(self, on: impl Into<ClOn<'q>>, data: &[T]) -> Result<Svm<T>> {
        let (expected, actual) = (self.memory.bytes(), size_of_val(data));
        if actual != expected {
            return Err(InvalidRequest::LengthMismatch { expected, actual }.into());
        }
        let on = on.into();
        backend(on.queue).write(on, &self.memory, 0, data)?;
        Ok(Svm(self))
    }

    /// Maps all elements to be overwritten, and waits until that may be done. The contents are unspecified at first, and
    /// afterwards where nothing was written.
    ///
    /// # Errors
    ///
    /// Those of [`map_overwrite`](OpenClBackend::map_overwrite).
    pub fn map_overwrite<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<MapMut<'_, T>> {
        let on = on.into();
        backend(on.queue).map_overwrite(on, &self.memory, ..)
    }

    /// Returns the memory in the opaque style, for example to release it or to bind it to another queue.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryKind, Memory, QueueOrder, SvmBackend, SvmGrain};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.csvm_empty::<f32>(1000)?.into_memory();
    /// assert_eq!(memory.kind(), MemoryKind::Svm(SvmGrain::Coarse));
    /// assert_eq!(memory.bytes(), 4000);
    /// backend.bind_to_queue(&memory, &queue)?;
    /// drop(memory); // freed on that queue, after what was enqueued there
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_memory(self) -> ClMemory {
        self.memory
    }
}

impl<T: Pod> Svm<T> {
    /// Maps all elements to be read, and waits until they are there. `PyOpenCL`'s `SVM.map_ro`.
    ///
    /// # Errors
    ///
    /// Those of [`map`](OpenClBackend::map).
    pub fn map_ro<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<Map<'_, T>> {
        SvmPointer::map_ro(self, on)
    }

    /// Maps all elements to be read and written, and waits until they are there. `PyOpenCL`'s `SVM.map_rw`.
    ///
    /// # Errors
    ///
    /// Those of [`map_mut`](OpenClBackend::map_mut).
    pub fn map_rw<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<MapMut<'_, T>> {
        SvmPointer::map_rw(self, on)
    }

    /// Returns the memory in the opaque style, for example to release it or to bind it to another queue.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder, Region};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let ones = backend.csvm_empty::<u8>(64)?.fill_all(&queue, 1)?;
    /// let memory = ones.into_memory();
    /// // Any command takes it, and its contents are those of the elements.
    /// let read = backend.enqueue_read(&queue, &memory, Region::new(60, 4))?;
    /// assert_eq!(read.wait()?, [1; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_memory(self) -> ClMemory {
        self.0.memory
    }
}

impl<T> Deref for Svm<T> {
    type Target = UninitSvm<T>;

    fn deref(&self) -> &UninitSvm<T> {
        &self.0
    }
}

fn backend(queue: &ClQueue) -> OpenClBackend {
    OpenClBackend::of_context(queue.context())
}

impl<T> AsMemory<OpenClBackend> for UninitSvm<T> {
    fn size(&self) -> usize {
        self.memory.bytes()
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        Some(&self.memory)
    }
}

impl<T> AsMemory<OpenClBackend> for Svm<T> {
    fn size(&self) -> usize {
        self.0.size()
    }

    fn memory_on(&self, queue: &ClQueue) -> Option<&ClMemory> {
        self.0.memory_on(queue)
    }
}

impl<T> SvmPointer for UninitSvm<T> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        Ok(&self.memory)
    }
}

impl<T> SvmPointer for Svm<T> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        self.0.svm_memory()
    }
}
