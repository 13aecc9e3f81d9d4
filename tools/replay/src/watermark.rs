//! The most at once, since it was last asked.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes now, and the most at once since [`restart`](Self::restart).
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    current: AtomicU64,
    peak: AtomicU64,
    /// Set if one thread alone changes it, which then needs no locked instructions.
    is_alone: bool,
}

impl Watermark {
    /// Returns a mark that this many threads change.
    pub(crate) fn of_threads(threads: usize) -> Self {
        Self {
            is_alone: threads == 1,
            ..Self::default()
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        let before = if self.is_alone {
            let before = self.current.load(Ordering::Relaxed);
            self.current
                .store(before.wrapping_add(bytes), Ordering::Relaxed);
            before
        } else {
            self.current.fetch_add(bytes, Ordering::Relaxed)
        };
        let current = before.saturating_add(bytes);
        if current > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(current, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, bytes: u64) {
        if self.is_alone {
            let before = self.current.load(Ordering::Relaxed);
            self.current
                .store(before.wrapping_sub(bytes), Ordering::Relaxed);
        } else {
            self.current.fetch_sub(bytes, Ordering::Relaxed);
        }
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
        for mark in [1, 2].map(Watermark::of_threads) {
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
}
