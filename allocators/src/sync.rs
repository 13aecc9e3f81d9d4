//! Threads: the standard library's, or those of `shuttle`, which tries their schedules.

#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread;
