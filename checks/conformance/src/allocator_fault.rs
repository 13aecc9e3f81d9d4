//! Faults: which calls of an allocator are made to fail, and how.

use fastrand::Rng;

use binpool_allocators::{Error, OutOfMemory, Scope};

/// A kind of call to an allocator that can be made to fail.
///
/// ```
/// use binpool_conformance::{AllocatorCall, AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, ImmediateAllocator, Region};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let allocator = Failing::new(ImmediateAllocator::new(&backend)?);
/// let fault = AllocatorFault::Backend(-61);
/// allocator.fail(AllocatorCall::CreateView, FaultTrigger::Next(u64::MAX), fault);
/// let block = allocator.allocate(4096)?; // The fault applies to views only.
/// assert!(allocator.create_view(&block, Region::first(256)).is_err());
/// allocator.release(block, &[])?;
/// assert_eq!(allocator.first_failed_call().map(AllocatorCall::name), Some("create_view"));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    /// [`Allocator::allocate`](binpool_allocators::Allocator::allocate).
    Allocate,
    /// [`Allocator::release`](binpool_allocators::Allocator::release).
    Release,
    /// [`Allocator::create_view`](binpool_allocators::Allocator::create_view).
    CreateView,
}

impl AllocatorCall {
    /// The call's name in error texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Release => "release",
            Self::CreateView => "create_view",
        }
    }
}

/// How a call fails.
///
/// ```
/// use binpool_conformance::{AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, DeferredAllocator, Error, Scope};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let failure = |fault| {
///     let allocator = Failing::new(DeferredAllocator::new(&backend));
///     allocator.fail(None, FaultTrigger::Nth(1), fault);
///     allocator.allocate(4096).unwrap_err()
/// };
/// // A program frees memory after the first error, and gives up after the second.
/// assert!(failure(AllocatorFault::OutOfMemory(Scope::Device)).is_out_of_memory());
/// assert_eq!(failure(AllocatorFault::Backend(-5)).to_string(), "allocate failed with code -5");
/// let lost = failure(AllocatorFault::DeviceLost);
/// assert!(matches!(lost, Error::DeviceLost { operation: "allocate", .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorFault {
    /// With [`Error::OutOfMemory`] of this scope.
    OutOfMemory(Scope),
    /// With [`Error::Backend`] and this code of the runtime.
    Backend(i32),
    /// With [`Error::DeviceLost`]. Later calls succeed, unless they are made to fail as well.
    DeviceLost,
}

impl AllocatorFault {
    pub(crate) fn into_error(self, call: AllocatorCall, bytes: usize) -> Error {
        let source = Injected { call: call.name() };
        match self {
            Self::OutOfMemory(scope) => OutOfMemory::new(bytes, scope).with_source(source).into(),
            Self::Backend(code) => Error::backend(call.name(), Some(code), source),
            Self::DeviceLost => Error::DeviceLost {
                operation: call.name(),
                source: Some(source.into()),
            },
        }
    }
}

/// The source of injected errors, which tells them from the device's own in a log.
#[derive(Debug, thiserror::Error)]
#[error("an injected fault, in {call}")]
struct Injected {
    call: &'static str,
}

/// Which calls of a kind fail, counted from the moment when the fault is added.
///
/// ```
/// use binpool_conformance::{AllocatorFault, Failing, FaultTrigger};
/// use binpool_allocators::{Allocator, DeferredAllocator, Scope};
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// // Prints which of six blocks of 100, 200, ... bytes fail.
/// let failed = |trigger| {
///     let allocator = Failing::new(DeferredAllocator::new(&backend));
///     allocator.fail(None, trigger, AllocatorFault::OutOfMemory(Scope::Device));
///     let blocks = (1..=6).filter(|nth| allocator.allocate(nth * 100).is_err());
///     blocks.collect::<Vec<usize>>()
/// };
/// assert_eq!(failed(FaultTrigger::Nth(2)), [2]);
/// assert_eq!(failed(FaultTrigger::EveryNth(2)), [2, 4, 6]);
/// assert_eq!(failed(FaultTrigger::Next(2)), [1, 2]);
/// assert_eq!(failed(FaultTrigger::From(5)), [5, 6]);
/// assert_eq!(failed(FaultTrigger::LargerThan(300)), [4, 5, 6]);
/// let randomly = FaultTrigger::Randomly { probability: 0.5, seed: 7 };
/// assert_eq!(failed(randomly), failed(randomly));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FaultTrigger {
    /// Only the nth call; 1 is the next one. 0 means no call.
    Nth(u64),
    /// Every nth call: the nth, the 2nth and so on. 0 means no call.
    EveryNth(u64),
    /// The next n calls; `u64::MAX` for all.
    Next(u64),
    /// The nth call and all after it; 1 is the next one. 0 means all.
    From(u64),
    /// Each call with a probability from 0 to 1, drawn from a seeded generator: the same seed makes the same calls fail.
    Randomly {
        /// The probability.
        probability: f64,
        /// The seed.
        seed: u64,
    },
    /// All calls for blocks or views of more bytes than this.
    LargerThan(usize),
}

/// One fault that was added.
#[derive(Clone, Debug)]
pub(crate) struct InjectedFault {
    /// The kind of calls that it applies to; `None` for all.
    call: Option<AllocatorCall>,
    trigger: FaultTrigger,
    fault: AllocatorFault,
    /// The calls of that kind so far.
    calls: u64,
    random: Rng,
}

impl InjectedFault {
    pub(crate) const fn new(
        call: Option<AllocatorCall>,
        trigger: FaultTrigger,
        fault: AllocatorFault,
    ) -> Self {
        let seed = match trigger {
            FaultTrigger::Randomly { seed, .. } => seed,
            _ => 0,
        };
        Self {
            call,
            trigger,
            fault,
            calls: 0,
            random: Rng::with_seed(seed),
        }
    }

    /// Returns how this call for a block of `bytes` bytes fails, or `None` if it does not.
    pub(crate) fn failure_of(
        &mut self,
        call: AllocatorCall,
        bytes: usize,
    ) -> Option<AllocatorFault> {
        if self.call.is_some_and(|wanted| wanted != call) {
            return None;
        }
        self.calls = self.calls.saturating_add(1);
        let is_due = match self.trigger {
            FaultTrigger::Nth(n) => self.calls == n,
            FaultTrigger::EveryNth(n) => self.calls.is_multiple_of(n),
            FaultTrigger::Next(count) => self.calls <= count,
            FaultTrigger::From(n) => self.calls >= n,
            FaultTrigger::Randomly { probability, .. } => self.random.f64() < probability,
            FaultTrigger::LargerThan(most) => bytes > most,
        };
        is_due.then_some(self.fault)
    }
}
