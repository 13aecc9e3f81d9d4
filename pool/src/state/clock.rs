//! The clock of a pool, which orders what happens on its queues.

use crate::{
    state::lane::Stamp,
    sync::{AtomicU64, Ordering},
};

/// Tells moments, from the first after [`Stamp::default`] on. Each [fence](crate::state::lane::Fence) moves it on.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Default for Clock {
    fn default() -> Self {
        // Later than the beginning, so that a lane can begin with uses that have ended.
        Self(AtomicU64::new(1))
    }
}

impl Clock {
    /// The stamp of blocks that come back now.
    ///
    /// Read without the pool's lock, too. A thread that sees the moment of a fence, and not a later one, has enqueued its
    /// commands before the fence's marker: had the marker come first, the queue itself, which takes commands from one thread
    /// after the other, would have made the clock's move before that known to this thread.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        Stamp::at(self.0.load(Ordering::Acquire))
    }

    /// The moment, which is over then.
    pub(crate) fn move_on(&self) -> Stamp {
        // At one fence a nanosecond it lasts 584 years.
        Stamp::at(self.0.fetch_add(1, Ordering::AcqRel))
    }
}

/// Every schedule of small programs, by `scripts/schedules`.
#[cfg(all(test, loom))]
mod schedules {
    use loom::{
        model,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    #[test]
    fn who_has_a_fences_stamp_was_enqueued_before_its_marker() {
        model(|| {
            let clock = Arc::<Clock>::default();
            let queue = Arc::new(Mutex::new(Vec::new()));
            let fences = [(); 2].map(|()| {
                let (clock, queue) = (Arc::clone(&clock), Arc::clone(&queue));
                thread::spawn(move || {
                    let stamp = clock.move_on();
                    queue.lock().unwrap().push(Some(stamp));
                })
            });
            // The command, between the fences' markers.
            queue.lock().unwrap().push(None);
            let used = clock.now();
            fences.into_iter().for_each(|fence| fence.join().unwrap());
            clock.move_on();
            assert!(clock.now() > used, "a clock does not go back");
            let queue = queue.lock().unwrap();
            for fence in queue.iter().map_while(|it| *it) {
                assert!(fence < used, "its marker came first");
            }
        });
    }
}
