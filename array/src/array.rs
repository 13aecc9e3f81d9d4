//! Arrays and their arithmetic.

use std::{
    fmt,
    ops::{Add, Mul, Sub},
    sync::{Mutex, PoisonError},
};

use binpool::{Allocator, PooledBuffer, Queue, QueueId, QueueOf, QueueOrder};

use crate::{ArrayError, BinaryOperation, Context, Kernels, Operands};

/// A one-dimensional array of `f32` on a device.
///
/// # Queues
///
/// An array belongs to its [`Context`], hence to a queue, and operations run on the queue of their left operand. Arrays
/// of other contexts may take part, as long as both are of one backend: the device then waits for what computes them.
/// No caller has to think of it: operands are put in order before they are used, and every use is recorded, so that a
/// block goes back to the pool with all its queues. Arrays of two backends do not mix, which is an error.
///
/// A queue is made to wait for an array once: elements never change, so what has waited for them need not do so again.
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
/// The operators `+`, `-` and `*` work element by element on arrays and references to them, and enqueue without
/// waiting. They panic where [`try_binary`](Self::try_binary) has an error, since operators have no other way.
pub struct Array<A: Allocator, K> {
    context: Context<A, K>,
    buffer: PooledBuffer<A>,
    length: usize,
    /// The queues on which everything comes after what computes the elements, from now on.
    ordered: Mutex<Vec<QueueId>>,
}

impl<A: Allocator, K: Kernels<A::Backend>> Array<A, K> {
    pub(crate) fn new(context: Context<A, K>, buffer: PooledBuffer<A>, length: usize) -> Self {
        let queue = context.queue();
        let in_order = queue.order() == QueueOrder::InOrder;
        let ordered = in_order.then(|| queue.id()).into_iter().collect();
        Self {
            context,
            buffer,
            length,
            ordered: Mutex::new(ordered),
        }
    }

    pub(crate) fn buffer(&self) -> &PooledBuffer<A> {
        &self.buffer
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
    /// Its block goes along, and back to the stock of that context's queue.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool::InvalidRequest::ForeignObject) for a context of another backend; a failure of the
    /// device.
    pub fn to_context(mut self, context: &Context<A, K>) -> Result<Self, ArrayError> {
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

    /// Enqueues an element-wise operation on this array's queue. The result is a fresh block from the pool.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Lengths`] for operands of different lengths;
    /// [`ForeignObject`](binpool::InvalidRequest::ForeignObject) for operands of two backends; no memory; a failure of
    /// the device.
    pub fn try_binary(&self, operation: BinaryOperation, right: &Self) -> Result<Self, ArrayError> {
        if self.length != right.length {
            return Err(ArrayError::Lengths {
                left: self.length,
                right: right.length,
            });
        }
        let context = &self.context;
        let result = context.uninitialized(self.length)?;
        let queue = context.queue();
        self.compute_before(queue)?;
        right.compute_before(queue)?;
        let operands = (
            self.buffer.memory_on(queue),
            right.buffer.memory_on(queue),
            result.buffer.memory_on(queue),
        );
        if let (Some(left), Some(right), Some(result)) = operands {
            let operands = Operands {
                left,
                right,
                result,
                elements: self.length,
            };
            let backend = context.pool().backend();
            context
                .kernels()
                .enqueue(backend, queue, operation, &operands)?;
        }
        Ok(result)
    }

    /// Has what computes this array come before what is enqueued on `queue` from now on. Elements never change later.
    fn compute_before(&self, queue: &QueueOf<A>) -> Result<(), ArrayError> {
        // Held meanwhile, so that no other thread takes for done what is about to be.
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        if !ordered.contains(&queue.id()) {
            self.buffer.order_before(queue)?;
            ordered.push(queue.id());
        }
        Ok(())
    }

    /// The elements, once everything enqueued before is computed.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    pub fn to_vec(&self) -> Result<Vec<f32>, ArrayError> {
        let mut bytes = vec![0; self.buffer.size()];
        self.compute_before(self.context.queue())?;
        self.buffer.read(self.context.queue(), 0, &mut bytes, &[])?;
        let (elements, _) = bytes.as_chunks();
        Ok(elements
            .iter()
            .map(|bytes| f32::from_ne_bytes(*bytes))
            .collect())
    }

    #[expect(
        clippy::panic,
        reason = "operators cannot return errors; `try_binary` does"
    )]
    fn binary(&self, operation: BinaryOperation, right: &Self) -> Self {
        match self.try_binary(operation, right) {
            Ok(result) => result,
            Err(error) => panic!("{} failed: {error}", operation.name()),
        }
    }
}

impl<A: Allocator, K> fmt::Debug for Array<A, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("length", &self.length)
            .field("buffer", &self.buffer)
            .finish_non_exhaustive()
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operation:expr) => {
        impl<A: Allocator, K: Kernels<A::Backend>> $trait for &Array<A, K> {
            type Output = Array<A, K>;

            fn $method(self, right: Self) -> Array<A, K> {
                self.binary($operation, right)
            }
        }

        impl<A: Allocator, K: Kernels<A::Backend>> $trait<&Self> for Array<A, K> {
            type Output = Self;

            fn $method(self, right: &Self) -> Self {
                self.binary($operation, right)
            }
        }

        impl<A: Allocator, K: Kernels<A::Backend>> $trait<Array<A, K>> for &Array<A, K> {
            type Output = Array<A, K>;

            fn $method(self, right: Array<A, K>) -> Array<A, K> {
                self.binary($operation, &right)
            }
        }

        impl<A: Allocator, K: Kernels<A::Backend>> $trait for Array<A, K> {
            type Output = Self;

            fn $method(self, right: Self) -> Self {
                self.binary($operation, &right)
            }
        }
    };
}

operator!(Add, add, BinaryOperation::Add);
operator!(Sub, sub, BinaryOperation::Subtract);
operator!(Mul, mul, BinaryOperation::Multiply);
