//! What all clones of a backend share, whatever its device.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{CoreQueue, Runtime, deferred::Deferred, queue::Queues};
use crate::{DeviceLimits, QueueOrder, Result};

/// The part of a backend that is the same on every device: its limits, and the memory that its commands still use.
///
/// A [`Runtime`] has one in what its clones share.
pub struct Core<R: Runtime> {
    limits: DeviceLimits,
    orders_conflicts: AtomicBool,
    pub(super) deferred: Deferred<R>,
    pub(super) queues: Queues<R>,
}

impl<R: Runtime> Core<R> {
    /// Returns the core of a device.
    #[must_use]
    pub fn new(limits: DeviceLimits) -> Self {
        Self {
            limits,
            orders_conflicts: AtomicBool::new(false),
            deferred: Deferred::default(),
            queues: Queues::default(),
        }
    }

    /// The limits and capabilities of the device.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// From now on, a command waits for all earlier commands that it conflicts with: those of other queues, or of its own if that
    /// is out of order, that use the same bytes of one block, one of them to write. Leaving out a wait list cannot cause a data
    /// race then.
    ///
    /// Off by default, since the program of most runtimes orders its commands. It costs a look at the pending commands of each block that a
    /// command uses, under a lock that the other commands on that block wait for. Kernels count as writing all memory that they are passed.
    /// Commands on memory that is mapped at several addresses are ordered at each of them alone.
    pub fn order_conflicts(&self) {
        self.orders_conflicts.store(true, Ordering::Release);
    }

    pub(super) fn orders_conflicts(&self) -> bool {
        self.orders_conflicts.load(Ordering::Acquire)
    }

    /// Keeps `held` until all of `after` have ended. It is dropped by a later call of this backend, on any thread, or at once.
    pub fn keep_until(&self, held: impl Send + 'static, after: Vec<R::Mark>) {
        self.deferred.drop_after(held, after);
    }

    /// Returns the queue of a stream that the program has made by itself: the known one, if a queue of `backend` has the wanted stream, or a new
    /// one. So the same stream is the same queue.
    pub fn adopt_queue(
        &self,
        backend: &R,
        is_wanted: impl Fn(&R::Stream) -> bool,
        make: impl FnOnce() -> (R::Stream, QueueOrder),
    ) -> CoreQueue<R> {
        self.queues.find_or_add(is_wanted, || {
            let (stream, order) = make();
            CoreQueue::new(backend, stream, order)
        })
    }

    /// Calls `allocate`, and again after a shortage, once what commands do not use any more is dropped. For memory that
    /// [`Runtime::allocate`] does not make.
    ///
    /// # Errors
    ///
    /// What `allocate` returns.
    pub fn allocate<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        self.deferred.allocate(allocate)
    }

    /// Looks at everything that is kept, and drops what no command uses any more.
    pub fn drop_what_has_ended(&self) {
        self.deferred.look_at_all();
    }

    /// Returns whether both are the core of the same backend.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl<R: Runtime> fmt::Debug for Core<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("device", &self.limits.device_name)
            .finish_non_exhaustive()
    }
}
