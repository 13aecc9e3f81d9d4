//! Threads: those of the standard library, or of `shuttle`, which explores their schedules.

#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread;
