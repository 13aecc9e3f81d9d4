//! The kernels of a replay, on devices whose kernels this crate does not have: transfers that do the same.

use std::mem::size_of;

use binpool::{Backend, Error, Memory, MemoryFlags, Region};
use parking_lot::Mutex;

use crate::touch::{Commands, InUse};

const WORD: usize = size_of::<u32>();
/// What is copied of a block: its first and its last word.
const ENDS: usize = 2 * WORD;
/// The blocks of a part of a log.
const BLOCKS: usize = 1 << 14;

/// Fills write the number of a block into its first and its last word, and copies note both in a log before the block is freed, which is
/// looked through at the end.
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

/// The first and the last word of a block; `None` for a block without words.
fn ends(memory: &impl Memory) -> Option<[Region; 2]> {
    let last = (memory.bytes() / WORD).checked_sub(1)?;
    Some([0, last].map(|word| Region::new(word * WORD, WORD)))
}

/// Returns how many blocks had other ends than their numbers.
fn wrong_numbers(found: &[u8], numbers: &[u32]) -> u32 {
    let mut wrong = 0;
    for (ends, number) in found.chunks_exact(ENDS).zip(numbers) {
        let number = number.to_ne_bytes();
        let is_right = ends.chunks_exact(WORD).all(|word| word == number);
        wrong += u32::from(!is_right);
    }
    wrong
}

impl<B: Backend> Commands<B> for TransferCommands<B> {
    fn begin(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        let InUse { queue, memory, .. } = *block;
        let number = block.number.to_ne_bytes();
        for end in ends(memory).into_iter().flatten() {
            block.backend.enqueue_fill(queue, memory, end, &number)?;
        }
        Ok(())
    }

    fn end(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        let InUse { queue, memory, .. } = *block;
        let Some(ends) = ends(memory) else {
            return Ok(());
        };
        let mut log = self.0[block.queue_number].lock();
        let place = log.numbers.len() % BLOCKS * ENDS;
        if place == 0 {
            let flags = MemoryFlags::empty();
            let part = block.backend.create_buffer(BLOCKS * ENDS, flags)?;
            log.parts.push(part);
        }
        log.numbers.push(block.number);
        let Some(part) = log.parts.last() else {
            return Ok(());
        };
        for (end, to) in ends.into_iter().zip([place, place + WORD]) {
            let backend = block.backend;
            backend.enqueue_copy(queue, memory, end, part, to)?;
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
        let mut found = vec![0_u8; BLOCKS * ENDS];
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
    fn a_block_that_was_overwritten_at_either_end_is_found_and_one_without_a_word_is_not_looked_at()
    {
        let backend = MockDevice::new().backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let commands = TransferCommands::new(2);
        // Where a block of 22 bytes is overwritten, and whether that is at an end of its whole words.
        for (number, (bytes, at, is_end)) in (100..).zip([
            (22, 0, true),
            (22, 4, false),
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
                u32::from(is_end),
                "{bytes} bytes, at {at}"
            );
        }
        let none = backend.create_buffer(3, MemoryFlags::empty()).unwrap();
        assert!(ends(&none).is_none());
        assert_eq!(commands.wrong_blocks(&backend, &queue, 0).unwrap(), 0);
    }

    #[test]
    fn a_block_with_another_number_at_either_end_is_counted() {
        let found = |words: &[u32]| -> Vec<u8> {
            let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
            bytes.collect()
        };
        assert_eq!(wrong_numbers(&found(&[7, 7, 8, 8, 0, 0]), &[7, 8]), 0);
        assert_eq!(
            wrong_numbers(&found(&[7, 7, 8, 9, 9, 9, 3, 9]), &[7, 8, 9, 9]),
            2
        );
    }
}
