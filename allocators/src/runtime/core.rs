//! What all clones of a backend share, whatever its device.

use std::{
    any::Any,
    fmt,
    sync::{
        Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    Objects,
    deferred::{Deferred, Held},
};
use crate::{DeviceLimits, InvalidRequest, ObjectKind, Result};

/// The part of a backend that is the same on every device: its limits, and the memory that its commands still use.
///
/// A [`Runtime`](super::Runtime) has one in what its clones share.
///
/// ```
/// use binpool_allocators::{DeviceLimits, MemoryFlags, Result, runtime::{Core, Runtime}};
///
/// /// A core of a device whose driver has others.
/// fn core<R: Runtime>(limits: DeviceLimits, driver: usize) -> Core<R> {
///     Core::new(limits).of_family(driver)
/// }
///
/// /// Memory that the backend itself needs for a command.
/// fn staging<R: Runtime>(backend: &R, bytes: usize, command: R::Mark) -> Result<()> {
///     let core = backend.core();
///     core.limits().check_block(bytes)?;
///     let block = core.allocate(|| backend.allocate(bytes, MemoryFlags::HOST_RESIDENT))?;
///     core.keep_until(block, vec![command]);
///     core.drop_what_has_ended(); // A later call does that, too.
///     Ok(())
/// }
///
/// /// What a program may ask for that does not order its commands itself.
/// fn ordered<R: Runtime>(backend: R) -> R {
///     backend.core().order_conflicts();
///     backend
/// }
/// ```
pub struct Core<R: Objects> {
    limits: DeviceLimits,
    family: Option<usize>,
    orders_conflicts: AtomicBool,
    pub(super) deferred: Deferred<R>,
    /// The queues that are still used, as [`queue`](super::queue) knows them.
    pub(super) queues: Mutex<Vec<Weak<dyn Any + Send + Sync>>>,
}

impl<R: Objects> Core<R> {
    /// Returns the core of a device.
    #[must_use]
    pub fn new(limits: DeviceLimits) -> Self {
        Self {
            limits,
            family: None,
            orders_conflicts: AtomicBool::new(false),
            deferred: Deferred::default(),
            queues: Mutex::default(),
        }
    }

    /// Makes this the core of a device that works with others of the same family, such as those of one driver: commands may wait for
    /// events of the others, run on their queues, and copy to and from their memory.
    #[must_use]
    pub fn of_family(mut self, family: usize) -> Self {
        self.family = Some(family);
        self
    }

    /// The limits and capabilities of the device.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// From now on, a command waits for all earlier commands that it conflicts with: those of other queues, or of its own if that
    /// is out of order, that use the same bytes of one block, at least one of them writing. A missing wait list then cannot cause a data
    /// race.
    ///
    /// Off by default, since programs usually order their commands. It costs a check of the pending commands of each block that a
    /// command uses, under a lock that the other commands on that block wait for. Kernels count as writing all memory that they are passed.
    /// For memory that is mapped at several addresses, commands are ordered for each address separately.
    pub fn order_conflicts(&self) {
        self.orders_conflicts.store(true, Ordering::Release);
    }

    pub(super) fn orders_conflicts(&self) -> bool {
        self.orders_conflicts.load(Ordering::Acquire)
    }

    /// Keeps `held` until all of `after` have ended. It is dropped by a later call of this backend, on any thread, or at once.
    pub fn keep_until(&self, held: impl Send + 'static, after: Vec<R::Mark>) {
        self.deferred.put(Held::Other(Box::new(held)), after);
    }

    /// Calls `allocate`, and after a shortage drops what no command uses any more, and calls it again. For memory that
    /// [`Runtime::allocate`](super::Runtime::allocate) does not allocate.
    ///
    /// # Errors
    ///
    /// The errors of `allocate`.
    pub fn allocate<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        self.deferred.allocate(allocate)
    }

    /// Drops everything kept that no command uses any more.
    pub fn drop_what_has_ended(&self) {
        self.deferred.look_at_all();
    }

    /// Checks that an object is of this device.
    pub(super) fn check_own(&self, other: &Self, kind: ObjectKind) -> Result<()> {
        foreign_unless(std::ptr::eq(self, other), kind)
    }

    /// Checks that an object is of this device, or of one of its family.
    pub(super) fn check_family(&self, other: &Self, kind: ObjectKind) -> Result<()> {
        let is_relative = self.family.is_some() && self.family == other.family;
        foreign_unless(is_relative || std::ptr::eq(self, other), kind)
    }
}

impl<R: Objects> fmt::Debug for Core<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("device", &self.limits.device_name)
            .finish_non_exhaustive()
    }
}

fn foreign_unless(is_own: bool, kind: ObjectKind) -> Result<()> {
    if is_own {
        return Ok(());
    }
    Err(InvalidRequest::ForeignObject { kind }.into())
}
