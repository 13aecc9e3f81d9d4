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
/// use binpool_opencl::{OpenClBackend, SvmOptions};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let numbers = backend.svm_empty::<f32>(12, &SvmOptions::coarse())?.fill_all(&queue, 17.0)?;
/// numbers.map_mut(&queue)?[3] = 18.0; // unmapped at the end of the statement
/// let elements = numbers.map(&queue)?;
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
/// # use binpool_opencl::SvmOptions;
/// # let backend = binpool_opencl::OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let counted = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
/// let numbers = backend.svm_empty::<u32>(12, &SvmOptions::coarse())?;
/// let numbers = numbers.write_all(&queue, &counted)?;
/// let map = numbers.map(&queue)?;
/// assert_eq!(map.shaped((3, 4))?[[2, 1]], 9);
/// assert_eq!(map.shaped((3, 4).f())?[[2, 1]], 5); // column by column
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl OpenClBackend {
    /// Allocates `length` elements, at least one. `PyOpenCL`'s `svm_empty`, and by the options its `csvm_empty` and `fsvm_empty`.
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
    /// let numbers = backend.svm_empty::<u64>(100, &options)?;
    /// assert_eq!(numbers.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ZeroSize`](InvalidRequest::ZeroSize) for no elements; [`NotWholeElements`](InvalidRequest::NotWholeElements) for elements of no
    /// bytes; and those of [`allocate_svm`](binpool_allocators::SvmBackend::allocate_svm),
    /// [`Unsupported`](binpool_allocators::Error::Unsupported) for a grain that the device does not have among them.
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
}

impl<T: Pod> SvmPointer for Elements<T, ClMemory> {
    fn svm_memory(&self) -> Result<&ClMemory> {
        self.memory().svm_memory()
    }
}
