//! The clock of a pool, which orders what happens on its queues.

use crate::{
    lane::Stamp,
    sync::{AtomicU64, Ordering},
};

/// Tells moments, from the first after [`Stamp::default`] on. Each [fence](crate::lane::Fence) moves it on.
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
