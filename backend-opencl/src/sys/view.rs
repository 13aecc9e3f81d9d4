//! Views of buffers: sub-buffers, and images over buffers.
//!
//! NVIDIA's driver (580) crashes where one thread enqueues a command on a buffer while another makes or releases a view of
//! it. So on its platform a thread holds one lock during each call that does either. It is one lock for the process, since
//! the driver has one list of a buffer's views for all contexts and queues. BENCHMARKS.md has its cost.
//!
//! A program may hold it, too, for commands of its own. So a thread takes it before the lock of a buffer's views, and waits for
//! no command and no turn while it has it.

use std::{fmt, mem::ManuallyDrop, ops::Deref};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use super::MemHandle;

/// True if only one thread at a time makes and releases views of a buffer and enqueues commands on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewLock {
    is_needed: bool,
}

/// Reentrant: a thread may drop a view while it enqueues a command.
static LOCK: ReentrantMutex<()> = ReentrantMutex::new(());

impl ViewLock {
    pub(crate) const fn needed(is_needed: bool) -> Self {
        Self { is_needed }
    }

    /// Takes the lock, if it is needed: for a call that makes or releases a view, or enqueues a command on memory, but not
    /// while a thread waits for a command.
    pub(crate) fn hold(self) -> Option<ReentrantMutexGuard<'static, ()>> {
        self.is_needed.then(|| LOCK.lock())
    }
}

/// A reference to a view, which is released under the lock.
pub(crate) struct ViewHandle {
    handle: ManuallyDrop<MemHandle>,
    lock: ViewLock,
}

impl ViewHandle {
    pub(crate) const fn new(handle: MemHandle, lock: ViewLock) -> Self {
        Self {
            handle: ManuallyDrop::new(handle),
            lock,
        }
    }
}

impl Drop for ViewHandle {
    fn drop(&mut self) {
        let _held = self.lock.hold();
        // SAFETY: The handle is dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.handle) };
    }
}

impl Deref for ViewHandle {
    type Target = MemHandle;

    fn deref(&self) -> &MemHandle {
        &self.handle
    }
}

impl fmt::Debug for ViewHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
