//! The fragmentation of free memory.

use serde::Serialize;

/// The free memory of some segments. Adjacent ranges count as one, even if the pool holds them as several blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FreeMemory {
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of ranges.
    pub ranges: u64,
    /// The largest range, in bytes.
    pub largest_bytes: u64,
}

impl FreeMemory {
    /// Adds the free memory of a segment of `bytes` bytes. `used` has its used ranges as (offset, bytes), in ascending order.
    pub(crate) fn add_segment(&mut self, bytes: u64, used: impl IntoIterator<Item = (u64, u64)>) {
        let mut end = 0;
        for (offset, bytes) in used {
            self.add_range(offset.saturating_sub(end));
            end = end.max(offset.saturating_add(bytes));
        }
        self.add_range(bytes.saturating_sub(end));
    }

    fn add_range(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.ranges += u64::from(bytes > 0);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    /// Returns the part of it that is not in the largest range, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    pub fn scattered(&self) -> f64 {
        match self.bytes {
            0 => 0.0,
            bytes => (bytes - self.largest_bytes) as f64 / bytes as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_blocks_is_free() {
        let mut free = FreeMemory::default();
        free.add_segment(100, [(10, 20), (30, 10), (90, 10)]);
        free.add_segment(40, []);
        free.add_segment(40, [(0, 40)]);
        let expected = FreeMemory {
            bytes: 100,
            ranges: 3,
            largest_bytes: 50,
        };
        assert_eq!(free, expected);
        assert!((free.scattered() - 0.5).abs() < f64::EPSILON);
        assert!(FreeMemory::default().scattered().abs() < f64::EPSILON);
    }
}
