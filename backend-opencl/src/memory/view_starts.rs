//! What kernels are given in the place of views on NVIDIA's driver.
//!
//! The driver (580) crashes when a view is released after kernels have used it and another view that shares bytes with it,
//! in one launch or in several. A kernel needs no more of a view than its address. So there it is given a sub-buffer of one
//! byte, which all views share that start at this byte: such sub-buffers share no bytes with each other.
//!
//! A kernel then reads and writes beyond the sub-buffer that it is given, and within the buffer. The specification leaves that
//! undefined; in this driver a sub-buffer is an address in its buffer's memory, provided that the buffer has memory on the
//! device: it is committed before the first such launch. A buffer of a context of several devices would have to be committed
//! before each launch. There kernels are given no views.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use binpool_allocators::{Error, Result};
use parking_lot::{Mutex, ReentrantMutex};

use crate::{
    context::Context,
    sys::{self, MemHandle, Purpose, ViewHandle, WaitList},
};

/// The sub-buffers of one byte of a buffer that kernels are given.
#[derive(Debug, Default)]
pub(crate) struct ViewStarts {
    /// Set if the buffer has memory on the device.
    is_committed: AtomicBool,
    /// Held by the thread that sees to that.
    committing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the bytes of the buffer at which they start.
    starts: BTreeMap<usize, Weak<ViewHandle>>,
    /// The number of starts at which those that are gone are removed: twice the number left the last time.
    limit: usize,
}

/// The least number of starts at which those that are gone are removed.
const LEAST_LIMIT: usize = 64;

impl ViewStarts {
    /// Returns the sub-buffer that starts at byte `start` of `buffer`, whose sub-buffers these are.
    pub(crate) fn get(
        &self,
        context: &Context,
        buffer: &MemHandle,
        start: usize,
    ) -> Result<Arc<ViewHandle>> {
        self.commit(context, buffer)?;
        // First the lock of views, which a thread may hold already while it enqueues commands of the program's own.
        let lock = context.quirks.view_lock;
        let _no_view_changes = lock.map(ReentrantMutex::lock);
        let mut state = self.state.lock();
        if let Some(known) = state.starts.get(&start).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let handle = sys::create_sub_buffer(buffer, 0, start, 1)
            .map_err(|error| error.into_error(Purpose::Memory(1)))?;
        let made = Arc::new(ViewHandle::new(handle, lock));
        if state.starts.len() >= state.limit.max(LEAST_LIMIT) {
            state.starts.retain(|_, known| known.strong_count() > 0);
            state.limit = state.starts.len().saturating_mul(2);
        }
        state.starts.insert(start, Arc::downgrade(&made));
        Ok(made)
    }

    /// Has the device allocate the memory of `buffer`, whose sub-buffers these are, and waits for that: once. A thread that holds
    /// the lock of views does not call this before it was done.
    pub(crate) fn commit(&self, context: &Context, buffer: &MemHandle) -> Result<()> {
        if self.is_committed.load(Ordering::Acquire) {
            return Ok(());
        }
        let _only_one = self.committing.lock();
        if !self.is_committed.load(Ordering::Acquire) {
            commit(context, buffer)?;
            self.is_committed.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Makes the device allocate the memory of `buffer`, and waits for that.
fn commit(context: &Context, buffer: &MemHandle) -> Result<()> {
    if sys::context_devices(&context.handle)?.len() > 1 {
        return Err(Error::unsupported(
            "launches with views on NVIDIA's OpenCL in a context of several devices: make a context for each device, or pass \
             the whole memory and an offset",
        ));
    }
    let quirks = &context.quirks;
    quirks.on_idle_queue(&context.handle, context.device, |queue| {
        let Some(queue) = queue else {
            return Ok(());
        };
        let none = WaitList::none();
        let enqueueing = quirks.while_enqueueing();
        let committed = sys::enqueue_migrate(&queue, &[buffer], 0, &none)?;
        drop(enqueueing);
        sys::wait_for_event(&committed).map_err(Into::into)
    })
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Backend, MemoryFlags};

    use super::*;
    use crate::testing::open;

    #[test]
    fn views_that_start_together_share_one_object_for_kernels() {
        let backend = open();
        let step = backend.limits().alignment.bytes();
        let buffer = backend.create_buffer(3 * LEAST_LIMIT * step, MemoryFlags::empty());
        let buffer = buffer.unwrap();
        let (root, _) = buffer.root().unwrap();
        let get = |start| root.starts.get(backend.context(), &root.handle, start);
        let (one, two) = (get(0).unwrap(), get(step).unwrap());
        assert!(Arc::ptr_eq(&one, &get(0).unwrap()));
        assert!(!Arc::ptr_eq(&one, &two));
        let forgotten = Arc::downgrade(&one);
        drop(one);
        assert!(
            forgotten.upgrade().is_none(),
            "it lives as long as its views"
        );
        for start in 2..3 * LEAST_LIMIT {
            drop(get(start * step).unwrap());
        }
        let known = root.starts.state.lock().starts.len();
        assert!(
            known <= LEAST_LIMIT,
            "{known}: those that are gone make place"
        );
        assert!(Arc::ptr_eq(&two, &get(step).unwrap()), "and no other");
    }
}
