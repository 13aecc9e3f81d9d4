//! The mixed workload: 1000 live blocks of 256 bytes to 64 MiB, replaced at random.

use std::{
    fmt,
    time::{Duration, Instant},
};

use binpool_conformance::Random;

use crate::{Subject, Work};

const ENTRIES: usize = 65_536;
const SLOTS: usize = 1000;
/// The steps before the first that counts: 8 rounds. In a debug build, where a figure means nothing, few.
const WARM_UP: usize = if cfg!(debug_assertions) {
    4 * SLOTS
} else {
    8 * ENTRIES
};

/// The mixed workload, bit for bit the same everywhere: sizes `2^e + (random & (2^e - 1))` with `e` from 8 to
/// 25, each into one of 1000 slots, whose former block is freed first.
pub struct Mixed<'a, S: Subject> {
    subject: &'a S,
    entries: Vec<(usize, usize)>,
    slots: Vec<Option<S::Block>>,
    step: usize,
}

impl<S: Subject> fmt::Debug for Mixed<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixed")
            .field("subject", &S::NAME)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "sizes are below 2^26 and slots below 1000"
)]
fn entries() -> Vec<(usize, usize)> {
    let mut random = Random::new(42);
    let entry = |_| {
        let exponent = 8 + random.next() % 18;
        let size = (1 << exponent) + (random.next() & ((1 << exponent) - 1));
        let slot = random.next() % SLOTS as u64;
        (size as usize, slot as usize)
    };
    (0..ENTRIES).map(entry).collect()
}

impl<'a, S: Subject> Mixed<'a, S> {
    /// The workload on `subject`, with the slots filled and warmed up.
    pub fn warmed_up(subject: &'a S) -> Self {
        let entries = entries();
        let slots = entries[..SLOTS]
            .iter()
            .map(|(size, _)| subject.allocate(*size))
            .collect();
        let mut workload = Self {
            subject,
            entries,
            slots,
            step: 0,
        };
        for _ in 0..WARM_UP {
            workload.step();
        }
        workload
    }

    /// One pair: frees the block in a slot, and allocates another into it.
    pub fn step(&mut self) {
        let (size, slot) = self.next();
        self.slots[slot] = None;
        self.slots[slot] = self.subject.allocate(size);
    }

    /// The same, and `record` is told how long the free took, and then the allocation, the clock's own time included.
    pub(crate) fn timed_step(&mut self, mut record: impl FnMut(Duration)) {
        let (size, slot) = self.next();
        let start = Instant::now();
        self.slots[slot] = None;
        record(start.elapsed());
        let start = Instant::now();
        let block = self.subject.allocate(size);
        record(start.elapsed());
        self.slots[slot] = block;
    }

    /// The size and the slot of the next step.
    fn next(&mut self) -> (usize, usize) {
        let entry = self.entries[self.step % ENTRIES];
        self.step += 1;
        entry
    }

    /// Whether no allocation has failed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.slots.iter().all(Option::is_some)
    }
}

impl<S: Subject> Work for Mixed<'_, S> {
    fn run(&mut self, pairs: u64) -> bool {
        for _ in 0..pairs {
            self.step();
        }
        self.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Malloc;

    #[test]
    fn the_first_sizes_are_those_of_every_other_implementation() {
        let sizes: Vec<usize> = entries().iter().take(4).map(|(size, _)| *size).collect();
        assert_eq!(sizes, [771, 498, 932, 1471]);
    }

    #[test]
    fn every_slot_is_filled_after_warming_up() {
        assert!(Mixed::warmed_up(&Malloc).is_full());
    }
}
