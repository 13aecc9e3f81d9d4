//! What is done again and again leaves nothing behind: the process does not grow.
//!
//! A process of its own, since other tests take memory, too; and one test after the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bindings;
mod comes_back;
#[allow(dead_code, reason = "it uses a part of it")]
#[path = "../it/common/mod.rs"]
mod common;
mod forgetting;
mod hand_overs;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory of the process is looked at by one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split_whitespace().nth(1).unwrap();
    resident.parse::<usize>().unwrap() * 4096
}
