//! What is shared between threads besides locks: the standard library's, or that of `loom` or `shuttle`, which try their
//! schedules.

#[cfg(loom)]
use loom as library;
#[cfg(shuttle)]
use shuttle as library;
#[cfg(not(any(loom, shuttle)))]
use std as library;

pub(crate) use library::sync::atomic::{AtomicBool, Ordering};
#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(shuttle))]
pub(crate) use std::thread;
