//! Workarounds for runtimes that crash, or do not do what OpenCL says: one file for each that needs code of its own.
//!
//! ```text
//! dropped_events    PoCL: keeps the events of commands that failed, which the runtime still uses
//! dropped_queues    Intel: keeps queues until they are idle
//! idle_queue        NVIDIA: commits memory on a queue on which nothing is pending
//! single_wait       Intel: has a command wait for one event instead of several
//! stand_in_events   Intel: has a marker stand for a command whose event would keep memory
//! user_events       PoCL: gives each user event a companion, which ends after it
//! ```
//!
//! docs/failures.md has what was measured.

pub(crate) mod dropped_events;
pub(crate) mod dropped_queues;
mod idle_queue;
mod single_wait;
pub(crate) mod stand_in_events;
mod user_events;

use binpool_allocators::{QueueId, Result};
use cl3::memory::CL_MEM_ALLOC_HOST_PTR;
use parking_lot::{ReentrantMutex, RwLock};

use crate::{
    device::{
        DeviceKind,
        limits::{INTEL, NVIDIA, POCL},
    },
    sys::{
        ClResult, ContextHandle, DeviceId, EventHandle, ONE_SVM_THREAD, QueueHandle, SvmLock,
        VIEW_LOCK, ViewLock, WaitList,
    },
};
use dropped_events::WaitedFor;
use idle_queue::IdleQueue;
use user_events::UserEvents;

/// What this crate does differently on the runtime of one context.
#[derive(Debug)]
pub(crate) struct Quirks {
    /// `PoCL` never ends a command that is enqueued to wait for an event that has failed, uses the events of failed commands that the
    /// program has dropped, and may run a command that fails while another one ends ([`companions`](crate::order::companions)).
    pub(crate) failed_events_are_fragile: bool,
    /// Intel's runtime frees a command twice where two events that it waits for fail.
    waits_for_one_event: bool,
    /// `PoCL` and Intel's runtime keep the memory of a map that failed until it is unmapped.
    pub(crate) failed_maps_keep_memory: bool,
    /// Intel's runtime never destroys an object if one of its maps is enqueued while the ends of two others are pending.
    pub(crate) maps_after_ends_keep_memory: bool,
    /// NVIDIA's driver crashes where a migration cannot begin at once: memory stays where it is.
    pub(crate) migration_crashes: bool,
    /// `PoCL`'s migration to the host waits forever where the last command on the memory has failed: memory stays where it is.
    pub(crate) migration_to_host_hangs: bool,
    /// NVIDIA's driver takes a rectangle only where its last row and slice fit into the buffer with all of their pitches.
    pub(crate) rectangles_need_whole_slices: bool,
    /// `PoCL` ends the process where the host's memory runs out during a commit. On a processor, which has no other memory, it gives
    /// objects memory that the host reaches when they are made, and tells where there is none.
    has_memory_when_made: bool,
    /// Intel's runtime keeps memory as long as the event of a command that used it ([`stand_in_events`]).
    pub(crate) events_keep_memory: bool,
    /// Intel's runtime (2026.2) crashes at the next command of an out-of-order queue on which one has failed: such queues are made
    /// as in-order ones, an order that they permit.
    pub(crate) out_of_order_queues_crash: bool,
    /// Intel's runtime must not find out by itself that a queue is idle ([`dropped_queues`]).
    pub(crate) keeps_dropped_queues: bool,
    /// NVIDIA's driver enqueues no fill of a 3D image before the commands ahead of it have ended.
    #[cfg(feature = "images")]
    pub(crate) fills_of_volumes_block: bool,
    /// NVIDIA's driver crashes after kernels have used views that share bytes, and hangs or crashes where a command has the last
    /// reference to a view ([`Part`](crate::memory::part::Part)).
    pub(crate) used_views_are_fragile: bool,
    /// NVIDIA's `clFinish` returns before all commands have ended, if one of them has failed. They end in their order.
    pub(crate) finish_returns_early: bool,
    /// The lock that keeps NVIDIA's driver from allocating and freeing shared virtual memory on two threads at once.
    pub(crate) svm_lock: SvmLock,
    /// The lock that keeps NVIDIA's driver from making views on two threads at once.
    pub(crate) view_lock: ViewLock,
    /// The lock that keeps events from failing while commands that wait for them are enqueued.
    ///
    /// `PoCL` 3.1 never ends a command that is enqueued to wait for an event that has failed. So a thread holds this lock while
    /// it checks whether an event has failed and enqueues the command, and a thread that makes an event fail holds it alone.
    ///
    /// `PoCL` also runs a command that it has reported as failed, where one event that it waits for fails while another thread
    /// completes the last of the others. Threads of the host complete and fail events one at a time under this lock. A thread of the
    /// runtime that completes a command cannot be held off: [`companions`](crate::order::companions) prevent the harm.
    failure_lock: Option<RwLock<()>>,
    idle_queue: IdleQueue,
    user_events: UserEvents,
}

impl Quirks {
    pub(crate) fn of(platform: &str, kind: DeviceKind) -> Self {
        let (is_pocl, is_intel, is_nvidia) =
            (platform == POCL, platform == INTEL, platform == NVIDIA);
        Self {
            failed_events_are_fragile: is_pocl,
            waits_for_one_event: is_intel,
            failed_maps_keep_memory: !is_nvidia,
            maps_after_ends_keep_memory: is_intel,
            migration_crashes: is_nvidia,
            migration_to_host_hangs: is_pocl,
            rectangles_need_whole_slices: is_nvidia,
            has_memory_when_made: is_pocl && kind == DeviceKind::Cpu,
            events_keep_memory: is_intel,
            out_of_order_queues_crash: is_intel,
            keeps_dropped_queues: is_intel,
            #[cfg(feature = "images")]
            fills_of_volumes_block: is_nvidia,
            used_views_are_fragile: is_nvidia,
            finish_returns_early: is_nvidia,
            svm_lock: is_nvidia.then_some(&ONE_SVM_THREAD),
            view_lock: is_nvidia.then_some(&VIEW_LOCK),
            failure_lock: is_pocl.then(|| RwLock::new(())),
            idle_queue: IdleQueue::default(),
            user_events: UserEvents::default(),
        }
    }

    /// Returns the runtime's flags for a buffer or an image that has memory of its own.
    pub(crate) const fn flags_to_make(&self, flags: u64) -> u64 {
        if self.has_memory_when_made {
            flags | CL_MEM_ALLOC_HOST_PTR
        } else {
            flags
        }
    }

    /// Returns what the flags of a handle say of what its maker wants: not where the memory is, if all objects have memory that the
    /// host reaches.
    pub(crate) const fn flags_of_handle(&self, flags: u64) -> u64 {
        if self.has_memory_when_made {
            flags & !CL_MEM_ALLOC_HOST_PTR
        } else {
            flags
        }
    }

    /// The locks that are held while a command is enqueued, and not while a thread waits for it.
    pub(crate) fn while_enqueueing(&self) -> impl Sized {
        (
            self.while_completing(),
            self.view_lock.map(ReentrantMutex::lock),
        )
    }

    /// The lock that is held while an event completes.
    pub(crate) fn while_completing(&self) -> impl Sized {
        self.failure_lock.as_ref().map(RwLock::read)
    }

    /// The lock that is held while an event is made to fail.
    pub(crate) fn while_failing(&self) -> impl Sized {
        self.failure_lock.as_ref().map(RwLock::write)
    }

    /// Notes that this crate has made a user event.
    pub(crate) fn user_event_made(
        &self,
        context: &ContextHandle,
        event: &EventHandle,
    ) -> ClResult<()> {
        if self.failed_events_are_fragile {
            self.user_events.made(context, event)?;
        }
        Ok(())
    }

    /// Notes that a user event has ended. Called under the lock of [`while_completing`](Self::while_completing) or
    /// [`while_failing`](Self::while_failing).
    pub(crate) fn user_event_ended(&self, event: &EventHandle) {
        self.user_events.ended(event);
    }

    /// Returns the event that a command has to wait for, too, if it waits for this user event; `None` if there is none.
    pub(crate) fn companion(&self, event: &EventHandle) -> ClResult<Option<EventHandle>> {
        self.user_events.companion(event)
    }

    /// The one event that a command of `queue` waits for instead of all of `wait`; `None` if it may wait for them.
    pub(crate) fn single_wait(
        &self,
        context: &ContextHandle,
        queue: &QueueHandle,
        wait: &WaitList<'_>,
    ) -> ClResult<Option<EventHandle>> {
        if self.waits_for_one_event {
            single_wait::single_wait(context, queue, wait)
        } else {
            Ok(None)
        }
    }

    /// Keeps the event of a command that the program drops, with the events that the command waited for, until the runtime is
    /// done with it. `until_idle` is the queue where the program may have enqueued commands with the bare handle.
    pub(crate) fn keep_dropped_event(
        &self,
        event: &EventHandle,
        waited_for: WaitedFor,
        until_idle: Option<QueueId>,
    ) {
        if self.failed_events_are_fragile {
            // The thread that drops an event may hold this lock already.
            let _no_failure = self.failure_lock.as_ref().map(RwLock::read_recursive);
            dropped_events::keep(event, waited_for, until_idle);
        }
    }

    /// Notes that no command is pending on this queue now.
    pub(crate) fn queue_is_idle(&self, queue: QueueId) {
        if self.failed_events_are_fragile {
            dropped_events::queue_is_idle(queue);
        }
    }

    /// Calls `commit` with a queue on which nothing is pending, where the runtime needs one, and else with `None`.
    pub(crate) fn on_idle_queue<T>(
        &self,
        context: &ContextHandle,
        device: DeviceId,
        commit: impl FnOnce(Option<QueueHandle>) -> Result<T>,
    ) -> Result<T> {
        if self.migration_crashes {
            self.idle_queue
                .lend(context, device, |queue| commit(Some(queue)))
        } else {
            commit(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_runtime_to_itself_where_it_takes_one_at_a_time() {
        let lock = |platform| Quirks::of(platform, DeviceKind::Gpu).svm_lock;
        assert!(lock(POCL).is_none() && lock(INTEL).is_none());
        assert!(lock(NVIDIA).is_some());
    }
}
