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
        self.raise(before.saturating_add(bytes));
    }

    pub(crate) fn remove(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Adds bytes as [`add`](Self::add) does, without a locked instruction, to a mark that only this thread changes.
    pub(crate) fn add_alone(&self, bytes: u64) {
        let current = self.current.load(Ordering::Relaxed).saturating_add(bytes);
        self.current.store(current, Ordering::Relaxed);
        self.raise(current);
    }

    /// Removes bytes as [`remove`](Self::remove) does, without a locked instruction, from a mark that only this thread changes.
    pub(crate) fn remove_alone(&self, bytes: u64) {
        let current = self.current.load(Ordering::Relaxed).saturating_sub(bytes);
        self.current.store(current, Ordering::Relaxed);
    }

    fn raise(&self, current: u64) {
        if current > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(current, Ordering::Relaxed);
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
        let mark = Watermark::default();
        mark.add(5);
        mark.add_alone(10);
        mark.remove(7);
        mark.remove_alone(5);
        mark.add(4);
        assert_eq!(mark.restart(), 15);
        mark.remove(6);
        assert_eq!(mark.restart(), 7);
        assert_eq!(mark.restart(), 1);
    }
}
