//! Transfers that borrow memory of the host while a closure runs.

use std::{
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use binpool_allocators::{Event, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use parking_lot::Mutex;

use super::host::TransferPart;
use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    sys::{self, host::HostSide},
};

/// A scope for transfers with borrowed memory: see [`transfer_scope`](OpenClBackend::transfer_scope).
///
/// ```
/// # use binpool_allocators::{Queue, Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let other_queue = backend.create_queue(QueueOrder::InOrder)?;
/// let memory = backend.create_buffer(8, MemoryFlags::empty())?;
/// let numbers = [1_u16, 2, 3, 4];
/// let mut seen = [0_u16; 4];
/// let (head, tail) = seen.split_at_mut(2);
/// backend.transfer_scope(|scope| {
///     scope.enqueue_write(&queue, (&memory, 0), &numbers)?;
///     // Side by side, after the write.
///     scope.enqueue_read(&queue, (&memory, 0), head)?;
///     scope.enqueue_read(&other_queue, (&memory, 4), tail)
/// })?;
/// assert_eq!(seen, numbers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Parts of a picture that the program keeps:
///
/// ```
/// use binpool_opencl::{Rect, RectPart};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let memory = backend.create_buffer(4, MemoryFlags::empty())?;
///
/// let mut picture: Vec<u8> = (0..16).collect(); // 4 × 4
/// let (top, bottom) = picture.split_at_mut(8);
/// let middle = Rect::in_rows([1, 0, 0], 4);
/// let packed = (&memory, Rect::default());
/// backend.transfer_scope(|scope| {
///     scope.enqueue_write(&queue, RectPart::new(packed, middle, [2, 2, 1]), top)?;
///     scope.enqueue_read(&queue, RectPart::new(packed, middle, [2, 2, 1]), bottom)
/// })?;
/// assert_eq!(picture[8..], [8, 1, 2, 11, 12, 5, 6, 15]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TransferScope<'scope, 'env: 'scope> {
    backend: &'scope OpenClBackend,
    events: Mutex<Vec<ClEvent>>,
    /// Invariant in both lifetimes, as the scopes of `std::thread` are: neither may be shortened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl OpenClBackend {
    /// Runs `program`, which may enqueue transfers with memory of the host that it borrows, and waits for all of them
    /// before it returns, even if `program` panics. So the memory can neither be freed nor touched before the commands have
    /// ended, even if their events are dropped. A guard of a single transfer would not be sound: it could be forgotten, and
    /// its memory freed while the command uses it.
    ///
    /// If a transfer waits for an event that is only resolved after the scope, this waits forever, as with a thread of
    /// [`std::thread::scope`].
    ///
    /// ```
    /// use binpool_allocators::{Queue, Backend, MemoryFlags, QueueOrder};
    /// use binpool_opencl::OpenClBackend;
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let memory = backend.create_buffer(16, MemoryFlags::empty())?;
    /// let (numbers, mut seen) = ([1_u32, 2, 3, 4], [0_u32; 4]);
    /// backend.transfer_scope(|scope| {
    ///     scope.enqueue_write(&queue, (&memory, 0), &numbers)?;
    ///     scope.enqueue_read(&queue, (&memory, 0), &mut seen)
    /// })?;
    /// assert_eq!(seen, numbers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The compiler refuses memory that does not live long enough, and access to memory that is being read into:
    ///
    /// ```compile_fail,E0597
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
    /// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    /// # let memory = backend.create_buffer(16, MemoryFlags::empty()).unwrap();
    /// backend.transfer_scope(|scope| {
    ///     let mut seen = [0_u32; 4];
    ///     scope.enqueue_read(&queue, (&memory, 0), &mut seen)
    /// });
    /// ```
    ///
    /// ```compile_fail,E0502
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{DeviceSelector, OpenClBackend};
    /// # let backend = OpenClBackend::open(&DeviceSelector::Any).unwrap();
    /// # let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    /// # let memory = backend.create_buffer(16, MemoryFlags::empty()).unwrap();
    /// let mut seen = [0_u32; 4];
    /// backend.transfer_scope(|scope| {
    ///     scope.enqueue_read(&queue, (&memory, 0), &mut seen)?;
    ///     assert_eq!(seen[0], 0);
    ///     Ok(())
    /// });
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `program`, or the failure of the first transfer that failed. All transfers have ended.
    pub fn transfer_scope<'env, R>(
        &self,
        program: impl for<'scope> FnOnce(&'scope TransferScope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let scope = TransferScope {
            backend: self,
            events: Mutex::new(Vec::new()),
            scope: PhantomData,
            env: PhantomData,
        };
        let result = catch_unwind(AssertUnwindSafe(|| program(&scope)));
        let ended = wait_for(&scope.events.lock());
        // A failure or a panic of `program` matters more than what it may have led to.
        let result = result.unwrap_or_else(|panic| resume_unwind(panic))?;
        ended.map(|()| result)
    }
}

/// Waits until all have ended, and returns the first failure.
fn wait_for(events: &[ClEvent]) -> Result<()> {
    let mut result = Ok(());
    for event in events {
        // Returns only after the end, even if the wait above has failed.
        let _ended = sys::wait_until_ended(event.handle());
        let ended = event.wait();
        if result.is_ok() {
            result = ended;
        }
    }
    result
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "parts are small, and calls read better so"
)]
impl<'scope> TransferScope<'scope, '_> {
    /// Enqueues a write of `data`.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_write_part`](OpenClBackend::enqueue_write_part).
    pub fn enqueue_write<'q, T: NoUninit, P: TransferPart>(
        &'scope self,
        on: impl Into<ClOn<'q>>,
        part: P,
        data: &'scope [T],
    ) -> Result<ClEvent, P::Error> {
        self.enqueue(on.into(), &part, &HostSide::source(data))
    }

    /// Enqueues a read into `data`.
    ///
    /// # Errors
    ///
    /// Those of [`enqueue_read_part`](OpenClBackend::enqueue_read_part).
    pub fn enqueue_read<'q, T: AnyBitPattern + NoUninit, P: TransferPart>(
        &'scope self,
        on: impl Into<ClOn<'q>>,
        part: P,
        data: &'scope mut [T],
    ) -> Result<ClEvent, P::Error> {
        self.enqueue(on.into(), &part, &HostSide::target(data))
    }

    /// Enqueues a transfer, which the scope waits for before the borrow of its host side ends.
    fn enqueue<P: TransferPart>(
        &self,
        on: ClOn<'_>,
        part: &P,
        host: &HostSide<'_>,
    ) -> Result<ClEvent, P::Error> {
        let event = self.backend.enqueue_transfer(on, part, host)?;
        self.events.lock().push(event.clone());
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use binpool_allocators::Error;

    use super::*;
    use crate::testing::open;

    #[test]
    fn of_several_failures_the_first_is_told() {
        let backend = open();
        let context = backend.context();
        let events = [0, -36, -38].map(|status| {
            let event = sys::create_user_event(&context.handle).unwrap();
            sys::set_user_event_status(&event, status).unwrap();
            ClEvent::user(context, event, false)
        });
        let Error::Backend(failure) = wait_for(&events).unwrap_err() else {
            panic!("not a failure of the backend");
        };
        assert_eq!(failure.code, Some(-36));
    }
}
