//! Failures that a program asks for.

use crate::{Error, OutOfMemory, Scope, random::Random};

/// A kind of call to an allocator that can be made to fail.
///
/// ```
/// use binpool_allocators::{
///     Allocator, AllocatorCall, AllocatorFault, Failing, FaultTrigger, ImmediateAllocator, Region,
/// };
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let allocator = Failing::new(ImmediateAllocator::new(&backend)?);
/// let fault = AllocatorFault::Backend(-61);
/// allocator.fail(AllocatorCall::CreateView, FaultTrigger::Next(u64::MAX), fault);
/// let block = allocator.allocate(4096)?; // Only views fail.
/// assert!(allocator.create_view(&block, Region::first(256)).is_err());
/// allocator.release(block, &[])?;
/// assert_eq!(allocator.first_struck().map(AllocatorCall::name), Some("create_view"));
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    /// [`Allocator::allocate`](crate::Allocator::allocate).
    Allocate,
    /// [`Allocator::release`](crate::Allocator::release).
    Release,
    /// [`Allocator::create_view`](crate::Allocator::create_view).
    CreateView,
}

impl AllocatorCall {
    /// The call's name, as errors have it.
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
/// use binpool_allocators::{
///     Allocator, AllocatorFault, DeferredAllocator, Error, Failing, FaultTrigger, Scope,
/// };
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// let failure = |fault| {
///     let allocator = Failing::new(DeferredAllocator::new(&backend));
///     allocator.fail(None, FaultTrigger::Nth(1), fault);
///     allocator.allocate(4096).unwrap_err()
/// };
/// // What a program frees memory for, and what it gives up at.
/// assert!(failure(AllocatorFault::OutOfMemory(Scope::Device)).is_out_of_memory());
/// assert_eq!(failure(AllocatorFault::Backend(-5)).to_string(), "allocate failed with code -5");
/// let lost = failure(AllocatorFault::DeviceLost);
/// assert!(matches!(lost, Error::DeviceLost { operation: "allocate", .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorFault {
    /// With [`Error::OutOfMemory`], of this scope.
    OutOfMemory(Scope),
    /// With [`Error::Backend`], and this code of the runtime.
    Backend(i32),
    /// With [`Error::DeviceLost`]. The calls after it succeed, unless they are made to fail, too.
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

/// The source of the errors that were asked for, by which a log tells them from the device's own.
#[derive(Debug, thiserror::Error)]
#[error("this call of {call} was made to fail")]
struct Injected {
    call: &'static str,
}

/// Which of the calls of a kind fail, counted from when the fault is asked for.
///
/// ```
/// use binpool_allocators::{
///     Allocator, AllocatorFault, DeferredAllocator, Failing, FaultTrigger, Scope,
/// };
/// # use binpool_mock::MockDevice;
///
/// # let backend = MockDevice::new().backend();
/// // Of six blocks of 100, 200, ... bytes, those that fail.
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
    /// The nth only; 1 is the next. The 0th is none.
    Nth(u64),
    /// The nth, the 2nth and so on. Every 0th is none.
    EveryNth(u64),
    /// So many, from the next one on; `u64::MAX` for all.
    Next(u64),
    /// The nth and all after it; 1 is the next. From the 0th on is all.
    From(u64),
    /// Each with a probability from 0 to 1, as a generator with a seed decides: the same seed makes the same calls fail.
    Randomly {
        /// The probability.
        probability: f64,
        /// The seed.
        seed: u64,
    },
    /// All about blocks, or views, of more bytes than this.
    LargerThan(usize),
}

/// One failure that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Which calls it looks at; `None` for all.
    call: Option<AllocatorCall>,
    trigger: FaultTrigger,
    fault: AllocatorFault,
    /// The calls that it has looked at.
    calls: u64,
    random: Random,
}

impl Plan {
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
            random: Random::new(seed),
        }
    }

    /// How this call about a block of `bytes` bytes fails.
    pub(crate) fn strike(&mut self, call: AllocatorCall, bytes: usize) -> Option<AllocatorFault> {
        if self.call.is_some_and(|wanted| wanted != call) {
            return None;
        }
        self.calls = self.calls.saturating_add(1);
        let strikes = match self.trigger {
            FaultTrigger::Nth(n) => self.calls == n,
            FaultTrigger::EveryNth(n) => self.calls.is_multiple_of(n),
            FaultTrigger::Next(count) => self.calls <= count,
            FaultTrigger::From(n) => self.calls >= n,
            FaultTrigger::Randomly { probability, .. } => self.random.fraction() < probability,
            FaultTrigger::LargerThan(most) => bytes > most,
        };
        strikes.then_some(self.fault)
    }
}
