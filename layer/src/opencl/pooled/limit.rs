//! The most bytes of device memory that the process may have.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::settings::settings;

/// What the driver has given, to the pools and past them.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Counts memory that the driver is asked for. Returns false, and counts nothing, if that would be above the limit.
pub(crate) fn take(bytes: usize) -> bool {
    let limit = settings().limit.unwrap_or(u64::MAX);
    // A request that no device could grant is the driver's to refuse.
    let add = |taken: u64| Some(taken.saturating_add(bytes as u64)).filter(|sum| *sum <= limit);
    TAKEN
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
        .is_ok()
}

/// Counts memory that went back to the driver.
pub(crate) fn release(bytes: usize) {
    let less = |taken: u64| Some(taken.saturating_sub(bytes as u64));
    let _ = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}
