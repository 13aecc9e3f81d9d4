//! The simplest rule that anyone could write: each block goes to the smallest free range that is large enough, of one range of addresses without
//! end, and nothing moves.

use std::collections::BTreeMap;

use binpool_recordings::{Event, Trace};

/// What sizes are rounded up to, in bytes, as in PyTorch's allocator.
const GRAIN: usize = 512;

/// Returns the bytes that a program takes by this rule, over the most that it has live, when it runs this many times in a row.
#[expect(clippy::cast_precision_loss, reason = "a ratio of three digits")]
pub(crate) fn reserved(trace: &Trace, rounds: usize) -> f64 {
    // The length of each free range by its offset. The last one has no end.
    let mut free = BTreeMap::from([(0, usize::MAX / 2)]);
    let mut reserved = 0;
    for _ in 0..rounds {
        let mut live = BTreeMap::new();
        for event in trace.events() {
            match *event {
                Event::Allocate { block, bytes, .. } if bytes > 0 => {
                    let length = bytes.next_multiple_of(GRAIN);
                    let offset = take(&mut free, length, reserved);
                    reserved = reserved.max(offset + length);
                    live.insert(block, (offset, length));
                }
                Event::Allocate { .. } => {}
                Event::Free { block } => {
                    if let Some(range) = live.remove(&block) {
                        give(&mut free, range);
                    }
                }
            }
        }
        for range in live.into_values() {
            give(&mut free, range);
        }
    }
    reserved as f64 / trace.peak_live_bytes() as f64
}

fn take(free: &mut BTreeMap<usize, usize>, length: usize, reserved: usize) -> usize {
    // The last range has what is left of the bytes that were ever used, as long as that is enough.
    let size = |(offset, whole): &(&usize, &usize)| match reserved.saturating_sub(**offset) {
        rest if rest >= length => rest.min(**whole),
        _ => usize::MAX,
    };
    let fitting = free.iter().filter(|range| *range.1 >= length);
    let found = fitting.min_by_key(size);
    let (offset, whole) = found.map_or((0, length), |(offset, whole)| (*offset, *whole));
    free.remove(&offset);
    if whole > length {
        free.insert(offset + length, whole - length);
    }
    offset
}

fn give(free: &mut BTreeMap<usize, usize>, (mut offset, mut length): (usize, usize)) {
    length += free.remove(&(offset + length)).unwrap_or(0);
    if let Some((&start, &bytes)) = free.range(..offset).next_back()
        && start + bytes == offset
    {
        offset = start;
        length += bytes;
    }
    free.insert(offset, length);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_to_the_smallest_range_that_is_large_enough() {
        // Two free ranges, of 3 and of 1 units, each before a block that stays; then blocks of 1 and of 3 units.
        let text = "a 1 1536 0\na 2 512 0\na 3 512 0\na 4 512 0\nf 1\nf 3\na 5 512 0\na 6 1536 0\n";
        let trace = Trace::parse("fit", text.as_bytes()).unwrap();
        for rounds in [1, 5] {
            assert!((reserved(&trace, rounds) - 1.0).abs() < 1e-9);
        }
        // Of a block that is freed, only the end of what was ever used is missing for a larger one.
        let text = "a 1 512 0\na 2 512 0\nf 2\na 3 1024 0\n";
        let trace = Trace::parse("end", text.as_bytes()).unwrap();
        assert!((reserved(&trace, 1) - 1.0).abs() < 1e-9);
    }
}
