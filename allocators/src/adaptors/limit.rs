//! The adaptor that limits how many bytes are allocated at once.

use crate::{
    Allocator, Event, EventOf, InvalidRequest, Memory, MemoryOf, Result, adaptors::Budget,
    forward_to_inner,
};

/// Limits the bytes that are allocated from an allocator at once. A request beyond the limit fails with
/// [`OutOfMemory`](crate::Error::OutOfMemory) of [`Scope::Limit`](crate::Scope::Limit), without a call to the device.
///
/// A block counts with its real size ([`Memory::bytes`]) from the call that allocates it until the call that releases
/// it has returned, even with an error, and the events of that call have ended: until then the device has its memory. A block that is
/// larger than requested and therefore exceeds the limit is released at once. Runtimes report more memory than they have (see [`DeviceLimits`](crate::DeviceLimits)), so a limit
/// also keeps a program within its device.
///
/// A block that is dropped instead of [released](Allocator::release) is freed without the limit's
/// knowledge, and counts as allocated forever.
///
/// Clones share one [`Budget`], as do all allocators made from it by [`shared`](Self::shared), so that several
/// pools can have one limit.
///
/// ```
/// use binpool_allocators::adaptors::Limit;
/// use binpool_allocators::{Allocator, Error, ImmediateAllocator, Scope};
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
/// let reserve = allocator.inner().allocate(1 << 20)?; // Not counted: for the program's own use.
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
    /// Limits `inner` to `max_bytes` at once.
    pub fn new(inner: A, max_bytes: u64) -> Self {
        Self::shared(inner, &Budget::new(max_bytes))
    }

    /// Limits `inner` to what is available in `budget`, which other allocators may share.
    ///
    /// ```
    /// use binpool_allocators::adaptors::{Budget, Limit};
    /// use binpool_allocators::{Allocator, ImmediateAllocator, SvmAllocator, SvmGrain};
    /// # use binpool_mock::MockDevice;
    ///
    /// # let backend = MockDevice::new().backend();
    /// // Both kinds of memory come from the same device.
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
        let budget = budget.clone();
        Self { inner, budget }
    }

    /// The budget.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The allocator that is limited. Blocks allocated or released through it directly are not counted.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the inner allocator, no longer limited.
    pub fn into_inner(self) -> A {
        self.inner
    }
}

impl<A: Allocator> Allocator for Limit<A> {
    forward_to_inner!(properties);
    forward_to_inner!(views);
    forward_to_inner!(pages);

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        let largest = self.inner.largest_block();
        if bytes > largest {
            // Too large for the limit even when everything is free, so it is not a shortage.
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
        // The guard also counts the block as released where the inner allocator panics.
        let given_back = self.budget.give_back_after(memory.bytes());
        self.inner.release(memory, after)?;
        let after: Vec<_> = after.iter().filter(|it| !it.has_ended()).cloned().collect();
        if !after.is_empty() {
            given_back.wait_until(move || after.iter().all(Event::has_ended));
        }
        Ok(())
    }

    /// The limit, or the inner allocator's capacity if that is less. Other users of the [budget](Self::budget) share the
    /// limit.
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes().min(self.budget.max_bytes())
    }

    fn available_bytes(&self) -> u64 {
        let available = self.inner.available_bytes();
        available.min(self.budget.available_bytes())
    }
}
