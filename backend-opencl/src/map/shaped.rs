//! Maps as arrays of `ndarray`.

use bytemuck::{AnyBitPattern, NoUninit};
use ndarray::{ArrayView, ArrayViewMut, Dimension, ShapeError, StrideShape};

use super::guard::{HostMap, MapMut};

impl<T: AnyBitPattern, A> HostMap<'_, T, A> {
    /// Returns the elements as an array of this shape: row by row, column by column (`.f()`), or with strides of its own
    /// (`.strides(..)`, in elements); `shape`, `order` and `strides` of `PyOpenCL`'s `enqueue_map_buffer`.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// use ndarray::ShapeBuilder;
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let map = backend.map::<f32>(&queue, &memory, 0..4096)?;
    /// let columns = map.shaped((32, 32).f())?;
    /// assert_eq!(columns.strides(), [1, 32]);
    /// assert!(map.shaped((33, 32)).is_err()); // The map ends before.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the shape reaches beyond the map.
    pub fn shaped<D: Dimension>(
        &self,
        shape: impl Into<StrideShape<D>>,
    ) -> Result<ArrayView<'_, T, D>, ShapeError> {
        ArrayView::from_shape(shape, self)
    }
}

impl<T: AnyBitPattern + NoUninit> MapMut<'_, T> {
    /// Returns the elements as an array of this shape, to be written; see [`shaped`](Self::shaped).
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer_from(&[1, 2, 3, 4, 5, 6], MemoryFlags::empty())?;
    /// let mut map = backend.map_mut::<i32>(&queue, &memory, 0..24)?;
    /// let mut rows = map.shaped_mut((2, 3))?;
    /// rows.row_mut(1).fill(0);
    /// assert_eq!(map.shaped((2, 3))?, ndarray::arr2(&[[1, 2, 3], [0, 0, 0]]));
    /// assert_eq!(map[..], [1, 2, 3, 0, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the shape reaches beyond the map, or has one element at two indices.
    pub fn shaped_mut<D: Dimension>(
        &mut self,
        shape: impl Into<StrideShape<D>>,
    ) -> Result<ArrayViewMut<'_, T, D>, ShapeError> {
        ArrayViewMut::from_shape(shape, self)
    }
}
