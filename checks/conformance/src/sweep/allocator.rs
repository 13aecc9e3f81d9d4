//! Sweeps over allocators whose calls fail.

use std::{fmt, sync::Arc};

use crate::{AllocatorFault, Failing, FaultTrigger};
use binpool_allocators::Scope;
use parking_lot::Mutex;

use super::{FaultInjector, FaultPoint};

/// The calls of an allocator, of any device, for a [`sweep`](super::sweep). Clones are the same run.
#[derive(Clone)]
pub struct SweptAllocator<A> {
    allocator: Failing<A>,
    /// The number of calls before the first repair.
    calls: Arc<Mutex<Option<u64>>>,
    violations: Arc<Violations>,
}

type Violations = dyn Fn() -> Vec<String> + Send + Sync;

impl<A> SweptAllocator<A> {
    /// An allocator whose calls fail, on a device that cannot report leaks.
    pub fn new(allocator: Failing<A>) -> Self {
        Self {
            allocator,
            calls: Arc::default(),
            violations: Arc::new(Vec::new),
        }
    }

    /// An allocator whose calls fail. `violations` reports what is wrong on the device after everything that a run made has been
    /// dropped, except this allocator, of which the sweep has a clone.
    #[must_use]
    pub fn with_violations(
        self,
        violations: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            violations: Arc::new(violations),
            ..self
        }
    }

    /// The allocator.
    pub const fn allocator(&self) -> &Failing<A> {
        &self.allocator
    }
}

impl<A: fmt::Debug> fmt::Debug for SweptAllocator<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweptAllocator")
            .field("allocator", &self.allocator)
            .finish_non_exhaustive()
    }
}

impl<A: Send + Sync + 'static> FaultInjector for SweptAllocator<A> {
    fn inject(&self, point: FaultPoint) {
        /// A code that no runtime uses.
        const CODE: i32 = -9999;
        let trigger = if point.is_permanent {
            FaultTrigger::From(point.call)
        } else {
            FaultTrigger::Nth(point.call)
        };
        let fault = if point.is_out_of_memory {
            AllocatorFault::OutOfMemory(Scope::Device)
        } else {
            AllocatorFault::Backend(CODE)
        };
        self.allocator.fail(None, trigger, fault);
    }

    fn repair(&self) {
        self.allocator.clear_faults();
        self.calls.lock().get_or_insert(self.allocator.calls());
    }

    fn calls(&self) -> u64 {
        self.calls.lock().unwrap_or_else(|| self.allocator.calls())
    }

    fn first_failed_call(&self) -> Option<String> {
        let call = self.allocator.first_failed_call()?;
        Some(call.name().to_owned())
    }

    fn violations(&self) -> Vec<String> {
        (self.violations)()
    }
}
