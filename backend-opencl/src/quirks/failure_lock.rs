//! A lock that keeps events from failing while commands that wait for them are enqueued.
//!
//! `PoCL` 3.1 never ends a command that is enqueued to wait for an event that has failed. So a thread holds this lock while
//! it checks whether an event has failed and enqueues the command, and a thread that makes an event fail holds it alone.
//!
//! `PoCL` also runs a command that it has reported as failed, where one event that it waits for fails while another thread completes
//! the last of the others. Threads of the host complete and fail events one at a time under this lock. A thread of the runtime that
//! completes a command cannot be held off: [`companions`](crate::order::companions) prevent the harm.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Read while a command is enqueued or a user event completes, written while an event is made to fail.
#[derive(Debug)]
pub(super) struct FailureLock {
    is_needed: bool,
    lock: RwLock<()>,
}

impl FailureLock {
    pub(super) const fn new(is_needed: bool) -> Self {
        Self {
            is_needed,
            lock: RwLock::new(()),
        }
    }

    pub(super) fn while_enqueueing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.is_needed.then(|| self.lock.read())
    }

    /// The lock for a thread that may hold it already.
    pub(super) fn while_enqueueing_again(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.is_needed.then(|| self.lock.read_recursive())
    }

    pub(super) fn while_failing(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.is_needed.then(|| self.lock.write())
    }
}
