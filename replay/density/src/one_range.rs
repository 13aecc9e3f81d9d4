//! The simplest rules that anyone could write: each block goes into one range of addresses that never shrinks, and nothing moves.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use binpool_trace::{Event, Trace};

/// What sizes are rounded up to, in bytes, as in PyTorch's allocator.
const GRAIN: usize = 512;

/// Which of the free ranges that are large enough gets the block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fit {
    /// The smallest.
    Best,
    /// The one with the lowest address.
    First,
}

/// The free ranges, and the end of those that were ever used.
#[derive(Default)]
struct OneRange {
    /// The length of each by its offset.
    free: BTreeMap<usize, usize>,
    by_length: BTreeSet<(usize, usize)>,
    end: usize,
}

impl OneRange {
    fn insert(&mut self, offset: usize, length: usize) {
        self.free.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove(&mut self, offset: usize) -> Option<usize> {
        let length = self.free.remove(&offset)?;
        self.by_length.remove(&(length, offset));
        Some(length)
    }

    fn allocate(&mut self, length: usize, fit: Fit) -> usize {
        let mut in_order = self.free.iter();
        let found = match fit {
            Fit::Best => self.by_length.range((length, 0)..).next().map(|it| it.1),
            Fit::First => in_order.find(|free| *free.1 >= length).map(|it| *it.0),
        };
        // The last free range grows with the end.
        let last = self
            .free
            .last_key_value()
            .map(|(offset, free)| (*offset, *free));
        let last = last.filter(|(offset, free)| offset + free == self.end);
        let offset = found.or(last.map(|it| it.0)).unwrap_or(self.end);
        let free = self.remove(offset).unwrap_or(0);
        self.end = self.end.max(offset + length);
        if free > length {
            self.insert(offset + length, free - length);
        }
        offset
    }

    fn release(&mut self, mut offset: usize, mut length: usize) {
        if let Some(after) = self.remove(offset + length) {
            length += after;
        }
        let before = self.free.range(..offset).next_back();
        if let Some((&before, _)) = before.filter(|(before, free)| *before + *free == offset) {
            length += self.remove(before).unwrap_or(0);
            offset = before;
        }
        self.insert(offset, length);
    }
}

/// Returns the bytes that a program takes by such a rule, over the most that it has live, when it runs this many times in a row.
#[expect(clippy::cast_precision_loss, reason = "a ratio of three digits")]
pub(crate) fn reserved(trace: &Trace, fit: Fit, rounds: usize) -> f64 {
    let mut range = OneRange::default();
    for _ in 0..rounds {
        let mut live = HashMap::new();
        for event in trace.events() {
            match *event {
                Event::Allocate { bytes: 0, .. } => {}
                Event::Allocate { block, bytes, .. } => {
                    let length = bytes.next_multiple_of(GRAIN);
                    live.insert(block, (range.allocate(length, fit), length));
                }
                Event::Free { block } => {
                    if let Some((offset, length)) = live.remove(&block) {
                        range.release(offset, length);
                    }
                }
            }
        }
        let mut left: Vec<_> = live.into_values().collect();
        left.sort_unstable();
        for (offset, length) in left {
            range.release(offset, length);
        }
    }
    range.end as f64 / trace.peak_live_bytes() as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    #[test]
    fn best_fit_takes_the_smallest_range_and_first_fit_the_first() {
        // Two free ranges, of 3 and of 1 units, each before a block that stays; then blocks of 1 and of 3 units.
        let text = "a 1 1536 0\na 2 512 0\na 3 512 0\na 4 512 0\nf 1\nf 3\na 5 512 0\na 6 1536 0\n";
        let trace = Trace::parse("fit", text.as_bytes()).unwrap();
        assert_eq!(trace.peak_live_bytes(), 6 * 512);
        let units = |fit| reserved(&trace, fit, 1) * 6.0;
        assert!(
            (units(Fit::Best) - 6.0).abs() < 1e-9,
            "both find their place"
        );
        assert!(
            (units(Fit::First) - 9.0).abs() < 1e-9,
            "the large one finds none"
        );
        assert!((reserved(&trace, Fit::Best, 5) * 6.0 - 6.0).abs() < 1e-9);
    }
}
