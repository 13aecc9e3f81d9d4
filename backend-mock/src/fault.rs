//! Faults that a test injects: which call fails, when, and with which error.

use binpool_allocators::{Error, OutOfMemory, Scope};
use fastrand::Rng;

use crate::{CallCounts, CallKind, cause::Cause};

/// How a call fails.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags};
/// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
///
/// let device = MockDevice::new();
/// let backend = device.backend();
/// device.fail_nth(CallKind::CreateBuffer, 2, Fault::OutOfMemory, Persistence::Once);
/// let made = [(); 3].map(|()| backend.create_buffer(1024, MemoryFlags::empty()).is_ok());
/// assert_eq!(made, [true, false, true]);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// With [`Error::OutOfMemory`].
    OutOfMemory,
    /// With [`Error::Backend`], and this code of the runtime.
    Backend(i32),
    /// With [`Error::DeviceLost`]. For a device that stays lost, fail every call ([`Persistence::Forever`]).
    DeviceLost,
}

impl Fault {
    pub(crate) fn into_error(self, call: CallKind, bytes: usize, free: u64) -> Error {
        let source = |code| Cause::Injected { call, code };
        match self {
            Self::OutOfMemory => OutOfMemory::new(bytes, Scope::Device)
                .with_available(free)
                .with_source(source(Some(-4)))
                .into(),
            Self::Backend(code) => Error::backend(call.name(), Some(code), source(Some(code))),
            Self::DeviceLost => Error::DeviceLost {
                operation: call.name(),
                source: Some(source(None).into()),
            },
        }
    }
}

/// For how long calls fail.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::{CallKind, Fault, MockDevice, Persistence};
///
/// // Trying again helps against the one, but not against the other.
/// for (persistence, tries) in [(Persistence::Once, Some(2)), (Persistence::Forever, None)] {
///     let device = MockDevice::new();
///     let allocator = ImmediateAllocator::new(&device.backend())?;
///     device.fail_nth(CallKind::Commit, 1, Fault::Backend(-5), persistence);
///     let first = (1..=5).find(|_| allocator.allocate(1024).is_ok());
///     assert_eq!(first, tries);
/// }
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// One call fails.
    Once,
    /// That call and every one after it fail, until the faults are cleared.
    Forever,
}

/// When a fault applies.
#[derive(Debug)]
pub(crate) enum Trigger {
    /// At the call that makes `remaining` 0, and at all later ones where the fault persists.
    Nth {
        remaining: u64,
        persistence: Persistence,
    },
    /// At each call, with this probability.
    Random { random: Rng, probability: f64 },
}

#[derive(Debug)]
pub(crate) struct InjectedFault {
    /// The kind of calls that it applies to; `None` for all.
    pub(crate) kind: Option<CallKind>,
    pub(crate) trigger: Trigger,
    pub(crate) fault: Fault,
}

impl InjectedFault {
    /// Returns whether the fault applies to this call.
    fn applies_to(&mut self, kind: CallKind) -> bool {
        if self.kind.is_some_and(|wanted| wanted != kind) {
            return false;
        }
        match &mut self.trigger {
            Trigger::Nth {
                remaining,
                persistence,
            } => {
                let before = *remaining;
                *remaining = before.saturating_sub(1);
                before == 1 || (before == 0 && *persistence == Persistence::Forever)
            }
            Trigger::Random {
                random,
                probability,
            } => random.f64() < *probability,
        }
    }
}

/// The injected faults of a device.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    injected: Vec<InjectedFault>,
    /// The counts of the calls that were made to fail, and the first of them.
    pub(crate) failed_calls: CallCounts,
    pub(crate) first_failed_call: Option<CallKind>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: InjectedFault) {
        self.injected.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.injected.clear();
    }

    /// Returns how this call fails. Every fault counts every call of its kind; the oldest that applies decides.
    pub(crate) fn failure_of(&mut self, kind: CallKind) -> Option<Fault> {
        let mut injected = None;
        for fault in &mut self.injected {
            if fault.applies_to(kind) {
                injected = injected.or(Some(fault.fault));
            }
        }
        if injected.is_some() {
            self.failed_calls.add(kind);
            self.first_failed_call.get_or_insert(kind);
        }
        injected
    }
}
