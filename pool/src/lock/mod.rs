//! Locks, and values that each thread has of its own. Nothing here knows about device memory.

pub(crate) mod barrier;
pub(crate) mod biased;
pub(crate) mod per_thread;
pub(crate) mod spin_lock;
pub(crate) mod transit;
