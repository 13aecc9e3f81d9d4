//! Which blocks an arena has given out, in order, and when each came back.

use super::space::RangeNumber;

/// The most blocks of a log, which has 4 MiB then: a period has at most half as many.
const MOST_BLOCKS: usize = 1 << 18;

/// A log that is full forgets one part in this of it.
const FORGOTTEN_PARTS: u32 = 8;

/// The blocks of a log that has a page of memory.
const PAGE_BLOCKS: usize = 256;

/// The end of a block that is still taken.
const STILL_TAKEN: u32 = u32::MAX;

/// A block that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) bytes: usize,
    /// How many blocks had been taken when it was given back.
    end: u32,
    /// Which commands may still have used it then.
    pub(super) kind: u32,
}

impl Logged {
    /// How many blocks had been taken when it was given back; `None` if it is still taken.
    pub(super) fn end(&self) -> Option<usize> {
        (self.end != STILL_TAKEN).then_some(self.end as usize)
    }
}

/// The blocks that were taken, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    blocks: Vec<Logged>,
    /// The last block of each range.
    last: Vec<u32>,
}

impl Log {
    pub(super) fn blocks(&self) -> &[Logged] {
        &self.blocks
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= MOST_BLOCKS
    }

    /// Records that a range was taken.
    pub(super) fn take(&mut self, range: RangeNumber, bytes: usize) {
        if self.last.len() <= range {
            self.last.resize(range + 1, STILL_TAKEN);
        }
        self.last[range] = self.next();
        self.blocks.push(Logged {
            bytes,
            end: STILL_TAKEN,
            kind: 0,
        });
    }

    /// Records that a range was given back, with uses of this kind. One that was taken before the log began is not in it.
    pub(super) fn give(&mut self, range: RangeNumber, kind: u32) {
        let end = self.next();
        if let Some(block) = self
            .last_of(range)
            .and_then(|last| self.blocks.get_mut(last))
            && block.end == STILL_TAKEN
        {
            (block.end, block.kind) = (end, kind);
        }
    }

    /// The last block of a range.
    fn last_of(&self, range: RangeNumber) -> Option<usize> {
        self.last.get(range).map(|last| *last as usize)
    }

    /// The number of the next block.
    fn next(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(STILL_TAKEN)
    }

    /// The blocks that are still taken, with their ranges.
    pub(super) fn still_taken(&self) -> impl Iterator<Item = (usize, RangeNumber)> {
        let ranges = (0..self.last.len()).filter_map(|range| Some((self.last_of(range)?, range)));
        ranges.filter(|(block, _)| {
            let block = self.blocks.get(*block);
            block.is_some_and(|block| block.end().is_none())
        })
    }

    /// Forgets the oldest ones: one part in [`FORGOTTEN_PARTS`].
    pub(super) fn forget_oldest(&mut self) {
        let gone = self.next() / FORGOTTEN_PARTS;
        self.blocks.drain(..gone as usize);
        let shift = |number: &mut u32| {
            if *number != STILL_TAKEN {
                *number = number.checked_sub(gone).unwrap_or(STILL_TAKEN);
            }
        };
        self.blocks
            .iter_mut()
            .for_each(|block| shift(&mut block.end));
        self.last.iter_mut().for_each(shift);
    }

    /// Forgets everything. A small log keeps its memory: a program that asks for one block again and again would allocate it each time.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.blocks.shrink_to(PAGE_BLOCKS);
        self.last.clear();
        self.last.shrink_to(PAGE_BLOCKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_how_many_blocks_were_taken_before_each_came_back() {
        let mut log = Log::default();
        log.take(3, 10);
        log.take(5, 20);
        log.give(3, 1);
        log.take(3, 30);
        // One that was taken before the log began.
        log.give(7, 1);
        log.give(5, 2);
        let blocks = log.blocks().iter().map(|it| (it.bytes, it.end(), it.kind));
        let expected = [(10, Some(2), 1), (20, Some(3), 2), (30, None, 0)];
        assert_eq!(blocks.collect::<Vec<_>>(), expected);
        assert_eq!(log.still_taken().collect::<Vec<_>>(), [(2, 3)]);
    }

    #[test]
    fn a_log_forgets_the_oldest_blocks_and_knows_the_ranges_of_the_others() {
        let mut log = Log::default();
        for range in 0..16 {
            log.take(range, range);
        }
        log.give(15, 0);
        log.forget_oldest();
        assert_eq!(log.blocks().len(), 14);
        assert_eq!(
            (log.blocks()[0].bytes, log.blocks()[13].end()),
            (2, Some(14))
        );
        // Those of forgotten blocks may come back.
        log.give(0, 0);
        log.give(2, 0);
        assert_eq!(log.blocks()[0].end(), Some(14));
        assert_eq!(log.still_taken().next(), Some((1, 3)));
        assert_eq!(log.still_taken().count(), 12);
    }
}
