//! The most at once, since it was last asked.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes now, and the most at once since [`restart`](Self::restart).
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    current: AtomicU64,
    peak: AtomicU64,
}

impl Watermark {
    pub(crate) fn add(&self, bytes: u64) {
        let before = self.current.fetch_add(bytes, Ordering::Relaxed);
        self.peak
            .fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the most so far, and begins anew with what there is. No other call may run meanwhile.
    pub(crate) fn restart(&self) -> u64 {
        let current = self.current.load(Ordering::Relaxed);
        self.peak.swap(current, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_begins_with_what_there_is() {
        let mark = Watermark::default();
        mark.add(5);
        mark.add(10);
        mark.remove(12);
        mark.add(4);
        assert_eq!(mark.restart(), 15);
        mark.remove(6);
        assert_eq!(mark.restart(), 7);
        assert_eq!(mark.restart(), 1);
    }
}
