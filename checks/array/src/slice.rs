//! Views of some elements of an array.

use std::{
    fmt,
    ops::{Bound, Range, RangeBounds},
};

use binpool::{AsMemory, Backend, Region};

use crate::{Array, ArrayError, BinaryOperation, Context, Kernels};

/// Some elements of an [`Array`], where they are: made by [`Array::slice`].
///
/// A slice takes part in everything that an array does, on the array's queue, and is put in order with the array.
/// Nothing is copied, wherever it starts: kernels are given the array's block and where the slice starts in it
/// ([`AsMemory::start`]), so that a device's alignment does not matter.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_array::{ArrayError, Context, MockKernels};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// # let context = Context::new(pool, queue, MockKernels);
/// let signal = context.array(&[1.0, 4.0, 9.0, 16.0])?;
/// let steps = signal.slice(1..)? - signal.slice(..3)?;
/// assert_eq!(steps.to_vec()?, [3.0, 5.0, 7.0]);
///
/// let error = signal.slice(2..=4).unwrap_err();
/// assert!(matches!(error, ArrayError::OutOfRange { start: 2, end: 5, length: 4 }));
/// # Ok::<(), binpool_array::ArrayError>(())
/// ```
///
/// It borrows its array, which cannot be dropped or written before it is dropped:
///
/// ```compile_fail,E0505
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_array::{Context, MockKernels};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
/// # let context = Context::new(pool, queue, MockKernels);
/// let array = context.array(&[1.0, 2.0]).unwrap();
/// let slice = array.slice(1..).unwrap();
/// drop(array);
/// slice.to_vec().unwrap();
/// ```
pub struct Slice<'a, B: Backend, K> {
    array: &'a Array<B, K>,
    place: Place,
}

/// Which elements of an array: all of them lie within it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) first: usize,
    pub(crate) length: usize,
}

impl Place {
    /// The elements of `range`, counted from the first one here.
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Result<Self, ArrayError> {
        let length = self.length;
        let Range { start, end } = half_open(&range, length);
        if start > end || end > length {
            return Err(ArrayError::OutOfRange { start, end, length });
        }
        Ok(Self {
            first: self.first + start,
            length: end - start,
        })
    }

    /// Where they are in the array's block, in bytes, which are counted there in a `usize`.
    pub(crate) const fn region(self) -> Region {
        Region::new(
            self.first * size_of::<f32>(),
            self.length * size_of::<f32>(),
        )
    }
}

/// The range with both ends. One that ends beyond the largest number ends there, and no array is that long.
fn half_open(range: &impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => length,
    };
    start..end
}

/// What arithmetic takes: arrays, slices, and references to them.
pub trait AsSlice<B: Backend, K> {
    /// All its elements.
    fn as_slice(&self) -> Slice<'_, B, K>;
}

impl<B: Backend, K: Kernels<B>> AsSlice<B, K> for Array<B, K> {
    fn as_slice(&self) -> Slice<'_, B, K> {
        let (first, length) = (0, self.len());
        Slice::new(self, Place { first, length })
    }
}

impl<B: Backend, K> AsSlice<B, K> for Slice<'_, B, K> {
    fn as_slice(&self) -> Slice<'_, B, K> {
        *self
    }
}

impl<B: Backend, K, T: AsSlice<B, K>> AsSlice<B, K> for &T {
    fn as_slice(&self) -> Slice<'_, B, K> {
        (**self).as_slice()
    }
}

impl<'a, B: Backend, K> Slice<'a, B, K> {
    pub(crate) const fn new(array: &'a Array<B, K>, place: Place) -> Self {
        Self { array, place }
    }

    pub(crate) const fn array(&self) -> &'a Array<B, K> {
        self.array
    }

    pub(crate) const fn place(&self) -> Place {
        self.place
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

    /// A view of some of its elements, counted from its first one.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](ArrayError::OutOfRange).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, ArrayError> {
        Ok(Self::new(self.array, self.place.part(range)?))
    }
}

impl<B: Backend, K: Kernels<B>> Array<B, K> {
    /// A view of some of the elements; see [`Slice`].
    ///
    /// # Errors
    ///
    /// [`OutOfRange`](ArrayError::OutOfRange).
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, B, K>, ArrayError> {
        self.as_slice().slice(range)
    }

    /// The elements, once everything enqueued before is computed.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn to_vec(&self) -> Result<Vec<f32>, ArrayError> {
        self.as_slice().to_vec()
    }

    /// Enqueues an element-wise operation on this array's queue. The result is a fresh block from the pool.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Lengths`] for operands of different lengths;
    /// [`ForeignObject`](binpool::InvalidRequest::ForeignObject) for operands of two backends; no memory; a failure of
    /// the device.
    pub fn try_binary(
        &self,
        operation: BinaryOperation,
        right: &impl AsSlice<B, K>,
    ) -> Result<Self, ArrayError> {
        self.as_slice().try_binary(operation, right)
    }
}

impl<'a, B: Backend, K: Kernels<B>> Slice<'a, B, K> {
    pub(crate) fn context(&self) -> &'a Context<B, K> {
        self.array.context()
    }

    /// The elements, once everything enqueued before is computed.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn to_vec(&self) -> Result<Vec<f32>, ArrayError> {
        let queue = self.context().queue();
        let mut elements = vec![0.0_f32; self.len()];
        self.array.compute_before(queue)?;
        let start = self.place.region().offset;
        self.array.buffer().read(queue, start, &mut elements)?;
        Ok(elements)
    }

    /// Enqueues a copy of these elements, on the device, to an array of their own.
    ///
    /// # Errors
    ///
    /// No memory; a failure of the device.
    pub fn to_array(&self) -> Result<Array<B, K>, ArrayError> {
        let context = self.context();
        let queue = context.queue();
        let copy = context.uninitialized(self.len())?;
        self.array.compute_before(queue)?;
        let (from, region) = (self.array.buffer(), self.place.region());
        from.enqueue_copy_region_to(queue, region, copy.buffer(), 0)?;
        Ok(copy)
    }

    /// Enqueues an element-wise operation on the queue of this slice's array. The result is a fresh block from the pool.
    ///
    /// # Errors
    ///
    /// Those of [`Array::try_binary`].
    pub fn try_binary(
        &self,
        operation: BinaryOperation,
        right: &impl AsSlice<B, K>,
    ) -> Result<Array<B, K>, ArrayError> {
        let right = right.as_slice();
        ArrayError::check_lengths(self.len(), right.len())?;
        let context = self.context();
        let queue = context.queue();
        let result = context.uninitialized(self.len())?;
        self.array.compute_before(queue)?;
        right.array.compute_before(queue)?;
        if !self.is_empty() {
            let (backend, operands) = (context.pool().backend(), [self as _, &right as _]);
            context
                .kernels()
                .enqueue(backend, queue, operation, operands, &result.as_slice())?;
        }
        Ok(result)
    }
}

/// The bytes of the elements, for kernels. They are not put in order with what computes them.
impl<B: Backend, K> AsMemory<B> for Slice<'_, B, K> {
    fn size(&self) -> usize {
        self.place.region().bytes
    }

    fn start(&self) -> usize {
        self.place.region().offset
    }

    fn memory_on(&self, queue: &B::Queue) -> Option<&B::Memory> {
        self.array.buffer().memory_on(queue)
    }
}

impl<B: Backend, K> Clone for Slice<'_, B, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, K> Copy for Slice<'_, B, K> {}

impl<B: Backend, K> fmt::Debug for Slice<'_, B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("first", &self.place.first)
            .field("length", &self.place.length)
            .field("array", &self.array)
            .finish()
    }
}
