//! Timestamps, the clock of a pool that gives them, and a use of a block up to one of them.

use std::num::NonZeroUsize;

use binpool_lock::sync::{AtomicU64, Ordering};

/// A moment of a pool's [`Clock`](Clock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(u64);

impl Timestamp {
    pub(crate) const fn at(moment: u64) -> Self {
        Self(moment)
    }
}

/// A counter of moments. It begins after [`Timestamp::default`], and each [fence](crate::order::fence::Fence) advances it.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Default for Clock {
    fn default() -> Self {
        // One later than the default timestamp, so that a queue state can begin with uses that have ended.
        Self(AtomicU64::new(1))
    }
}

impl Clock {
    /// Returns the timestamp of blocks that come back now. May be called without the pool's lock.
    ///
    /// If it is at most the timestamp of a fence, this thread enqueued its commands before the marker of that fence. Proof: a fence
    /// first moves the clock on, then enqueues its marker. Suppose that the marker came before a command of this thread. A queue
    /// takes one command after the other, so enqueueing the command made all writes before the marker visible to this thread.
    /// The move of the clock is one of them, so this thread would read a later moment than the fence's.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::at(self.0.load(Ordering::Acquire))
    }

    /// Ends the present moment, and returns it.
    pub(crate) fn move_on(&self) -> Timestamp {
        // With one fence each nanosecond, it overflows after 584 years.
        Timestamp::at(self.0.fetch_add(1, Ordering::AcqRel))
    }
}

/// The key of a queue state, plus one, so that it is never 0. Once that queue state is gone, another one may take over the key;
/// timestamps tell the two apart (invariant L3 of [`QueueStates`](crate::central::queue_states::QueueStates)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey(NonZeroUsize);

impl QueueKey {
    pub(crate) fn new(key: usize) -> Self {
        Self(NonZeroUsize::MIN.saturating_add(key))
    }

    pub(crate) fn get(self) -> usize {
        self.0.get() - 1
    }
}

/// A use of a free block: by commands on the queue with this key, enqueued up to this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueUse {
    pub(crate) key: QueueKey,
    pub(crate) timestamp: Timestamp,
}

/// The moment of the latest of these uses.
pub(crate) fn last_of(uses: &[QueueUse]) -> Timestamp {
    uses.iter()
        .map(|use_| use_.timestamp)
        .max()
        .unwrap_or_default()
}

/// All schedules of small programs. Run by `scripts/schedules`.
#[cfg(all(test, loom))]
mod schedules {
    use loom::{
        model,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    #[test]
    fn a_use_with_the_timestamp_of_a_fence_was_enqueued_before_its_marker() {
        model(|| {
            let clock = Arc::<Clock>::default();
            let queue = Arc::new(Mutex::new(Vec::new()));
            let fences = [(); 2].map(|()| {
                let (clock, queue) = (Arc::clone(&clock), Arc::clone(&queue));
                thread::spawn(move || {
                    let timestamp = clock.move_on();
                    queue.lock().unwrap().push(Some(timestamp));
                })
            });
            // The command, before, between or after the markers of the fences.
            queue.lock().unwrap().push(None);
            let used = clock.now();
            fences.into_iter().for_each(|fence| fence.join().unwrap());
            clock.move_on();
            assert!(clock.now() > used, "the clock does not go back");
            let queue = queue.lock().unwrap();
            for fence in queue.iter().map_while(|it| *it) {
                assert!(fence < used, "its marker came first");
            }
        });
    }
}
