//! The adaptor that injects failures.

use std::sync::Arc;

use parking_lot::Mutex;

use binpool_allocators::{Allocator, EventOf, Memory, MemoryOf, Region, Result, forward_to_inner};

use crate::allocator_fault::{AllocatorCall, AllocatorFault, FaultTrigger, InjectedFault};

/// Makes calls of an allocator fail, on any backend, to test what a program does on a real device when
/// memory runs out. (The mock device injects failures by itself, into more kinds of calls.)
///
/// An allocation or a view that is made to fail does not reach the allocator. A release that is made to fail does: the
/// block is gone, and only the result is an error. Where several faults apply to one call, the oldest decides; each counts
/// every call of its kind. Clones share their faults.
///
/// ```
/// use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, ImmediateAllocator, Scope};
/// use binpool_mock::MockDevice;
///
/// let backend = MockDevice::new().backend();
/// let allocator = Failing::new(ImmediateAllocator::new(&backend)?);
/// let full = AllocatorFault::OutOfMemory(Scope::Device);
/// allocator.fail(AllocatorCall::Allocate, FaultTrigger::Nth(2), full);
/// assert!(allocator.allocate(100).is_ok());
/// assert!(allocator.allocate(100).unwrap_err().is_out_of_memory());
/// assert!(allocator.allocate(100).is_ok());
/// assert_eq!(allocator.failed_calls(), 1);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// A test that makes every call of a program fail once:
///
/// ```
/// use binpool_allocators::adaptors::Statistics;
/// use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, ImmediateAllocator, Result};
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
/// assert_eq!((allocator.failed_calls(), allocator.first_failed_call()), (2, Some(AllocatorCall::Allocate)));
/// program(&allocator.into_inner())?; // This allocator injects no failures.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Failing<A> {
    inner: A,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Debug, Default)]
struct Faults {
    injected: Vec<InjectedFault>,
    calls: u64,
    failed_calls: u64,
    first_failed_call: Option<AllocatorCall>,
}

impl<A> Failing<A> {
    /// An allocator without faults.
    pub fn new(inner: A) -> Self {
        Self {
            inner,
            faults: Arc::default(),
        }
    }

    /// Makes calls of this kind (`None`: of any kind) fail with `fault` from now on, as `trigger` says.
    pub fn fail(
        &self,
        call: impl Into<Option<AllocatorCall>>,
        trigger: FaultTrigger,
        fault: AllocatorFault,
    ) {
        let injected = InjectedFault::new(call.into(), trigger, fault);
        self.faults.lock().injected.push(injected);
    }

    /// Removes all faults. Failures of the allocator itself remain.
    pub fn clear_faults(&self) {
        self.faults.lock().injected.clear();
    }

    /// Returns how many calls there were that can be made to fail.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.faults.lock().calls
    }

    /// Returns how many calls were made to fail.
    #[must_use]
    pub fn failed_calls(&self) -> u64 {
        self.faults.lock().failed_calls
    }

    /// Returns the kind of the first call that was made to fail.
    #[must_use]
    pub fn first_failed_call(&self) -> Option<AllocatorCall> {
        self.faults.lock().first_failed_call
    }

    /// The inner allocator, which injects no failures.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// Returns the inner allocator, which injects no failures.
    pub fn into_inner(self) -> A {
        self.inner
    }

    /// Returns the error of the fault that applies to this call, if there is one.
    fn fail_if_injected(&self, call: AllocatorCall, bytes: usize) -> Result<()> {
        let mut injected = None;
        let mut faults = self.faults.lock();
        for fault in &mut faults.injected {
            let failure = fault.failure_of(call, bytes);
            injected = injected.or(failure);
        }
        faults.calls += 1;
        if injected.is_some() {
            faults.failed_calls += 1;
            faults.first_failed_call.get_or_insert(call);
        }
        drop(faults);
        injected.map_or(Ok(()), |fault| Err(fault.into_error(call, bytes)))
    }
}

impl<A: Allocator> Allocator for Failing<A> {
    forward_to_inner!(properties);
    forward_to_inner!(pages);
    forward_to_inner!(limits);

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>> {
        self.fail_if_injected(AllocatorCall::CreateView, region.bytes)?;
        self.inner.create_view(block, region)
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        self.inner.release_view(view);
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>> {
        self.fail_if_injected(AllocatorCall::Allocate, bytes)?;
        self.inner.allocate(bytes)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[EventOf<Self>]) -> Result<()> {
        let injected = self.fail_if_injected(AllocatorCall::Release, memory.bytes());
        // A failure of the device itself takes precedence over the injected one, which the program knows of anyway.
        self.inner.release(memory, after)?;
        injected
    }
}
