//! Arrays on a device, and the arithmetic on them.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use binpool::{Backend, PooledBuffer, Queue, QueueId, QueueOrder};

use crate::{ArrayError, Context, Kernels};

/// A one-dimensional array of `f32` on a device.
///
/// # Queues
///
/// An array belongs to its [`Context`], hence to a queue, and operations run on the queue of their left operand. Arrays
/// of other contexts may take part, as long as both are of one backend: the device then waits for what computes them.
/// Callers need not think of this: operands are put in order before they are used, and every use is recorded, so that a
/// block goes back to the pool with all its queues. Arrays of two backends do not mix, which is an error.
///
/// A queue is made to wait for an array once. Elements change through [`slice_mut`](Self::slice_mut) and
/// [`map_mut`](Self::map_mut) only: what changes them waits for every command that uses the array so far, on all
/// queues, and the queues wait for the array again afterwards.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_array::{Context, MockKernels};
/// # use binpool_mock::{Completion, MockDevice};
/// # let device = MockDevice::builder().completion(Completion::Seeded(7)).build();
/// # let backend = device.backend();
/// # let [one, two] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
/// let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &one)?;
/// let [one, two] = [one, two].map(|queue| Context::new(pool.clone(), queue, MockKernels));
///
/// let (a, b) = (one.array(&[1.0, 2.0])?, two.array(&[3.0, 4.0])?);
/// let product = &(&a + &b) * &(&b - &a); // the sum on one queue, the difference on the other
/// assert_eq!(product.to_vec()?, [8.0, 12.0]);
/// let moved = product.to_context(&two)?; // from now on its operations run there
/// assert_eq!((&moved + &b).to_vec()?, [11.0, 16.0]);
/// # Ok::<(), binpool_array::ArrayError>(())
/// ```
///
/// The operators `+`, `-` and `*` work element by element on arrays, references to them, slices and numbers, and enqueue without
/// waiting; a number is filled into a temporary array. They panic if [`try_binary`](Self::try_binary) returns an error, since operators cannot return one.
pub struct Array<B: Backend, K> {
    context: Context<B, K>,
    buffer: PooledBuffer<B>,
    length: usize,
    /// The queues on which everything comes after what computes the elements, from now on.
    ordered: Mutex<Vec<QueueId>>,
}

impl<B: Backend, K> Array<B, K> {
    pub(crate) const fn buffer(&self) -> &PooledBuffer<B> {
        &self.buffer
    }
}

impl<B: Backend, K: Kernels<B>> Context<B, K> {
    /// An array with these elements.
    ///
    /// # Errors
    ///
    /// If the pool has no memory, or the write fails.
    pub fn array(&self, elements: &[f32]) -> Result<Array<B, K>, ArrayError> {
        let array = self.uninitialized(elements.len())?;
        array.buffer().write(self.queue(), 0, elements)?;
        Ok(array)
    }

    /// An array of `length` elements that are all `value`: enqueues a fill, and does not wait for it.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_array::{Context, MockKernels};
    /// # use binpool_mock::MockDevice;
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// # let context = Context::new(pool, queue, MockKernels);
    /// let ones = context.full(3, 1.0)?;
    /// assert_eq!((2.0 * &ones - 0.5).to_vec()?, [1.5; 3]);
    /// # Ok::<(), binpool_array::ArrayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the pool has no memory, or the fill fails.
    pub fn full(&self, length: usize, value: f32) -> Result<Array<B, K>, ArrayError> {
        let array = self.uninitialized(length)?;
        if length > 0 {
            let all = ..length * size_of::<f32>();
            array.buffer().enqueue_fill(self.queue(), all, &[value])?;
        }
        Ok(array)
    }

    /// An array of undefined elements, to be written by a kernel.
    pub(crate) fn uninitialized(&self, length: usize) -> Result<Array<B, K>, ArrayError> {
        // A length that overflows asks for more than any device has, and is refused by the pool.
        let bytes = length.saturating_mul(size_of::<f32>());
        let buffer = self.pool().allocate_on(self.queue(), bytes)?;
        Ok(Array::new(self.clone(), buffer, length))
    }
}

impl<B: Backend, K: Kernels<B>> Array<B, K> {
    pub(crate) fn new(context: Context<B, K>, buffer: PooledBuffer<B>, length: usize) -> Self {
        let ordered = Mutex::new(ordered_at_first(context.queue()));
        Self {
            context,
            buffer,
            length,
            ordered,
        }
    }

    pub(crate) fn context(&self) -> &Context<B, K> {
        &self.context
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The same array for another context: operations on it run there from now on, and come after what computes it here.
    /// Its block goes along, and back to the free list of that context's queue.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool::InvalidRequest::ForeignObject) for a context of another backend; a failure of the
    /// device.
    pub fn to_context(mut self, context: &Context<B, K>) -> Result<Self, ArrayError> {
        let queue = context.queue();
        if queue.order() == QueueOrder::InOrder {
            self.buffer.bind_to_queue(queue)?;
            let ordered = self.ordered.get_mut();
            let ordered = ordered.unwrap_or_else(PoisonError::into_inner);
            if !ordered.contains(&queue.id()) {
                ordered.push(queue.id());
            }
        } else {
            self.compute_before(queue)?;
        }
        self.context = context.clone();
        Ok(self)
    }

    /// Has what computes this array come before what is enqueued on `queue` from now on.
    pub(crate) fn compute_before(&self, queue: &B::Queue) -> Result<(), ArrayError> {
        // Held meanwhile, so that no other thread takes for done what is about to be.
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        if !ordered.contains(&queue.id()) {
            self.buffer.order_before(queue)?;
            ordered.push(queue.id());
        }
        Ok(())
    }

    /// Has every command that uses this array so far come before what is enqueued on its queue from now on, since that
    /// is going to write it. From here on the other queues have to wait for it again.
    pub(crate) fn write_after_all(&mut self) -> Result<(), ArrayError> {
        let ordered = self.ordered.get_mut();
        *ordered.unwrap_or_else(PoisonError::into_inner) = ordered_at_first(self.context.queue());
        self.buffer.order_before(self.context.queue())?;
        Ok(())
    }
}

/// The queues on which everything comes after a command on `queue`, from now on.
fn ordered_at_first<Q: Queue>(queue: &Q) -> Vec<QueueId> {
    let in_order = queue.order() == QueueOrder::InOrder;
    in_order.then(|| queue.id()).into_iter().collect()
}

impl<B: Backend, K> fmt::Debug for Array<B, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("length", &self.length)
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}
