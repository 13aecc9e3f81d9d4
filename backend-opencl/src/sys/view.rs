//! Views of buffers: sub-buffers, and images over buffers.
//!
//! NVIDIA's driver (580) crashes where one thread enqueues a command on a buffer while another makes or releases a view of
//! it. So on its platform a thread holds one lock during each call that does either. It is one lock for the process, since
//! the driver has one list of a buffer's views for all contexts and queues. BENCHMARKS.md has its cost.
//!
//! A program may hold it, too, for commands of its own. So a thread takes it before the lock of a buffer's views, and waits for
//! no command and no turn while it has it.

use std::{fmt, mem::ManuallyDrop, ops::Deref};

use parking_lot::ReentrantMutex;

use super::MemHandle;

/// The lock, if only one thread at a time may make and release views of a buffer and enqueue commands on it: for a call that
/// does so, but not while a thread waits for a command.
pub(crate) type ViewLock = Option<&'static ReentrantMutex<()>>;

/// Reentrant: a thread may drop a view while it enqueues a command.
pub(crate) static VIEW_LOCK: ReentrantMutex<()> = ReentrantMutex::new(());

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
        let _held = self.lock.map(ReentrantMutex::lock);
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
