//! A queue on which nothing is pending, to commit memory on.
//!
//! A commit is a migration, and NVIDIA's driver crashes where a migration cannot begin at once.

use binpool_allocators::Result;
use parking_lot::Mutex;

use crate::sys::{self, ContextHandle, DeviceId, QueueHandle};

/// The queue, once it was needed. Its lock is held during a commit, so each finds it idle.
#[derive(Debug, Default)]
pub(super) struct IdleQueue {
    queue: Mutex<Option<QueueHandle>>,
}

impl IdleQueue {
    /// Calls `commit`, which waits for its commands, with the queue.
    pub(super) fn lend<T>(
        &self,
        context: &ContextHandle,
        device: DeviceId,
        commit: impl FnOnce(QueueHandle) -> Result<T>,
    ) -> Result<T> {
        let mut idle = self.queue.lock();
        let handle = match idle.take() {
            Some(handle) => handle,
            None => sys::create_queue(context, device, false)?,
        };
        let again = handle.another()?;
        let committed = commit(handle);
        *idle = Some(again);
        committed
    }
}
