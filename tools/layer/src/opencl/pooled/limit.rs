//! The most bytes of device memory that the process may have.

use std::sync::atomic::{AtomicU64, Ordering};

use binpool::PoolError;

use crate::{pool_figures, recording::Device, settings::settings};

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

/// What the limit leaves.
pub(crate) fn left() -> u64 {
    let taken = TAKEN.load(Ordering::Relaxed);
    settings()
        .limit
        .map_or(u64::MAX, |limit| limit.saturating_sub(taken))
}

/// Says why the limit has refused memory to a pool, if that is what this error is: by the pool's report, on these devices.
pub(crate) fn say_refusal(error: PoolError, devices: &[Device]) {
    if let Some(mut report) = pool_figures::report_of_limit(error) {
        // The pool does not know these, as the driver checks sizes.
        report.capacity_bytes = settings().limit.unwrap_or(u64::MAX);
        report.device_bytes = devices.iter().map(|device| device.bytes).sum();
        report.largest_block_bytes = usize::try_from(report.device_bytes).unwrap_or(usize::MAX);
        pool_figures::say_refusal(report);
    }
}

/// Notes a request that was refused, if that was because of the limit.
pub(crate) fn note_refusal(bytes: usize) {
    if left() < bytes as u64 {
        pool_figures::note_refusal(bytes, left());
    }
}
