//! What the clones of a backend, its memory and its queues share.

use std::sync::Arc;

use binpool_allocators::{DeviceLimits, Error, InvalidRequest, ObjectKind, Result, Scope};
use parking_lot::Mutex;

use crate::{
    event::CudaEvent,
    graveyard::Graveyard,
    queue::{CudaQueue, Queues},
    sys::{Context, CudaResult, DeviceFacts, Staging},
};

pub(crate) struct Shared {
    pub(crate) context: Arc<Context>,
    pub(crate) facts: DeviceFacts,
    pub(crate) limits: DeviceLimits,
    /// A power of two.
    pub(crate) page_bytes: usize,
    pub(crate) graveyard: Graveyard,
    pub(crate) queues: Queues,
    /// Pinned memory that graphs copy from, each time they are launched.
    pub(crate) captured: Mutex<Vec<Arc<Staging>>>,
}

impl Shared {
    /// Allocates memory. Where there is none, what commands have left is freed, and it is tried once more.
    pub(crate) fn allocate<T>(
        &self,
        bytes: usize,
        scope: Scope,
        allocate: impl Fn() -> CudaResult<T>,
    ) -> Result<T> {
        self.graveyard.reap_some();
        let first = allocate().map_err(|error| error.shortage(bytes, scope));
        match first {
            Err(error) if error.is_out_of_memory() => {
                self.graveyard.reap_all();
                let second = allocate().map_err(|error| error.shortage(bytes, scope));
                second.inspect_err(|_| self.graveyard.warn_of_unresolved())
            }
            first => first,
        }
    }

    pub(crate) fn check_queue(&self, queue: &CudaQueue) -> Result<()> {
        self.check(queue.stream().context(), ObjectKind::Queue)
    }

    /// Checks that a queue is of this device itself.
    pub(crate) fn check_own_queue(&self, queue: &CudaQueue) -> Result<()> {
        if queue.stream().context().is_same(&self.context) {
            return Ok(());
        }
        let kind = ObjectKind::Queue;
        Err(InvalidRequest::ForeignObject { kind }.into())
    }

    pub(crate) fn check_events(&self, events: &[CudaEvent]) -> Result<()> {
        events
            .iter()
            .try_for_each(|event| self.check(event.context(), ObjectKind::Event))
    }

    /// Checks that an object is of this device, or of another one of the same driver.
    pub(crate) fn check(&self, context: &Context, kind: ObjectKind) -> Result<()> {
        if context.has_driver_of(&self.context) {
            return Ok(());
        }
        Err(InvalidRequest::ForeignObject { kind }.into())
    }

    /// The error where the device lacks something.
    pub(crate) fn lacks(&self, what: &str) -> Error {
        let name = &self.limits.device_name;
        Error::unsupported(format!("{what} on {name}: use `create_buffer`"))
    }
}
