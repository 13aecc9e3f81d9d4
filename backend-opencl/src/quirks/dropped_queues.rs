//! Queues that the program has dropped, kept until no command runs on them.
//!
//! Intel's runtime (2026.2) crashes a process that exits while a command still runs, for example an unmap. So a dropped
//! queue is kept until a marker after all of its commands has ended; markers are looked at when another queue is dropped
//! or made. The last value of a context waits for all of its queues. This wait ends, since all user events of this crate
//! are resolved by then.
//!
//! The same runtime destroys a dropped queue on the thread that has run its last command, and the destruction of an
//! out-of-order queue waits for that command to end. Since any thread that waits for an event may run commands, it may so
//! wait for itself.

use std::mem;

use parking_lot::Mutex;

use crate::sys::{self, ClResult, ContextHandle, EventHandle, QueueHandle, WaitList};

static DROPPED: Mutex<Vec<(QueueHandle, EventHandle)>> = Mutex::new(Vec::new());

/// Keeps a queue that the program drops until it is idle.
pub(crate) fn keep_until_idle(queue: &QueueHandle) {
    release_idle();
    match with_marker(queue) {
        Ok(dropped) => DROPPED.lock().push(dropped),
        Err(error) => {
            tracing::error!(%error, "a dropped queue may still be running commands");
        }
    }
}

fn with_marker(queue: &QueueHandle) -> ClResult<(QueueHandle, EventHandle)> {
    let marker = sys::enqueue_marker(queue, &WaitList::none())?;
    sys::flush(queue)?;
    Ok((queue.another()?, marker))
}

/// Waits for the queues of a context that is dropped, and releases them. The lock is not held while the runtime is called.
pub(crate) fn finish_those_of(context: &ContextHandle) {
    let is_of = |queue: &QueueHandle| {
        sys::queue_info(queue).is_ok_and(|info| info.context == context.raw().addr())
    };
    let dropped = mem::take(&mut *DROPPED.lock());
    let (own, mut others): (Vec<_>, Vec<_>) =
        dropped.into_iter().partition(|(queue, _)| is_of(queue));
    DROPPED.lock().append(&mut others);
    for (queue, _) in own {
        if let Err(error) = sys::finish(&queue) {
            tracing::debug!(%error, "commands may still run on a queue that is released");
        }
    }
}

/// Releases the queues that have become idle. The lock is not held while the runtime is called.
pub(crate) fn release_idle() {
    let mut dropped = mem::take(&mut *DROPPED.lock());
    dropped.retain(|(queue, marker)| {
        let ended = matches!(sys::execution_status(marker), Ok(..=0));
        // The runtime may still be at work after the end of the marker: `finish` waits for that, too.
        !(ended && sys::finish(queue).is_ok())
    });
    DROPPED.lock().append(&mut dropped);
}

#[cfg(test)]
mod tests {
    use std::{slice::from_ref, thread};

    use binpool_allocators::{Backend, Event, Outcome, Queue, QueueOrder};

    use super::*;
    use crate::{OpenClBackend, testing::open};

    #[test]
    fn a_context_waits_for_its_own_dropped_queues_only() {
        let (one, other) = (open(), open());
        let [gate, others_gate] =
            [&one, &other].map(|backend| backend.create_user_event().unwrap());
        let dropped = |backend: &OpenClBackend, gate| {
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let marker = backend.enqueue_marker(queue.after(from_ref(gate))).unwrap();
            keep_until_idle(queue.handle());
            (queue, marker)
        };
        let (_queue, marker) = dropped(&one, &gate);
        let (others_queue, others_marker) = dropped(&other, &others_gate);
        let resolve = |backend: &OpenClBackend, gate| {
            backend.resolve_user_event(gate, Outcome::Complete).unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                // So late that a context that does not wait fails this test.
                for _ in 0..10_000 {
                    thread::yield_now();
                }
                resolve(&one, &gate);
            });
            finish_those_of(&one.context().handle);
            assert!(marker.has_ended());
            assert!(!others_marker.has_ended());
        });
        resolve(&other, &others_gate);
        others_queue.finish().unwrap();
        release_idle();
    }
}
