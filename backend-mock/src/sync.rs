//! The synchronisation primitives that are not locks: those of the standard library, or of `loom` or `shuttle`, which explore
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
