//! Markers and barriers, which only order other commands.

use binpool_allocators::{On, Queue, QueueOrder, Result};

use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    order::{admission::CommandAdmission, memory_use::MemoryUse, role::OrderRole},
    quirks::dropped_events::WaitedFor,
    sys::{self, ClResult, EventHandle, Purpose, QueueHandle, WaitList},
};

impl OpenClBackend {
    pub(crate) fn marker(&self, on: ClOn<'_>) -> Result<ClEvent> {
        let roles = [OrderRole::Marker, OrderRole::Command];
        self.order(on, roles, &[], sys::enqueue_marker)
    }

    pub(crate) fn barrier(&self, on: ClOn<'_>) -> Result<ClEvent> {
        let roles = [OrderRole::FullBarrier, OrderRole::Barrier];
        self.order(on, roles, &[], sys::enqueue_barrier)
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
