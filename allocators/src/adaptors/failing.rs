//! Failures on purpose.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    Allocator, AllocatorCall, AllocatorFault, EventOf, FaultTrigger, Memory, MemoryOf, Region,
    Result, adaptors::fault::Plan, forward_to_inner,
};

/// Makes calls of an allocator fail, on any backend: so that a program sees on a real device what it does when memory
/// runs out. (The mock device fails calls of its own, more kinds of them.)
///
/// An allocation, or a view, that is made to fail does not reach the allocator. A release that is made to fail does: the
/// block is gone, and only the answer is an error. Where several faults strike one call, the oldest decides; each counts every
/// call of its kind. Clones share their faults.
///
/// ```
/// use binpool_allocators::{
///     Allocator, AllocatorCall, AllocatorFault, Failing, FaultTrigger, ImmediateAllocator, Scope,
/// };
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let allocator = Failing::new(ImmediateAllocator::new(&backend)?);
/// let full = AllocatorFault::OutOfMemory(Scope::Device);
/// allocator.fail(AllocatorCall::Allocate, FaultTrigger::Nth(2), full);
/// assert!(allocator.allocate(100).is_ok());
/// assert!(allocator.allocate(100).unwrap_err().is_out_of_memory());
/// assert!(allocator.allocate(100).is_ok());
/// assert_eq!(allocator.struck(), 1);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A test that has every call of a program fail once:
///
/// ```
/// use binpool_allocators::{
///     Allocator, AllocatorCall, AllocatorFault, Failing, FaultTrigger, ImmediateAllocator, Result,
///     Statistics,
/// };
/// # use binpool_mock::MockDevice;
///
/// fn program(allocator: &impl Allocator) -> Result<()> {
///     let block = allocator.allocate(100)?;
///     allocator.release(block, &[])
/// }
///
/// # let backend = MockDevice::new().backend();
/// let allocator = Failing::new(Statistics::new(ImmediateAllocator::new(&backend)?));
/// program(&allocator)?;
/// for nth in 1..=allocator.calls() {
///     allocator.fail(None, FaultTrigger::Nth(nth), AllocatorFault::DeviceLost);
///     assert!(program(&allocator).is_err());
///     allocator.clear_faults();
///     assert_eq!(allocator.inner().reading().current_bytes, 0, "nothing is lost");
/// }
/// assert_eq!((allocator.struck(), allocator.first_struck()), (2, Some(AllocatorCall::Allocate)));
/// program(&allocator.into_inner())?; // Nothing fails on purpose there.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Failing<A> {
    inner: A,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    plans: Vec<Plan>,
    calls: u64,
    struck: u64,
    first_struck: Option<AllocatorCall>,
}

impl<A> Failing<A> {
    /// An allocator that does not fail yet.
    pub fn new(inner: A) -> Self {
        Self {
            inner,
            faults: Arc::default(),
        }
    }

    /// Makes calls of this kind (`None`: of any kind) fail from now on, when `trigger` says so, in the way of `fault`.
    pub fn fail(
        &self,
        call: impl Into<Option<AllocatorCall>>,
        trigger: FaultTrigger,
        fault: AllocatorFault,
    ) {
        let plan = Plan::new(call.into(), trigger, fault);
        self.faults.lock().plans.push(plan);
    }

    /// Lets all calls succeed again that the allocator itself lets succeed.
    pub fn clear_faults(&self) {
        self.faults.lock().plans.clear();
    }

    /// How many calls there were that can be made to fail.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.faults.lock().calls
    }

    /// How many calls were made to fail.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.faults.lock().struck
    }

    /// The first call that was made to fail.
    #[must_use]
    pub fn first_struck(&self) -> Option<AllocatorCall> {
        self.faults.lock().first_struck
    }

    /// The allocator, which does not fail on purpose.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// The allocator, which does not fail on purpose.
    pub fn into_inner(self) -> A {
        self.inner
    }

    /// Fails where a fault strikes.
    fn strike(&self, call: AllocatorCall, bytes: usize) -> Result<()> {
        let mut struck = None;
        let mut faults = self.faults.lock();
        for plan in &mut faults.plans {
            let fault = plan.strike(call, bytes);
            struck = struck.or(fault);
        }
        faults.calls += 1;
        if struck.is_some() {
            faults.struck += 1;
            faults.first_struck.get_or_insert(call);
        }
        drop(faults);
        struck.map_or(Ok(()), |fault| Err(fault.into_error(call, bytes)))
    }
}

impl<A: Allocator> Allocator for Failing<A> {
    forward_to_inner!(properties);
    forward_to_inner!(limits);

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>> {
        self.strike(AllocatorCall::CreateView, region.bytes)?;
        self.inner.create_view(block, region)
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        self.inner.release_view(view);
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        self.strike(AllocatorCall::Allocate, bytes)?;
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let struck = self.strike(AllocatorCall::Release, memory.bytes());
        // A failure of the device itself goes first: it is the one nobody knows of.
        self.inner.release(memory, after)?;
        struck
    }
}
