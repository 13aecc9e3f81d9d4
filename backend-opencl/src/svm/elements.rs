//! Shared virtual memory as elements of one type.

use binpool_allocators::{InvalidRequest, Result};
use bytemuck::Pod;

use super::{SvmOptions, SvmPointer};
use crate::{backend::OpenClBackend, elements::Elements, memory::cl_memory::ClMemory};

/// The allocation of shared virtual memory as elements of one type: `PyOpenCL`'s `SVM`, the wrapped style. The opaque one is
/// a [`ClMemory`].
///
/// The host reads and writes the elements through maps, of coarse-grained and of fine-grained memory alike: a map of
/// fine-grained memory moves nothing, but commands that would race with the host are refused.
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
    pub fn svm_empty<T: Pod>(
        &self,
        length: usize,
        options: &SvmOptions,
    ) -> Result<Elements<T, ClMemory>> {
        let element = size_of::<T>();
        if element == 0 {
            return Err(InvalidRequest::NotWholeElements { bytes: 0, element }.into());
        }
        // A product that saturates is larger than any block.
        let bytes = length.saturating_mul(element);
        Elements::new(self, self.allocate(bytes, options)?)
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
    pub fn svm_empty_like<T: Pod>(
        &self,
        like: &[T],
        options: &SvmOptions,
    ) -> Result<Elements<T, ClMemory>> {
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
    pub fn csvm_empty<T: Pod>(&self, length: usize) -> Result<Elements<T, ClMemory>> {
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
    /// assert_eq!(*halves.map_ro(&queue)?, [0.5, 1.0, 1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors-1).
    pub fn csvm_empty_like<T: Pod>(&self, like: &[T]) -> Result<Elements<T, ClMemory>> {
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
    pub fn fsvm_empty<T: Pod>(&self, length: usize) -> Result<Elements<T, ClMemory>> {
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
    pub fn fsvm_empty_like<T: Pod>(&self, like: &[T]) -> Result<Elements<T, ClMemory>> {
        self.fsvm_empty(like.len())
    }
}

impl<T: Pod> SvmPointer for Elements<T, ClMemory> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        self.memory().svm_memory()
    }
}
