//! Locks, and values that each thread has of its own. Nothing here knows about device memory.
//!
//! Support for the crate `binpool`: the items here may change in any version.

#![deny(unsafe_code)]

pub mod barrier;
pub mod biased;
pub mod per_thread;
pub mod spin_lock;
pub mod sync;
pub mod transit;
