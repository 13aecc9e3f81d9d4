//! The kernels of a replay, on devices whose kernels this crate does not have: transfers that do the same.

use std::mem::size_of;

use binpool::{Backend, Error, Memory, MemoryFlags, Region};
use parking_lot::Mutex;

use crate::touch::{Commands, InUse};

const WORD: usize = size_of::<u32>();
/// The words of a block that are looked at: the first, the last, and two between, which often are in other pages.
const LOOKS: usize = 4;
/// What is copied of a block.
const COPIED: usize = LOOKS * WORD;
/// The blocks of a part of a log.
const BLOCKS: usize = 1 << 14;

/// Fills write the number of a block into all of it, and copies note four of its words in a log before the block is freed, which is looked
/// through at the end.
pub(crate) struct TransferCommands<B: Backend>(Vec<Mutex<Log<B>>>);

/// What blocks of one queue had in the end.
struct Log<B: Backend> {
    parts: Vec<B::Memory>,
    /// The numbers that they should have had.
    numbers: Vec<u32>,
}

impl<B: Backend> TransferCommands<B> {
    /// Prepares the commands on this number of queues.
    pub(crate) fn new(queues: usize) -> Self {
        let log = |_| {
            Mutex::new(Log {
                parts: Vec::new(),
                numbers: Vec::new(),
            })
        };
        Self((0..queues).map(log).collect())
    }
}

/// The words of a block that are looked at; `None` for a block without words.
fn looks(memory: &impl Memory) -> Option<[Region; LOOKS]> {
    let last = (memory.bytes() / WORD).checked_sub(1)?;
    let word = |look| last / (LOOKS - 1) * look + last % (LOOKS - 1) * look / (LOOKS - 1);
    Some(std::array::from_fn(|look| {
        Region::new(word(look) * WORD, WORD)
    }))
}

/// Returns how many blocks had other words than their numbers.
fn wrong_numbers(found: &[u8], numbers: &[u32]) -> u32 {
    let mut wrong = 0;
    for (words, number) in found.chunks_exact(COPIED).zip(numbers) {
        let number = number.to_ne_bytes();
        let is_right = words.chunks_exact(WORD).all(|word| word == number);
        wrong += u32::from(!is_right);
    }
    wrong
}

impl<B: Backend> Commands<B> for TransferCommands<B> {
    fn begin(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        let InUse { queue, memory, .. } = *block;
        let number = block.number.to_ne_bytes();
        let words = Region::new(0, memory.bytes() / WORD * WORD);
        if words.bytes > 0 {
            block.backend.enqueue_fill(queue, memory, words, &number)?;
        }
        Ok(())
    }

    fn end(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        let InUse { queue, memory, .. } = *block;
        let Some(looks) = looks(memory) else {
            return Ok(());
        };
        let mut log = self.0[block.queue_number].lock();
        let place = log.numbers.len() % BLOCKS * COPIED;
        if place == 0 {
            let flags = MemoryFlags::empty();
            let part = block.backend.create_buffer(BLOCKS * COPIED, flags)?;
            log.parts.push(part);
        }
        log.numbers.push(block.number);
        let Some(part) = log.parts.last() else {
            return Ok(());
        };
        for (look, to) in looks.into_iter().zip((place..).step_by(WORD)) {
            let backend = block.backend;
            backend.enqueue_copy(queue, memory, look, part, to)?;
        }
        Ok(())
    }

    fn wrong_blocks(
        &self,
        backend: &B,
        queue: &B::Queue,
        queue_number: usize,
    ) -> Result<u32, Error> {
        let log = self.0[queue_number].lock();
        let mut wrong = 0;
        let mut found = vec![0_u8; BLOCKS * COPIED];
        for (part, numbers) in log.parts.iter().zip(log.numbers.chunks(BLOCKS)) {
            backend.read(queue, part, 0, &mut found)?;
            wrong += wrong_numbers(&found, numbers);
        }
        Ok(wrong)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::QueueOrder;
    use binpool_mock::MockDevice;

    use super::*;

    #[test]
    fn a_block_that_was_overwritten_where_it_is_looked_at_is_found_and_one_without_a_word_is_not_looked_at()
     {
        let backend = MockDevice::new().backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let commands = TransferCommands::new(2);
        // Where a block of five words is overwritten, or one of one, and whether that is looked at.
        for (number, (bytes, at, is_looked_at)) in (100..).zip([
            (22, 0, true),
            (22, 4, true),
            (22, 8, true),
            (22, 12, false),
            (22, 16, true),
            (22, 20, false),
            (4, 0, true),
        ]) {
            let memory = backend.create_buffer(bytes, MemoryFlags::empty()).unwrap();
            let block = InUse {
                backend: &backend,
                queue: &queue,
                queue_number: 1,
                memory: &memory,
                number,
            };
            let wrong = || commands.wrong_blocks(&backend, &queue, 1).unwrap();
            let before = wrong();
            commands.begin(&block).unwrap();
            backend.write(&queue, &memory, at, &[1_u8, 1]).unwrap();
            commands.end(&block).unwrap();
            assert_eq!(
                wrong() - before,
                u32::from(is_looked_at),
                "{bytes} bytes, at {at}"
            );
        }
        let none = backend.create_buffer(3, MemoryFlags::empty()).unwrap();
        assert!(looks(&none).is_none());
        assert_eq!(commands.wrong_blocks(&backend, &queue, 0).unwrap(), 0);
    }

    #[test]
    fn a_block_with_another_number_anywhere_is_counted() {
        let found = |words: &[u32]| -> Vec<u8> {
            let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
            bytes.collect()
        };
        let right = [7, 7, 7, 7, 8, 8, 8, 8];
        assert_eq!(wrong_numbers(&found(&right), &[7, 8]), 0);
        for wrong in 0..right.len() {
            let mut words = right;
            words[wrong] = 9;
            assert_eq!(wrong_numbers(&found(&words), &[7, 8]), 1, "{wrong}");
        }
    }
}
