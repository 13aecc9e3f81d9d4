//! The paths of a block between the program, the pool and the allocator. This code takes the locks and calls the
//! device.

pub(crate) mod allocate;
pub(crate) mod climb;
pub(crate) mod free;
pub(crate) mod make;
pub(crate) mod queues;
pub(crate) mod release;
pub(crate) mod scrub;
pub(crate) mod thread_cache;
pub(crate) mod watch;
