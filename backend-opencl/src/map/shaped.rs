//! Maps as arrays of `ndarray`.

use bytemuck::{AnyBitPattern, NoUninit};
use ndarray::{ArrayView, ArrayViewMut, Dimension, ShapeError, StrideShape};

use super::guard::{Map, MapMut};

impl<T: AnyBitPattern> Map<'_, T> {
    /// The elements as an array of this shape: row by row, column by column (`.f()`), or with strides of its own
    /// (`.strides(..)`, in elements); `shape`, `order` and `strides` of `PyOpenCL`'s `enqueue_map_buffer`.
    ///
    /// ```no_run
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// use ndarray::ShapeBuilder;
    ///
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let map = backend.map::<f32>(&queue, &memory, 0..4096, &[])?;
    /// let columns = map.shaped((32, 32).f())?;
    /// assert_eq!(columns.strides(), [1, 32]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Where the shape reaches beyond the map.
    pub fn shaped<D: Dimension>(
        &self,
        shape: impl Into<StrideShape<D>>,
    ) -> Result<ArrayView<'_, T, D>, ShapeError> {
        ArrayView::from_shape(shape, self)
    }
}

impl<T: AnyBitPattern + NoUninit> MapMut<'_, T> {
    /// The elements as an array of this shape; see [`Map::shaped`].
    ///
    /// # Errors
    ///
    /// Where the shape reaches beyond the map.
    pub fn shaped<D: Dimension>(
        &self,
        shape: impl Into<StrideShape<D>>,
    ) -> Result<ArrayView<'_, T, D>, ShapeError> {
        ArrayView::from_shape(shape, self)
    }

    /// The elements as an array of this shape, to be written; see [`Map::shaped`].
    ///
    /// # Errors
    ///
    /// Where the shape reaches beyond the map, or has two places for one element.
    pub fn shaped_mut<D: Dimension>(
        &mut self,
        shape: impl Into<StrideShape<D>>,
    ) -> Result<ArrayViewMut<'_, T, D>, ShapeError> {
        ArrayViewMut::from_shape(shape, self)
    }
}
