//! Markers and barriers.

use binpool_allocators::{On, Queue, QueueOrder, Result};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    order::{admission::CommandAdmission, memory_use::MemoryUse, role::OrderRole},
    quirks::dropped_events::WaitedFor,
    sys::{self, ClResult, EventHandle, Purpose, QueueHandle, WaitList},
};

impl OpenClBackend {
    /// Enqueues a marker. Its event completes when the events that it waits for have completed, or, without a wait list,
    /// when every command that was enqueued before has.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject), or a failure of the runtime.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let filled = backend.enqueue_fill(&queue, &memory, .., &[7_u8])?;
    /// backend.enqueue_marker(&queue)?.wait()?;
    /// assert_eq!(filled.status()?, EventStatus::Complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_marker<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<ClEvent> {
        let roles = [OrderRole::Marker, OrderRole::Command];
        self.order(on.into(), roles, &[], sys::enqueue_marker)
    }

    /// Enqueues a barrier: a marker that every later command of the queue waits for.
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject), or a failure of the runtime.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, Event, EventStatus, MemoryFlags, Queue, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let [upload, compute] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    /// # let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
    /// let filled = backend.enqueue_fill(&upload, &memory, .., &[7_u8])?;
    /// backend.enqueue_barrier(compute.after(&[filled.clone()]))?;
    /// backend.enqueue_marker(&compute)?.wait()?; // Whatever comes after the barrier.
    /// assert_eq!(filled.status()?, EventStatus::Complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_barrier<'q>(&self, on: impl Into<ClOn<'q>>) -> Result<ClEvent> {
        let roles = [OrderRole::FullBarrier, OrderRole::Barrier];
        self.order(on.into(), roles, &[], sys::enqueue_barrier)
    }

    /// Enqueues a command that only orders others, with the first role if it has no wait list, and else with the second. It also
    /// orders the commands that conflict with `uses`.
    pub(crate) fn order(
        &self,
        On { queue, wait_for }: ClOn<'_>,
        [alone, waiting]: [OrderRole; 2],
        uses: &[MemoryUse<'_>],
        enqueue: fn(&QueueHandle, &WaitList<'_>) -> ClResult<EventHandle>,
    ) -> Result<ClEvent> {
        self.check_queue_of_context(queue)?;
        let role = if wait_for.is_empty() { alone } else { waiting };
        let named = Self::named(wait_for);
        let admission = CommandAdmission::of_command(queue, uses, role, named)?;
        let is_unordered = queue.order() == QueueOrder::OutOfOrder;
        self.submit_admitted(queue, Purpose::Control, admission, wait_for, |wait| {
            if !(role.comes_after_all() && is_unordered) || wait.is_empty() {
                return enqueue(queue.handle(), wait);
            }
            // With a wait list, the command would wait only for that. So it also waits for a marker without one.
            let all = sys::enqueue_marker(queue.handle(), &WaitList::none())?;
            let enqueued = enqueue(queue.handle(), &wait.and([&all]));
            let quirks = &queue.context().quirks;
            quirks.keep_dropped_event(&all, WaitedFor::new(), Some(queue.id()));
            enqueued
        })
    }
}
