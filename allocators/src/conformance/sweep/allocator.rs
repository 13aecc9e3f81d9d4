//! Sweeps over allocators whose calls fail.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::{Faulty, Strike};
use crate::{
    Scope,
    adaptors::{AllocatorFault, Failing, FaultTrigger},
};

/// The calls of an allocator, of any device, for a [`sweep`](super::sweep). Clones are the same run.
#[derive(Clone)]
pub struct Failures<A> {
    allocator: Failing<A>,
    /// The number of calls before the first repair.
    calls: Arc<Mutex<Option<u64>>>,
    complaints: Arc<Complain>,
}

type Complain = dyn Fn() -> Vec<String> + Send + Sync;

impl<A> Failures<A> {
    /// An allocator whose calls fail, on a device that cannot report leaks.
    pub fn of(allocator: Failing<A>) -> Self {
        Self {
            allocator,
            calls: Arc::default(),
            complaints: Arc::new(Vec::new),
        }
    }

    /// An allocator whose calls fail. `complaints` reports what is wrong on the device after everything that a run made has been
    /// dropped, except this allocator, of which the sweep has a clone.
    #[must_use]
    pub fn with_complaints(
        self,
        complaints: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            complaints: Arc::new(complaints),
            ..self
        }
    }

    /// The allocator.
    pub const fn allocator(&self) -> &Failing<A> {
        &self.allocator
    }
}

impl<A: fmt::Debug> fmt::Debug for Failures<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failures")
            .field("allocator", &self.allocator)
            .finish_non_exhaustive()
    }
}

impl<A: Send + Sync + 'static> Faulty for Failures<A> {
    fn arm(&self, strike: Strike) {
        /// A code that no runtime uses.
        const CODE: i32 = -9999;
        let trigger = if strike.lasts {
            FaultTrigger::From(strike.call)
        } else {
            FaultTrigger::Nth(strike.call)
        };
        let fault = if strike.is_out_of_memory {
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

    fn struck(&self) -> Option<String> {
        let call = self.allocator.first_struck()?;
        Some(call.name().to_owned())
    }

    fn complaints(&self) -> Vec<String> {
        (self.complaints)()
    }
}
