//! No more than so many bytes.

use crate::{
    Allocator, Budget, EventOf, InvalidRequest, Memory, MemoryOf, Result, forward_to_inner,
};

/// Lets at most so many bytes be taken from an allocator at once. More is
/// [`OutOfMemory`](crate::Error::OutOfMemory) of [`Scope::Limit`](crate::Scope::Limit), without a call to the device.
///
/// Counted is what blocks really have ([`Memory::bytes`]), from the call that allocates until the call that releases
/// has returned, even with an error. A block that is larger than was asked for and does not fit for that reason goes
/// back at once. Runtimes promise more than they have (see [`DeviceLimits`](crate::DeviceLimits)), so a limit is also
/// the way to keep a program within its device.
///
/// A block that is dropped instead of [released](Allocator::release) goes back to the runtime past the limit, which
/// counts it as taken for good.
///
/// Clones share one [`Budget`], and so does everything that is made of it by [`shared`](Self::shared): several
/// pools with one limit.
///
/// ```
/// use binpool_allocators::{Allocator, Error, ImmediateAllocator, Limit, Scope};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let allocator = Limit::new(ImmediateAllocator::new(&backend)?, 1 << 20);
/// let block = allocator.allocate(1 << 20)?;
/// assert_eq!(allocator.budget().available_bytes(), 0);
/// let Err(Error::OutOfMemory(refusal)) = allocator.allocate(1) else { unreachable!() };
/// assert_eq!((refusal.scope, refusal.available), (Scope::Limit, Some(0)));
/// allocator.release(block, &[])?;
/// assert_eq!(allocator.budget().used_bytes(), 0);
/// let reserve = allocator.inner().allocate(1 << 20)?; // Past the limit, for the program's own use.
/// assert_eq!(allocator.budget().used_bytes(), 0);
/// let unlimited = allocator.into_inner();
/// assert!(unlimited.allocate(2 << 20).is_ok());
/// # drop(reserve);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Limit<A> {
    inner: A,
    budget: Budget,
}

impl<A> Limit<A> {
    /// At most `max_bytes` from `inner` at once.
    pub fn new(inner: A, max_bytes: u64) -> Self {
        Self::shared(inner, &Budget::new(max_bytes))
    }

    /// At most what `budget` has, which others may share.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Budget, ImmediateAllocator, Limit, SvmAllocator, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// // Both kinds of memory are the device's.
    /// let budget = Budget::new(10_000);
    /// let buffers = Limit::shared(ImmediateAllocator::new(&backend)?, &budget);
    /// let svm = Limit::shared(SvmAllocator::new(&backend, SvmGrain::Coarse)?, &budget);
    /// let block = buffers.allocate(8_000)?;
    /// assert_eq!(svm.available_bytes(), 2_000);
    /// assert!(svm.allocate(3_000).unwrap_err().is_out_of_memory());
    /// # buffers.release(block, &[])?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn shared(inner: A, budget: &Budget) -> Self {
        Self {
            inner,
            budget: budget.clone(),
        }
    }

    /// What may be taken, and what is.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The allocator that is limited. Blocks that go to or from it directly are not counted.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// The allocator, no longer limited.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

impl<A: Allocator> Allocator for Limit<A> {
    forward_to_inner!(properties);
    forward_to_inner!(views);

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let largest = self.inner.largest_block();
        if bytes > largest {
            // Not a matter of the limit: there is none that lets this pass.
            let requested = bytes;
            return Err(InvalidRequest::TooLarge { requested, largest }.into());
        }
        let mut promise = self.budget.promise(bytes)?;
        let memory = self.inner.allocate(bytes)?;
        let given = memory.bytes();
        if let Err(refusal) = promise.keep(given) {
            if let Err(error) = self.inner.release(memory, &[]) {
                tracing::error!(%error, bytes = given, "a block beyond the limit could not be released cleanly");
            }
            return Err(refusal);
        }
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let bytes = memory.bytes();
        let result = self.inner.release(memory, after);
        self.budget.give_back(bytes);
        result
    }

    /// The limit, where that is less than what there is. Others who share the [budget](Self::budget) take their part of it.
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes().min(self.budget.max_bytes())
    }

    fn available_bytes(&self) -> u64 {
        let available = self.inner.available_bytes();
        available.min(self.budget.available_bytes())
    }
}
