//! Views of some elements of an array, to write them.

use std::{fmt, ops::RangeBounds};

use binpool::Backend;

use crate::{Array, ArrayError, AsSlice, Kernels, Slice, slice::Place};

/// Some elements of an [`Array`], to be written where they are: made by [`Array::slice_mut`].
///
/// What is written comes after every command that uses the array so far, whichever queue that is on, and before every
/// command that uses it later. It can be an operand, too ([`AsSlice`]).
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_array::{Context, MockKernels};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// # let context = Context::new(pool, queue, MockKernels);
/// let mut array = context.array(&[1.0, 2.0, 3.0, 4.0])?;
/// let doubled = &array + &array;
/// array.slice_mut(..2)?.copy_from(&[7.0, 8.0])?;
/// array.slice_mut(3..)?.assign(&doubled.slice(3..)?)?;
/// assert_eq!(array.to_vec()?, [7.0, 8.0, 3.0, 8.0]);
/// assert_eq!(doubled.to_vec()?, [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), binpool_array::ArrayError>(())
/// ```
///
/// Nothing else can use the array until it is dropped:
///
/// ```compile_fail,E0502
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_array::{Context, MockKernels};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
/// # let context = Context::new(pool, queue, MockKernels);
/// let mut array = context.array(&[1.0, 2.0]).unwrap();
/// let second = array.slice(1..).unwrap();
/// array.slice_mut(..1).unwrap().assign(&second).unwrap();
/// ```
pub struct SliceMut<'a, B: Backend, K> {
    pub(crate) array: &'a mut Array<B, K>,
    pub(crate) place: Place,
}

impl<'a, B: Backend, K> SliceMut<'a, B, K> {
    /// All `length` elements of `array`.
    pub(crate) const fn all(array: &'a mut Array<B, K>, length: usize) -> Self {
        let place = Place { first: 0, length };
        Self { array, place }
    }

    /// Some of its elements.
    pub(crate) fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self, ArrayError> {
        let place = self.place.part(range)?;
        Ok(Self { place, ..self })
    }

    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.place.length
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.place.length == 0
    }

    /// A view of some of its elements to write them, counted from its first one.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](ArrayError::OutOfRange).
    pub fn slice_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<SliceMut<'_, B, K>, ArrayError> {
        self.reborrow().into_slice(range)
    }

    pub(crate) const fn reborrow(&mut self) -> SliceMut<'_, B, K> {
        SliceMut {
            array: self.array,
            place: self.place,
        }
    }
}

impl<B: Backend, K: Kernels<B>> Array<B, K> {
    /// A view of some of the elements, to write them; see [`SliceMut`].
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](ArrayError::OutOfRange).
    pub fn slice_mut(
        &mut self,
        range: impl RangeBounds<usize>,
    ) -> Result<SliceMut<'_, B, K>, ArrayError> {
        let length = self.len();
        SliceMut::all(self, length).into_slice(range)
    }
}

impl<B: Backend, K: Kernels<B>> SliceMut<'_, B, K> {
    /// Writes elements from the host, and waits until they are written.
    ///
    /// # Errors
    ///
    /// [`Lengths`](ArrayError::Lengths) unless the lengths are equal; a failure of the device.
    pub fn copy_from(&mut self, elements: &[f32]) -> Result<(), ArrayError> {
        ArrayError::check_lengths(self.len(), elements.len())?;
        self.array.write_after_all()?;
        let (array, start) = (&*self.array, self.place.region().offset);
        array
            .buffer()
            .write(array.context().queue(), start, elements)?;
        Ok(())
    }

    /// Enqueues a copy of the elements of another array, on the device and on this array's queue.
    ///
    /// # Errors
    ///
    /// [`Lengths`](ArrayError::Lengths) unless the lengths are equal;
    /// [`ForeignObject`](binpool::InvalidRequest::ForeignObject) for an array of another backend; a failure of the device.
    pub fn assign(&mut self, source: &impl AsSlice<B, K>) -> Result<(), ArrayError> {
        let source = source.as_slice();
        ArrayError::check_lengths(self.len(), source.len())?;
        source
            .array()
            .compute_before(self.array.context().queue())?;
        self.array.write_after_all()?;
        let (target, to) = (&*self.array, self.place.region().offset);
        let (from, region) = (source.array().buffer(), source.place().region());
        let queue = target.context().queue();
        from.enqueue_copy_region_to(queue, region, target.buffer(), to)?;
        Ok(())
    }
}

impl<B: Backend, K> AsSlice<B, K> for SliceMut<'_, B, K> {
    fn as_slice(&self) -> Slice<'_, B, K> {
        Slice::new(self.array, self.place)
    }
}

impl<B: Backend, K> fmt::Debug for SliceMut<'_, B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceMut")
            .field("first", &self.place.first)
            .field("length", &self.place.length)
            .field("array", &self.array)
            .finish()
    }
}
