//! Reductions: many elements to one.

use crate::{Array, ArrayError, AsSlice, Kernels, Reduction, Slice};
use binpool::Backend;

/// Reductions, on the queue of the slice's array.
///
/// They work in steps: a kernel reduces each of many parts to a partial result, and the next kernel reduces those,
/// until there is one. Partial results are blocks of the pool. So sums are added in an order that depends on the number
/// of elements and on the backend's kernels, and on nothing else: the same elements have the same sum each time, and
/// their sums on two devices differ by rounding. Each addition rounds to `f32`, but a sum goes through far fewer
/// additions in a row than it has elements: about the number that one work item adds.
impl<B: Backend, K: Kernels<B>> Slice<'_, B, K> {
    /// Enqueues a reduction. The result is an array of one element.
    ///
    /// # Errors
    ///
    /// [`NoElements`](ArrayError::NoElements) for the minimum or the maximum of nothing; no memory; a failure of the
    /// device.
    pub fn reduce_to(&self, reduction: Reduction) -> Result<Array<B, K>, ArrayError> {
        if self.is_empty() {
            return match reduction {
                Reduction::Sum => self.context().array(&[0.0]),
                Reduction::Minimum | Reduction::Maximum => {
                    Err(ArrayError::NoElements { reduction })
                }
            };
        }
        let mut result = self.reduce_once(reduction)?;
        while result.len() > 1 {
            result = result.as_slice().reduce_once(reduction)?;
        }
        Ok(result)
    }

    /// Enqueues one step. The slice is not empty.
    fn reduce_once(&self, reduction: Reduction) -> Result<Array<B, K>, ArrayError> {
        let context = self.context();
        let (queue, kernels) = (context.queue(), context.kernels());
        let results = context.uninitialized(kernels.partial_results(self.len()))?;
        self.array().compute_before(queue)?;
        let backend = context.pool().backend();
        kernels.enqueue_reduction(backend, queue, reduction, self, &results.as_slice())?;
        Ok(results)
    }

    /// Reduces the elements, and waits for the result.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_to`](Self::reduce_to).
    pub fn reduce(&self, reduction: Reduction) -> Result<f32, ArrayError> {
        let mut element = [0.0_f32];
        let result = self.reduce_to(reduction)?;
        let queue = result.context().queue();
        result.compute_before(queue)?;
        result.buffer().read(queue, 0, &mut element)?;
        let [element] = element;
        Ok(element)
    }

    /// The [sum](Reduction::Sum) of the elements.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_to`](Self::reduce_to).
    pub fn sum(&self) -> Result<f32, ArrayError> {
        self.reduce(Reduction::Sum)
    }

    /// The [smallest](Reduction::Minimum) element.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_to`](Self::reduce_to).
    pub fn min(&self) -> Result<f32, ArrayError> {
        self.reduce(Reduction::Minimum)
    }

    /// The [largest](Reduction::Maximum) element.
    ///
    /// # Errors
    ///
    /// Those of [`reduce_to`](Self::reduce_to).
    pub fn max(&self) -> Result<f32, ArrayError> {
        self.reduce(Reduction::Maximum)
    }
}

/// Reductions of all elements: those of [`Slice`].
impl<B: Backend, K: Kernels<B>> Array<B, K> {
    /// See [`Slice::reduce_to`].
    ///
    /// # Errors
    ///
    /// Those of [`Slice::reduce_to`].
    pub fn reduce_to(&self, reduction: Reduction) -> Result<Self, ArrayError> {
        self.as_slice().reduce_to(reduction)
    }

    /// See [`Slice::reduce`].
    ///
    /// # Errors
    ///
    /// Those of [`Slice::reduce_to`].
    pub fn reduce(&self, reduction: Reduction) -> Result<f32, ArrayError> {
        self.as_slice().reduce(reduction)
    }

    /// See [`Slice::sum`].
    ///
    /// # Errors
    ///
    /// Those of [`Slice::reduce_to`].
    pub fn sum(&self) -> Result<f32, ArrayError> {
        self.as_slice().sum()
    }

    /// See [`Slice::min`].
    ///
    /// # Errors
    ///
    /// Those of [`Slice::reduce_to`].
    pub fn min(&self) -> Result<f32, ArrayError> {
        self.as_slice().min()
    }

    /// See [`Slice::max`].
    ///
    /// # Errors
    ///
    /// Those of [`Slice::reduce_to`].
    pub fn max(&self) -> Result<f32, ArrayError> {
        self.as_slice().max()
    }
}
