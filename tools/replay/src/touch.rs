//! What a replay enqueues on each block.

use binpool::{Backend, Error, Region};
use clap::ValueEnum;
use serde::Serialize;

/// What a replay enqueues on each block, as a program would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Touch {
    /// Nothing.
    #[default]
    Nothing,
    /// A fill of one byte, so that deferred memory becomes real.
    Fill,
    /// A kernel that writes the block's number into its first and its last word, and one that checks both before the block is freed; on
    /// CUDA and Vulkan a fill of the block, and copies of four of its words, which are checked at the end.
    Kernels,
}

/// A block that is in use.
pub(crate) struct InUse<'a, B: Backend> {
    pub(crate) backend: &'a B,
    pub(crate) queue: &'a B::Queue,
    /// The number of the queue among those of the replay.
    pub(crate) queue_number: usize,
    pub(crate) memory: &'a B::Memory,
    /// The number of the block, different for each one of the replay.
    pub(crate) number: u32,
}

/// The commands on a block.
pub(crate) trait Commands<B: Backend>: Sync {
    /// Enqueues what a user does that was given the block.
    fn begin(&self, block: &InUse<'_, B>) -> Result<(), Error>;

    /// Enqueues what a user does before it frees the block.
    fn end(&self, block: &InUse<'_, B>) -> Result<(), Error>;

    /// Returns the number of blocks in which `end` did not find what `begin` wrote, on a queue that has finished.
    fn wrong_blocks(
        &self,
        backend: &B,
        queue: &B::Queue,
        queue_number: usize,
    ) -> Result<u32, Error>;
}

/// A fill of one byte.
pub(crate) struct Fill;

impl<B: Backend> Commands<B> for Fill {
    fn begin(&self, block: &InUse<'_, B>) -> Result<(), Error> {
        let InUse { queue, memory, .. } = block;
        let filled = block
            .backend
            .enqueue_fill(queue, memory, Region::first(1), &[0_u8]);
        filled.map(drop)
    }

    fn end(&self, _: &InUse<'_, B>) -> Result<(), Error> {
        Ok(())
    }

    fn wrong_blocks(&self, _: &B, _: &B::Queue, _: usize) -> Result<u32, Error> {
        Ok(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
pub(crate) mod tests {
    use binpool::{Memory, MemoryFlags, Queue, QueueOrder};

    use super::*;

    /// Checks that a block with another number than was written is counted, on its queue alone. `kernels` are for two queues.
    pub(crate) fn wrong_blocks_are_counted_on_their_queue<B: Backend>(
        backend: &B,
        kernels: &impl Commands<B>,
    ) {
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let wrong_on = |number| {
            queue.finish().unwrap();
            kernels.wrong_blocks(backend, &queue, number).unwrap()
        };
        for bytes in [3, 4, 7, 100] {
            let memory = backend.create_buffer(bytes, MemoryFlags::empty()).unwrap();
            let block = |number| InUse {
                backend,
                queue: &queue,
                queue_number: 1,
                memory: &memory,
                number,
            };
            let before = wrong_on(1);
            kernels.begin(&block(7)).unwrap();
            kernels.end(&block(7)).unwrap();
            assert_eq!(wrong_on(1), before);
            kernels.begin(&block(8)).unwrap();
            kernels.end(&block(7)).unwrap();
            assert_eq!(wrong_on(1) - before, u32::from(memory.bytes() >= 4));
        }
        assert_eq!(wrong_on(0), 0);
    }
}
